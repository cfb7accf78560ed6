"""Brokers, networks and topics that go while a range is read: it goes on where it was, or says what is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from faults.client.load import behind_network
from orbitmq.client.errors import BrokerError, OffsetsLostError, OrbitMQError
from orbitmq.client.query.range_reader import QueueRange, RangeReader
from orbitmq.protocol.codes import RequestCode
from support.client.consumer_harness import TOPIC, Shop, shop
from support.client.range_reader_harness import HASTY, QUEUE, meant, read, reader_at, store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.query.range_reader import RangeRead, RecordChunk

COUNT = 20_000
HOUR = 3600.0


@contextlib.asynccontextmanager
async def stocked(**settings: Any) -> AsyncIterator[Shop]:
    """A queue with so many messages that a reading of it does not have them all on their way at once."""
    async with shop(queues=1, flushDiskType="SYNC_FLUSH", **settings) as place:
        await store(place, COUNT, tags="paid")
        yield place


async def begun(reader: RangeReader, chunks: list[RecordChunk]) -> RangeRead:
    """A reading that is in the middle of its range."""
    reading = reader.reading(QueueRange(QUEUE, 0, COUNT))
    while not chunks or chunks[-1].last < COUNT // 4:
        chunks += await reading.some()
    return reading


async def finished(reading: RangeRead, chunks: list[RecordChunk]) -> None:
    async with asyncio.timeout(60):
        while more := await reading.some():
            chunks += more


@pytest.mark.parametrize("expression", ["*", "paid || refunded"])
async def test_a_broker_may_be_restarted_while_it_is_read(expression: str) -> None:
    chunks: list[RecordChunk] = []
    async with stocked() as place, reader_at(place.cluster.name_server, expression=expression) as reader:
        reading = await begun(reader, chunks)
        await place.cluster.restart("broker-a")
        await finished(reading, chunks)
    assert [body for _, body in meant(chunks)] == place.sent


async def test_a_broker_may_be_killed_and_come_back() -> None:
    chunks: list[RecordChunk] = []
    async with stocked() as place, reader_at(place.cluster.name_server) as reader:
        reading = await begun(reader, chunks)
        await place.cluster.kill("broker-a")
        finishing = asyncio.create_task(finished(reading, chunks))
        await asyncio.sleep(0.2)
        assert not finishing.done()
        await place.cluster.start("broker-a")
        await finishing
    assert [body for _, body in meant(chunks)] == place.sent


async def test_a_broker_that_stays_away_is_given_up_with_one_sentence() -> None:
    chunks: list[RecordChunk] = []
    async with stocked() as place, reader_at(place.cluster.name_server, **HASTY) as reader:
        reading = await begun(reader, chunks)
        await place.cluster.kill("broker-a")
        with pytest.raises(
            OrbitMQError, match=r"queue 0 of 'orders' on broker-a cannot be read any further than to"
        ):
            await finished(reading, chunks)
        reading.close()
    assert [body for _, body in meant(chunks)] == place.sent[: chunks[-1].last]


async def test_without_a_name_server_the_brokers_that_are_known_are_read_on() -> None:
    chunks: list[RecordChunk] = []
    async with stocked() as place, reader_at(place.cluster.name_server) as reader:
        reading = await begun(reader, chunks)
        await place.cluster.kill("name-server-a")
        await place.cluster.restart("broker-a")
        await finished(reading, chunks)
    assert [body for _, body in meant(chunks)] == place.sent


async def test_connections_may_break_again_and_again() -> None:
    async with stocked() as place, behind_network(place) as remote, reader_at(remote.name_server) as reader:
        reading = reader.reading(QueueRange(QUEUE, 0, COUNT))
        chunks: list[RecordChunk] = []
        breaks = 0
        while more := await reading.some():
            chunks += more
            if chunks[-1].last > (breaks + 1) * COUNT // 5:
                breaks += 1
                remote.network.cut()
                remote.network.heal()
    assert breaks >= 4
    assert [body for _, body in meant(chunks)] == place.sent


async def test_a_network_that_swallows_everything_is_noticed() -> None:
    chunks: list[RecordChunk] = []
    async with (
        stocked() as place,
        behind_network(place) as remote,
        reader_at(remote.name_server, timeout=0.2) as reader,
    ):
        reading = await begun(reader, chunks)
        remote.network.swallow()
        finishing = asyncio.create_task(finished(reading, chunks))
        await asyncio.sleep(0.3)
        assert not finishing.done()
        remote.network.heal()
        await finishing
    assert [body for _, body in meant(chunks)] == place.sent


async def test_a_reader_that_was_busy_elsewhere_for_long_goes_on() -> None:
    chunks: list[RecordChunk] = []
    async with stocked() as place, reader_at(place.cluster.name_server, timeout=0.2) as reader:
        reading = await begun(reader, chunks)
        # All answers are there by now, and older than any answer may be waited for.
        await asyncio.sleep(0.5)
        await finished(reading, chunks)
    assert [body for _, body in meant(chunks)] == place.sent


async def test_retention_that_overtakes_a_reading_is_said() -> None:
    chunks: list[RecordChunk] = []
    async with (
        stocked(
            fileReservedTime=72, mappedFileSizeCommitLog=1 << 18, mappedFileSizeConsumeQueue=2000 * 20
        ) as place,
        reader_at(place.cluster.name_server, batch=32) as reader,
    ):
        reading = await begun(reader, chunks)
        await place.cluster.advance(100 * HOUR)
        retention = place.cluster.broker().service.retention
        retention.request()
        while retention.run().log_files:
            pass
        first = place.cluster.broker().store.min_offset(TOPIC, 0)
        assert first > COUNT // 2
        with pytest.raises(OffsetsLostError) as lost:
            await finished(reading, chunks)
        assert [body for _, body in meant(chunks)] == place.sent[: lost.value.first]
        assert COUNT // 4 <= lost.value.first < first
        assert lost.value.next_readable == first
        # Who can do without goes on there.
        rest = await read(reader, lost.value.next_readable, COUNT)
        assert [body for _, body in rest] == place.sent[first:]


async def test_a_topic_that_vanishes_ends_its_reading_at_once() -> None:
    chunks: list[RecordChunk] = []
    async with stocked() as place, reader_at(place.cluster.name_server) as reader:
        reading = await begun(reader, chunks)
        await place.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        with pytest.raises(BrokerError, match="not exist"):
            await finished(reading, chunks)
