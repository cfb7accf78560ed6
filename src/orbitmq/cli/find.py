"""``orbitmq find``: the messages of a topic that have a key."""

import sys
from typing import Annotated

import typer

from orbitmq.cli.console import complain, parse_time
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.tail import message_writer

MOST = 64


def find(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where it was sent to.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of its keys, or the id that its sender got.")],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Only messages stored since; ms since 1970 or ISO.")
    ] = "0",
    count: Annotated[int, typer.Option(min=1, help="At most so many of each broker.")] = MOST,
    json: Annotated[bool, typer.Option("--json", help="For machines, one object a line.")] = False,
) -> None:
    """Print the messages of a topic that have a key, oldest first. Brokers know keys for as long as messages."""
    since = parse_time(begin) / 1000
    with client_errors():
        from orbitmq.client.finding import find_messages  # noqa: PLC0415 - help texts do without the client
        from orbitmq.remoting import run  # noqa: PLC0415

        found = run(find_messages(nameserver, topic, key, most=count, since=since))
        write = message_writer(json)
        for message in found:
            write(message)
        sys.stdout.flush()
        if not found:
            complain(f"no message of the topic {topic!r} has the key {key!r}")
            raise typer.Exit(1)
