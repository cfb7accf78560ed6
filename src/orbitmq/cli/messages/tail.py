"""``orbitmq tail``: prints the messages of a topic as they arrive, like ``tail -f``, as text or JSON."""

import asyncio
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.output import complain, for_people, print_json_line, printable, size_text, time_text
from orbitmq.cli.time_expressions import TIME_HELP, parse_time
from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP

if TYPE_CHECKING:
    from orbitmq.client.lite_pull.consumer import LitePullConsumer
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue

BEGINNING, END = "beginning", "end"

MAX_PRINTED_CHARACTERS = 2000
MAX_PRINTED_BYTES = 64
"""Limit of the printed part of a body: characters of a text, bytes of a binary body."""

CHECK_SECONDS = 1.0
"""Interval of the checks whether a missing topic exists now, and whether standard output is still open."""

QUEUES_SECONDS = 10.0
"""Interval of the check for new queues of the topic."""

BATCH = 256


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
        str,
        typer.Option(
            "--from",
            metavar="beginning|end|TIME",
            help=f"Start position; a TIME is {TIME_HELP}.",
        ),
    ] = END,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")] = False,
) -> None:
    """Print the messages of all queues of a topic as they arrive, until Ctrl-C. Commits no offsets."""
    if tag is not None and sql is not None:
        raise typer.BadParameter("give --tag or --sql, not both")
    when = begin if begin in {BEGINNING, END} else parse_time(begin) / 1000
    with client_errors():
        write = message_writer(json)
        try:
            run(_tail(nameserver, topic, tag, _sql_filter(sql), when, count, write))
        except KeyboardInterrupt:
            # The regular end. Lines are printed whole.
            sys.stdout.flush()


def _sql_filter(sql: str | None) -> Callable[[bytes], bool] | None:
    """A filter that runs in this process: brokers evaluate SQL92 only with ``enablePropertyFilter``."""
    if sql is None:
        return None
    from orbitmq.filter import SQL92, FilterError, compile_subscription  # noqa: PLC0415

    try:
        return compile_subscription(SQL92, sql).matches_properties
    except FilterError as error:
        raise ConfigError(f"--sql: {error}") from None


# Following


async def _tail(
    nameserver: str,
    topic: str,
    tag: str | None,
    matches: Callable[[bytes], bool] | None,
    when: str | float,
    count: int | None,
    write: Callable[["ReceivedMessage"], None],
) -> None:
    from orbitmq.client.lite_pull.consumer import LitePullConsumer  # noqa: PLC0415

    # The group of RocketMQ's tools: it exists on every broker, and no consumer uses its offsets.
    consumer = LitePullConsumer(
        nameserver,
        group=TOOLS_CONSUMER_GROUP,
        auto_commit=False,
        pull_batch_size=BATCH,
        topic_metadata_check_interval=QUEUES_SECONDS,
    )
    if tag is not None:
        consumer.set_sub_expression_for_assign(topic, tags=tag)
    reading = _Queues(consumer, topic)
    async with consumer:
        await reading.begin(when)
        left = count
        while left is None or left > 0:
            for message in await consumer.poll(CHECK_SECONDS):
                try:
                    if matches is not None and not matches(message.record.properties):
                        continue
                    write(message)
                except ProtocolError as error:
                    complain(f"malformed message from {message.broker_name}: {error}")
                left = None if left is None else left - 1
                if left == 0:
                    break
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


