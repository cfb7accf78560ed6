"""``orbitmq outbox``: the relay of an outbox table as a process of its own, and the backlog of the table."""

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.output import for_people, print_json_line

outbox_app = typer.Typer(
    help="Transactional outbox: send messages that were written in database transactions.", no_args_is_help=True
)

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ORBITMQ_OUTBOX_URL",
        help="SQLAlchemy URL of the database, such as postgresql+psycopg://user@host/shop.",
    ),
]
Table = Annotated[str, typer.Option(help="Name of the outbox table.")]
Schema = Annotated[str | None, typer.Option(help="Schema of the outbox table.")]

DEFAULT_TABLE = "orbitmq_outbox"


@outbox_app.command()
def relay(
    url: Url,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    table: Table = DEFAULT_TABLE,
    schema: Schema = None,
    create_table: Annotated[
        bool, typer.Option("--create-table", help="Create the table if it does not exist.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of messages claimed at a time.")] = 100,
    poll: Annotated[float, typer.Option(help="Seconds between polls while the table is empty.")] = 1.0,
    lease: Annotated[
        float, typer.Option(help="Seconds after which another relay may claim the messages of this one.")
    ] = 60.0,
    any_order: Annotated[
        bool, typer.Option("--any-order", help="Send messages with the same sharding key in any order.")
    ] = False,
) -> None:
    """Send the messages of the outbox until Ctrl-C or SIGTERM. Several relays can share one table."""
    with client_errors():
        from orbitmq.outbox import run_relay  # noqa: PLC0415 - not imported for help texts

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
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the number of unsent messages, and how many of them have failed."""
    with client_errors():
        from orbitmq.outbox import backlog_of  # noqa: PLC0415

        backlog = backlog_of(url, table=table, schema=schema)
    counts = dataclasses.asdict(backlog)
    if json:
        print_json_line(counts)
        return
    console = for_people()
    for name, value in counts.items():
        console.print(f"{name.replace('_', ' '):16} {value}")
