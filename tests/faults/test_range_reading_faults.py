"""Brokers, networks and topics that go while a range is read: it goes on where it was, or says what is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from consumer_ends import TOPIC, Shop, shop
from faults.client_load import behind_network
from orbitmq.client.errors import BrokerError, OffsetsLostError, OrbitMQError
from orbitmq.client.range_reading import QueueRange, RangeReader
from orbitmq.protocol.codes import RequestCode
from range_ends import HASTY, QUEUE, meant, read, reader_at, store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.range_reading import Piece, RangeReading

COUNT = 20_000
HOUR = 3600.0


@contextlib.asynccontextmanager
async def stocked(**settings: Any) -> AsyncIterator[Shop]:
    """A queue with so many messages that a reading of it does not have them all on their way at once."""
    async with shop(queues=1, flushDiskType="SYNC_FLUSH", **settings) as place:
        await store(place, COUNT, tags="paid")
        yield place


async def begun(reader: RangeReader, pieces: list[Piece]) -> RangeReading:
    """A reading that is in the middle of its range."""
    reading = reader.reading(QueueRange(QUEUE, 0, COUNT))
    while not pieces or pieces[-1].last < COUNT // 4:
        pieces += await reading.some()
    return reading


async def finished(reading: RangeReading, pieces: list[Piece]) -> None:
    async with asyncio.timeout(60):
        while more := await reading.some():
            pieces += more


@pytest.mark.parametrize("expression", ["*", "paid || refunded"])
async def test_a_broker_may_be_restarted_while_it_is_read(expression: str) -> None:
    pieces: list[Piece] = []
    async with stocked() as place, reader_at(place.cluster.name_server, expression=expression) as reader:
        reading = await begun(reader, pieces)
        await place.cluster.restart("broker-a")
        await finished(reading, pieces)
    assert [body for _, body in meant(pieces)] == place.sent


async def test_a_broker_may_be_killed_and_come_back() -> None:
    pieces: list[Piece] = []
    async with stocked() as place, reader_at(place.cluster.name_server) as reader:
        reading = await begun(reader, pieces)
        await place.cluster.kill("broker-a")
        finishing = asyncio.create_task(finished(reading, pieces))
        await asyncio.sleep(0.2)
        assert not finishing.done()
        await place.cluster.start("broker-a")
        await finishing
    assert [body for _, body in meant(pieces)] == place.sent


async def test_a_broker_that_stays_away_is_given_up_with_one_sentence() -> None:
    pieces: list[Piece] = []
    async with stocked() as place, reader_at(place.cluster.name_server, **HASTY) as reader:
        reading = await begun(reader, pieces)
        await place.cluster.kill("broker-a")
        with pytest.raises(
            OrbitMQError, match=r"queue 0 of 'orders' on broker-a cannot be read any further than to"
        ):
            await finished(reading, pieces)
        reading.close()
    assert [body for _, body in meant(pieces)] == place.sent[: pieces[-1].last]


async def test_without_a_name_server_the_brokers_that_are_known_are_read_on() -> None:
    pieces: list[Piece] = []
    async with stocked() as place, reader_at(place.cluster.name_server) as reader:
        reading = await begun(reader, pieces)
        await place.cluster.kill("name-server-a")
        await place.cluster.restart("broker-a")
        await finished(reading, pieces)
    assert [body for _, body in meant(pieces)] == place.sent


async def test_connections_may_break_again_and_again() -> None:
    async with stocked() as place, behind_network(place) as remote, reader_at(remote.name_server) as reader:
        reading = reader.reading(QueueRange(QUEUE, 0, COUNT))
        pieces: list[Piece] = []
        breaks = 0
        while more := await reading.some():
            pieces += more
            if pieces[-1].last > (breaks + 1) * COUNT // 5:
                breaks += 1
                remote.network.cut()
                remote.network.heal()
    assert breaks >= 4
    assert [body for _, body in meant(pieces)] == place.sent


async def test_a_network_that_swallows_everything_is_noticed() -> None:
    pieces: list[Piece] = []
    async with (
        stocked() as place,
        behind_network(place) as remote,
        reader_at(remote.name_server, timeout=0.2) as reader,
    ):
        reading = await begun(reader, pieces)
        remote.network.swallow()
        finishing = asyncio.create_task(finished(reading, pieces))
        await asyncio.sleep(0.3)
        assert not finishing.done()
        remote.network.heal()
        await finishing
    assert [body for _, body in meant(pieces)] == place.sent


async def test_a_reader_that_was_busy_elsewhere_for_long_goes_on() -> None:
    pieces: list[Piece] = []
    async with stocked() as place, reader_at(place.cluster.name_server, timeout=0.2) as reader:
        reading = await begun(reader, pieces)
        # All answers are there by now, and older than any answer may be waited for.
        await asyncio.sleep(0.5)
        await finished(reading, pieces)
    assert [body for _, body in meant(pieces)] == place.sent


async def test_retention_that_overtakes_a_reading_is_said() -> None:
    pieces: list[Piece] = []
    async with (
        stocked(
            fileReservedTime=72, mappedFileSizeCommitLog=1 << 18, mappedFileSizeConsumeQueue=2000 * 20
        ) as place,
        reader_at(place.cluster.name_server, batch=32) as reader,
    ):
        reading = await begun(reader, pieces)
        await place.cluster.advance(100 * HOUR)
        retention = place.cluster.broker().service.retention
        retention.request()
        while retention.run().log_files:
            pass
        first = place.cluster.broker().store.min_offset(TOPIC, 0)
        assert first > COUNT // 2
        with pytest.raises(OffsetsLostError) as lost:
            await finished(reading, pieces)
        assert [body for _, body in meant(pieces)] == place.sent[: lost.value.first]
        assert COUNT // 4 <= lost.value.first < first
        assert lost.value.next_readable == first
        # Who can do without goes on there.
        rest = await read(reader, lost.value.next_readable, COUNT)
        assert [body for _, body in rest] == place.sent[first:]


async def test_a_topic_that_vanishes_ends_its_reading_at_once() -> None:
    pieces: list[Piece] = []
    async with stocked() as place, reader_at(place.cluster.name_server) as reader:
        reading = await begun(reader, pieces)
        await place.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        with pytest.raises(BrokerError, match="not exist"):
            await finished(reading, pieces)
