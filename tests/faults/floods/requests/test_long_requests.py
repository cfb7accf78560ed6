"""Requests about tens of thousands of entries: processed in slices, with other clients served in between."""

from __future__ import annotations

import asyncio
import collections
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from faults.floods.served import served_before
from orbitmq.broker import time_slices as slices
from orbitmq.broker.metadata.subscription_groups import group_name_problem
from orbitmq.broker.metadata.topics import MAX_QUEUES, topic_name_problem
from orbitmq.broker.stats.counters import SLICE, BrokerStats
from orbitmq.platform import loop_slices
from orbitmq.platform.json_files import ConfigFile
from orbitmq.protocol.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    ConsumeStats,
    CreateTopicListRequestBody,
    HeartbeatData,
    ProducerData,
    ProducerTableInfo,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    TopicStatsTable,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.store.config_tables import CONSUMER_OFFSETS
from orbitmq.testing import ManualClock
from support.broker.pop_harness import popping
from support.broker.requests import CONSUMERS, TOPIC, Talker, talk, talking_to
from support.nameserver_harness import as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker import Broker

WIDE = "TopicWide"
QUEUES = 8_000

_opaques = itertools.count(50)


async def made_wide(client: Talker) -> None:
    """A topic with very many queues, and one message elsewhere that others can pull."""
    answer = await client.asks(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=WIDE, defaultTopic="TBW102", readQueueNums=QUEUES,
        writeQueueNums=QUEUES, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
    )  # fmt: skip
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await client.stores(b"in the last queue", topic=WIDE, queueId=QUEUES - 1)
    await client.stores(b"for others")


def command(code: int, body: bytes | None = None, **fields: object) -> Command:
    return Command(code, next(_opaques), ext_fields=as_text(fields), body=body)


def commit_offset(broker: Broker) -> None:
    broker.groups.find(CONSUMERS)
    broker.offsets.commit(CONSUMERS, WIDE, QUEUES - 1, 1)


async def test_statistics_of_a_topic_with_very_many_queues_do_not_block_others() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await made_wide(client)
        answer, served = await served_before(client, command(RequestCode.GET_TOPIC_STATS_INFO, topic=WIDE), other)
        assert answer.code == ResponseCode.SUCCESS
        assert len(TopicStatsTable.decode(answer.body or b"").offset_table) == QUEUES
        assert served >= 3


async def test_statistics_of_a_group_do_not_block_others() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await made_wide(client)
        commit_offset(broker)
        request = command(RequestCode.GET_CONSUME_STATS, consumerGroup=CONSUMERS, topic=WIDE)
        answer, served = await served_before(client, request, other)
        assert answer.code == ResponseCode.SUCCESS
        table = ConsumeStats.decode(answer.body or b"").offset_table
        assert len(table) == QUEUES
        assert served >= 3
        request = command(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)
        answer, served = await served_before(client, request, other)
        assert answer.code == ResponseCode.SUCCESS
        assert served >= 3
        request = command(RequestCode.QUERY_CONSUME_TIME_SPAN, group=CONSUMERS, topic=WIDE)
        answer, served = await served_before(client, request, other)
        assert answer.code == ResponseCode.SUCCESS
        assert served >= 3


async def test_a_reset_of_very_many_queues_does_not_block_others() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await made_wide(client)
        broker.groups.find("CG_reset")
        request = command(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic=WIDE, group="CG_reset", timestamp=-1, isForce=True
        )
        answer, served = await served_before(client, request, other)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert len(ResetOffsetBody.decode(answer.body or b"").offset_table) == QUEUES
        assert served >= 3
        assert broker.offsets.query("CG_reset", WIDE, QUEUES - 1) == 1


async def test_all_offsets_are_returned_in_slices() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await made_wide(client)
        for number in range(QUEUES):
            broker.offsets.commit(f"group{number}", TOPIC, 0, 1)
        answer, served = await served_before(client, command(RequestCode.GET_ALL_CONSUMER_OFFSET), other)
        assert answer.code == ResponseCode.SUCCESS
        assert served >= 3


async def test_a_batch_of_very_many_acks_does_not_block_others() -> None:
    async with popping() as ends, talking_to(ends.broker) as other:
        await ends.client.fills("a", "b")
        got = await ends.client.gets(most=1)
        receipt = got[0].receipt
        one = BatchAck(
            consumer_group=CONSUMERS, topic=TOPIC, retry="0", start_offset=receipt.start_offset,
            queue_id=receipt.queue_id, revive_queue_id=receipt.revive_queue, pop_time=receipt.pop_time,
            invisible_time=receipt.invisible_ms, bit_set=1,
        )  # fmt: skip
        body = BatchAckMessageRequestBody("broker-a", [one] * 2000).encode()
        assert len(body) > slices.SMALL_BODY
        answer, served = await served_before(ends.client, command(RequestCode.BATCH_ACK_MESSAGE, body), other)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert served >= 3
        ends.wait()
        assert [one.record.body for one in await ends.client.gets()] == [b"b"]


