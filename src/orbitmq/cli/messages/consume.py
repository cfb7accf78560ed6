"""``orbitmq consume``: a member of a consumer group that prints its messages and commits them."""

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.messages.writer import message_writer
from orbitmq.cli.time_expressions import DURATION_HELP, TIME_HELP, parse_duration, parse_time
from orbitmq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from orbitmq.client.lite_pull.consumer import LitePullConsumer
    from orbitmq.client.message import ReceivedMessage

START_NAMES = ("earliest", "latest")


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to consume.")],
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group, whose offsets are committed.")],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    tag: Annotated[str | None, typer.Option(help="Only messages with this tag; `a || b` for several tags.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages that match this SQL92 filter, which the brokers evaluate.")
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="earliest|latest|TIME", help=f"Where a new group begins; a TIME is {TIME_HELP}."
        ),
    ] = "latest",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    idle: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help=f"Stop after this time without a message, {DURATION_HELP}."),
    ] = None,
    line_format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="Format string, as of `orbitmq tail`.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")] = False,
) -> None:
    """Consume the messages of a topic as a member of a group, until Ctrl-C.

    The queues are shared with the other members. A message is committed after it was printed. Messages that
    handlers of the group have sent back for a retry go to members with handlers.
    """
    if tag is not None and sql is not None:
        raise typer.BadParameter("give --tag or --sql, not both")
    start = begin if begin in START_NAMES else parse_time(begin) / 1000
    limits = count, None if idle is None else parse_duration(idle)
    write = message_writer(json, line_format)
    with client_errors():
        from orbitmq.client.lite_pull.consumer import LitePullConsumer  # noqa: PLC0415 - not for help texts

        consumer = LitePullConsumer(nameserver, group=group, auto_commit=False, start_from=start)
        consumer.subscribe(topic, tags=tag, sql=sql)
        try:
            run(_consume(consumer, write, *limits))
        except KeyboardInterrupt:
            # The regular end. Lines are printed whole.
            sys.stdout.flush()


async def _consume(
    consumer: "LitePullConsumer",
    write: Callable[["ReceivedMessage"], None],
    count: int | None,
    idle: float | None,
) -> None:
    left = count
    async with consumer:
        while left is None or left > 0:
            try:
                async with asyncio.timeout(idle):
                    message = await anext(consumer)
            except TimeoutError:
                return
            write(message)
            sys.stdout.flush()
            # Brokers get it soon, and when the consumer closes.
            await consumer.commit({_queue_of(message): message.queue_offset + 1}, persist=False)
            left = None if left is None else left - 1


def _queue_of(message: "ReceivedMessage") -> "MessageQueue":
    return MessageQueue(message.topic, message.broker_name, message.queue_id)
