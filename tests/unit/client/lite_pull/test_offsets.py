"""A pull consumer and its offsets: seeking, committing, and how much is pulled ahead."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from orbitmq.broker.long_polling.pull import RECHECK_MS
from orbitmq.client.errors import BrokerError, InvalidMessageError, NoRouteError
from orbitmq.protocol.bodies import MessageQueue
from support.broker.broker_harness import T0
from support.client.lite_pull_harness import OFTEN, QUEUES, TOPIC, cached, silent, texts, world
from support.remoting_harness import eventually

# Seeking


async def test_a_seek_goes_back_and_forth() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send(*"abcde")
        consumer.assign(QUEUES[:1])
        assert await texts(consumer, 5) == list("abcde")
        await consumer.seek(QUEUES[0], 1)
        assert consumer.position(QUEUES[0]) == 1
        assert await texts(consumer, 4) == list("bcde")
        await consumer.seek_to_begin(QUEUES[0])
        assert await texts(consumer, 5) == list("abcde")
        await consumer.seek_to_end(QUEUES[0])
        await here.send("f")
        assert await texts(consumer, 1) == ["f"]


async def test_a_seek_drops_what_was_pulled_before() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send(*"abcde")
        consumer.assign(QUEUES[:1])
        await eventually(lambda: cached(consumer) == 5)
        await consumer.seek(QUEUES[0], 4)
        assert await texts(consumer, 1) == ["e"]
        await silent(consumer)


async def test_a_seek_beyond_the_queue_is_refused() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send("a", "b")
        consumer.assign(QUEUES[:1])
        with pytest.raises(InvalidMessageError, match="offsets 0 to 2: cannot seek to 3"):
            await consumer.seek(QUEUES[0], 3)
        with pytest.raises(InvalidMessageError, match="not assigned"):
            await consumer.seek(QUEUES[1], 0)


async def test_a_time_can_be_sought_to_the_millisecond() -> None:
    async with world() as here, here.consumer() as consumer:
        for text in "abc":
            here.clock.advance(1)
            await here.send(text)
        consumer.assign(QUEUES[:1])
        assert await texts(consumer, 3) == list("abc")
        assert await consumer.offset_for_timestamp(QUEUES[0], (T0 + 2) / 1000) == 1
        await consumer.seek_to_time(QUEUES[0], (T0 + 2) / 1000)
        assert await texts(consumer, 2) == ["b", "c"]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}, "abcd"),
        ({"consume_from_where": "CONSUME_FROM_TIMESTAMP", "consume_timestamp": T0 / 1000 + 2}, "bcd"),
        ({"consume_from_where": "CONSUME_FROM_LAST_OFFSET"}, "d"),
    ],
    ids=["first", "timestamp", "last"],
)
async def test_a_new_group_begins_where_it_is_told_to(where: dict[str, Any], wanted: str) -> None:
    # With this ratio nothing counts as being in memory. Of a queue that is, a new group gets everything.
    async with world(accessMessageInMemoryMaxRatio=0) as here, here.consumer(**where) as consumer:
        for text in "abc":
            here.clock.advance(1000)
            await here.send(text)
        consumer.assign(QUEUES[:1])
        await eventually(lambda: consumer.position(QUEUES[0]) is not None)
        await here.send("d")
        assert await texts(consumer, len(wanted)) == list(wanted)


# Committing


async def test_what_was_handed_out_is_committed_by_hand() -> None:
    async with world() as here, here.consumer(auto_commit=False, pull_batch_size=2) as consumer:
        await here.send(*"abcde")
        consumer.assign(QUEUES)
        assert await consumer.committed(QUEUES[0]) in {None, 0}
        await texts(consumer, 2)
        await consumer.commit()
        assert here.offset() == 2
        assert await consumer.committed(QUEUES[0]) == 2
        await texts(consumer, 2)
        await consumer.commit(QUEUES[:1])
        assert here.offset() == 4
        await consumer.commit({QUEUES[0]: 1})
        assert here.offset() == 1


async def test_a_commit_that_no_broker_takes_is_an_error() -> None:
    async with world() as here, here.consumer() as consumer:
        with pytest.raises(NoRouteError):
            await consumer.commit({MessageQueue(TOPIC, "nobody", 0): 1})
        with pytest.raises(BrokerError, match="queueId"):
            await consumer.commit({MessageQueue(TOPIC, "broker-a", 99): 1})


async def test_nothing_is_committed_unless_somebody_does() -> None:
    async with world() as here:
        async with here.consumer(auto_commit=False) as consumer:
            await here.send("a", "b")
            consumer.assign(QUEUES)
            await texts(consumer, 2)
        assert here.offset() == -1


async def test_offsets_are_committed_at_intervals() -> None:
    async with world() as here, here.consumer(**OFTEN) as consumer:
        await here.send("a", "b")
        consumer.assign(QUEUES)
        await texts(consumer, 2)
        await consumer.poll(0)
        await eventually(lambda: here.offset() == 2)


async def test_a_message_that_may_still_be_worked_on_is_not_committed() -> None:
    async with world() as here, here.consumer(**OFTEN) as consumer:
        await here.send("a", "b")
        await here.send("elsewhere", queue=1)
        consumer.assign(QUEUES[:1])
        await anext(consumer)
        await anext(consumer)
        await eventually(lambda: here.offset() >= 0)
        assert here.offset() == 1


async def test_closing_commits_what_was_handed_out() -> None:
    async with world() as here:
        async with here.consumer() as consumer:
            await here.send("a", "b", "c")
            consumer.assign(QUEUES[:1])
            await eventually(lambda: cached(consumer) == 3)
            await anext(consumer)
            await anext(consumer)
        assert here.offset() == 2


async def test_a_message_that_somebody_failed_with_comes_again() -> None:
    async with world() as here:
        with contextlib.suppress(ArithmeticError):
            async with here.consumer() as consumer:
                await here.send("a", "b", "c")
                consumer.assign(QUEUES[:1])
                async for message in consumer:
                    if message.text() == "b":
                        raise ArithmeticError
        assert here.offset() == 1
        async with here.consumer() as consumer:
            consumer.assign(QUEUES[:1])
            assert await texts(consumer, 2) == ["b", "c"]


async def test_messages_that_nobody_wants_do_not_hold_the_offset_back() -> None:
    async with world() as here, here.consumer(auto_commit=False) as consumer:
        consumer.subscribe(TOPIC, tags="A")
        await here.send("a", TAGS="A")
        await texts(consumer, 1)
        await here.send("b", "c", TAGS="B")
        # A pull that waits already is told of them when it has waited for some seconds.
        here.clock.advance(RECHECK_MS)
        await eventually(lambda: consumer.position(QUEUES[0]) == 3)
        await consumer.commit()
        assert here.offset() == 3


# Pausing and limits


async def test_a_paused_queue_hands_nothing_out() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send("zero", queue=0)
        await here.send("one", queue=1)
        consumer.assign(QUEUES)
        await eventually(lambda: cached(consumer) == 2)
        consumer.pause(QUEUES[0])
        assert await texts(consumer, 1) == ["one"]
        await silent(consumer)
        consumer.resume(QUEUES[0])
        assert await texts(consumer, 1) == ["zero"]


async def test_all_queues_can_be_paused() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES)
        consumer.pause()
        await here.send("waits")
        await silent(consumer)
        consumer.resume()
        assert await texts(consumer, 1) == ["waits"]


@pytest.mark.parametrize(
    "limit",
    [
        {"pull_threshold_for_queue": 5},
        {"pull_threshold_for_all": 5},
        {"consume_max_span": 5},
        {"pull_threshold_size_for_queue": 1},
    ],
    ids=lambda limit: next(iter(limit)),
)
async def test_no_more_is_pulled_ahead_than_is_allowed(limit: dict[str, Any]) -> None:
    async with world() as here, here.consumer(pull_batch_size=1, **limit) as consumer:
        bodies = ["x" * 200_000 if "pull_threshold_size_for_queue" in limit else f"{number}" for number in range(9)]
        await here.send(*bodies)
        consumer.assign(QUEUES[:1])
        await eventually(lambda: 6 <= cached(consumer) <= 7)
        await here.talker.pass_time()
        assert 6 <= cached(consumer) <= 7
        assert await texts(consumer, 9) == bodies
