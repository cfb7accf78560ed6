"""``orbitmq tail``: prints the messages of a topic as they arrive, like ``tail -f``, or those that are stored."""

import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.messages.queue_choice import QueueChoice
from orbitmq.cli.messages.stored_messages import Stored, Wanted
from orbitmq.cli.messages.topic_queues import BEGINNING, CHECK_SECONDS, END, FollowedQueues
from orbitmq.cli.messages.writer import message_writer
from orbitmq.cli.output import complain
from orbitmq.cli.time_expressions import TIME_HELP, parse_time
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue

QUEUES_SECONDS = 10.0
"""Interval of the check for new queues of the topic."""

BATCH = 256

MAX_LAST = 100_000
"""Messages that ``--last`` keeps in memory."""


def tail(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic to follow. Waits if the topic does not exist yet.")
    ],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    tag: Annotated[str | None, typer.Option(help="Only messages with this tag; `a || b` for several tags.")] = None,
    sql: Annotated[
        str | None,
        typer.Option(help="Only messages that match this SQL92 filter, such as `amount > 5 AND TAGS = 'paid'`."),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="beginning|end|TIME",
            help=f"Start position, by default the end, with --no-follow the beginning; a TIME is {TIME_HELP}.",
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, max=MAX_LAST, help="Begin with this many stored messages, the last ones.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="N|BROKER:N", help="Only the queue with this number. May be repeated."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for further messages, or end after the stored ones.")
    ] = True,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    line_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Print lines such as '{queue}:{offset} {json[order][id]}'; an unknown field lists all fields.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")] = False,
) -> None:
    """Print the messages of all queues of a topic as they arrive, until Ctrl-C. Commits no offsets."""
    if tag is not None and sql is not None:
        raise typer.BadParameter("give --tag or --sql, not both")
    if last is not None and begin is not None:
        raise typer.BadParameter("give --from or --last, not both")
    begin = begin or (END if follow else BEGINNING)
    when = begin if begin in {BEGINNING, END} else parse_time(begin) / 1000
    choice = QueueChoice(queue or ())
    write = message_writer(json, line_format)
    with client_errors():
        wanted = Wanted(topic, choice, when, last, tag, _filter(tag, sql))
        try:
            run(_tail(nameserver, wanted, _Printer(write, count), follow))
        except KeyboardInterrupt:
            # The regular end. Lines are printed whole.
            sys.stdout.flush()


def _filter(tag: str | None, sql: str | None) -> Callable[[bytes], bool] | None:
    """A filter that runs in this process: brokers evaluate SQL92 only with ``enablePropertyFilter``."""
    from orbitmq.filter import SQL92, TAG, FilterError, compile_subscription  # noqa: PLC0415

    kind, expression = (TAG, tag) if sql is None else (SQL92, sql)
    if expression is None:
        return None
    try:
        return compile_subscription(kind, expression).matches_properties
    except FilterError as error:
        raise ConfigError(f"{'--tag' if sql is None else '--sql'}: {error}") from None


class _Printer:
    """Prints messages up to a count."""

    def __init__(self, write: Callable[["ReceivedMessage"], None], count: int | None) -> None:
        self._write = write
        self._left = count

    @property
    def is_done(self) -> bool:
        return self._left is not None and self._left <= 0

    def write(self, message: "ReceivedMessage") -> None:
        if self.is_done:
            return
        try:
            self._write(message)
        except ProtocolError as error:
            complain(f"malformed message from {message.broker_name}: {error}")
        if self._left is not None:
            self._left -= 1


async def _tail(nameserver: str, wanted: Wanted, printer: _Printer, follow: bool) -> None:
    positions = {}
    if not follow or wanted.last is not None:
        from orbitmq.client.errors import NoRouteError  # noqa: PLC0415

        try:
            positions = await _print_stored(nameserver, wanted, printer)
        except NoRouteError:
            if not follow:
                raise
    if follow and not printer.is_done:
        await _follow(nameserver, wanted, printer, positions)


async def _print_stored(nameserver: str, wanted: Wanted, printer: _Printer) -> dict["MessageQueue", int]:
    """Print the stored messages; returns the offsets behind them."""
    from orbitmq.client.query.find import connected_instance  # noqa: PLC0415

    async with connected_instance(nameserver) as instance:
        stored = Stored(instance, wanted)
        async for message in stored.messages():
            printer.write(message)
            if printer.is_done:
                break
        sys.stdout.flush()
        return stored.ends


async def _follow(nameserver: str, wanted: Wanted, printer: _Printer, positions: dict["MessageQueue", int]) -> None:
    from orbitmq.client.lite_pull.consumer import LitePullConsumer  # noqa: PLC0415

    # The group of RocketMQ's tools: it exists on every broker, and no consumer uses its offsets.
    consumer = LitePullConsumer(
        nameserver,
        group=TOOLS_CONSUMER_GROUP,
        auto_commit=False,
        pull_batch_size=BATCH,
        topic_metadata_check_interval=QUEUES_SECONDS,
    )
    if wanted.tags is not None:
        consumer.set_sub_expression_for_assign(wanted.topic, tags=wanted.tags)
    matches = wanted.matches
    reading = FollowedQueues(consumer, wanted.topic, wanted.queues)
    async with consumer:
        await reading.begin(wanted.begin, positions)
        while not printer.is_done:
            for message in await consumer.poll(CHECK_SECONDS):
                if matches is None or matches(message.record.properties):
                    printer.write(message)
            sys.stdout.flush()
            _check_reader()


def _check_reader() -> None:
    """Raise BrokenPipeError if the reader of standard output is gone, even without output to write."""
    try:
        output = sys.stdout.fileno()
    except OSError:
        return
    poll = select.poll()
    poll.register(output, 0)
    if any(state & select.POLLERR for _, state in poll.poll(0)):
        raise BrokenPipeError
