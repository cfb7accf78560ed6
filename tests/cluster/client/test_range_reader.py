"""Ranges of queues come complete, in order and once, however large or few the messages are."""

from __future__ import annotations

import asyncio
import pickle
import random
from typing import TYPE_CHECKING

import pytest

from orbitmq.client.errors import BrokerError, InvalidMessageError, OffsetsLostError, OrbitMQError
from orbitmq.client.message import Message
from orbitmq.client.query.range_protocol import TransientPullError
from orbitmq.client.query.range_reader import BATCH, MAX_BUFFERED_BYTES, QueueRange, RangeReader
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.record import iter_records
from support.client.consumer_harness import shop
from support.client.range_reader_harness import HASTY, QUEUE, Pulled, meant, read, reader_at, replicas, store

if TYPE_CHECKING:
    from orbitmq.client.query.range_reader import RecordChunk


def numbered(start: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(start, end)]


async def gather(reader: RangeReader, of: QueueRange, found: list[RecordChunk]) -> None:
    """Read, and have what was read although it may fail."""
    reading = reader.reading(of)
    try:
        while chunks := await reading.some():
            found += chunks
    finally:
        reading.close()


@pytest.mark.parametrize(("window", "batch"), [(64, 32), (1, 1), (3, 7), (200, 1000)])
async def test_a_range_comes_complete_and_in_order(window: int, batch: int) -> None:
    async with shop(queues=1) as place:
        await store(place, 700)
        async with reader_at(place.cluster.name_server, window=window, batch=batch) as reader:
            assert await read(reader, 0, 700) == numbered(0, 700)
            assert await read(reader, 13, 14) == numbered(13, 14)
            assert await read(reader, 333, 640) == numbered(333, 640)
            assert await read(reader, 5, 5) == []


async def test_queues_are_read_side_by_side() -> None:
    async with shop(brokers=2, queues=2) as place:
        queues = [
            MessageQueue("orders", broker, number) for broker in ("broker-a", "broker-b") for number in (0, 1)
        ]
        for queue in queues:
            await store(place, 300, queue=queue)
        async with reader_at(place.cluster.name_server) as reader:
            found = await asyncio.gather(*(read(reader, 0, 300, queue) for queue in queues))
    for number, records in enumerate(found):
        assert records == [(offset, b"%d" % (number * 300 + offset)) for offset in range(300)]


async def test_messages_of_all_sizes_come_complete() -> None:
    chance = random.Random(7)
    async with shop(queues=1) as place:
        for _ in range(120):
            await store(place, chance.choice([1, 2, 5]), size=chance.choice([10, 1000, 30_000, 200_000]))
        async with reader_at(place.cluster.name_server) as reader:
            assert await read(reader, 0, len(place.sent)) == list(enumerate(place.sent))


async def test_of_large_messages_only_so_many_are_on_their_way_as_fit() -> None:
    size = 2_000_000
    async with shop(queues=1) as place:
        await store(place, 30, size=size)
        async with reader_at(place.cluster.name_server) as reader:
            reading = reader.reading(QueueRange(QUEUE, 0, 30))
            try:
                found = await reading.some()
                while found[-1].last < 20:
                    found += await reading.some()
                    assert reading._in_flight * size <= MAX_BUFFERED_BYTES + size
                    await asyncio.sleep(0)
            finally:
                reading.close()
    assert meant(found) == list(enumerate(place.sent))[: len(found)]


async def test_a_broker_that_gives_less_at_a_time_loses_nothing() -> None:
    async with shop(queues=1, maxTransferBytesOnMessageInMemory=2000) as place:
        await store(place, 500)
        async with reader_at(place.cluster.name_server) as reader:
            chunks = [chunk async for chunk in reader.chunks(QueueRange(QUEUE, 0, 500))]
    assert meant(chunks) == numbered(0, 500)
    assert max(sum(1 for _ in iter_records(chunk.body)) for chunk in chunks) < 30


