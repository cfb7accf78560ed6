"""Metrics of a broker after traffic of every kind: counts are what was sent and consumed, labels are Apache's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.metrics import names
from orbitmq.broker.metrics.clients import GroupLag, LagCollector
from orbitmq.metrics.instrument import Instrument
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.testing import LocalCluster, ManualClock
from peers.ports import free_port
from support.metrics import traffic
from support.metrics.endpoint_text import Series, fetch, label_names, series_of, values
from support.metrics.traffic import Traffic
from support.remoting_harness import eventually
from support.store.stores import T0, send

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from orbitmq.store import MessageStore

APACHE = Path(__file__).parents[2] / "data" / "metrics" / "apache-5.5.0-endpoint.txt"
"""The page of Apache's broker 5.5.0 after the same traffic."""

ONLY_APACHE = {
    # Check points are not buffered here.
    *(f"rocketmq_pop_buffer_scan_time_consume_milliseconds_{part}" for part in ("bucket", "count", "sum")),
}

SETTINGS = {"metricsExporterType": "PROM", "messageDelayLevel": "1s 1s 1s 1s 1s"}


@pytest.fixture(scope="module")
def pages() -> Iterator[tuple[Series, Series]]:
    """What a broker of ours shows after the traffic, and what Apache's showed."""
    port = free_port()
    with LocalCluster(settings={**SETTINGS, "metricsPromExporterPort": str(port)}) as cluster:
        running = Traffic(cluster.name_server)
        try:
            running.run()
            yield traffic.settled_page(lambda: series_of(fetch(port))), series_of(APACHE.read_text("utf-8"))
        finally:
            running.close()


def test_names_are_those_of_apache(pages: tuple[Series, Series]) -> None:
    ours, apaches = pages
    missing = {name for name, _ in apaches} - {name for name, _ in ours}
    assert missing == ONLY_APACHE
    built_in = {one.prometheus_name for one in vars(names).values() if isinstance(one, Instrument)}
    plain = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name, _ in apaches}
    assert plain - built_in == {"rocketmq_pop_buffer_scan_time_consume_milliseconds"}


def test_labels_are_those_of_apache(pages: tuple[Series, Series]) -> None:
    ours, apaches = map(label_names, pages)
    different = {name for name in ours.keys() & apaches.keys() if ours[name] != apaches[name]}
    assert different == set()


def test_buckets_are_those_of_apache(pages: tuple[Series, Series]) -> None:
    ours, apaches = (
        {(name, dict(labels)["le"]) for name, labels in page if name.endswith("_bucket")} for page in pages
    )
    assert {pair for pair in apaches if pair[0] not in ONLY_APACHE} <= ours


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("rocketmq_messages_in_total", ("topic", "message_type", "is_system")),
        ("rocketmq_throughput_in_total", ("topic", "message_type")),
        ("rocketmq_messages_out_total", ("topic", "consumer_group", "is_system", "is_retry")),
        ("rocketmq_throughput_out_total", ("topic", "consumer_group")),
        ("rocketmq_send_to_dlq_messages_total", ("topic", "consumer_group")),
        ("rocketmq_commit_messages_total", ("topic",)),
        ("rocketmq_rollback_messages_total", ("topic",)),
        ("rocketmq_half_messages", ("topic",)),
        ("rocketmq_consumer_lag_messages", ("topic", "consumer_group", "is_retry")),
        ("rocketmq_consumer_ready_messages", ("topic", "consumer_group", "is_retry")),
        ("rocketmq_consumer_inflight_messages", ("topic", "consumer_group", "is_retry")),
        ("rocketmq_consumer_connections", ("consumer_group", "consume_mode", "language")),
        ("rocketmq_timer_enqueue_total", ("topic",)),
        ("rocketmq_timer_dequeue_total", ("topic",)),
        ("rocketmq_pop_revive_in_message_total", ("topic", "consumer_group", "revive_message_type")),
        ("rocketmq_delay_message_latency_seconds_count", ("topic",)),
    ],
)
def test_counts_are_those_of_apache(pages: tuple[Series, Series], name: str, labels: tuple[str, ...]) -> None:
    ours, apaches = (values(page, name, *labels) for page in pages)
    assert apaches
    assert ours == apaches


