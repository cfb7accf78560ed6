"""``orbitmq tail``: the messages of a topic as they come, like ``tail -f``, for people or as JSON."""

import asyncio
import select
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.console import complain, for_people, parse_time, print_json_line, printable, size_text, time_text
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.protocol import property_names as names
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP
from orbitmq.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.client.lite_pull import LitePullConsumer
    from orbitmq.client.messages import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue

BEGINNING, END = "beginning", "end"

SHOWN_TEXT = 2000
SHOWN_BYTES = 64
"""How much of a body people are shown: characters of a text, bytes of anything else."""

LOOK_SECONDS = 1.0
"""How often it is looked whether a topic that is not there has come, and whether anybody still reads the output."""

QUEUES_SECONDS = 10.0
"""How often it is looked whether the topic has got more queues."""

BATCH = 256


def tail(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Which one. If there is none yet, it is waited for.")
    ],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    tag: Annotated[str | None, typer.Option(help="Only messages with this tag; `a || b` for several.")] = None,
    sql: Annotated[
        str | None, typer.Option(help="Only messages whose properties fit, such as `amount > 5 AND TAGS = 'paid'`.")
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="beginning|end|TIME", help="Where to begin; a TIME is ms since 1970 or ISO."
        ),
    ] = END,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For machines, one object a line.")] = False,
) -> None:
    """Print the messages of all queues of a topic as they come, until Ctrl-C. No group's offsets are touched."""
    if tag is not None and sql is not None:
        raise typer.BadParameter("give --tag or --sql, not both")
    when = begin if begin in {BEGINNING, END} else parse_time(begin) / 1000
    with client_errors():
        from orbitmq.remoting import run  # noqa: PLC0415 - help texts do without the client

        write = message_writer(json)
        try:
            run(_tail(nameserver, topic, tag, _sql_filter(sql), when, count, write))
        except KeyboardInterrupt:
            # That is how it ends. What is printed is printed whole.
            sys.stdout.flush()


def _sql_filter(sql: str | None) -> Callable[[bytes], bool] | None:
    """The filter is applied here: brokers evaluate SQL92 only if they were set up to."""
    if sql is None:
        return None
    from orbitmq.filter import SQL92, FilterError, compile_subscription  # noqa: PLC0415

    try:
        return compile_subscription(SQL92, sql).matches_properties
    except FilterError as error:
        raise ConfigError(f"--sql cannot be read: {error}") from None


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
    from orbitmq.client.lite_pull import LitePullConsumer  # noqa: PLC0415

    # The group of RocketMQ's tools: every broker knows it, and nobody's offsets are those of it.
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
            for message in await consumer.poll(LOOK_SECONDS):
                try:
                    if matches is not None and not matches(message.record.properties):
                        continue
                    write(message)
                except ProtocolError as error:
                    complain(f"a message at {message.broker_name} cannot be read: {error}")
                left = None if left is None else left - 1
                if left == 0:
                    break
            sys.stdout.flush()
            _check_reader()


def _check_reader() -> None:
    """Raise BrokenPipeError if whoever read the output is gone, even if there is nothing to write at the moment."""
    try:
        output = sys.stdout.fileno()
    except OSError:
        return
    asked = select.poll()
    asked.register(output, 0)
    if any(state & select.POLLERR for _, state in asked.poll(0)):
        raise BrokenPipeError


class _Queues:
    """Which queues are read: all of a topic, also those that it gets later."""

    def __init__(self, consumer: "LitePullConsumer", topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._read: set[MessageQueue] = set()
        self._later: str | float = BEGINNING
        """Where queues begin that come later."""
        self._adding: set[asyncio.Task[None]] = set()
        consumer.register_topic_message_queue_change_listener(topic, self._changed)

    async def begin(self, when: str | float) -> None:
        """Read all queues there are from a place on. Raises OrbitMQError if none of them can be."""
        # A broker that is away may come back with all its old messages, so not always from the begin.
        self._later = time.time() if when == END else when
        queues = await self._found()
        if not queues:
            complain(f"there is no topic {self._topic!r} yet: waiting for it")
            # All that such a topic will have comes after this was asked for.
            when = BEGINNING
            while not queues:
                await asyncio.sleep(LOOK_SECONDS)
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
            raise ConfigError(f"the topic {self._topic!r} does not let anybody read it: change its permission")
        return queues

    async def _add(self, queues: set["MessageQueue"], when: str | float) -> list[OrbitMQError]:
        self._read |= queues
        self._consumer.assign(self._read)
        ended = await asyncio.gather(*(self._seek(queue, when) for queue in queues))
        failed = {queue: error for queue, error in zip(queues, ended, strict=True) if error is not None}
        if failed:
            # A queue whose broker is away comes back as a new one does.
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
        # Queues that are gone stay: their broker may come back, and then it goes on where it was.
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
    """What prints a message on a line of its own, for machines or for people."""
    return _as_json if json else _for_people()


def _as_json(message: "ReceivedMessage") -> None:
    from orbitmq.cli.message_lines import line_of  # noqa: PLC0415

    print_json_line(line_of(message))


def _for_people() -> Callable[["ReceivedMessage"], None]:
    console = for_people()
    has_colours = console.is_terminal and console.color_system is not None and not console.no_color

    def paint(text: str, **style: str | bool) -> str:
        # Not with rich: that is too slow for a topic with thousands of messages a second.
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
    """The body on one line, with nothing in it that a terminal would obey."""
    try:
        body = message.body
    except ProtocolError as error:
        return f"[{size_text(len(message.record.body))}, cannot be read: {printable(str(error))}]"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        rest = "…" if len(body) > SHOWN_BYTES else ""
        return f"[{size_text(len(body))}: {body[:SHOWN_BYTES].hex()}{rest}]"
    rest = f" … {len(text) - SHOWN_TEXT} characters more" if len(text) > SHOWN_TEXT else ""
    return printable(text[:SHOWN_TEXT]) + rest
