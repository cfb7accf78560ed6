"""``orbitmq send``: sends one message from the command line or standard input, or many from a file."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.live_counters import LiveCounters
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.messages.stdin import all_of, lines_of
from orbitmq.cli.output import complain, for_people, for_progress, many, print_json_line, printable, safe
from orbitmq.cli.time_expressions import DURATION_HELP, TIME_HELP, parse_duration, parse_time
from orbitmq.client.errors import InvalidMessageError, OrbitMQError
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.message.property_names import SHARDING_KEY

if TYPE_CHECKING:
    from orbitmq.cli.messages.live_counters import Counter
    from orbitmq.client.message import Message, Receipt
    from orbitmq.client.producer.producer import Producer

MAX_IN_FLIGHT = 1024
"""Messages of a file in flight at a time."""

MAX_LINE_BYTES = 32 << 20
"""The largest body that a broker accepts, with every byte of it escaped."""

STANDARD_INPUT = "-"


def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to send to.")],
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="BODY|-", help="Body of the message; - reads it from standard input.", show_default=False
        ),
    ] = None,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    tag: Annotated[str | None, typer.Option(help="Tag of the message, by which consumers filter.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="Key of the message, for `orbitmq find`. May be repeated.")
    ] = None,
    prop: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Property of the message. May be repeated.")
    ] = None,
    delay_level: Annotated[
        int,
        typer.Option(
            min=0, max=18, help="Delay level: deliver later, 1 is 1 s, 5 is 1 min, 18 is 2 h.", show_default=False
        ),
    ] = 0,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help=f"Deliver after this time, {DURATION_HELP}.")
    ] = None,
    deliver_at: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Deliver at this time: {TIME_HELP}.")
    ] = None,
    sharding_key: Annotated[
        str | None, typer.Option(help="Sharding key: messages with the same key go to one queue, in order.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="LINES.JSONL",
            help="File of messages; - reads standard input. Each line is a JSON object: "
            '{"body": …, "tags": …, "keys": […], "properties": {…}}, or a line of `orbitmq tail --json`. '
            "Options set the fields that a line lacks.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print receipts as JSON, one object per line.")] = False,
) -> None:
    """Send one message, or many from a file, and print the receipt. Exit code 1 if any could not be sent."""
    if body is not None and file is not None:
        raise typer.BadParameter("give a BODY or a --file, not both")
    if body is None and file is None:
        if sys.stdin.isatty():
            raise typer.BadParameter("no message: give a BODY, - for standard input, or --file")
        body = STANDARD_INPUT
    if sum((bool(delay_level), delay is not None, deliver_at is not None)) > 1:
        raise typer.BadParameter("give one of --delay, --deliver-at and --delay-level")
    fields: dict[str, Any] = {
        "tags": tag,
        "keys": key or [],
        "properties": dict(map(_property, prop or [])),
        "delayLevel": delay_level,
        "delay": None if delay is None else parse_duration(delay),
        "deliverAt": None if deliver_at is None else parse_time(deliver_at) / 1000,
        "shardingKey": sharding_key,
    }
    fields = {name: value for name, value in fields.items() if value or (value == 0.0 and name == "delay")}
    with client_errors():
        if file is not None:
            run(_send_lines(nameserver, topic, file, fields, json))
        else:
            assert body is not None
            run(_send_one(nameserver, topic, body, fields, json))


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise typer.BadParameter(f"--prop {text!r} is not NAME=VALUE")
    return name, value


# One message


async def _send_one(nameserver: str, topic: str, body: str, fields: dict[str, Any], json: bool) -> None:
    from orbitmq.client.message import Message  # noqa: PLC0415
    from orbitmq.client.producer.producer import Producer  # noqa: PLC0415

    async with Producer(nameserver) as producer:
        if body == STANDARD_INPUT:
            data = await all_of(sys.stdin.fileno(), producer.config.max_message_size)
        else:
            data = os.fsencode(body)
        message = Message(
            topic,
            data,
            tags=fields.get("tags"),
            keys=fields.get("keys", ()),
            properties=fields.get("properties"),
            delay_level=fields.get("delayLevel", 0),
            delay=fields.get("delay"),
            deliver_at=fields.get("deliverAt"),
            sharding_key=fields.get("shardingKey"),
        )
        receipt = await producer.send(message)
    if json:
        print_json_line(_as_json(receipt))
    else:
        _show(receipt)


def _as_json(receipt: "Receipt") -> dict[str, Any]:
    """With the names of Java's ``SendResult``."""
    return {
        "sendStatus": receipt.status.name,
        "msgId": receipt.message_id,
        "offsetMsgId": receipt.offset_message_id,
        "topic": receipt.queue.topic,
        "brokerName": receipt.queue.broker_name,
        "queueId": receipt.queue.queue_id,
        "queueOffset": receipt.queue_offset,
    }


