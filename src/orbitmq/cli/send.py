"""``orbitmq send``: one message from the command line or standard input, or many from a file."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.console import complain, for_people, for_progress, many, print_json_line, printable, safe
from orbitmq.cli.input_bytes import all_of, lines_of
from orbitmq.cli.live_counters import LiveCounters
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.client.errors import InvalidMessageError, OrbitMQError
from orbitmq.protocol.property_names import SHARDING_KEY
from orbitmq.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.cli.live_counters import Counter
    from orbitmq.client.messages import Message, Receipt
    from orbitmq.client.producer import Producer

ON_THEIR_WAY = 1024
"""Messages of a file that are sent before the first of them is answered."""

LONGEST_LINE = 32 << 20
"""Bytes: the largest body a broker takes, with every byte of it escaped."""

STANDARD_INPUT = "-"


def send(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")],
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY|-", help="The message; - for standard input.", show_default=False),
    ] = None,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    tag: Annotated[str | None, typer.Option(help="Its tag, for filters.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="A key to find it by; may be repeated.")] = None,
    prop: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A property of your own; may be repeated.")
    ] = None,
    delay_level: Annotated[
        int, typer.Option(min=0, max=18, help="Deliver later: 1 is 1 s, 5 is 1 min, 18 is 2 h.", show_default=False)
    ] = 0,
    sharding_key: Annotated[
        str | None, typer.Option(help="Messages with the same one go to one queue, in order.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="LINES.JSONL",
            help='Send many: a line is {"body": …, "tags": …, "keys": […], "properties": {…}}, or what `orbitmq '
            "tail --json` prints; - for standard input. The other options hold for lines that say nothing else.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print receipts for machines, one object a line.")] = False,
) -> None:
    """Send a message, or many, and print where it went. Exit code 1 if any was not sent."""
    if body is not None and file is not None:
        raise typer.BadParameter("give a BODY or a --file, not both")
    if body is None and file is None:
        if sys.stdin.isatty():
            raise typer.BadParameter("there is no message: give a BODY, - for standard input, or --file")
        body = STANDARD_INPUT
    said: dict[str, Any] = {
        "tags": tag,
        "keys": key or [],
        "properties": dict(map(_property, prop or [])),
        "delayLevel": delay_level,
        "shardingKey": sharding_key,
    }
    said = {name: value for name, value in said.items() if value}
    with client_errors():
        from orbitmq.remoting import run  # noqa: PLC0415 - help texts do without the client

        if file is not None:
            run(_send_lines(nameserver, topic, file, said, json))
        else:
            assert body is not None
            run(_send_one(nameserver, topic, body, said, json))


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise typer.BadParameter(f"--prop {text!r} is not NAME=VALUE")
    return name, value


# One


async def _send_one(nameserver: str, topic: str, body: str, said: dict[str, Any], json: bool) -> None:
    from orbitmq.client.messages import Message  # noqa: PLC0415
    from orbitmq.client.producer import Producer  # noqa: PLC0415

    async with Producer(nameserver) as producer:
        if body == STANDARD_INPUT:
            data = await all_of(sys.stdin.fileno(), producer.config.max_message_size)
        else:
            data = os.fsencode(body)
        message = Message(
            topic,
            data,
            tags=said.get("tags"),
            keys=said.get("keys", ()),
            properties=said.get("properties"),
            delay_level=said.get("delayLevel", 0),
            sharding_key=said.get("shardingKey"),
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


# Many


async def _send_lines(nameserver: str, topic: str, file: str, said: dict[str, Any], json: bool) -> None:
    from orbitmq.client.producer import Producer  # noqa: PLC0415

    counters = LiveCounters()
    sent = counters.counter("sent", with_rate=True)
    with _opened(file) as source:
        async with Producer(nameserver) as producer:
            sent.start()
            try:
                with counters.shown(for_progress()):
                    lines = _messages(lines_of(source, LONGEST_LINE), topic, said)
                    await _Sending(producer, sent, json).all_of(lines)
            except ConfigError as error:
                raise ConfigError(f"{error}; {_were_sent(sent)}") from None
            except BaseException:
                # Ctrl-C, or nobody reads the receipts any more.
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
    lines: AsyncIterator[tuple[int, bytes]], topic: str, said: dict[str, Any]
) -> AsyncIterator[tuple[int, "Message"]]:
    """The messages with the numbers of their lines. Raises ConfigError, which names the line."""
    from orbitmq.cli.message_lines import message_of  # noqa: PLC0415

    async for number, line in lines:
        try:
            message = message_of(line, topic, said)
        except (ConfigError, InvalidMessageError) as error:
            raise ConfigError(f"line {number}: {error}") from None
        yield number, message


class _Sending:
    """Sends messages, many at a time, and tells what became of them in their order."""

    def __init__(self, producer: "Producer", sent: "Counter", json: bool) -> None:
        self._producer = producer
        self._sent = sent
        self._json = json
        self._room = asyncio.Semaphore(ON_THEIR_WAY)
        self._posted: asyncio.Queue[tuple[int, asyncio.Future[Receipt]] | None] = asyncio.Queue()
        self._last_of: dict[str, asyncio.Future[Receipt]] = {}
        """By sharding key, what is on its way: the next one must not overtake it."""

    async def all_of(self, messages: AsyncIterator[tuple[int, "Message"]]) -> None:
        """Send until the first that cannot be; what is on its way by then is still waited for."""
        posting = asyncio.create_task(self._post(messages))
        failure: ConfigError | None = None
        try:
            while (entry := await self._posted.get()) is not None:
                number, future = entry
                try:
                    self._tell(await future)
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
                    future.add_done_callback(self._forgets(shard))
                self._posted.put_nowait((number, future))
        finally:
            self._posted.put_nowait(None)

    def _forgets(self, shard: str) -> Callable[[asyncio.Future["Receipt"]], None]:
        def forget(done: asyncio.Future["Receipt"]) -> None:
            if self._last_of.get(shard) is done:
                del self._last_of[shard]

        return forget

    def _tell(self, receipt: "Receipt") -> None:
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
