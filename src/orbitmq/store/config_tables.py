"""Tables of the store's ``config/`` directory that have no other home."""

import dataclasses
from dataclasses import field
from typing import Any, ClassVar

from orbitmq.platform.json_files import ConfigFile
from orbitmq.protocol.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    LmqConsumerOffsetSerializeWrapper,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicQueueMappingSerializeWrapper,
    TransactionMetricsSerializeWrapper,
)
from orbitmq.protocol.bodies.codec import java


@dataclasses.dataclass(slots=True)
class BloomFilterData(Body):
    """The bits of a group in the Bloom filter of its topic."""

    bit_pos: tuple[int, ...] | None = None
    bit_num: int = 0


@dataclasses.dataclass(slots=True)
class ConsumerFilterData(Body):
    """A group's expression for a topic; dead since ``dead_time`` if that is not before ``born_time``."""

    consumer_group: str = ""
    topic: str = ""
    expression: str | None = None
    expression_type: str | None = None
    born_time: int = 0
    dead_time: int = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: int = 0

    DERIVED: ClassVar[dict[str, str]] = {"dead": "dead"}

    @property
    def dead(self) -> bool:
        return self.dead_time >= self.born_time


@dataclasses.dataclass(slots=True)
class FilterDataMapByTopic(Body):
    """The expressions of all groups for a topic."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


@dataclasses.dataclass(slots=True)
class ConsumerFilterTable(Body):
    """All expressions that are not plain tags, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class OrderInfo(Body):
    """Messages that an orderly pop of a queue has handed out: the first offset, then the distances of the
    others."""

    pop_time: int = 0
    invisible_time: int | None = field(default=None, metadata=java("i", "invisibleTime"))
    offset_list: tuple[int, ...] | None = field(default=None, metadata=java("o", "offsetList"))
    offset_next_visible_time: dict[int, int] | None = field(
        default=None, metadata=java("ot", "offsetNextVisibleTime")
    )
    offset_consumed_count: dict[int, int] | None = field(default=None, metadata=java("oc", "offsetConsumedCount"))
    last_consume_timestamp: int = field(default=0, metadata=java("l", "lastConsumeTimestamp"))
    commit_offset_bit: int = field(default=0, metadata=java("cm", "commitOffsetBit"))
    attempt_id: str | None = field(default=None, metadata=java("a", "attemptId"))


@dataclasses.dataclass(slots=True)
class ConsumerOrderInfoTable(Body):
    """Orderly pops by ``topic@group`` and queue id."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)

    DERIVED: ClassVar[dict[str, str]] = {
        "orderInfoCount": "order_info_count",
        "orderedConsumptionLevel": "ordered_consumption_level",
    }

    @property
    def order_info_count(self) -> int:
        return len(self.table)

    @property
    def ordered_consumption_level(self) -> str:
        return "QUEUE"


TOPICS = ConfigFile("topics.json", TopicConfigSerializeWrapper)
SUBSCRIPTION_GROUPS = ConfigFile("subscriptionGroup.json", SubscriptionGroupWrapper)
CONSUMER_OFFSETS = ConfigFile("consumerOffset.json", ConsumerOffsetSerializeWrapper)
LMQ_CONSUMER_OFFSETS = ConfigFile("lmqConsumerOffset.json", LmqConsumerOffsetSerializeWrapper)
DELAY_OFFSETS = ConfigFile("delayOffset.json", DelayOffsetSerializeWrapper)
CONSUMER_FILTERS = ConfigFile("consumerFilter.json", ConsumerFilterTable)
CONSUMER_ORDER_INFO = ConfigFile("consumerOrderInfo.json", ConsumerOrderInfoTable)
MESSAGE_REQUEST_MODES = ConfigFile("messageRequestMode.json", MessageRequestModeSerializeWrapper)
TOPIC_QUEUE_MAPPINGS = ConfigFile("topicQueueMapping.json", TopicQueueMappingSerializeWrapper)
TIMER_METRICS = ConfigFile("timermetrics", TimerMetricsSerializeWrapper, pretty=False)
TRANSACTION_METRICS = ConfigFile("transactionMetrics", TransactionMetricsSerializeWrapper, pretty=False)

ALL: tuple[ConfigFile[Any], ...] = (
    TOPICS,
    SUBSCRIPTION_GROUPS,
    CONSUMER_OFFSETS,
    LMQ_CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    CONSUMER_FILTERS,
    CONSUMER_ORDER_INFO,
    MESSAGE_REQUEST_MODES,
    TOPIC_QUEUE_MAPPINGS,
    TIMER_METRICS,
    TRANSACTION_METRICS,
)
