"""Metrics of Apache's ``rocketmq-exporter``, which Grafana boards for RocketMQ use: same names and labels.

The exporter asks a whole cluster by admin requests once a minute; a broker here has only its own values, and sums
over brokers are for the query. The six ``rocketmq_client_*`` metrics are left out: they come from the clients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from orbitmq.broker.stats.counters import (
    BROKER_GET_NUMS,
    BROKER_PUT_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    SEND_BACK_NUMS,
    TOPIC_PUT_NUMS,
    TOPIC_PUT_SIZE,
)
from orbitmq.metrics.instrument import Instrument, Kind
from orbitmq.protocol.bodies import MessageModel
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metrics.clients import GroupLag, LagCollector
    from orbitmq.broker.runtime import Metadata
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.metrics.instrument import Labels
    from orbitmq.metrics.snapshot import Sample
    from orbitmq.platform.clock import Clock
    from orbitmq.store import MessageStore


def _gauge(name: str, description: str) -> Instrument:
    return Instrument(f"rocketmq_{name}", Kind.GAUGE, description)


BROKER_TPS: Final = _gauge("broker_tps", "Messages put per second in the last minute.")
BROKER_QPS: Final = _gauge("broker_qps", "Messages read per second in the last minute.")
PRODUCER_TPS: Final = _gauge("producer_tps", "Messages put per second in the last minute, by topic.")
PRODUCER_SIZE: Final = _gauge("producer_message_size", "Bytes put per second in the last minute, by topic.")
PRODUCER_OFFSET: Final = _gauge("producer_offset", "Sum of the maximum offsets of a topic's queues.")
RETRY_OFFSET: Final = _gauge("topic_retry_offset", "Sum of the maximum offsets of a retry topic's queues.")
DLQ_OFFSET: Final = _gauge("topic_dlq_offset", "Sum of the maximum offsets of a group's dead letter topic.")
CONSUMER_TPS: Final = _gauge("consumer_tps", "Messages read per second in the last minute, by topic and group.")
CONSUMER_SIZE: Final = _gauge("consumer_message_size", "Bytes read per second in the last minute.")
GROUP_CONSUME_TPS: Final = _gauge("group_consume_tps", "The same as rocketmq_consumer_tps.")
SEND_BACK: Final = _gauge("send_back_nums", "Messages sent back per second in the last minute.")
CONSUMER_OFFSET: Final = _gauge("consumer_offset", "Sum of the maximum offsets of the queues that a group reads.")
GROUP_OFFSET: Final = _gauge("group_consume_total_offset", "Sum of the offsets that a group has confirmed.")
GROUP_LATENCY: Final = _gauge(
    "group_get_latency_by_storetime", "Age in milliseconds of the oldest message that a group has not confirmed."
)
GROUP_DIFF: Final = _gauge("group_diff", "Messages that a group has not confirmed.")
GROUP_RETRY_DIFF: Final = _gauge("group_retrydiff", "Messages in its retry topic that a group has not confirmed.")
GROUP_DLQ_DIFF: Final = _gauge("group_dlqdiff", "Messages in its dead letter topic that a group has not confirmed.")
GROUP_COUNT: Final = _gauge("group_count", "Connected members of a group.")

_PMDT = (
    "0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s", "2to3s", "3to4s",
    "4to5s", "5to10s", "10stomore",
)  # fmt: skip

_RUNTIME = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_minoffset": "commitLogMinOffset",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
}
"""Names behind ``rocketmq_brokeruntime_``, with the keys of the runtime info that they have."""

_RATES = {
    "getfound": "getFoundTps",
    "gettotal": "getTotalTps",
    "gettransfered": "getTransferredTps",
    "getmiss": "getMissTps",
    "put": "putTps",
}
_SPANS = ("10", "60", "600")


def _runtime_gauge(name: str, key: str) -> Instrument:
    return _gauge(f"brokeruntime_{name}", f"{key} of the runtime info.")


RUNTIME: Final = {name: _runtime_gauge(name, key) for name, key in _RUNTIME.items()}
RATES: Final = {
    f"{name}_tps{span}": _runtime_gauge(f"{name}_tps{span}", key) for name, key in _RATES.items() for span in _SPANS
}
PMDT: Final = tuple(_runtime_gauge(f"pmdt_{name}", "putMessageDistributeTime") for name in _PMDT)
REMAIN_TO_FLUSH: Final = _runtime_gauge("remain_howmanydata_toflush", "remainHowManyDataToFlush")
DIR_TOTAL: Final = _runtime_gauge("commitlogdir_capacity_total", "commitLogDirCapacity")
DIR_FREE: Final = _runtime_gauge("commitlogdir_capacity_free", "commitLogDirCapacity")

_COUNT = re.compile(r":(\d+) ")


def collect_runtime(
    table: Mapping[str, str], config: BrokerConfig, store: MessageStore, version: int
) -> Iterator[Sample]:
    """The runtime info as numbers."""
    labels = (
        ("cluster", config.broker_cluster_name),
        ("brokerIP", config.broker_address),
        ("brokerHost", config.broker_name),
        ("des", table["brokerVersionDesc"]),
        ("boottime", table["bootTimestamp"]),
        ("broker_version", str(version)),
    )
    for name, key in _RUNTIME.items():
        yield RUNTIME[name], labels, float(table[key])
    for name, key in _RATES.items():
        for span, text in zip(_SPANS, table[key].split(" "), strict=True):
            yield RATES[f"{name}_tps{span}"], labels, float(text or 0)
    counts = _COUNT.findall(table["putMessageDistributeTime"]) or ["0"] * len(PMDT)
    for instrument, count in zip(PMDT, counts, strict=True):
        yield instrument, labels, int(count)
    yield REMAIN_TO_FLUSH, labels, max(store.log.committed - store.log.flushed, 0)
    try:
        space = store.disk.space(store.config.store_path_root_dir)
    except OSError:
        return
    yield DIR_TOTAL, labels, space.total
    yield DIR_FREE, labels, space.total - space.used


QUEUES_AT_ONCE = 256
"""Queues whose ends are added up between two points at which other work may run."""


class ExporterCollector:
    """Rates and offsets of topics and groups."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, metadata: Metadata, clients: Clients, stats: BrokerStats
    ) -> None:
        self._store = store
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._clients = clients
        self._stats = stats
        self._cluster = config.broker_cluster_name
        self._broker_labels: Labels = (
            ("cluster", config.broker_cluster_name),
            ("brokerIP", config.broker_address),
            ("broker", config.broker_name),
        )
        self._labels: Labels = (("cluster", config.broker_cluster_name), ("broker", config.broker_name))

    def samples(self, lags: LagCollector, clock: Clock) -> Iterator[Sample | None]:
        """All samples; None where other work may run."""
        tps = self._stats.minute_tps
        yield BROKER_TPS, self._broker_labels, tps(BROKER_PUT_NUMS, self._cluster)
        yield BROKER_QPS, self._broker_labels, tps(BROKER_GET_NUMS, self._cluster)
        for topic, config in list(self._topics.configs.items()):
            yield from self._topic(topic, config.write_queue_nums)
        for key, _ in self._stats.counters_of_gets():
            yield from self._reads(*key)
        for group in list(self._clients.consumers.values()):
            for member in list(group.members.values()):
                pairs = (
                    ("caddr", member.connection.remote_address),
                    ("localaddr", member.client_id),
                    ("group", group.name),
                )
                yield GROUP_COUNT, pairs, 1
        for name in self._offsets.groups():
            for topic in sorted(self._offsets.topics_of(name)):
                yield from self._progress(name, topic, lags, clock)

    def _topic(self, topic: str, queues: int) -> Generator[Sample | None, None, None]:
        total = 0
        for first in range(0, queues, QUEUES_AT_ONCE):
            yield None
            total += self._store.queues.sum_of_ends(topic, range(first, min(first + QUEUES_AT_ONCE, queues)))
        pairs = (*self._labels, ("topic", topic))
        if topic.startswith(DLQ_PREFIX):
            yield DLQ_OFFSET, (*self._labels, ("group", topic.removeprefix(DLQ_PREFIX))), total
        else:
            yield RETRY_OFFSET if topic.startswith(RETRY_PREFIX) else PRODUCER_OFFSET, pairs, total
        yield PRODUCER_TPS, pairs, self._stats.minute_tps(TOPIC_PUT_NUMS, topic)
        yield PRODUCER_SIZE, pairs, self._stats.minute_tps(TOPIC_PUT_SIZE, topic)

    def _reads(self, topic: str, group: str) -> Iterator[Sample]:
        pairs, key = (*self._labels, ("topic", topic), ("group", group)), f"{topic}@{group}"
        rate = self._stats.minute_tps(GROUP_GET_NUMS, key)
        yield CONSUMER_TPS, pairs, rate
        yield GROUP_CONSUME_TPS, pairs, rate
        yield CONSUMER_SIZE, pairs, self._stats.minute_tps(GROUP_GET_SIZE, key)
        yield SEND_BACK, pairs, self._stats.minute_tps(SEND_BACK_NUMS, key)

    def _progress(
        self, group: str, topic: str, lags: LagCollector, clock: Clock
    ) -> Generator[Sample | None, None, None]:
        config = self._topics.configs.get(topic)
        if config is None:
            return
        lag: GroupLag = yield from lags.of(group, topic, config.write_queue_nums)
        pairs = (*self._labels, ("topic", topic), ("group", group))
        yield CONSUMER_OFFSET, pairs, lag.end
        yield GROUP_OFFSET, pairs, lag.end - lag.lag
        oldest = lag.oldest_unconfirmed
        yield GROUP_LATENCY, pairs, max(clock.now_ms() - oldest, 0) if oldest else 0
        found = self._clients.consumers.get(group)
        model = MessageModel.CLUSTERING if found is None else found.message_model
        diff = GROUP_DIFF
        if topic.startswith(RETRY_PREFIX):
            diff = GROUP_RETRY_DIFF
        elif topic.startswith(DLQ_PREFIX):
            diff = GROUP_DLQ_DIFF
        labels = (
            ("group", group),
            ("topic", topic),
            ("countOfOnlineConsumers", str(0 if found is None else len(found.members))),
            # The ordinal of Java's constant.
            ("msgModel", "0" if model is MessageModel.BROADCASTING else "1"),
        )
        yield diff, labels, lag.lag