async def test_what_is_not_in_memory_is_given_by_the_hundred_all_the_same() -> None:
    async with shop(queues=1, accessMessageInMemoryMaxRatio=0) as place:
        await store(place, 500)
        async with reader_at(place.cluster.name_server) as reader:
            chunks = [chunk async for chunk in reader.chunks(QueueRange(QUEUE, 0, 500))]
    assert meant(chunks) == numbered(0, 500)
    assert max(sum(1 for _ in iter_records(chunk.body)) for chunk in chunks) > 100


async def test_pulls_ask_for_more_again_when_they_get_all_they_ask_for() -> None:
    most = 32
    async with replicas() as (name_server, (broker,)), reader_at(name_server, batch=most) as reader:
        broker.high, broker.most = 6000, 2

        def says(pull: Pulled) -> None:
            broker.most = 2 if pull.offset < 500 else most

        broker.says = says
        assert await read(reader, 0, 6000) == numbered(0, 6000)
        assert [pull.most for pull in broker.pulls[:4]] == [most] * 4
        assert {pull.most for pull in broker.pulls} >= {2, 4, 8, 16, most}
        assert broker.pulls[-2].most == most


# Filters


async def test_only_what_a_tag_expression_wants_comes() -> None:
    async with shop(queues=1) as place:
        for number in range(40):
            await store(place, 61, tags="abcd"[number % 4])
        wanted = [(offset, b"%d" % offset) for offset in range(40 * 61) if offset // 61 % 4 in (1, 3)]
        async with reader_at(place.cluster.name_server, expression="b || d") as reader:
            assert await read(reader, 0, 40 * 61) == wanted
            assert await read(reader, 100, 2000) == [(at, body) for at, body in wanted if 100 <= at < 2000]


async def test_few_among_many_are_found() -> None:
    async with shop(queues=1) as place:
        for _ in range(4):
            await store(place, 2999, tags="hay")
            await store(place, 1, tags="needle")
        async with reader_at(place.cluster.name_server, expression="needle") as reader:
            assert [offset for offset, _ in await read(reader, 0, 12_000)] == [2999, 5999, 8999, 11_999]
        async with reader_at(place.cluster.name_server, expression="nothing") as reader:
            assert await read(reader, 0, 12_000) == []


async def test_only_what_a_sql_expression_wants_comes() -> None:
    async with shop(queues=1, enablePropertyFilter="true") as place:
        for number in range(300):
            await place.producer.send(Message("orders", b"%d" % number, properties={"n": str(number)}), queue=QUEUE)
        async with reader_at(
            place.cluster.name_server, expression="n BETWEEN 50 AND 149", expression_type="SQL92"
        ) as reader:
            assert await read(reader, 0, 300) == numbered(50, 150)


async def test_what_is_found_ahead_of_its_turn_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.client.query.range_reader.MAX_BUFFERED_BYTES", 20_000)
    async with shop(queues=1) as place:
        await store(place, 3000, tags="a", size=200)
        async with reader_at(place.cluster.name_server, expression="a") as reader:
            reading = reader.reading(QueueRange(QUEUE, 0, 3000))
            found = []
            while chunks := await reading.some():
                found += chunks
                # One answer for each lane may come when there is no room any more.
                assert reading._buffered < 20_000 + 64 * BATCH * 400
    assert [offset for offset, _ in meant(found)] == list(range(3000))


def test_a_filter_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(InvalidMessageError, match="invalid filter"):
        RangeReader(None, expression="a >", expression_type="SQL92")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessageError, match="1 or more"):
        RangeReader(None, window=0)  # type: ignore[arg-type]


# Leaving


async def test_a_reading_may_end_before_its_range_and_leaves_nothing() -> None:
    async with shop(queues=1) as place:
        await store(place, 5000)
        async with reader_at(place.cluster.name_server) as reader:
            for count in (1, 2, 100):
                found = []
                chunks = reader.chunks(QueueRange(QUEUE, 0, 5000))
                async for chunk in chunks:
                    found.append(chunk)
                    if len(found) == count:
                        break
                await chunks.aclose()  # type: ignore[attr-defined]
                assert meant(found) == numbered(0, found[-1].last)
            assert await read(reader, 4000, 5000) == numbered(4000, 5000)


