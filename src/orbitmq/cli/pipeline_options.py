"""What the verbs that are Spark jobs share: their options, their errors, and the summary they end with."""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from orbitmq.cli.console import complain, for_people, print_json, safe
from orbitmq.cli.reaching import client_errors
from orbitmq.spark.pipelines.telling import Summary

Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs: local[2], spark://host:7077, yarn, k8s://… Here, unless said otherwise."),
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Json = Annotated[bool, typer.Option("--json", help="The summary as JSON, for machines.")]


@contextlib.contextmanager
def job_errors(again: str = "run the same command again to go on") -> Iterator[None]:
    """What goes wrong becomes a sentence and exit code 1; Ctrl-C says how to go on, and exit code 130."""
    with client_errors():
        try:
            yield
        except KeyboardInterrupt:
            complain(f"interrupted: {again}")
            raise typer.Exit(130) from None


def show(summary: Summary, *, json: bool) -> None:
    """Print what a job has done, and leave with exit code 1 if that is not good."""
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
