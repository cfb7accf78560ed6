"""Settings of a client: what it sends, completed with the server's and its group's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import GroupRetryPolicyType
from orbitmq.protocol.bodies.groups import RETRY_DELAYS, ExponentialRetryPolicy
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.messages.validation import check_group, check_topic
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.duration_pb2 import Duration

    from orbitmq.protocol.bodies import SubscriptionGroupConfig
    from orbitmq.proxy.config import GrpcConfig

DEFAULT_LITE_QUOTA = 2000
DEFAULT_MAX_RETRIES = 16

MAX_PROPERTIES = 32
MAX_PROPERTIES_SIZE = 4096
MAX_PROPERTY_VALUE = 256
"""Client properties: their number, the characters of all keys and values, and of one value."""

_PROPERTY_KEY = re.compile("[a-zA-Z][a-zA-Z0-9_.-]{0,63}")

LITE_CONSUMERS = frozenset({pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER})
CONSUMERS = LITE_CONSUMERS | {pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER, pb.PULL_CONSUMER}
MAX_TOPICS = 10_000
"""Topics of one client's settings."""


def check_settings(settings: pb.Settings) -> None:
    """Raise StatusError for names that are not allowed."""
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        if len(settings.publishing.topics) > MAX_TOPICS:
            raise StatusError(pb.BAD_REQUEST, f"a client may publish to {MAX_TOPICS} topics at most")
        for topic in settings.publishing.topics:
            check_topic(topic)
    elif kind == "subscription":
        subscription = settings.subscription
        check_group(subscription.group)
        if len(subscription.subscriptions) > MAX_TOPICS:
            raise StatusError(pb.BAD_REQUEST, f"a client may subscribe {MAX_TOPICS} topics at most")
        for entry in subscription.subscriptions:
            check_topic(entry.topic)
    else:
        raise StatusError(pb.BAD_REQUEST, "the settings have neither publishing nor subscription")
    _check_properties(settings.client_properties)


def _check_properties(properties: Mapping[str, str]) -> None:
    size = sum(len(key) + len(value) for key, value in properties.items())
    if len(properties) > MAX_PROPERTIES or size > MAX_PROPERTIES_SIZE:
        raise StatusError(
            pb.INVALID_CLIENT_PROPERTIES,
            f"at most {MAX_PROPERTIES} client properties of {MAX_PROPERTIES_SIZE} characters are allowed",
        )
    for key, value in properties.items():
        if not _PROPERTY_KEY.fullmatch(key) or key.startswith("rocketmq.") or len(value) > MAX_PROPERTY_VALUE:
            raise StatusError(
                pb.INVALID_CLIENT_PROPERTIES,
                f"client property {key[:64]!r}: a key is a letter and up to 63 letters, digits, '_', '.' or '-', "
                f"without the prefix 'rocketmq.', a value has at most {MAX_PROPERTY_VALUE} characters",
            )


def completed(sent: pb.Settings, group: SubscriptionGroupConfig | None, config: GrpcConfig) -> pb.Settings:
    """The settings that a client is answered, and has from then on."""
    answer = pb.Settings()
    answer.CopyFrom(sent)
    answer.metric.on = False
    answer.metric.ClearField("endpoints")
    if sent.WhichOneof("pub_sub") == "publishing":
        answer.publishing.max_body_size = config.max_message_size
        answer.publishing.validate_message_type = config.enable_topic_message_type_check
        policy = answer.backoff_policy
        policy.max_attempts = config.grpc_client_producer_max_attempts
        _exponential(
            policy,
            config.grpc_client_producer_backoff_initial_millis,
            config.grpc_client_producer_backoff_max_millis,
            config.grpc_client_producer_backoff_multiplier,
        )
        return answer
    subscription = answer.subscription
    subscription.fifo = group is not None and group.consume_message_orderly
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    _set(subscription.long_polling_timeout, config.grpc_client_consumer_max_long_polling_timeout_millis)
    quota = (group.attributes or {}).get("lite.sub.client.quota", "") if group is not None else ""
    subscription.lite_subscription_quota = int(quota) if quota.isdigit() and len(quota) < 10 else DEFAULT_LITE_QUOTA
    subscription.max_lite_topic_size = config.max_lite_topic_size
    policy = answer.backoff_policy
    policy.ClearField("strategy")
    policy.max_attempts = max_attempts(group)
    if group is not None and group.group_retry_policy.type is GroupRetryPolicyType.EXPONENTIAL:
        chosen = group.group_retry_policy.exponential_retry_policy or ExponentialRetryPolicy()
        _exponential(policy, chosen.initial, chosen.max, chosen.multiplier)
    else:
        for delay in retry_delays(group):
            _set(policy.customized_backoff.next.add(), delay)
    return answer


def max_attempts(group: SubscriptionGroupConfig | None) -> int:
    """Deliveries of a message before it goes to the dead letter queue."""
    return (DEFAULT_MAX_RETRIES if group is None else group.retry_max_times) + 1


def retry_delays(group: SubscriptionGroupConfig | None) -> tuple[int, ...]:
    """Milliseconds before each retry of a group with the customized policy."""
    chosen = None if group is None else group.group_retry_policy.customized_retry_policy
    return chosen.next if chosen is not None and chosen.next else RETRY_DELAYS


def retry_delay(group: SubscriptionGroupConfig | None, reconsume_times: int) -> int:
    """Milliseconds before the retry that the server itself schedules, which begins at the third step."""
    step = reconsume_times + 2
    if group is not None and group.group_retry_policy.type is GroupRetryPolicyType.EXPONENTIAL:
        chosen = group.group_retry_policy.exponential_retry_policy or ExponentialRetryPolicy()
        return int(min(chosen.max, chosen.initial * max(chosen.multiplier, 1) ** min(step, 31)))
    delays = retry_delays(group)
    return delays[min(step, len(delays) - 1)]


def _exponential(policy: pb.RetryPolicy, initial: int, longest: int, multiplier: float) -> None:
    _set(policy.exponential_backoff.initial, initial)
    _set(policy.exponential_backoff.max, longest)
    policy.exponential_backoff.multiplier = multiplier


def _set(duration: Duration, milliseconds: int) -> None:
    duration.seconds, rest = divmod(milliseconds, 1000)
    duration.nanos = rest * 1_000_000
