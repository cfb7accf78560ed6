"""What there is to read: topics, queues, their ends, offsets by time, and how far groups are."""

from __future__ import annotations

import pytest

from orbitmq.client.errors import BrokerError, NoNameServerError, NoRouteError
from orbitmq.client.message import Message
from orbitmq.client.query import queue_offsets as queue_bounds
from orbitmq.client.query.queue_offsets import Bounds
from orbitmq.protocol.bodies import MessageQueue, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PERM_WRITE
from support.client.consumer_harness import shop
from support.client.instance_harness import instance_of
from support.client.range_reader_harness import QUEUE, store


async def test_topics_are_those_of_applications() -> None:
    async with shop(brokers=2) as place, instance_of(place.cluster.name_server) as instance:
        for topic in ("billing", "%RETRY%g", "%DLQ%g", "a_REPLY_TOPIC"):
            await place.add_topic(topic, 1)
        assert await queue_bounds.topics(instance) == ["a_REPLY_TOPIC", "billing", "orders"]


async def test_queues_are_those_that_can_be_read() -> None:
    async with shop(brokers=2, queues=2) as place, instance_of(place.cluster.name_server) as instance:
        everywhere = [MessageQueue("orders", f"broker-{name}", number) for name in "ab" for number in (0, 1)]
        assert await queue_bounds.queues(instance, "orders") == everywhere
        place.cluster.broker("broker-b").topics.update(TopicConfig("orders", 2, 2, PERM_WRITE))
        await place.cluster.broker("broker-b").registration.settled()
        assert await queue_bounds.queues(instance, "orders") == everywhere[:2]
        with pytest.raises(NoRouteError, match="no broker serves the topic 'nothing'"):
            await queue_bounds.queues(instance, "nothing")


async def test_bounds_are_asked_once_of_each_broker() -> None:
    async with shop(brokers=2, queues=3) as place, instance_of(place.cluster.name_server) as instance:
        await store(place, 7)
        await store(place, 5, queue=MessageQueue("orders", "broker-b", 2))
        found = await queue_bounds.bounds(instance, "orders")
        assert list(found) == sorted(found)
        assert len(found) == 6
        assert {queue: ends for queue, ends in found.items() if ends.max} == {
            QUEUE: Bounds(0, 7),
            MessageQueue("orders", "broker-b", 2): Bounds(0, 5),
        }
        # One of the name server, and one of each broker.
        assert len(instance.client.connections) == 3
        for name in ("broker-a", "broker-b"):
            assert instance.address("orders", name) is not None
        with pytest.raises(NoRouteError):
            await queue_bounds.bounds(instance, "nothing")


async def test_of_queues_for_writing_only_nothing_is_said() -> None:
    async with shop(queues=1) as place, instance_of(place.cluster.name_server) as instance:
        place.cluster.broker().topics.update(TopicConfig("orders", 1, 4))
        await place.cluster.broker().registration.settled()
        assert list(await queue_bounds.bounds(instance, "orders")) == [QUEUE]


async def test_an_offset_is_found_by_time() -> None:
    async with shop(queues=2) as place, instance_of(place.cluster.name_server) as instance:
        other = MessageQueue("orders", "broker-a", 1)
        times = []
        for _ in range(3):
            await store(place, 10)
            times.append(place.cluster.messages("orders")[-1].store_timestamp)
            await place.cluster.advance(60)
        assert [await queue_bounds.offset_at(instance, QUEUE, time + 1) for time in times] == [10, 20, 30]
        assert await queue_bounds.offset_at(instance, QUEUE, times[1] - 30_000) == 10
        assert await queue_bounds.offset_at(instance, QUEUE, times[1] + 1, "UPPER") == 19
        assert await queue_bounds.offset_at(instance, QUEUE, 0) == 0
        found = await queue_bounds.offsets_at(instance, [QUEUE, other], times[0] + 1)
        assert found == {QUEUE: 10, other: 0}


async def test_a_group_that_nobody_knows_can_commit() -> None:
    async with shop(brokers=2, queues=2) as place, instance_of(place.cluster.name_server) as instance:
        await store(place, 10)
        queues = await queue_bounds.queues(instance, "orders")
        assert await queue_bounds.committed(instance, "audit", queues) == {}
        await queue_bounds.commit(instance, "audit", {QUEUE: 7, queues[-1]: 0})
        assert await queue_bounds.committed(instance, "audit", queues) == {QUEUE: 7, queues[-1]: 0}
        assert place.cluster.consumer_offsets("audit") == {QUEUE: 7, queues[-1]: 0}
        await queue_bounds.commit(instance, "audit", {QUEUE: 3})
        assert await queue_bounds.committed(instance, "audit", [QUEUE]) == {QUEUE: 3}
        # Nobody has become a member by that.
        assert list(place.cluster.broker().clients.consumers) == []


async def test_where_groups_have_to_be_made_first_a_commit_says_so() -> None:
    async with (
        shop(queues=1, autoCreateSubscriptionGroup="false") as place,
        instance_of(place.cluster.name_server) as instance,
    ):
        with pytest.raises(BrokerError, match="not exist") as refused:
            await queue_bounds.commit(instance, "audit", {QUEUE: 1})
        assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_when_one_question_fails_the_others_end_too() -> None:
    async with shop(brokers=2, queues=200) as place, instance_of(place.cluster.name_server) as instance:
        queues = await queue_bounds.queues(instance, "orders")
        await place.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders")
        with pytest.raises(BrokerError):
            await queue_bounds.commit(instance, "audit", dict.fromkeys(queues, 1))


async def test_without_a_name_server_it_is_said_so() -> None:
    async with instance_of("127.0.0.1:1", api_timeout=0.2) as instance:
        with pytest.raises(NoNameServerError, match="is one running at"):
            await queue_bounds.topics(instance)


async def test_messages_of_a_topic_that_has_just_been_made_count() -> None:
    async with shop() as place, instance_of(place.cluster.name_server) as instance:
        await place.producer.send(Message("new", b"x"))
        assert sum(ends.max for ends in (await queue_bounds.bounds(instance, "new")).values()) == 1
