"""Shared parts of the Spark commands: options, error handling and the printed summary."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from orbitmq.cli.messages.options import client_errors
from orbitmq.cli.output import complain, for_people, print_json, safe
from orbitmq.spark.pipelines.progress import Summary

Master = Annotated[
    str | None,
    typer.Option(help="The Spark master: local[2], spark://host:7077, yarn, k8s://… \\[default: local[*]]"),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A Spark setting; may be repeated.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what the command would do, and do nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options that all Spark jobs have in common; ``--help`` lists them last."""

    master: Master = None
    conf: Conf = None
    dry_run: DryRun = False
    json: Json = False


@contextlib.contextmanager
def job_errors(again: str = "run the same command again to go on") -> Iterator[None]:
    """Print errors as one sentence with exit code 1; after Ctrl-C print how to continue, with exit code 130."""
    with client_errors():
        try:
            yield
        except KeyboardInterrupt:
            complain(f"interrupted: {again}")
            raise typer.Exit(130) from None


def show(summary: Summary, *, json: bool) -> None:
    """Print the summary of a job; exit with code 1 if its result is not good."""
    if json:
        print_json({"title": summary.title, "good": summary.is_good, **summary.facts})
    else:
        table = Table(title=safe(summary.title), title_justify="left", show_header=False)
        for name, value in summary.facts.items():
            table.add_row(safe(name.replace("_", " ")), "\n".join(map(safe, _text(value).split("\n"))))
        for_people().print(table)
    if not summary.is_good:
        raise typer.Exit(1)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(_text(one) for one in value)
    return "—" if value is None else str(value)
