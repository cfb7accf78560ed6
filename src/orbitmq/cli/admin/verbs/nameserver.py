"""``orbitmq nameserver``: name servers, their settings and tables.

``orbitmq nameserver`` without one of these verbs runs a name server.
"""

from typing import Annotated

import typer

from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, settings_of, verb
from orbitmq.cli.admin.framework.view import Table, View
from orbitmq.cli.admin.verbs.config import Settings, pattern_of

nameserver_app = typer.Typer(help="Name servers: list, config, table, put, remove; no verb runs one.")
config_app = typer.Typer(help="Settings of name servers: get, set.", no_args_is_help=True)
nameserver_app.add_typer(config_app, name="config")


@verb(nameserver_app, "list")
async def list_servers(operator: Operator) -> View:
    """List the name servers, and whether they respond."""
    rows = [
        (one.address, "up" if one.is_reachable else "down", one.reason)
        for one in await operator.admin.name_servers.all()
    ]
    return View.of(Table("address state reason", rows))


@verb(config_app, "get")
async def get(
    operator: Operator,
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only keys that match this expression.")] = "",
) -> View:
    """Print settings of all name servers."""
    matches = pattern_of(pattern)
    rows = []
    for address in operator.admin.config.name_servers:
        found = await operator.admin.name_servers.settings(address)
        rows += [(address, key, value) for key, value in found.items() if matches.search(key)]
    return View.of(Table("nameServer key value", rows, f"no setting matches {pattern!r}"))


@verb(config_app, "set")
async def change_settings(operator: Operator, settings: Settings, change: ChangeOptions) -> View:
    """Change settings of all name servers while they run."""
    values = settings_of(settings)
    return await operator.change(
        change, lambda dry: operator.admin.name_servers.alter_settings(values, dry_run=dry)
    )


Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Table, ORDER_TOPIC_CONFIG for example.")]
Key = Annotated[str, typer.Argument(metavar="KEY")]


@verb(nameserver_app, "table")
async def table(operator: Operator, namespace: Namespace) -> View:
    """Print a key-value table of the name servers."""
    found = await operator.admin.name_servers.table(namespace)
    return View.of(Table("key value", list(found.items()), f"the table {namespace} is empty"))


@verb(nameserver_app, "put")
async def put(
    operator: Operator,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    change: ChangeOptions,
) -> View:
    """Set a value of a key-value table at all name servers."""
    return await operator.change(
        change, lambda dry: operator.admin.name_servers.put(namespace, key, value, dry_run=dry)
    )


@verb(nameserver_app, "remove")
async def remove(operator: Operator, namespace: Namespace, key: Key, change: ChangeOptions) -> View:
    """Remove a key of a key-value table at all name servers."""
    return await operator.change(
        change,
        lambda dry: operator.admin.name_servers.delete(namespace, key, dry_run=dry),
        destroys=f"remove {key} from the table {namespace}",
    )