class _Queues:
    """Assignment of all queues of a topic, including queues added later."""

    def __init__(self, consumer: "LitePullConsumer", topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._read: set[MessageQueue] = set()
        self._later: str | float = BEGINNING
        """Start position of queues added later."""
        self._adding: set[asyncio.Task[None]] = set()
        consumer.register_topic_message_queue_change_listener(topic, self._changed)

    async def begin(self, when: str | float) -> None:
        """Start to read all existing queues at a position. Raises OrbitMQError if all fail."""
        # A broker that is down now may return with old messages, so queues added later do not start at 0.
        self._later = time.time() if when == END else when
        queues = await self._found()
        if not queues:
            complain(f"topic {self._topic!r} does not exist yet, waiting for it")
            # Every message of a topic created from now on is newer than this command.
            when = BEGINNING
            while not queues:
                await asyncio.sleep(CHECK_SECONDS)
                queues = await self._found()
        errors = await self._add(queues, when)
        if len(errors) == len(queues):
            raise errors[0]
        for error in errors:
            complain(str(error))

    async def _found(self) -> set["MessageQueue"]:
        try:
            queues = await self._consumer.fetch_message_queues(self._topic)
        except NoRouteError:
            return set()
        if not queues:
            raise ConfigError(f"topic {self._topic!r} has no read permission")
        return queues

    async def _add(self, queues: set["MessageQueue"], when: str | float) -> list[OrbitMQError]:
        self._read |= queues
        self._consumer.assign(self._read)
        ended = await asyncio.gather(*(self._seek(queue, when) for queue in queues))
        failed = {queue: error for queue, error in zip(queues, ended, strict=True) if error is not None}
        if failed:
            # When its broker is back, the queue is added as a new one.
            self._read -= failed.keys()
            self._consumer.assign(self._read)
        return list(failed.values())

    async def _seek(self, queue: "MessageQueue", when: str | float) -> OrbitMQError | None:
        try:
            if when == BEGINNING:
                await self._consumer.seek_to_begin(queue)
            elif when == END:
                await self._consumer.seek_to_end(queue)
            else:
                await self._consumer.seek_to_time(queue, float(when))
        except OrbitMQError as error:
            return error
        return None

    def _changed(self, _: str, queues: frozenset["MessageQueue"]) -> None:
        # Removed queues stay assigned: their broker may return, and reading continues at the same offset.
        new = queues - self._read
        if new and self._read:
            task = asyncio.get_running_loop().create_task(self._add_later(set(new)))
            self._adding.add(task)
            task.add_done_callback(self._adding.discard)

    async def _add_later(self, queues: set["MessageQueue"]) -> None:
        for error in await self._add(queues, self._later):
            complain(str(error))


# Output


def message_writer(json: bool) -> Callable[["ReceivedMessage"], None]:
    """A function that prints a message as one line of JSON or text."""
    return _as_json if json else _for_people()


def _as_json(message: "ReceivedMessage") -> None:
    from orbitmq.cli.messages.message_json import line_of  # noqa: PLC0415

    print_json_line(line_of(message))


def _for_people() -> Callable[["ReceivedMessage"], None]:
    console = for_people()
    has_colours = console.is_terminal and console.color_system is not None and not console.no_color

    def paint(text: str, **style: str | bool) -> str:
        # rich is too slow for thousands of messages per second.
        return typer.style(text, **style) if has_colours else text  # type: ignore[arg-type]

    def write(message: "ReceivedMessage") -> None:
        parts = [
            paint(time_text(message.store_timestamp), dim=True),
            paint(f"{printable(message.broker_name)}/{message.queue_id}:{message.queue_offset}", fg="green"),
        ]
        if message.tags:
            parts.append(paint(printable(message.tags), fg="yellow", bold=True))
        parts += [paint(f"#{printable(key)}", fg="cyan") for key in message.keys]
        for name, value in message.properties.items():
            if name not in names.RESERVED:
                parts.append(paint(printable(f"{name}={value}"), dim=True))
        parts.append(_body_text(message))
        sys.stdout.write("  ".join(parts) + "\n")

    return write


def _body_text(message: "ReceivedMessage") -> str:
    """The body on one line, with control characters escaped."""
    try:
        body = message.body
    except ProtocolError as error:
        return f"[{size_text(len(message.record.body))}, malformed: {printable(str(error))}]"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        rest = "…" if len(body) > MAX_PRINTED_BYTES else ""
        return f"[{size_text(len(body))}: {body[:MAX_PRINTED_BYTES].hex()}{rest}]"
    rest = f" … {len(text) - MAX_PRINTED_CHARACTERS} characters more" if len(text) > MAX_PRINTED_CHARACTERS else ""
    return printable(text[:MAX_PRINTED_CHARACTERS]) + rest
