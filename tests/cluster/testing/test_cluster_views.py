"""How far groups are, as a test asks: offsets, dead letters, and waiting until nothing is left."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import MessageModel, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.testing import LocalCluster
from support.broker.client_registry_harness import sql, subscription
from support.broker.requests import CONSUMERS, TOPIC, talking_at
from support.client.cluster_harness import member_of

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import SubscriptionData
    from support.broker.requests import Talker

SHORT = 0.15
"""Seconds after which a wait that cannot end is given up."""


async def commits(client: Talker, offset: int, queue_id: int = 0, topic: str = TOPIC) -> None:
    fields = {"consumerGroup": CONSUMERS, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    answer = await client.asks(RequestCode.UPDATE_CONSUMER_OFFSET, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def left_for(cluster: LocalCluster, group: str = CONSUMERS) -> str:
    """What a wait says that is given up."""
    with pytest.raises(TimeoutError) as given_up:
        await cluster.wait_until_consumed(group, SHORT)
    return str(given_up.value)


async def test_offsets_are_shown_by_queue() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        await client.stores(b"x", queueId=1)
        await client.subscribes()
        await commits(client, 1, queue_id=1)
        assert cluster.consumer_offsets(CONSUMERS) == {MessageQueue(TOPIC, "broker-a", 1): 1}
        assert cluster.consumer_offsets("others") == {}


async def test_dead_letters_are_shown_under_the_topic_that_they_were_sent_to() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        await client.stores(b"poison", properties={"TAGS": "paid"})
        await client.subscribes()
        assert (await client.sends_back(0, level=-1)).code == ResponseCode.SUCCESS
        (letter,) = cluster.dead_letters(CONSUMERS)
        assert (letter.topic, letter.body, letter.tags) == (TOPIC, b"poison", "paid")
        assert letter.reconsume_times == 1


async def test_a_group_that_has_committed_everything_has_consumed_everything() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        for queue_id in (0, 0, 1):
            await client.stores(b"x", queueId=queue_id)
        await client.subscribes()
        await commits(client, 1)
        waiting = asyncio.create_task(cluster.wait_until_consumed(CONSUMERS))
        await commits(client, 1, queue_id=1)
        await client.catch_up()
        assert not waiting.done()
        await commits(client, 2)
        await waiting


async def test_the_word_of_members_counts_before_they_commit_it() -> None:
    async with LocalCluster() as cluster, member_of(cluster.address("broker-a")) as member:
        await member.client.stores(b"x")
        assert "1 in queue 0 of TopicTest on broker-a from -1 on" in await left_for(cluster)
        member.consumed(1)
        await cluster.wait_until_consumed(CONSUMERS)
        assert cluster.consumer_offsets(CONSUMERS) == {}


async def test_of_a_broadcasting_group_the_slowest_member_counts() -> None:
    model = MessageModel.BROADCASTING
    async with (
        LocalCluster() as cluster,
        member_of(cluster.address("broker-a"), model=model) as fast,
        member_of(cluster.address("broker-a"), client_id="client@2", model=model) as slow,
    ):
        await fast.client.stores(b"x")
        fast.consumed(1)
        assert "1 in queue 0" in await left_for(cluster)
        slow.consumed(1)
        await cluster.wait_until_consumed(CONSUMERS)


@pytest.mark.parametrize("wanted", [subscription(TOPIC, "paid"), sql(TOPIC, "amount > 5")], ids=["tags", "sql"])
async def test_messages_that_the_filter_does_not_want_are_not_waited_for(wanted: SubscriptionData) -> None:
    async with LocalCluster() as cluster, member_of(cluster.address("broker-a"), wanted) as member:
        client = member.client
        await client.stores(b"wanted", properties={"TAGS": "paid", "amount": "9"})
        for _ in range(3):
            await client.stores(b"other", properties={"TAGS": "refunded", "amount": "1"})
        assert "1 in queue 0" in await left_for(cluster)
        await commits(client, 1)
        await cluster.wait_until_consumed(CONSUMERS)


async def test_a_message_that_waits_for_another_attempt_is_not_consumed() -> None:
    retries = f"%RETRY%{CONSUMERS}"
    said = subscription(TOPIC), subscription(retries)
    async with LocalCluster() as cluster, member_of(cluster.address("broker-a"), *said) as member:
        await member.client.stores(b"again")
        await member.client.sends_back(0)
        await commits(member.client, 1)
        assert "1 wait for another attempt" in await left_for(cluster)
        await cluster.advance(10)
        assert [message.body for message in cluster.messages(retries)] == [b"again"]
        assert f"of {retries} on broker-a" in await left_for(cluster)
        await commits(member.client, 1, topic=retries)
        await cluster.wait_until_consumed(CONSUMERS)


async def test_a_group_that_was_never_there_is_waited_for_and_named() -> None:
    async with LocalCluster() as cluster:
        assert "'billing' has not consumed everything" in await left_for(cluster, "billing")
        assert "no consumer of it was ever there" in await left_for(cluster, "billing")
        waiting = asyncio.create_task(cluster.wait_until_consumed(CONSUMERS))
        async with member_of(cluster.address("broker-a")):
            await waiting


async def test_all_brokers_count_also_those_that_come_back_meanwhile() -> None:
    async with LocalCluster(brokers=2) as cluster, member_of(cluster.address("broker-a")) as member:
        async with member_of(cluster.address("broker-b")) as other:
            await other.client.stores(b"x")
            assert "on broker-b" in await left_for(cluster)
            await commits(other.client, 1)
        await cluster.restart("broker-b")
        await member.client.catch_up()
        await cluster.wait_until_consumed(CONSUMERS)


def test_plain_code_waits_too_and_a_coroutine_without_stopping_its_loop() -> None:
    async def consume(address: str) -> None:
        async with member_of(address) as member:
            await member.client.stores(b"x")
            waiting = asyncio.create_task(cluster.until_consumed(CONSUMERS))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            member.consumed(1)
            await waiting
            await commits(member.client, 1)

    with LocalCluster() as cluster:
        with pytest.raises(TimeoutError, match="ever there"):
            cluster.wait_until_consumed(CONSUMERS, timeout=0.05)
        asyncio.run(consume(cluster.address("broker-a")))
        cluster.wait_until_consumed(CONSUMERS)


async def test_a_member_that_does_not_answer_does_not_hold_up_the_end_of_the_wait() -> None:
    async with LocalCluster() as cluster, talking_at(cluster.address("broker-a")) as client:
        await client.stores(b"x")
        await client.subscribes()
        assert "1 in queue 0" in await left_for(cluster)
