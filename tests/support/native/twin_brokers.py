"""Two brokers that are told the same: one stores with the compiled kernel, one without it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import orbitmq.broker.broker
from orbitmq import native
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import UNKNOWN_CODE, running_broker
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pytest

    from orbitmq.broker import Broker
    from orbitmq.remoting import Connection

COMPILED = native.load()
PORT = 12345
LAST = 1 << 30
TOPICS = "orders", "bills"
COMPARED = "commitlog", "consumequeue", "index"
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 400,
    "maxIndexNum": 200,
    "maxHashSlotNum": 50,
    "maxMessageSize": 4000,
    "autoCreateTopicEnable": "true",
    "timerWheelEnable": "false",  # its file is large
    "osPageCacheBusyTimeOutMills": 30000,  # a loop that stands still on a busy machine is not a busy disk
    "defaultTopicQueueNums": 2,
}


def plain_send(topic: str, queue_id: int) -> bytes:
    ext_fields = {**dict(zip("acdfgh", ("shop", "TBW102", "4", "0", "17", "0"), strict=True)), "b": topic}
    ext_fields |= {"e": str(queue_id), "i": "UNIQ_KEY\x01AB\x02"}
    return Command(310, 7, ext_fields=ext_fields, body=b"first").encode()


class Numbered:
    """Ids of messages that come without one, which are the same for both brokers."""

    def __init__(self, *_: object) -> None:
        self._numbers = itertools.count()

    def __call__(self) -> str:
        return f"MADE{next(self._numbers)}"


def from_one_place(connection: Connection) -> None:
    connection.state, connection.remote_address = bytes((127, 0, 0, 1, 0, 0, 0, 9)), "127.0.0.1:9"


class Awaited(bytes):
    """A request whose answer is read before anything else is sent."""


class Together(list[bytes]):
    """What as many connections send, each one of these, in one turn of the loop."""


async def talk_together(broker: Broker, pieces: Together) -> list[bytes]:
    """What a broker answers to each of them."""
    ends = [await asyncio.open_connection(HOST, broker.port) for _ in pieces]
    await asyncio.sleep(0.01)  # so that it has taken all connections
    for (_, writer), piece in zip(ends, pieces, strict=True):
        writer.write(piece)
    for _, writer in ends:
        writer.write_eof()
    async with asyncio.timeout(10):
        answers = [await reader.read(-1) for reader, _ in ends]
    for _, writer in ends:
        writer.close()
    return answers


class Flushed(list[bytes]):
    """What one connection sends that waits until everything is on the disk before it leaves."""


async def talk_until_flushed(broker: Broker, chunks: Flushed) -> bytes:
    """What a broker answers: the frames in the order of their opaques, for which answers wait is not told."""
    reader, writer = await asyncio.open_connection(HOST, broker.port)
    for chunk in (*chunks, Command(UNKNOWN_CODE, LAST).encode()):
        writer.write(chunk)
        await asyncio.sleep(0)
    parser, answers = FrameParser(), list[Command]()
    async with asyncio.timeout(10):
        while not any(answer.opaque == LAST for answer in answers):
            answers += map(Command.decode, parser.feed(await reader.read(1 << 16)))
        # It has taken everything by now, what nobody waits for too.
        await broker.service.flushed(broker.store.log.end)
        await eventually(lambda: not any(connection.deferred_responses for connection in broker.connections))
        writer.write_eof()
        answers += map(Command.decode, parser.feed(await reader.read(-1)))
    writer.close()
    return b"".join([answer.encode() for answer in sorted(answers, key=lambda answer: answer.opaque)])


def _unanswered(broker: Broker) -> int:
    """Requests that wait for their responses, held pulls included."""
    return sum(connection.deferred_responses for connection in broker.connections)


async def talk(broker: Broker, chunks: list[bytes]) -> bytes:
    """What a broker answers to chunks, of which only the last may have it close the connection."""
    reader, writer = await asyncio.open_connection(HOST, broker.port)
    first = b""
    for chunk in chunks:
        writer.write(chunk)
        await asyncio.sleep(0)
        if isinstance(chunk, Awaited):
            async with asyncio.timeout(10):
                size = await reader.readexactly(4)
                first += size + await reader.readexactly(int.from_bytes(size, "big"))
    # The end of the stream closes the connection, also while a response waits for a new topic to be on disk.
    await asyncio.sleep(0.005)
    await eventually(lambda: broker.topics.is_settled and _unanswered(broker) <= len(broker.pulls.held))
    with contextlib.suppress(OSError):  # the broker may have closed it already
        writer.write_eof()
    async with asyncio.timeout(10):
        answers = await reader.read(-1)
    writer.close()
    return first + answers


def contents(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for number, name in enumerate(disk.list(directory)):
        path = f"{directory}/{name}"
        stat = disk.stat(path)
        if stat is not None and stat.is_dir:
            found |= contents(disk, path)
        elif stat is not None:
            # Index files are named by the moment at which their first entries were put.
            found[f"{directory}/{number}" if directory.endswith("/index") else path] = disk.read(path)
    return found


class Life(NamedTuple):
    """What a broker answered and stored, and what it has counted."""

    answers: list[bytes]
    counted: tuple[object, ...]
    stored: list[dict[str, bytes]]


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What was said to another broker, which was stopped then, and what happened to its messages after that."""

    chunks: list[bytes]
    happens: Callable[[MemoryDisk], None] = lambda _: None