# What brokers say


async def test_a_busy_broker_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.client.query.range_reader.MAX_PAUSE", 0.2)
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        refusals = [ResponseCode.FLOW_CONTROL, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR] * 3
        broker.says = lambda _: (refusals.pop(), {}) if refusals else None
        assert await read(reader, 0, 1000) == numbered(0, 1000)


@pytest.mark.parametrize(
    "code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST]
)
async def test_a_refusal_that_will_not_change_ends_the_reading_at_once(code: ResponseCode) -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        broker.says = lambda pull: (code, {}) if pull.offset >= 320 else None
        found: list[RecordChunk] = []
        with pytest.raises(BrokerError, match="as told") as refused:
            await gather(reader, QueueRange(QUEUE, 0, 1000), found)
        assert refused.value.code == code
    assert meant(found) == numbered(0, 320)


async def test_the_slave_that_a_master_suggests_is_asked() -> None:
    async with replicas(2) as (name_server, (master, slave)), reader_at(name_server) as reader:
        master.suggests = slave.suggests = 1
        assert await read(reader, 0, 1000) == numbered(0, 1000)
        assert len(slave.pulls) > len(master.pulls) > 0


async def test_when_a_suggested_slave_is_behind_the_master_is_asked() -> None:
    async with replicas(2) as (name_server, (master, slave)), reader_at(name_server) as reader:
        master.suggests = 1
        # A slave does not say that an offset is not there, for it may come.
        slave.says = lambda pull: (ResponseCode.PULL_RETRY_IMMEDIATELY, {"nextBeginOffset": pull.offset})
        reading = reader.reading(QueueRange(QUEUE, 0, 1000))
        found = []
        while chunks := await reading.some():
            found += chunks
            if slave.pulls:
                master.suggests = 0
        assert meant(found) == numbered(0, 1000)


async def test_a_slave_serves_what_its_master_cannot_any_more() -> None:
    async with replicas(2) as (name_server, (master, slave)), reader_at(name_server) as reader:
        master.suggests = slave.suggests = 1
        reading = reader.reading(QueueRange(QUEUE, 0, 1000))
        found = await reading.some()
        await master.server.stop(grace=0)
        while chunks := await reading.some():
            found += chunks
        assert meant(found) == numbered(0, 1000)


async def test_offsets_of_a_queue_that_went_from_broker_to_broker_are_made_right() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        broker.delta = 100
        assert await read(reader, 100, 400) == numbered(100, 400)


async def test_an_offset_that_somebody_sets_for_the_group_does_not_move_the_reading() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        moves = [(ResponseCode.PULL_OFFSET_MOVED, {"nextBeginOffset": 0})]
        broker.says = lambda pull: moves.pop() if pull.offset == 320 and moves else None
        assert await read(reader, 0, 1000) == numbered(0, 1000)


# What is not there any more


async def lost_in(reader: RangeReader, start: int, end: int) -> tuple[list[tuple[int, bytes]], OffsetsLostError]:
    found: list[RecordChunk] = []
    with pytest.raises(OffsetsLostError) as lost:
        await gather(reader, QueueRange(QUEUE, start, end), found)
    return meant(found), lost.value


async def test_a_range_that_begins_before_its_queue_is_lost_up_to_there() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        broker.low = 300

        def says(pull: Pulled) -> tuple[int, dict[str, int]] | None:
            return (ResponseCode.PULL_OFFSET_MOVED, {"nextBeginOffset": 300}) if pull.offset < 300 else None

        broker.says = says
        found, lost = await lost_in(reader, 100, 1000)
        assert (found, lost.first, lost.next_readable, lost.queue) == ([], 100, 300, QUEUE)
        assert str(lost) == (
            "the offsets 100 to 299 of queue 0 of 'orders' on broker-a no longer exist: the queue now begins at 300"
        )
        found, lost = await lost_in(reader, 100, 200)
        assert (lost.first, lost.next_readable) == (100, 200)
        assert await read(reader, 300, 1000) == numbered(300, 1000)


