"""``orbitmq find``: the messages of a topic that have a key."""

import sys
from typing import Annotated

import typer

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.messages.writer import message_writer
from orbitmq.cli.output import complain
from orbitmq.cli.time_expressions import TIME_HELP, parse_time

MAX_PER_BROKER = 64


def find(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the messages.")],
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="A key of the messages, or the message id that the producer received."),
    ],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help=f"Only messages stored since TIME: {TIME_HELP}."),
    ] = "0",
    count: Annotated[int, typer.Option(min=1, help="Maximum number of messages per broker.")] = MAX_PER_BROKER,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")] = False,
) -> None:
    """Print the messages of a topic that have a key, oldest first."""
    since = parse_time(begin) / 1000
    with client_errors():
        from orbitmq.client.query.find import find_messages  # noqa: PLC0415 - not imported for help texts

        found = run(find_messages(nameserver, topic, key, most=count, since=since))
        write = message_writer(json)
        for message in found:
            write(message)
        sys.stdout.flush()
        if not found:
            complain(f"no message of the topic {topic!r} has the key {key!r}")
            raise typer.Exit(1)
