"""Messages that consumers give back: they wait longer each time, and become dead letters in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PERM_READ, PERM_READ_WRITE, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import T0
from support.broker.requests import CONSUMERS, TOPIC, Talker, properties_of, stored, talk
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from orbitmq.broker import Broker

RETRY = f"%RETRY%{CONSUMERS}"
DEAD = f"%DLQ%{CONSUMERS}"
BEFORE_LIMITS = 120
"""A client older than those that may say how often they want a message again."""


async def stored_at(client: Talker, body: bytes = b"hello", **more: object) -> int:
    """The place in the log of a message that was sent."""
    answer = await client.stores(body, **more)
    return decode_offset_id(answer.ext_fields["msgId"])[1]


async def consumed_at(broker: Broker, clock: ManualClock, ms: int, times: int) -> int:
    """The place of the retry that comes after some milliseconds."""
    clock.advance(ms)
    await eventually(lambda: len(stored(broker, RETRY)) == times)
    return stored(broker, RETRY)[-1].physical_offset


async def test_a_message_that_is_sent_back_is_retried_after_a_delay() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        at = await stored_at(client, b"body", properties={"UNIQ_KEY": "K", "TAGS": "red"}, flag=5)
        answer = await client.sends_back(at)
        (parked,) = stored(broker, SCHEDULE_TOPIC, 2)
        clock.advance(10_000)
        await eventually(lambda: stored(broker, RETRY))
        (retry,) = stored(broker, RETRY)
        (original,) = stored(broker)

        assert (answer.code, answer.remark, answer.ext_fields) == (ResponseCode.SUCCESS, None, {})
        assert (retry.body, retry.flag, retry.reconsume_times) == (b"body", 5, 1)
        assert (retry.born_timestamp, retry.born_host) == (original.born_timestamp, original.born_host)
        found = properties_of(parked)
        assert (found["UNIQ_KEY"], found["TAGS"], found["RETRY_TOPIC"], found["WAIT"]) == (
            "K",
            "red",
            TOPIC,
            "false",
        )
        assert found["ORIGIN_MESSAGE_ID"] == broker.store.message_id(at)
        assert (found["REAL_TOPIC"], found["REAL_QID"], found["DELAY"]) == (RETRY, "0", "3")
        assert broker.topics.configs[RETRY] == TopicConfig(RETRY, 1, 1, PERM_READ_WRITE)


async def test_each_time_it_waits_a_level_longer_and_keeps_its_first_id_and_topic() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        first = at = await stored_at(client)
        for times, wait in ((1, 10_000), (2, 30_000), (3, 60_000)):
            await client.sends_back(at)
            at = await consumed_at(broker, clock, wait, times)
        retries = stored(broker, RETRY)

        assert [retry.reconsume_times for retry in retries] == [1, 2, 3]
        assert [properties_of(retry)["DELAY"] for retry in retries] == ["3", "4", "5"]
        assert {properties_of(retry)["RETRY_TOPIC"] for retry in retries} == {TOPIC}
        assert {properties_of(retry)["ORIGIN_MESSAGE_ID"] for retry in retries} == {broker.store.message_id(first)}


@pytest.mark.parametrize(("level", "parked_at"), [(1, 0), (7, 6), (99, 17)])
async def test_the_consumer_may_say_how_long_it_waits(level: int, parked_at: int) -> None:
    async with talk() as (broker, client):
        await client.sends_back(await stored_at(client), level=level)

        assert len(stored(broker, SCHEDULE_TOPIC, parked_at)) == 1


async def test_the_consumer_may_say_that_it_is_dead() -> None:
    async with talk() as (broker, client):
        at = await stored_at(client, b"dead")
        await client.sends_back(at, level=-1)
        (letter,) = stored(broker, DEAD)

        assert (letter.body, letter.reconsume_times) == (b"dead", 1)
        found = properties_of(letter)
        assert (found["DELAY"], found["RETRY_TOPIC"]) == ("0", TOPIC)
        assert found["ORIGIN_MESSAGE_ID"] == broker.store.message_id(at)
        assert broker.topics.configs[DEAD] == TopicConfig(DEAD, 1, 1, PERM_READ_WRITE)


async def test_after_as_many_times_as_the_group_allows_it_is_dead() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, retry_max_times=1))
        await client.sends_back(await stored_at(client))
        at = await consumed_at(broker, clock, 10_000, 1)
        await client.sends_back(at)

        assert [letter.reconsume_times for letter in stored(broker, DEAD)] == [2]
        assert len(stored(broker, RETRY)) == 1


async def test_a_client_that_may_say_so_has_another_limit() -> None:
    async with talk() as (broker, client):
        at = await stored_at(client)
        await client.sends_back(at, maxReconsumeTimes=0)
        await client.sends_back(at, maxReconsumeTimes=0, version=BEFORE_LIMITS)
        await client.sends_back(at)

        assert len(stored(broker, DEAD)) == 1
        assert len(stored(broker, SCHEDULE_TOPIC, 2)) == 2


async def test_retries_use_all_queues_of_the_group() -> None:
    async with talk() as (broker, client):
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, retry_queue_nums=3))
        at = await stored_at(client)
        for _ in range(100):
            await client.sends_back(at)

        assert {properties_of(record)["REAL_QID"] for record in stored(broker, SCHEDULE_TOPIC, 2)} == {
            "0",
            "1",
            "2",
        }
        assert broker.topics.configs[RETRY].write_queue_nums == 3


async def test_a_group_without_retry_queues_gets_nothing_again() -> None:
    async with talk() as (broker, client):
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, retry_queue_nums=0))
        answer = await client.sends_back(await stored_at(client))

        assert answer.code == ResponseCode.SUCCESS
        assert RETRY not in broker.topics.configs


async def test_the_retry_topic_of_a_unit_says_so() -> None:
    async with talk() as (broker, client):
        await client.sends_back(await stored_at(client), unitMode=True)

        assert broker.topics.configs[RETRY].topic_sys_flag == TOPIC_UNIT_SUBSCRIBED


@pytest.mark.parametrize("offset", [-1, 7, 1 << 40])
async def test_an_offset_without_a_message_cannot_be_sent_back(offset: int) -> None:
    async with talk() as (_, client):
        await client.stores()
        answer = await client.sends_back(offset)

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"look message by offset failed, {offset}"


async def test_an_unknown_group_cannot_give_back() -> None:
    async with talk(autoCreateSubscriptionGroup="false") as (_, client):
        answer = await client.sends_back(await stored_at(client))

        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (answer.remark or "").startswith(f"subscription group not exist, {CONSUMERS}")


async def test_nothing_is_given_back_to_a_broker_that_may_not_write() -> None:
    async with talk(brokerPermission=4) as (_, client):
        answer = await client.sends_back(await stored_at(client))

        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the broker[{HOST}] sending message is forbidden"


async def test_nothing_is_given_back_to_a_retry_topic_that_may_not_be_written() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig(RETRY, 1, 1, PERM_READ))
        answer = await client.sends_back(await stored_at(client))

        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the topic[{RETRY}] sending message is forbidden"


async def test_a_store_that_takes_nothing_says_so() -> None:
    async with talk() as (broker, client):
        at = await stored_at(client)
        broker.store.appender.gate.close("test", "the disk is resting")
        answer = await client.sends_back(at)
        broker.store.appender.gate.open("test")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "SERVICE_NOT_AVAILABLE: the disk is resting"


async def test_missing_fields_are_answered_with_an_error() -> None:
    async with talk() as (_, client):
        answer = await client.sends_back(0, delayLevel="later")

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "delayLevel" in (answer.remark or "")


async def test_a_retry_goes_to_a_queue_that_its_topic_has_though_the_group_wants_more() -> None:
    async with talk() as (broker, client):
        await client.stores(b"m")
        await client.subscribes()
        body = b'{"groupName":"%b","retryQueueNums":64}' % CONSUMERS.encode()
        await client.asks(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert broker.topics.configs[RETRY].read_queue_nums == 1
        for _ in range(10):
            assert (await client.sends_back(0, level=1)).code == ResponseCode.SUCCESS
        parked = stored(broker, SCHEDULE_TOPIC)
        assert {properties_of(record)["REAL_QID"] for record in parked} == {"0"}
