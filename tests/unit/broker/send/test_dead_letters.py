"""Retries that consumers send as messages, when giving back did not work: stored, delayed, or dead letters."""

from __future__ import annotations

from orbitmq.broker.clients.queue_locks import LIVE_MS
from orbitmq.protocol.bodies import MessageQueue, SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import T0
from support.broker.requests import CONSUMERS, TOPIC, properties_of, stored, talk

RETRY = f"%RETRY%{CONSUMERS}"
DEAD = f"%DLQ%{CONSUMERS}"
BEFORE_LIMITS = 120
"""A client older than those that may say how often they want a message again."""


async def test_a_retry_is_stored_up_to_the_limit_and_then_is_a_dead_letter() -> None:
    async with talk() as (broker, client):
        broker.groups.update(SubscriptionGroupConfig(CONSUMERS, retry_max_times=2))
        for times in (0, 2):
            await client.stores(topic=RETRY, reconsumeTimes=times)
        answer = await client.stores(b"dead", topic=RETRY, reconsumeTimes=3, properties={"DELAY": "5"})
        (record,) = stored(broker, DEAD)

        assert len(stored(broker, RETRY)) == 2
        assert answer.ext_fields["queueId"] == "0"
        assert (record.body, record.reconsume_times) == (b"dead", 3)
        assert properties_of(record)["DELAY"] == "-1"
        assert broker.topics.configs[DEAD] == TopicConfig(DEAD, 1, 1, PERM_READ_WRITE)


async def test_a_delayed_retry_is_deferred() -> None:
    async with talk() as (broker, client):
        await client.stores(topic=RETRY, properties={"DELAY": "3"}, reconsumeTimes=1)
        (record,) = stored(broker, SCHEDULE_TOPIC, 2)

        assert properties_of(record)["REAL_TOPIC"] == RETRY


async def test_a_client_that_may_say_so_has_another_limit() -> None:
    async with talk() as (broker, client):
        await client.stores(topic=RETRY, reconsumeTimes=2, maxReconsumeTimes=1)
        await client.stores(topic=RETRY, reconsumeTimes=2, maxReconsumeTimes=1, version=BEFORE_LIMITS)

        assert len(stored(broker, DEAD)) == 1
        assert len(stored(broker, RETRY)) == 1


async def test_retries_of_a_group_that_reads_in_order_are_dead_letters_at_once() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        broker.locks.lock(CONSUMERS, "client", [MessageQueue(TOPIC, "broker-a", 0)])
        await client.stores(topic=RETRY)
        assert len(stored(broker, DEAD)) == 1
        clock.advance(LIVE_MS + 1)
        await client.stores(topic=RETRY)
        assert len(stored(broker, RETRY)) == 1


async def test_a_retry_of_an_unknown_group_is_refused() -> None:
    async with talk(autoCreateSubscriptionGroup="false") as (_, client):
        answer = await client.sends(topic=RETRY)

        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (answer.remark or "").startswith(f"subscription group not exist, {CONSUMERS}")
