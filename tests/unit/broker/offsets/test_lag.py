"""The lag of groups in the responses to tools."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    MessageQueue,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    TopicConfig,
)
from orbitmq.protocol.codes import RequestCode
from support.broker.client_registry_harness import GROUP, TOPIC, consumer, heartbeat, subscription
from support.broker.offset_harness import exchanges, offset_broker
from support.store.stores import T0, send

if TYPE_CHECKING:
    from collections.abc import Iterable

    from support.broker.offset_harness import OffsetBroker

STATS, ALL_STATS = RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS
SPAN = RequestCode.QUERY_CONSUME_TIME_SPAN

Table = dict[MessageQueue, OffsetWrapper]


def rebuild(broker: OffsetBroker, tables: Iterable[tuple[str, Table]]) -> None:
    """Restore the queues and offsets of a real broker, with messages stored at the captured times."""
    times: dict[tuple[str, int], dict[int, int]] = {}
    ends: dict[tuple[str, int], int] = {}
    for group, table in tables:
        for queue, said in table.items():
            key = queue.topic, queue.queue_id
            ends[key] = said.broker_offset
            known = times.setdefault(key, {})
            if said.last_timestamp:
                known[said.consumer_offset - 1] = said.last_timestamp
            broker.offsets.commit(group, queue.topic, queue.queue_id, said.consumer_offset)
            config = broker.topics.configs.get(queue.topic) or TopicConfig(queue.topic, 0, 0)
            count = max(config.read_queue_nums, queue.queue_id + 1)
            broker.topics.update(TopicConfig(queue.topic, count, count))
    messages = []
    for key, end in ends.items():
        stored = 0
        for offset in range(end):
            stored = times[key].get(offset, stored)
            messages.append((stored, key, offset))
    for stored, (topic, queue_id), _ in sorted(messages):
        broker.clock.advance(max(stored - broker.clock.now_ms(), 0))
        send(broker.store, topic=topic, queue_id=queue_id)


async def of_group(broker: OffsetBroker, **fields: object) -> ConsumeStats:
    return ConsumeStats.decode(await broker.body(STATS, **{"consumerGroup": GROUP, **fields}))


# One group


@pytest.mark.parametrize(("scenario", "line"), [("admin", 496), ("admin2", 35)])
async def test_the_consume_stats_of_a_group_equal_those_of_a_real_broker(scenario: str, line: int) -> None:
    ((request, expected),) = [pair for pair in exchanges(scenario, STATS) if pair[0].line == line]
    said = ConsumeStats.decode(expected.frame[2])
    async with offset_broker() as broker:
        rebuild(broker, [(request.ext_fields["consumerGroup"], said.offset_table)])
        answer = await broker.tool.answer(request.wire)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
        assert answer.body is not None
        ours = ConsumeStats.decode(answer.body)
        assert ours.offset_table == said.offset_table
        if said.consume_tps == 0:
            assert len(answer.body) == expected.body_size


async def test_lag_without_a_committed_offset_counts_from_zero() -> None:
    async with offset_broker() as broker:
        broker.add_topic(queues=3)
        for queue_id in range(2):
            send(broker.store, 2, topic=TOPIC, queue_id=queue_id)
        broker.offsets.commit(GROUP, TOPIC, 0, 1)
        broker.offsets.commit_pull(GROUP, TOPIC, 0, 2)
        stats = await of_group(broker)
        assert {queue.queue_id: said for queue, said in stats.offset_table.items()} == {
            0: OffsetWrapper(2, 1, 2, T0),
            1: OffsetWrapper(2, 0, 0, 0),
            2: OffsetWrapper(0, 0, 0, 0),
        }


async def test_topics_are_the_requested_ones_or_all_with_offsets_of_the_group() -> None:
    async with offset_broker() as broker:
        for topic in (TOPIC, "TopicB", "TopicC"):
            broker.add_topic(topic, queues=1)
        broker.offsets.commit(GROUP, TOPIC, 0, 1)
        broker.offsets.commit(GROUP, "TopicB", 0, 1)
        broker.offsets.commit(GROUP, "TopicGone", 0, 1)

        async def topics(**fields: object) -> set[str]:
            return {queue.topic for queue in (await of_group(broker, **fields)).offset_table}

        assert await topics() == {TOPIC, "TopicB"}
        assert await topics(topic=" ") == {TOPIC, "TopicB"}
        assert await topics(topic="TopicC") == {"TopicC"}
        assert await topics(topic=TOPIC, topicList="TopicB;TopicC;TopicX;") == {"TopicB", "TopicC"}
        assert await topics(consumerGroup="CG_unknown") == set()


async def test_topics_that_a_group_which_is_online_does_not_subscribe_are_left_out() -> None:
    async with offset_broker() as broker, broker.broker.client() as client:
        broker.add_topic(queues=1)
        broker.add_topic("TopicB", queues=1)
        await client.beat(heartbeat("c1", consumer(GROUP, subscription("TopicB"))))
        for topic in (TOPIC, "TopicB"):
            broker.offsets.commit(GROUP, topic, 0, 1)
        assert {queue.topic for queue in (await of_group(broker)).offset_table} == {"TopicB"}
        assert (await of_group(broker, topic=TOPIC)).offset_table == {}
        assert len((await of_group(broker, topicList=TOPIC)).offset_table) == 1
        listed = ConsumeStatsList.decode(await broker.body(ALL_STATS, isOrder=False))
        (stats,) = next(found[GROUP] for found in listed.consume_stats_list if GROUP in found)
        assert {queue.topic for queue in stats.offset_table} == {"TopicB"}


async def test_the_rate_is_that_of_all_topics_together() -> None:
    async with offset_broker() as broker:
        for topic, count in ((TOPIC, 10), ("TopicB", 30)):
            broker.add_topic(topic, queues=1)
            broker.offsets.commit(GROUP, topic, 0, 1)
            broker.stats.got(GROUP, topic, 0, count, 100)
        broker.stats.sample()
        rates = [broker.stats.minute_tps("GROUP_GET_NUMS", f"{topic}@{GROUP}") for topic in (TOPIC, "TopicB")]
        assert (await of_group(broker)).consume_tps == sum(rates) > 0


# All groups


async def test_the_consume_stats_of_all_groups_equal_those_of_a_real_broker() -> None:
    ((request, expected),) = exchanges("admin2", ALL_STATS)
    said = ConsumeStatsList.decode(expected.frame[2])
    async with offset_broker() as broker:
        flat = [
            (group, stats.offset_table)
            for found in said.consume_stats_list
            for group, listed in found.items()
            for stats in listed
        ]
        rebuild(broker, flat)
        broker.add_group(*[group for found in said.consume_stats_list for group in found])
        answer = await broker.tool.answer(request.wire)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
        assert answer.body is not None
        ours = ConsumeStatsList.decode(answer.body)
        assert (ours.total_diff, ours.total_inflight_diff) == (said.total_diff, said.total_inflight_diff)
        assert ours.broker_addr == broker.config.broker_address
        assert comparable(ours) == comparable(said)


def comparable(said: ConsumeStatsList) -> dict[str, list[str]]:
    """Everything but the rates."""
    return {
        group: sorted(repr(sorted(stats.offset_table.items(), key=repr)) for stats in listed)
        for found in said.consume_stats_list
        for group, listed in found.items()
    }


async def test_only_ordered_topics_are_listed_on_request() -> None:
    async with offset_broker() as broker:
        broker.add_group(GROUP)
        for topic in (TOPIC, "TopicB", "TopicGone"):
            broker.offsets.commit(GROUP, topic, 0, 0)
        broker.add_topic(queues=1)
        broker.add_topic("TopicB", queues=1, order=True)
        for is_order, topics in ((False, [TOPIC, "TopicB"]), (True, ["TopicB"])):
            listed = ConsumeStatsList.decode(await broker.body(ALL_STATS, isOrder=is_order)).consume_stats_list
            stats = next(found[GROUP] for found in listed if GROUP in found)
            assert [queue.topic for one in stats for queue in one.offset_table] == topics


async def test_the_consume_stats_of_all_groups_are_the_bytes_that_java_would_send() -> None:
    async with offset_broker() as broker:
        broker.add_group(GROUP, "other")
        broker.add_topic(queues=2)
        broker.add_topic("without-queues", queues=0)
        for _ in range(3):
            send(broker.store, topic=TOPIC, queue_id=1)
        for group, topic, offset in ((GROUP, TOPIC, 1), ("other", TOPIC, 2), ("other", "without-queues", 0)):
            broker.offsets.commit(group, topic, 1, offset)
        broker.stats.got(GROUP, TOPIC, 0, 7, 100)
        broker.stats.sample()
        body = await broker.body(ALL_STATS, isOrder=False)
        decoded = ConsumeStatsList.decode(body)
        assert decoded.encode() == body
        assert (decoded.total_diff, decoded.total_inflight_diff) == (3, -3)
        (found,) = (entry["other"] for entry in decoded.consume_stats_list if "other" in entry)
        assert [len(one.offset_table) for one in found] == [2, 0]


# In time


async def test_time_spans_of_queues_are_returned_as_numbers_and_as_text() -> None:
    async with offset_broker() as broker:
        broker.add_topic(queues=4)
        for _ in range(3):
            for queue_id in range(3):
                send(broker.store, topic=TOPIC, queue_id=queue_id)
            broker.clock.advance(1000)
        broker.offsets.commit(GROUP, TOPIC, 0, 2)
        broker.offsets.commit(GROUP, TOPIC, 1, 3)
        body = QueryConsumeTimeSpanBody.decode(await broker.body(SPAN, topic=TOPIC, group=GROUP))
        now = T0 + 3000
        assert [
            (span.min_time_stamp, span.max_time_stamp, span.consume_time_stamp, span.delay_time)
            for span in body.consume_time_span_set
        ] == [
            (T0, T0 + 2000, T0 + 1000, now - (T0 + 2000)),
            (T0, T0 + 2000, T0 + 2000, 0),
            (T0, T0 + 2000, T0, now - T0),
            (-1, -1, -1, 0),
        ]
        first = body.consume_time_span_set[0]
        assert first.message_queue == MessageQueue(TOPIC, "broker-w", 0)
        assert first.min_time_stamp_str == time.strftime("%Y-%m-%d#%H:%M:%S:000", time.localtime(T0 // 1000))
        assert (body.consume_time_span_set[3].max_time_stamp_str or "").endswith(":999")


async def test_an_unknown_topic_has_no_spans() -> None:
    async with offset_broker() as broker:
        answer = await broker.ask(SPAN, topic="TopicX", group=GROUP)
        assert (answer.code, answer.remark) == (17, "topic[TopicX] not exist")