def test_counts_are_what_was_sent_and_consumed(pages: tuple[Series, Series]) -> None:
    page, _ = pages
    incoming = values(page, "rocketmq_messages_in_total", "topic")
    assert incoming[traffic.NORMAL,] == traffic.NORMAL_COUNT + 1
    assert incoming[traffic.POPPED,] == traffic.POPPED_COUNT
    sizes = values(page, "rocketmq_message_size_count", "topic")
    assert sizes[traffic.NORMAL,] == traffic.NORMAL_COUNT + 1, "Apache counts a batch once"
    answered = values(page, "rocketmq_rpc_latency_milliseconds_count", "request_code")
    assert answered["send_batch_message",] == 1
    assert answered["ack_message",] == traffic.POPPED_COUNT
    assert answered["send_message_v2",] == traffic.SENT_ALONE


def test_the_page_has_the_names_of_the_exporter_and_our_own(pages: tuple[Series, Series]) -> None:
    page, _ = pages
    assert values(page, "rocketmq_group_diff", "group", "topic")[traffic.GROUP, traffic.NORMAL] == 0
    assert values(page, "rocketmq_producer_offset", "topic")[traffic.NORMAL,] == traffic.NORMAL_COUNT + 1
    assert values(page, "rocketmq_topic_dlq_offset", "group")[traffic.GROUP,] == 1
    assert sum(values(page, "rocketmq_brokeruntime_putmessage_times_total").values()) > traffic.NORMAL_COUNT
    paths = values(page, "orbitmq_requests_total", "path")
    assert paths["python",] > 0
    assert values(page, "orbitmq_requests_refused_total", "request_code", "response_code")
    assert sum(values(page, "orbitmq_event_loop_lag_seconds_count").values()) > 0


async def test_scraping_many_queues_does_not_hold_the_loop() -> None:
    """A collection of 50,000 queues runs in slices."""
    port = free_port()
    settings = {**SETTINGS, "metricsPromExporterPort": str(port), "autoCreateTopicEnable": "false"}
    async with LocalCluster(settings=settings) as cluster:
        broker = cluster.broker()
        metrics = broker.metrics
        assert metrics is not None
        for number in range(50):
            for queue_id in range(1000):
                broker.stats.put(f"Wide{number}", queue_id, 1, 100)
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count_turns())
        snapshot = await metrics.collect()
        counting.cancel()
        assert len(snapshot) > 50
        assert turns >= 2, "other work ran between the slices"


async def test_the_lag_of_queues_is_kept_for_a_time_that_depends_on_their_number() -> None:
    async with LocalCluster() as cluster:
        broker = cluster.broker()
        broker.topics.update(TopicConfig("kept", 4, 4))
        for queue_id in (3, 1, 0, 2):
            send(broker.store, topic="kept", queue_id=queue_id)
            send(broker.store, topic="kept", queue_id=queue_id)
            broker.offsets.commit("g", "kept", queue_id, 1)
        await eventually(lambda: broker.store.queues.sum_of_ends("kept", range(5)) == 8)
        assert broker.store.queues.sum_of_ends("unknown", range(5)) == 0
        clock = ManualClock(T0)
        lags = LagCollector(broker.store, broker.metadata, broker.clients, broker.pop.pop_offsets, clock)
        first = returned(lags.of("g", "kept", 4))
        assert (first.lag, first.ready, first.end) == (4, 4, 8)
        times = [broker.store.reader.store_timestamp(offset) for offset in second_messages(broker.store)]
        assert first.oldest_unconfirmed == first.oldest_unread == min(time for time in times if time) > 0
        broker.offsets.commit("g", "kept", 0, 2)
        lags.begin()
        assert returned(lags.of("g", "kept", 4)) is first
        clock.advance(1)
        lags.begin()
        assert returned(lags.of("g", "kept", 4)).lag == 3


def returned(lag: Generator[None, None, GroupLag]) -> GroupLag:
    """What a generator returns when it has done its work."""
    found: list[GroupLag] = []

    def run() -> Iterator[None]:
        found.append((yield from lag))

    for _ in run():
        pass
    return found[0]


def second_messages(store: MessageStore) -> list[int]:
    """The physical offset of the second message of each queue."""
    found = []
    for queue_id in range(4):
        queue = store.queues.find("kept", queue_id)
        assert isinstance(queue, ConsumeQueue)
        unit = queue.unit(1)
        assert unit is not None
        found.append(unit[0])
    return found