async def _life(
    earlier: Earlier | None, chunks: Sequence[list[bytes]], more_settings: dict[str, object], then_ms: int
) -> Life:
    disk = MemoryDisk()
    answers = []
    # The first message to a queue makes it, and that to a topic is answered when its table is on disk.
    first: list[bytes] = [Awaited(plain_send(topic, queue_id)) for topic in TOPICS for queue_id in range(2)]
    if earlier is not None:
        async with running_broker(disk, store_port=PORT, **SETTINGS | more_settings) as broker:
            answers.append(await talk(broker, first + earlier.chunks))
        earlier.happens(disk)
        first = []
    async with running_broker(disk, store_port=PORT, **SETTINGS | more_settings) as broker:
        for part in [*([one] for one in first), *chunks]:
            if isinstance(part, Together):
                answers += await talk_together(broker, part)
            elif isinstance(part, Flushed):
                answers.append(await talk_until_flushed(broker, part))
            else:
                answers.append(await talk(broker, part))
            broker.clock.advance(10)  # type: ignore[attr-defined]
        if then_ms:
            await _settle(broker, then_ms)
        puts, gets, halves = broker.stats.puts, broker.stats.gets, broker.transactions.counts
        offsets = broker.offsets.as_body()
        acknowledged = sorted(
            (name, key, counter.times, counter.nums)
            for name in ("GROUP_ACK_NUMS", "GROUP_CK_NUMS")
            for key, counter in broker.stats.rare_counters(name)
        )
        counters = [broker.stats.put_counter(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
        counted = (
            *(puts.nums, puts.size, broker.store.dispatcher.position, dict(broker.schedule.offsets)),
            *([halves.of(topic) for topic in TOPICS], acknowledged),
            *(gets.nums, gets.times, broker.stats.missed_gets, offsets.offset_table, offsets.pull_offset_table),
            [broker.stats.view("GROUP_GET_SIZE", f"{topic}@shop") for topic in TOPICS],
            [
                broker.pop.pop_offsets.in_flight(topic, group, queue_id)
                for topic in TOPICS
                for group in ("shop", "bank")
                for queue_id in range(2)
            ],
            [(counter.times, counter.nums, counter.size) for counter in counters],
        )
    return Life(answers, counted, [contents(disk, f"/messages/{part}") for part in COMPARED])


async def _settle(broker: Broker, then_ms: int) -> None:
    """Let time pass when everything is entered, and everything come that is due then."""
    timer, clock = broker.timer, broker.clock
    async with asyncio.timeout(10):
        while timer is not None and timer.behind_messages:
            timer.on_deferred()
            await asyncio.sleep(0.01)
        clock.advance(then_ms)  # type: ignore[attr-defined]
        while broker.schedule.deliver_due() <= clock.now_ms():
            pass
        while timer is not None and not timer.is_caught_up:
            timer.on_deferred()
            await asyncio.sleep(0.01)


async def lives_of_both(
    monkeypatch: pytest.MonkeyPatch,
    chunks: Sequence[list[bytes]],
    then_ms: int = 0,
    earlier: Earlier | None = None,
    **more_settings: object,
) -> tuple[Life, Life]:
    """Both runs of the same chunks: with the native extension and on the Python path."""
    monkeypatch.setattr(orbitmq.broker.broker, "UniqueIdFactory", Numbered)
    monkeypatch.setattr(orbitmq.broker.broker, "_set_born_host", from_one_place)
    monkeypatch.setattr(native, "_selected", COMPILED)
    compiled = await _life(earlier, chunks, more_settings, then_ms)
    monkeypatch.setattr(native, "_selected", native.python_path())
    return compiled, await _life(earlier, chunks, more_settings, then_ms)