async def test_what_comes_before_a_loss_is_handed_out_first() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        broker.says = lambda pull: (
            (ResponseCode.PULL_RETRY_IMMEDIATELY, {"nextBeginOffset": 640}) if 320 <= pull.offset < 640 else None
        )
        found, lost = await lost_in(reader, 0, 1000)
        assert found == numbered(0, 320)
        assert (lost.first, lost.next_readable) == (320, 640)


async def test_records_that_are_missing_at_the_begin_of_an_answer_are_lost() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        whole = broker._record
        broker._record = lambda offset: b"" if 320 <= offset < 330 else whole(offset)  # type: ignore[method-assign]
        found, lost = await lost_in(reader, 0, 1000)
        assert found == numbered(0, 320)
        assert (lost.first, lost.next_readable) == (320, 330)


async def test_a_queue_that_is_shorter_than_its_range_is_waited_for_and_then_lost() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server, **HASTY) as reader:
        broker.high = 500

        def says(pull: Pulled) -> tuple[int, dict[str, int]] | None:
            if pull.offset < broker.high:
                return None
            code = ResponseCode.PULL_NOT_FOUND if pull.offset == 500 else ResponseCode.PULL_OFFSET_MOVED
            return code, {"nextBeginOffset": broker.high}

        broker.says = says
        found, lost = await lost_in(reader, 0, 1000)
        assert found == numbered(0, 500)
        assert (lost.first, lost.next_readable) == (500, 1000)
        assert "now ends at 500" in str(lost)

    async with replicas() as (name_server, (broker,)), reader_at(name_server) as reader:
        broker.high = 500
        broker.says = says
        reading = reader.reading(QueueRange(QUEUE, 0, 1000))
        chunks: list[RecordChunk] = []
        while len(meant(chunks)) < 500:
            chunks += await reading.some()
        broker.high = 1000
        while more := await reading.some():
            chunks += more
        assert meant(chunks) == numbered(0, 1000)


@pytest.mark.parametrize("seconds", [0.0, 0.5])
async def test_the_first_offset_that_is_missing_is_told_whichever_answer_comes_first(seconds: float) -> None:
    async with (
        replicas() as (name_server, (broker,)),
        reader_at(name_server, batch=32, retry_seconds=seconds) as reader,
    ):
        broker.takes = lambda pull: 0.1 if pull.offset in (320, 352) else 0.0
        broker.says = lambda pull: (
            (ResponseCode.PULL_OFFSET_MOVED, {"nextBeginOffset": 352, "maxOffset": 352})
            if pull.offset >= 352
            else None
        )
        found, lost = await lost_in(reader, 0, 1000)
        assert found == numbered(0, 352)
        assert (lost.first, lost.next_readable) == (352, 1000)


async def test_a_place_that_a_broker_cannot_read_is_lost_when_it_stays_so() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server, **HASTY) as reader:
        broker.says = lambda pull: (
            (ResponseCode.PULL_NOT_FOUND, {"nextBeginOffset": 600}) if 320 <= pull.offset < 600 else None
        )
        found, lost = await lost_in(reader, 0, 1000)
        assert found == numbered(0, 320)
        assert (lost.first, lost.next_readable) == (320, 600)


async def test_an_answer_that_says_nothing_is_given_up_in_the_end() -> None:
    async with replicas() as (name_server, (broker,)), reader_at(name_server, **HASTY) as reader:
        broker.says = lambda pull: (ResponseCode.SUCCESS, {"nextBeginOffset": pull.offset})
        with pytest.raises(OrbitMQError, match="cannot be read any further than to 7") as given_up:
            await read(reader, 7, 100)
        assert not isinstance(given_up.value, TransientPullError)


def test_a_loss_arrives_in_another_process_as_it_was() -> None:
    lost = pickle.loads(pickle.dumps(OffsetsLostError(QUEUE, 3, 9, "it is gone")))
    assert (lost.queue, lost.first, lost.next_readable, lost.why) == (QUEUE, 3, 9, "it is gone")
    assert "the offsets 3 to 8 of queue 0 of 'orders' on broker-a" in str(lost)