async def test_a_batch_of_acks_over_the_limit_is_refused() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        answer = await ends.client.asks(RequestCode.BATCH_ACK_MESSAGE, bytes(slices.MAX_JSON_BODY + 1))
        assert (answer.code, answer.remark) == (
            1,
            "the body has 4194305 bytes, at most 4194304 are allowed for this request",
        )
        wide = BatchAck(consumer_group=CONSUMERS, topic=TOPIC, retry="0", bit_set=(1 << 5000) - 1)
        body = BatchAckMessageRequestBody("broker-a", [wide]).encode()
        answer = await ends.client.asks(RequestCode.BATCH_ACK_MESSAGE, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "5000 messages of one pop are acknowledged, at most 4096" in (answer.remark or "")


MANY = 4_000


def many_topics() -> bytes:
    configs = [TopicConfig(f"Topic{number}", 1, 1) for number in range(MANY)]
    return CreateTopicListRequestBody(configs).encode()


async def test_lists_of_very_many_topics_and_groups_are_checked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_slices, "SLICE_SECONDS", 0)
    turn, checked = 0, collections.Counter[int]()

    def next_turn() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(next_turn)

    def problem(check: Callable[[str], str | None]) -> Callable[[str], str | None]:
        def counted(name: str) -> str | None:
            checked[turn] += 1
            return check(name)

        return counted

    monkeypatch.setattr("orbitmq.broker.metadata.topic_admin.topic_name_problem", problem(topic_name_problem))
    monkeypatch.setattr("orbitmq.broker.metadata.group_admin.group_name_problem", problem(group_name_problem))
    async with talk() as (broker, client):
        groups = [SubscriptionGroupConfig(f"group{number}") for number in range(MANY)]
        asyncio.get_running_loop().call_soon(next_turn)
        for code, body in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, many_topics()),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, SubscriptionGroupList(groups).encode()),
        ):
            answer = await client.says(command(code, body))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert f"Topic{MANY - 1}" in broker.topics.configs
        assert f"group{MANY - 1}" in broker.groups.configs
    assert checked.total() >= 2 * MANY
    assert max(checked.values()) < 20


async def test_a_list_of_topics_includes_concurrent_changes() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        listed = client.posts(command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, many_topics()))
        while listed not in client.answers:
            # The last one of the list, created by another client while the others are processed.
            await other.sends(topic=f"Topic{MANY - 1}")
        assert (await client.answer_to(listed)).code == ResponseCode.SUCCESS
        await other.stores(topic=f"Topic{MANY - 1}")
        assert broker.topics.is_settled


async def test_a_group_of_very_many_small_topics_does_not_block_others() -> None:
    """A slice for each topic of one queue would not pause often enough."""
    async with talk() as (broker, client), talking_to(broker) as other:
        await client.stores(b"for others")
        await client.asks(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, many_topics())
        broker.groups.find(CONSUMERS)
        for number in range(MANY):
            broker.offsets.commit(CONSUMERS, f"Topic{number}", 0, 0)
            broker.offsets.commit(f"group{number}", "Topic1", 0, 0)
        for request in (
            command(RequestCode.GET_CONSUME_STATS, consumerGroup=CONSUMERS),
            command(RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False),
            command(RequestCode.QUERY_CORRECTION_OFFSET, topic="Topic1", compareGroup="group0", filterGroups=""),
            command(
                RequestCode.CLONE_GROUP_OFFSET, srcGroup=CONSUMERS, destGroup="CG_clone", topic="", offline=True
            ),
        ):
            answer, served = await served_before(client, request, other)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert served >= 3, request.code


async def test_all_producers_are_listed_in_slices() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await client.stores(b"for others")
        said = HeartbeatData("client", producer_data_set=[ProducerData(f"PG_{at}") for at in range(MANY)])
        assert (await client.asks(RequestCode.HEART_BEAT, said.encode())).code == ResponseCode.SUCCESS
        answer, served = await served_before(client, command(RequestCode.GET_ALL_PRODUCER_INFO), other)
        assert len(ProducerTableInfo.decode(answer.body or b"").data) == MANY
        assert served >= 3


@pytest.mark.parametrize("kind", ["put", "got"])
def test_counters_of_a_topic_with_very_many_queues_are_sampled_in_slices(kind: str) -> None:
    stats = BrokerStats(ManualClock(0), "cluster")
    for queue_id in range(MAX_QUEUES):
        if kind == "put":
            stats.put(WIDE, queue_id, 1, 1)
        else:
            stats.got(CONSUMERS, WIDE, queue_id, 1, 1)
    rounds = sum(1 for _ in stats._sample_in_slices())
    assert rounds >= MAX_QUEUES // SLICE


def test_counters_may_be_dropped_while_they_are_sampled() -> None:
    stats = BrokerStats(ManualClock(0), "cluster")
    for queue_id in range(2 * SLICE):
        stats.put("TopicA", queue_id, 1, 1)
        stats.put("TopicB", queue_id, 1, 1)
    sampling = stats._sample_in_slices()
    next(sampling)
    stats.forget_topic("TopicA")
    stats.forget_topic("TopicB")
    assert list(sampling)


async def test_the_table_of_offsets_is_encoded_by_a_thread_when_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = []
    encode = ConfigFile.encode

    def watched(file: ConfigFile[Any], body: Any) -> bytes:
        if file is CONSUMER_OFFSETS:
            threads.append(threading.current_thread())
        return encode(file, body)

    async with talk() as (broker, client):
        await client.stores()
        for number in range(MANY):
            broker.offsets.commit(f"group{number}", TOPIC, 0, 1)
        broker.groups.find("group0")
        monkeypatch.setattr(ConfigFile, "encode", watched)
        answer = await client.asks(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="group0", cleanOffset=True)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert len(broker.writer.load(CONSUMER_OFFSETS).offset_table) == MANY - 1
        assert threads
        assert threading.main_thread() not in threads
