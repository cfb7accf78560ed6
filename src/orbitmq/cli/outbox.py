"""``orbitmq outbox``: the relay of a table of messages as a program of its own, and what waits in the table."""

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.console import for_people, print_json_line
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers, client_errors

outbox_app = typer.Typer(
    help="Messages written in the transactions of a database, and sent from there.", no_args_is_help=True
)

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ORBITMQ_OUTBOX_URL",
        help="The database as SQLAlchemy names it, such as postgresql+psycopg://user@host/shop.",
    ),
]
Table = Annotated[str, typer.Option(help="The name of the outbox table.")]
Schema = Annotated[str | None, typer.Option(help="The schema of the table.")]

DEFAULT_TABLE = "orbitmq_outbox"


@outbox_app.command()
def relay(
    url: Url,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    table: Table = DEFAULT_TABLE,
    schema: Schema = None,
    create_table: Annotated[
        bool, typer.Option("--create-table", help="Make the table if it is not there.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="How many messages are taken at a time.")] = 100,
    poll: Annotated[float, typer.Option(help="Seconds between looks while there is nothing to send.")] = 1.0,
    lease: Annotated[
        float, typer.Option(help="Seconds after which another relay takes what this one took.")
    ] = 60.0,
    any_order: Annotated[
        bool, typer.Option("--any-order", help="Do not keep the order of messages with the same sharding key.")
    ] = False,
) -> None:
    """Send what is in the outbox, until Ctrl-C or SIGTERM. Several relays of one table work side by side."""
    with client_errors():
        from orbitmq.outbox import run_relay  # noqa: PLC0415 - help texts do without the client

        run_relay(
            url,
            nameserver,
            table=table,
            schema=schema,
            create_table=create_table,
            batch_size=batch_size,
            poll_interval=poll,
            lease=lease,
            in_order=not any_order,
        )


@outbox_app.command()
def status(
    url: Url,
    table: Table = DEFAULT_TABLE,
    schema: Schema = None,
    json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """How many messages wait to be sent, and how many of them have failed."""
    with client_errors():
        from orbitmq.outbox import backlog_of  # noqa: PLC0415

        backlog = backlog_of(url, table=table, schema=schema)
    told = dataclasses.asdict(backlog)
    if json:
        print_json_line(told)
        return
    console = for_people()
    for name, value in told.items():
        console.print(f"{name.replace('_', ' '):16} {value}")
