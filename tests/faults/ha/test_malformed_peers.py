"""HA ports against peers that break the protocol: closed with one clear line, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.platform.limit_counts import Limit
from orbitmq.store.replication.frames import HEAD, REPORT
from orbitmq.testing import LocalCluster
from support.broker.broker_harness import running_broker
from support.broker.replica_harness import FAST, MASTER, SLAVE, Sends, assert_same, log_bytes
from support.limit_counts import counts
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from orbitmq.broker import Broker

WAIT = 60.0


@contextlib.asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, broker.replication.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(WAIT):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (REPORT.pack(-1), "not a RocketMQ slave"),
        (b"GET / HTTP/1.1\r\n\r\n", "its log ends at"),
        (REPORT.pack(0) + REPORT.pack(1 << 40), "its log ends at 1099511627776"),
        (REPORT.pack(1 << 62), "Nothing is copied and nothing cut off"),
    ],
)
async def test_a_peer_that_is_no_slave_is_refused_with_a_reason(
    sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with LocalCluster(settings=FAST) as cluster:
        await Sends(cluster).some(3)
        master = cluster.broker()
        async with connected(master) as (reader, writer):
            writer.write(sent)
            assert await read_to_end(reader) == b""
        await eventually(lambda: reason in caplog.text)
        assert not len(master.replication.acks)


async def test_a_slave_that_acknowledges_what_it_was_not_sent_does_not_count() -> None:
    async with LocalCluster(settings=FAST) as cluster:
        await Sends(cluster).some(3)
        master = cluster.broker()
        end = master.store.log.end
        async with connected(master) as (reader, writer):
            writer.write(REPORT.pack(end))
            await eventually(lambda: len(master.replication.acks))
            writer.write(REPORT.pack(end + 1_000_000))
            await read_to_end(reader)
        await eventually(lambda: not len(master.replication.acks))


@counts(Limit.SLAVES)
async def test_a_master_serves_a_limited_number_of_slaves() -> None:
    async with LocalCluster(settings={**FAST, "maxHaConnections": "2"}) as cluster:
        master = cluster.broker()
        async with connected(master), connected(master):
            await eventually(lambda: len(master.replication.slaves) == 2)
            async with connected(master) as (reader, _):
                assert await read_to_end(reader) == b""
        await eventually(lambda: not master.replication.slaves)


async def test_a_silent_slave_is_disconnected_and_gets_heartbeats_until_then() -> None:
    settings = {**FAST, "haHousekeepingInterval": "300"}
    async with LocalCluster(settings=settings) as cluster:
        master = cluster.broker()
        async with connected(master) as (reader, writer):
            writer.write(REPORT.pack(0))
            assert await reader.readexactly(HEAD.size) == HEAD.pack(0, 0)
            await read_to_end(reader)
        await eventually(lambda: not master.replication.slaves)


@contextlib.asynccontextmanager
async def master_that(
    sends: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await sends(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


SLAVE_OF: dict[str, Any] = {
    "brokerRole": "SLAVE",
    "brokerId": 1,
    "mappedFileSizeCommitLog": FAST["mappedFileSizeCommitLog"],
}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (HEAD.pack(0, -5), "the peer is not the HA port of a RocketMQ master"),
        (HEAD.pack(0, 1 << 30), "frames have at most"),
        (HEAD.pack(-7, 4) + b"abcd", "offsets are not negative"),
        (HEAD.pack(77, 4) + b"abcd", "mappedFileSizeCommitLog"),
        (HEAD.pack(1 << 20, 4) + b"abcd" + HEAD.pack(5, 4) + b"abcd", "but the log of this slave ends at 1048580"),
    ],
)
async def test_a_slave_ends_the_connection_to_a_master_that_sends_something_else(
    frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(REPORT.size)
        writer.write(frame)
        await reader.read()

    async with master_that(send) as address, running_broker(haMasterAddress=address, **SLAVE_OF):
        await eventually(lambda: reason in caplog.text)


@pytest.mark.parametrize("seed", range(3))
async def test_a_stream_torn_anywhere_is_continued_after_the_reconnect(seed: int) -> None:
    """Frames of odd sizes that end in the middle, from a master that disconnects again and again."""
    rng = random.Random(seed)
    async with LocalCluster(settings=FAST) as cluster:
        master = cluster.broker()
        await Sends(cluster, seed).some(300)
        log = log_bytes(master)
        size = int(FAST["mappedFileSizeCommitLog"])

        async def send_some(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            (at,) = REPORT.unpack(await reader.readexactly(REPORT.size))
            for _ in range(rng.randrange(1, 6)):
                end = min(len(log), at + rng.randrange(1, 40_000), at - at % size + size)
                frame = HEAD.pack(at, end - at) + log[at:end]
                at = end
                writer.write(frame)
                await asyncio.sleep(0)
            writer.write((HEAD.pack(at, 30_000) + log[at:])[: rng.randrange(200)])
            if at < len(log):
                await writer.drain()
                await asyncio.sleep(0.01)
            else:
                await reader.read()

        async with master_that(send_some) as address, running_broker(haMasterAddress=address, **SLAVE_OF) as slave:
            async with asyncio.timeout(WAIT):
                while slave.store.log.end < len(log):
                    assert slave.slave is not None
                    slave.slave._wake.set()
                    await asyncio.sleep(0.01)
            await eventually(lambda: slave.store.dispatcher.position == len(log))
            assert_same(master, slave)


async def test_a_slave_finds_its_master_again_after_a_restart() -> None:
    async with LocalCluster(replicas=2, settings=FAST) as cluster:
        await Sends(cluster).some(20)
        await cluster.restart(MASTER)
        await Sends(cluster, 1).some(20)
        await cluster.wait_until_replicated(WAIT)
        assert_same(cluster.broker(MASTER), cluster.broker(SLAVE))
