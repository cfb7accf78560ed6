"""``orbitmq definitions``: topics, groups and settings of a cluster as one file."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, verb
from orbitmq.cli.admin.framework.view import Output, View
from orbitmq.cli.admin.framework.yaml_text import yaml_text
from orbitmq.cli.output import complain

if TYPE_CHECKING:
    from orbitmq.admin.definitions.model import Definitions

definitions_app = typer.Typer(
    help="Topics, groups and settings as one file: export, import, diff.", no_args_is_help=True
)

WithSettings = Annotated[
    bool, typer.Option("--settings", help="Also settings of brokers, without secrets and those of one machine.")
]
File = Annotated[
    str, typer.Argument(metavar="FILE", help="A file of `orbitmq definitions export`; - for standard input.")
]


@verb(definitions_app, "export")
async def export(
    operator: Operator,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="By default standard output.")] = "-",
    settings: WithSettings = False,
) -> View | None:
    """Write the definitions of a cluster as JSON, or YAML with -o yaml or for a file named .yaml."""
    found = await operator.admin.definitions.export(cluster=operator.admin.config.cluster, with_settings=settings)
    value = found.to_json()
    as_yaml = operator.output is Output.YAML or file.endswith((".yaml", ".yml"))
    text = yaml_text(value) if as_yaml else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"
    if file == "-":
        sys.stdout.write(text)
    else:
        Path(file).write_text(text, "utf-8")  # noqa: ASYNC240 - nothing else runs on this loop
        complain(f"{len(found.topics)} topics and {len(found.groups)} groups are in {file}")
    return None


@verb(definitions_app, "import")
async def import_file(
    operator: Operator, file: File, change: ChangeOptions, settings: WithSettings = False
) -> View:
    """Create and alter what differs from a file. Nothing is deleted."""
    return await _apply(operator, file, change, settings)


@verb(definitions_app, "diff")
async def diff(operator: Operator, file: File, settings: WithSettings = False) -> View:
    """Print what an import of a file would change. Exit code 1 if there is a difference."""
    view = await _apply(operator, file, ChangeOptions(dry_run=True), settings)
    if view.parts[""].value():
        view.show(operator.output)
        raise typer.Exit(1)
    return view


async def _apply(operator: Operator, file: str, change: ChangeOptions, settings: bool) -> View:
    found = _read(file)

    async def make(dry: bool) -> Any:
        plan = await operator.admin.definitions.apply(
            found, cluster=operator.admin.config.cluster, with_settings=settings, dry_run=dry
        )
        for sentence in plan.skipped:
            complain(f"left out: {sentence}")
        if plan.only_in_cluster:
            complain(f"only in the cluster, and left alone: {', '.join(plan.only_in_cluster)}")
        return plan.changes

    return await operator.change(change, make)


def _read(file: str) -> "Definitions":
    from orbitmq.admin.definitions.model import Definitions, parse  # noqa: PLC0415 - not imported for help texts

    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    if data.lstrip()[:1] in {b"{", b"["}:
        return parse(data)
    import yaml  # noqa: PLC0415 - an extra

    try:
        return Definitions.from_json(yaml.safe_load(data))
    except yaml.YAMLError as error:
        from orbitmq.admin.errors import InvalidRequestError  # noqa: PLC0415

        raise InvalidRequestError(f"the file is not YAML: {' '.join(str(error).split())}") from None
