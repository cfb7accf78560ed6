"""``orbitmq config``: settings of brokers, read, compared and changed while they run."""

import re
from typing import Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, settings_of, verb
from orbitmq.cli.admin.framework.view import Table, View

config_app = typer.Typer(help="Settings of brokers: get, set, diff.", no_args_is_help=True)

Settings = Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings to change.")]
Slaves = Annotated[bool, typer.Option("--slaves", help="Also of slaves.")]


def pattern_of(text: str) -> re.Pattern[str]:
    """Raises BadParameter."""
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is not a regular expression: {error}") from None


@verb(config_app, "get")
async def get(
    operator: Operator,
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only keys that match this expression.")] = "",
    broker: AtBroker = "",
    slaves: Slaves = False,
) -> View:
    """Print settings of brokers."""
    matches = pattern_of(pattern)
    rows = []
    for one in await operator.admin.brokers.targets(broker=broker, slaves=slaves, for_change=False):
        found = await operator.admin.brokers.settings(one.address)
        rows += [(one.broker_name, key, value) for key, value in found.items() if matches.search(key)]
    return View.of(Table("broker key value", rows, f"no setting matches {pattern!r}"))


@verb(config_app, "set")
async def change_settings(
    operator: Operator, settings: Settings, change: ChangeOptions, broker: AtBroker = "", slaves: Slaves = False
) -> View:
    """Change settings of all masters of a cluster, or of one broker, while they run."""
    values = settings_of(settings)
    return await operator.change(
        change,
        lambda dry: operator.admin.brokers.alter_settings(values, broker=broker, slaves=slaves, dry_run=dry),
    )


@verb(config_app, "diff")
async def diff(operator: Operator) -> View:
    """List the settings that differ between brokers."""
    from orbitmq.admin.definitions.definitions import LOCAL_SETTINGS  # noqa: PLC0415 - not imported for help texts

    chosen = await operator.admin.brokers.targets(slaves=True, for_change=False)
    tables = {}
    for one in chosen:
        tables[f"{one.broker_name}:{one.broker_id}"] = await operator.admin.brokers.settings(one.address)
    rows = []
    for key in sorted(set().union(*tables.values()) - LOCAL_SETTINGS):
        values = {name: table.get(key) for name, table in tables.items()}
        if len(set(values.values())) > 1:
            rows += [(key, name, value) for name, value in values.items()]
    return View.of(Table("key broker value", rows, "all brokers have the same settings"))
