"""Figures: how full topics are, how far groups lag, what a broker did per minute, hour and day."""

import dataclasses
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body, java
from orbitmq.protocol.bodies.queues import MessageQueue
from orbitmq.protocol.bodies.version import DataVersion


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicOffset(Body):
    """The ends of a queue."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicStatsTable(Body):
    """The ends of all queues of a topic (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class OffsetWrapper(Body):
    """A queue's end and how far a group has come."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumeStats(Body):
    """Progress of a group (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumeStatsList(Body):
    """Progress of all groups of a broker (317)."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BrokerStatsItem(Body):
    """A counter over a span of time."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BrokerStatsData(Body):
    """A counter over the last minute, hour and day (315)."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueueTimeSpan(Body):
    """The times of a queue's first, last and last consumed message.

    The ``…_str`` fields are the same as text in the broker's own time zone, ``2026-01-31#09:05:00:123``. Java
    writes and does not read them.
    """

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueryConsumeTimeSpanBody(Body):
    """The spans of a topic's queues for a group (303)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Metric(Body):
    """Number of messages that wait under a topic, and the time of the count."""

    count: int = 0
    time_stamp: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TimerMetricsSerializeWrapper(Body):
    """Messages that wait for their time, by topic (61); also ``config/timermetrics``."""

    timing_count: dict[str, Metric] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TransactionMetricsSerializeWrapper(Body):
    """Half messages that wait for their end, by topic; ``config/transactionMetrics``."""

    transaction_count: dict[str, Metric] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumeStatus(Body):
    """A client's own figures for a topic."""

    pull_rt: float = field(default=0.0, metadata=java("pullRT"))
    pull_tps: float = field(default=0.0, metadata=java("pullTPS"))
    consume_rt: float = field(default=0.0, metadata=java("consumeRT"))
    consume_ok_tps: float = field(default=0.0, metadata=java("consumeOKTPS"))
    consume_failed_tps: float = field(default=0.0, metadata=java("consumeFailedTPS"))
    consume_failed_msgs: int = 0
