"""The topics and groups that belong to RocketMQ itself, and the prefixes that make names of them."""

from __future__ import annotations

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
"""A light queue: a queue of its own per name, filled by multi-dispatch, with queue id 0."""
LITE_TOPIC_PREFIX = "%LMQ%$"
LITE_TOPIC_SEPARATOR = "$"
NAMESPACE_SEPARATOR = "%"
POP_RETRY_SEPARATOR_V1 = "_"
POP_RETRY_SEPARATOR_V2 = "+"
POP_ORDER_REVIVE_QUEUE = 999
"""The revive queue id that marks an orderly POP; no such queue exists."""

MAX_TOPIC_LENGTH = 127
MAX_RETRY_OR_DLQ_TOPIC_LENGTH = 255
MAX_GROUP_LENGTH = 120

# Topics.
AUTO_CREATE_TOPIC = "TBW102"
"""The topic whose settings an unknown topic inherits when it is created by a send."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANSACTION_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_TRANSACTION_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANSACTION_OP_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANSACTION_GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
ROCKSDB_OFFSET_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Followed by the name of the cluster."""
SYNC_BROKER_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Followed by the name of the broker."""
TRACE_DATA_PREFIX = "rmq_sys_TRACE_DATA_"
REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"
"""After the name of the cluster."""
ORDER_TOPIC_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Not a topic: the name server's key-value namespace of ordered topics."""

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
        ROCKSDB_TRANSACTION_HALF_TOPIC,
        ROCKSDB_TRANSACTION_OP_TOPIC,
        TRANSACTION_GIVEN_UP_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        ROCKSDB_OFFSET_TOPIC,
    }
)

TOPICS_CLOSED_TO_CLIENTS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_TOPIC,
        ROCKSDB_TRANSACTION_HALF_TOPIC,
        ROCKSDB_TRANSACTION_OP_TOPIC,
        TRANSACTION_GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""A send to one of these is refused with NO_PERMISSION, by Apache's clients and brokers alike."""

# Groups.
DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP = "DEFAULT_CONSUMER"
TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
SCHEDULE_CONSUMER_GROUP = "SCHEDULE_CONSUMER"
FILTER_SERVER_CONSUMER_GROUP = "FILTERSRV_CONSUMER"
MONITOR_CONSUMER_GROUP = "__MONITOR_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
SELF_TEST_PRODUCER_GROUP = "SELF_TEST_P_GROUP"
SELF_TEST_CONSUMER_GROUP = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP = "CID_ONS-HTTP-PROXY"
ONS_PERMISSION_GROUP = "CID_ONSAPI_PERMISSION"
ONS_OWNER_GROUP = "CID_ONSAPI_OWNER"
ONS_PULL_GROUP = "CID_ONSAPI_PULL"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TRACE_PRODUCER_GROUP_PREFIX = "_INNER_TRACE_PRODUCER"

SYSTEM_GROUPS = frozenset(
    {
        DEFAULT_PRODUCER_GROUP,
        DEFAULT_CONSUMER_GROUP,
        TOOLS_CONSUMER_GROUP,
        SCHEDULE_CONSUMER_GROUP,
        FILTER_SERVER_CONSUMER_GROUP,
        MONITOR_CONSUMER_GROUP,
        CLIENT_INNER_PRODUCER_GROUP,
        SELF_TEST_PRODUCER_GROUP,
        SELF_TEST_CONSUMER_GROUP,
        ONS_HTTP_PROXY_GROUP,
        ONS_PERMISSION_GROUP,
        ONS_OWNER_GROUP,
        ONS_PULL_GROUP,
        TRANSACTION_GROUP,
    }
)

GROUPS_OF_A_NEW_BROKER = (
    TOOLS_CONSUMER_GROUP,
    FILTER_SERVER_CONSUMER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONS_PULL_GROUP,
    ONS_PERMISSION_GROUP,
    ONS_OWNER_GROUP,
    TRANSACTION_GROUP,
)
"""The groups a broker knows before anybody created one."""


GROUPS_OF_SERVICES = frozenset({TRANSACTION_GROUP, REVIVE_GROUP})
"""The groups whose offsets say how far a service of the broker has come."""


def is_system_topic(topic: str) -> bool:
    """True if the topic is one of RocketMQ's own, by name or by prefix."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """True if the group is one of RocketMQ's own, by name or by prefix."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_closed_to_clients(topic: str) -> bool:
    """True if a broker refuses sends to a topic: those that Apache refuses, and those that are the broker's stores.

    Apache lets clients write to the timer's topic and to the revive topics of POP, whose readers trust each record.
    """
    return topic in TOPICS_CLOSED_TO_CLIENTS or topic == TIMER_TOPIC or topic.startswith(REVIVE_TOPIC_PREFIX)
