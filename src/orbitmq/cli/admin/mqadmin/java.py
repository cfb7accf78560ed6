"""Java's ways of writing: orders of hash tables, ``toString`` of RocketMQ's classes, dates."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, TypeVar

from orbitmq.admin.topic.model import perm_text
from orbitmq.protocol.java import string_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orbitmq.protocol.bodies import GroupRetryPolicy, MessageQueue, SubscriptionGroupConfig, TopicConfig

T = TypeVar("T")


def hash_order(items: Iterable[T], hash_of: Callable[[T], int], capacity: int = 16) -> list[T]:
    """The items in the order of a ``HashMap`` of that initial capacity."""
    found = list(items)
    while len(found) > capacity * 0.75:
        capacity *= 2

    def bucket(item: T) -> int:
        bits = hash_of(item) & 0xFFFFFFFF
        return (bits ^ (bits >> 16)) & (capacity - 1)

    return sorted(found, key=bucket)


def queue_hash(queue: MessageQueue) -> int:
    """``MessageQueue.hashCode``."""
    result = 1
    for part in (string_hash(queue.broker_name), queue.queue_id, string_hash(queue.topic)):
        result = (31 * result + part) & 0xFFFFFFFF
    return result


def queues_in_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues as a ``HashSet`` or ``HashMap`` has them."""
    return hash_order(queues, queue_hash)


def settings_order(names: Iterable[str]) -> list[str]:
    """The names of settings as ``java.util.Properties`` has them."""
    return hash_order(sorted(names), string_hash)


def map_text(values: Mapping[str, object], capacity: int = 16) -> str:
    """``{a=1, b=2}``, in the order of a ``HashMap``."""
    return "{" + ", ".join(f"{key}={values[key]}" for key in hash_order(values, string_hash, capacity)) + "}"


PROPERTIES_CAPACITY = 128
"""Initial capacity of the table that RocketMQ decodes message properties into."""


def boolean(value: object) -> str:
    return "true" if value else "false"


def or_null(value: object) -> str:
    return "null" if value is None else str(value)


def queue_text(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def topic_text(config: TopicConfig, attributes: Mapping[str, str]) -> str:
    """``TopicConfig.toString``."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={boolean(config.order)}, attributes={map_text(attributes)}]"
    )


def group_fields(config: SubscriptionGroupConfig) -> dict[str, str]:
    """The fields of a ``SubscriptionGroupConfig`` in their order."""
    return {
        "groupName": config.group_name,
        "consumeEnable": boolean(config.consume_enable),
        "consumeFromMinEnable": boolean(config.consume_from_min_enable),
        "consumeBroadcastEnable": boolean(config.consume_broadcast_enable),
        "consumeMessageOrderly": boolean(config.consume_message_orderly),
        "retryQueueNums": str(config.retry_queue_nums),
        "retryMaxTimes": str(config.retry_max_times),
        "groupRetryPolicy": policy_text(config.group_retry_policy),
        "brokerId": str(config.broker_id),
        "whichBrokerWhenConsumeSlowly": str(config.which_broker_when_consume_slowly),
        "notifyConsumerIdsChangedEnable": boolean(config.notify_consumer_ids_changed_enable),
        "groupSysFlag": str(config.group_sys_flag),
        "consumeTimeoutMinute": str(config.consume_timeout_minute),
        "subscriptionDataSet": or_null(config.subscription_data_set),
        "attributes": map_text(config.attributes),
    }


def group_text(config: SubscriptionGroupConfig) -> str:
    """``SubscriptionGroupConfig.toString``."""
    return (
        "SubscriptionGroupConfig{"
        + ", ".join(f"{key}={value}" for key, value in group_fields(config).items())
        + "}"
    )


def policy_text(policy: GroupRetryPolicy) -> str:
    """``GroupRetryPolicy.toString``."""
    exponential, customized = policy.exponential_retry_policy, policy.customized_retry_policy
    first = "null"
    if exponential is not None:
        first = (
            f"ExponentialRetryPolicy{{initial={exponential.initial}, max={exponential.max}, "
            f"multiplier={exponential.multiplier}}}"
        )
    second = "null"
    if customized is not None:
        second = f"CustomizedRetryPolicy{{next=[{', '.join(map(str, customized.next))}]}}"
    return f"GroupRetryPolicy{{type={policy.type}, exponentialRetryPolicy={first}, customizedRetryPolicy={second}}}"


def date_text(ms: int) -> str:
    """``2026-11-15 20:11:36,918``, local time."""
    moment = datetime.datetime.fromtimestamp(ms / 1000).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S,") + f"{ms % 1000:03d}"
