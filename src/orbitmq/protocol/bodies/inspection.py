"""Looking inside: what a client is doing, what a queue holds, how one message would be consumed."""

import dataclasses
import enum
from dataclasses import field

from orbitmq.protocol.bodies.clients import SubscriptionData
from orbitmq.protocol.bodies.codec import Body, java
from orbitmq.protocol.bodies.queues import MessageQueue
from orbitmq.protocol.bodies.stats import ConsumeStatus


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ProcessQueueInfo(Body):
    """State of a queue that a client pulls. ``droped`` is spelt as Java spells it."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(default=0, metadata=java("cachedMsgSizeInMiB"))
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class PopProcessQueueInfo(Body):
    """State of a queue that a client pops."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumerRunningInfo(Body):
    """A consumer's inner state (307). Keys that tools look for in ``properties`` are the ``PROP_`` names."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


PROP_NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"


class CMResult(enum.StrEnum):
    """Result of consuming a message on request."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumeMessageDirectlyResult(Body):
    """Result of a message that a client consumed on request (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumeQueueData(Body):
    """One unit of a consume queue, and what a filter makes of it."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueryConsumeQueueResponseBody(Body):
    """A stretch of a consume queue (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QuerySubscriptionResponseBody(Body):
    """Subscription of a group to a topic (345)."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None
