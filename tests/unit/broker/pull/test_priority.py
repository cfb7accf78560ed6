"""Messages with a priority: the queue that they go to, and the order in which pulls get them."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.broker.pull import priority as pull_priority
from orbitmq.broker.send.priority import queue_of_level
from orbitmq.protocol.bodies import MessageModel, SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.properties import encode
from orbitmq.testing import ManualClock
from support.broker.requests import BORN, CONSUMERS, TOPIC, Talker, bodies, pull_request, stored, talk
from support.remoting_harness import eventually

LEVELS = 4
PRIORITY = "_SYS_MSG_PRIORITY_"


def by_level(**more: str) -> TopicConfig:
    return TopicConfig(TOPIC, LEVELS, LEVELS, attributes={"message.type": "PRIORITY", **more})


async def stores(client: Talker, level: int, body: bytes = b"x") -> None:
    await client.stores(body, properties={PRIORITY: str(level)})


# Where they go


@pytest.mark.parametrize(("level", "queue_id"), [("0", 0), ("2", 2), ("3", 3), ("4", 3), ("65535", 3)])
async def test_a_message_goes_to_the_queue_of_its_level_whatever_queue_was_requested(
    level: str, queue_id: int
) -> None:
    async with talk() as (broker, client):
        broker.topics.update(by_level())
        answer = await client.stores(b"x", properties={PRIORITY: level}, queueId=1)
        assert answer.ext_fields["queueId"] == str(queue_id)
        (record,) = stored(broker, TOPIC, queue_id)
        assert record.queue_id == queue_id


async def test_also_in_topics_of_other_kinds() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig(TOPIC, LEVELS, LEVELS))
        assert (await client.stores(properties={PRIORITY: "2"})).ext_fields["queueId"] == "2"


@pytest.mark.parametrize("text", ["", "-1", "x", "99999999999999"])
def test_an_invalid_priority_is_ignored(text: str) -> None:
    properties = encode({PRIORITY: text, "KEYS": "k"})
    assert queue_of_level(1, properties, 4) == (1, properties)


@pytest.mark.parametrize(
    "other", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}, {"__SHARDINGKEY": "s"}, {"TRAN_MSG": "true"}]
)
def test_deferred_and_ordered_messages_have_no_priority(other: dict[str, str]) -> None:
    properties = encode({PRIORITY: "3", "KEYS": "k", **other})
    assert queue_of_level(1, properties, 4) == (1, encode({"KEYS": "k", **other}))


# In which order they are pulled


async def consumed(client: Talker, count: int) -> list[bytes]:
    """The deliveries, in order, of a consumer that pulls all levels concurrently, two messages at a time."""
    found: list[bytes] = []

    async def read(level: int) -> None:
        offset = 0
        while len(found) < count:
            answer = await client.says(pull_request(offset, queue_id=level, most=2, hold_ms=1000))
            if answer.code == ResponseCode.SUCCESS:
                found.extend(bodies(answer))
                offset = int(answer.ext_fields["nextBeginOffset"])

    reading = [asyncio.create_task(read(level)) for level in range(LEVELS)]
    await eventually(lambda: len(found) >= count)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    return found


async def test_a_backlog_is_pulled_from_the_highest_level_down() -> None:
    async with talk() as (broker, client):
        broker.topics.update(by_level())
        for _ in range(20):
            for level in range(LEVELS):
                await stores(client, level, b"%d" % level)
        assert await consumed(client, 80) == [b"3"] * 20 + [b"2"] * 20 + [b"1"] * 20 + [b"0"] * 20


async def test_with_the_other_order_zero_comes_first() -> None:
    async with talk(priorityOrderAsc=False) as (broker, client):
        broker.topics.update(by_level())
        for level in range(LEVELS):
            await stores(client, level, b"%d" % level)
        assert await consumed(client, LEVELS) == [b"0", b"1", b"2", b"3"]


async def test_a_lower_level_waits_until_the_higher_one_is_pulled_to_its_end() -> None:
    async with talk(clock=ManualClock(BORN)) as (broker, client):
        broker.topics.update(by_level())
        await stores(client, 0, b"low")
        await stores(client, 3, b"high")
        assert bodies(await client.pulls(0, queue_id=3)) == [b"high"]
        empty = await client.pulls(0, queue_id=0)
        assert (empty.code, empty.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert (empty.ext_fields["nextBeginOffset"], empty.ext_fields["maxOffset"]) == ("0", "1")
        low = client.posts(pull_request(0, queue_id=0, hold_ms=15_000))
        await client.pass_time()
        assert len(broker.pulls.priority) == 1
        high = client.posts(pull_request(1, queue_id=3, hold_ms=15_000))
        assert bodies(await client.answer_to(low)) == [b"low"]
        # One that comes now is given at once, and what is below waits again.
        await stores(client, 0, b"low 2")
        await stores(client, 3, b"high 2")
        assert bodies(await client.answer_to(high)) == [b"high 2"]
        assert (await client.pulls(1, queue_id=0)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_level_that_no_consumer_reads_is_not_waited_for() -> None:
    clock = ManualClock(BORN)
    async with talk(clock=clock) as (broker, client):
        broker.topics.update(by_level())
        await stores(client, 0, b"low")
        await stores(client, 3, b"high")
        # A new group has some seconds to come to all levels.
        assert (await client.pulls(0, queue_id=0)).code == ResponseCode.PULL_NOT_FOUND
        low = client.posts(pull_request(0, queue_id=0, hold_ms=15_000))
        await client.pass_time()
        clock.advance(pull_priority.START_MS)
        assert bodies(await client.answer_to(low)) == [b"low"]
        # And one that stops to read a level has half a minute to go on.
        await client.pulls(0, queue_id=3)
        assert (await client.pulls(0, queue_id=0)).code == ResponseCode.PULL_NOT_FOUND
        clock.advance(pull_priority.IDLE_LEVEL_MS)
        assert bodies(await client.pulls(0, queue_id=0)) == [b"low"]


async def test_a_pull_that_waits_for_its_turn_ends_in_its_time() -> None:
    clock = ManualClock(BORN)
    async with talk(clock=clock) as (broker, client):
        broker.topics.update(by_level())
        await stores(client, 0)
        await stores(client, 3)
        await client.pulls(0, queue_id=3)
        low = client.posts(pull_request(0, queue_id=0, hold_ms=1000))
        await client.pass_time()
        clock.advance(1000)
        assert (await client.answer_to(low)).code == ResponseCode.PULL_NOT_FOUND
        assert len(broker.pulls.priority) == 0


async def test_groups_do_not_wait_for_each_other_and_may_do_without() -> None:
    async with talk(clock=ManualClock(BORN)) as (broker, client):
        broker.topics.update(by_level())
        await stores(client, 0, b"low")
        await stores(client, 3, b"high")
        await client.pulls(0, queue_id=3)
        await client.pulls(1, queue_id=3, group="other")
        assert bodies(await client.pulls(0, queue_id=0, group="other")) == [b"low"]
        assert (await client.pulls(0, queue_id=0)).code == ResponseCode.PULL_NOT_FOUND
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, attributes={"priority.factor": "0"}))
        assert bodies(await client.pulls(0, queue_id=0)) == [b"low"]


async def test_broadcasting_groups_are_not_restricted_by_priority() -> None:
    async with talk(clock=ManualClock(BORN)) as (broker, client):
        broker.topics.update(by_level())
        await client.subscribes(message_model=MessageModel.BROADCASTING)
        await stores(client, 0, b"low")
        await stores(client, 3, b"high")
        await client.pulls(0, queue_id=3)
        assert bodies(await client.pulls(0, queue_id=0)) == [b"low"]


async def test_topics_of_other_kinds_are_pulled_as_ever() -> None:
    async with talk() as (broker, client):
        broker.topics.update(by_level(**{"message.type": "NORMAL"}))
        await stores(client, 0, b"low")
        await stores(client, 3, b"high")
        await client.pulls(0, queue_id=3)
        assert bodies(await client.pulls(0, queue_id=0)) == [b"low"]


async def test_pulls_held_by_priority_are_answered_when_the_broker_stops() -> None:
    async with talk(clock=ManualClock(BORN)) as (broker, client):
        broker.topics.update(by_level())
        await stores(client, 0)
        await stores(client, 3)
        await client.pulls(0, queue_id=3)
        low = client.posts(pull_request(0, queue_id=0, hold_ms=15_000))
        await client.pass_time()
        stopping = asyncio.create_task(broker.stop())
        assert (await client.answer_to(low)).code == ResponseCode.PULL_NOT_FOUND
        await stopping