def _show(receipt: "Receipt") -> None:
    queue = receipt.queue
    status = "" if receipt.status.name == "SEND_OK" else f"  [yellow]{receipt.status.name}[/]"
    for_people().print(
        f"[green]sent[/] [bold]{receipt.message_id}[/] to queue {queue.queue_id} of {safe(queue.topic)} on "
        f"{safe(queue.broker_name)}, offset {receipt.queue_offset}{status}",
        soft_wrap=True,
    )


# Many messages


async def _send_lines(nameserver: str, topic: str, file: str, fields: dict[str, Any], json: bool) -> None:
    from orbitmq.client.producer.producer import Producer  # noqa: PLC0415

    counters = LiveCounters()
    sent = counters.counter("sent", with_rate=True)
    with _opened(file) as source:
        async with Producer(nameserver) as producer:
            sent.start()
            try:
                with counters.displayed(for_progress()):
                    lines = _messages(lines_of(source, MAX_LINE_BYTES), topic, fields)
                    await _FileSender(producer, sent, json).all_of(lines)
            except ConfigError as error:
                raise ConfigError(f"{error}; {_were_sent(sent)}") from None
            except BaseException:
                # Ctrl-C, or a closed pipe on standard output.
                complain(_were_sent(sent))
                raise
    _sum_up(sent, json)


def _were_sent(sent: "Counter") -> str:
    return f"{many(sent.count, 'message')} {'was' if sent.count == 1 else 'were'} sent"


@contextlib.contextmanager
def _opened(file: str) -> Iterator[int]:
    if file == STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    source = os.open(file, os.O_RDONLY)
    try:
        yield source
    finally:
        os.close(source)


async def _messages(
    lines: AsyncIterator[tuple[int, bytes]], topic: str, fields: dict[str, Any]
) -> AsyncIterator[tuple[int, "Message"]]:
    """The messages with their line numbers. Raises ConfigError with the line number."""
    from orbitmq.cli.messages.message_json import message_of  # noqa: PLC0415

    async for number, line in lines:
        try:
            message = message_of(line, topic, fields)
        except (ConfigError, InvalidMessageError) as error:
            raise ConfigError(f"line {number}: {error}") from None
        yield number, message


class _FileSender:
    """Sends messages with many in flight, and prints their receipts in order."""

    def __init__(self, producer: "Producer", sent: "Counter", json: bool) -> None:
        self._producer = producer
        self._sent = sent
        self._json = json
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._posted: asyncio.Queue[tuple[int, asyncio.Future[Receipt]] | None] = asyncio.Queue()
        self._last_of: dict[str, asyncio.Future[Receipt]] = {}
        """Last message in flight by sharding key: the next one must not overtake it."""

    async def all_of(self, messages: AsyncIterator[tuple[int, "Message"]]) -> None:
        """Send until the first failure; messages in flight by then are still awaited."""
        posting = asyncio.create_task(self._post(messages))
        failure: ConfigError | None = None
        try:
            while (entry := await self._posted.get()) is not None:
                number, future = entry
                try:
                    self._print(await future)
                except OrbitMQError as error:
                    failure = failure or ConfigError(f"line {number}: {error}")
                    posting.cancel()
                self._room.release()
        finally:
            posting.cancel()
            ended = await asyncio.gather(posting, return_exceptions=True)
        if failure is not None:
            raise failure
        if isinstance(ended[0], BaseException):
            raise ended[0]

    async def _post(self, messages: AsyncIterator[tuple[int, "Message"]]) -> None:
        try:
            async for number, message in messages:
                await self._room.acquire()
                shard = message.properties.get(SHARDING_KEY)
                if shard is not None and shard in self._last_of:
                    await asyncio.wait([self._last_of[shard]])
                try:
                    future = self._producer.send_nowait(message)
                except OrbitMQError as error:
                    raise ConfigError(f"line {number}: {error}") from None
                if shard is not None:
                    self._last_of[shard] = future
                    future.add_done_callback(self._remover(shard))
                self._posted.put_nowait((number, future))
        finally:
            self._posted.put_nowait(None)

    def _remover(self, shard: str) -> Callable[[asyncio.Future["Receipt"]], None]:
        def remove(done: asyncio.Future["Receipt"]) -> None:
            if self._last_of.get(shard) is done:
                del self._last_of[shard]

        return remove

    def _print(self, receipt: "Receipt") -> None:
        self._sent.add()
        if self._json:
            print_json_line(_as_json(receipt))
            if self._posted.empty():
                sys.stdout.flush()


def _sum_up(sent: "Counter", json: bool) -> None:
    text = f"{many(sent.count, 'message')} sent in {sent.seconds:.2f} s, {sent.rate:,.0f}/s"
    if json:
        complain(text)
    else:
        for_people().print(f"[green]✓[/] {printable(text)}")
