"""Checks of names and messages, with the codes of Apache's proxy."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from orbitmq.protocol.names import MAX_GROUP_LENGTH, MAX_TOPIC_LENGTH, SYSTEM_GROUP_PREFIX, is_system_topic
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.messages.reserved import RESERVED
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from orbitmq.proxy.config import GrpcConfig

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_LITE = re.compile(r"[a-zA-Z0-9_-]+")


def check_topic(resource: pb.Resource) -> str:
    """The name of a topic that clients may use. Raises StatusError."""
    return _checked_topic(resource.name)


def check_group(resource: pb.Resource) -> str:
    """The name of a consumer group. Raises StatusError."""
    return _checked_group(resource.name)


# Only names that are allowed stay in these caches.


@functools.lru_cache(maxsize=4096)
def _checked_topic(name: str) -> str:
    if not _LEGAL.fullmatch(name):
        problem = "must not be blank" if not name.strip() else "has characters other than ^[%|a-zA-Z0-9_-]+$"
        raise StatusError(pb.ILLEGAL_TOPIC, f"topic {name[:MAX_TOPIC_LENGTH]!r} {problem}")
    if len(name) > MAX_TOPIC_LENGTH:
        raise StatusError(pb.ILLEGAL_TOPIC, f"the topic name has more than {MAX_TOPIC_LENGTH} characters")
    if is_system_topic(name):
        raise StatusError(pb.ILLEGAL_TOPIC, f"cannot access system topic {name}")
    return name


@functools.lru_cache(maxsize=4096)
def _checked_group(name: str) -> str:
    if not _LEGAL.fullmatch(name):
        problem = "must not be blank" if not name.strip() else "has characters other than ^[%|a-zA-Z0-9_-]+$"
        raise StatusError(pb.ILLEGAL_CONSUMER_GROUP, f"consumer group {name[:MAX_GROUP_LENGTH]!r} {problem}")
    if len(name) > MAX_GROUP_LENGTH:
        raise StatusError(
            pb.ILLEGAL_CONSUMER_GROUP, f"the name of the consumer group has more than {MAX_GROUP_LENGTH} characters"
        )
    if name.startswith(SYSTEM_GROUP_PREFIX):
        raise StatusError(pb.ILLEGAL_CONSUMER_GROUP, f"cannot use system consumer group {name}")
    return name


def check_message(message: pb.Message, config: GrpcConfig, now_ms: int) -> None:
    """Raise StatusError if a message may not be sent."""
    properties = message.system_properties
    body_size = len(message.body)
    if not body_size and config.enable_message_body_empty_check:
        raise StatusError(pb.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if body_size > config.max_message_size:
        raise StatusError(
            pb.MESSAGE_BODY_TOO_LARGE, f"message body has {body_size} bytes, at most {config.max_message_size}"
        )
    if not properties.message_id.strip():
        raise StatusError(pb.ILLEGAL_MESSAGE_ID, "message id cannot be blank")
    _check_text(properties.message_id, pb.ILLEGAL_MESSAGE_ID, "message id")
    size = 0
    if properties.HasField("tag"):
        tag = properties.tag
        size += _check_words(tag, pb.ILLEGAL_MESSAGE_TAG, "tag")
        if "|" in tag:
            raise StatusError(pb.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    for key in properties.keys:
        size += _check_words(key, pb.ILLEGAL_MESSAGE_KEY, "key")
    if properties.HasField("message_group"):
        group_size = _check_words(properties.message_group, pb.ILLEGAL_MESSAGE_GROUP, "message group")
        if group_size >= config.max_message_group_size:
            raise StatusError(
                pb.ILLEGAL_MESSAGE_GROUP,
                f"message group has {group_size} bytes, fewer than {config.max_message_group_size} are allowed",
            )
    for text, what in ((properties.trace_context, "trace context"), (properties.born_host, "born host")):
        _check_text(text, pb.ILLEGAL_MESSAGE_PROPERTY_KEY, what)
    _check_user_properties(message, config, size)
    _check_times(properties, config, now_ms)
    if properties.HasField("priority") and properties.priority < 0:
        raise StatusError(pb.BAD_REQUEST, f"priority {properties.priority} must not be negative")
    if properties.HasField("lite_topic"):
        check_lite_topic(properties.lite_topic, config)


def check_lite_topic(name: str, config: GrpcConfig) -> None:
    """Raise StatusError for the name of a lite topic that is not allowed."""
    if len(name.encode()) > config.max_lite_topic_size or not _LITE.fullmatch(name):
        raise StatusError(
            pb.ILLEGAL_LITE_TOPIC,
            f"lite topic {name[:80]!r} must have 1 to {config.max_lite_topic_size} letters, digits, '-' or '_'",
        )


def _check_user_properties(message: pb.Message, config: GrpcConfig, size: int) -> None:
    properties = message.user_properties
    if len(properties) > config.user_property_max_num:
        raise StatusError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"message has {len(properties)} user properties, at most {config.user_property_max_num} are allowed",
        )
    for key, value in properties.items():
        if key in RESERVED:
            raise StatusError(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {key}")
        _check_text(key, pb.ILLEGAL_MESSAGE_PROPERTY_KEY, "property key")
        _check_text(value, pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"value of property {key!r}")
        size += len(key.encode()) + len(value.encode())
    if size > config.max_user_property_size:
        raise StatusError(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size} bytes, at most {config.max_user_property_size} are allowed",
        )


def _check_times(properties: pb.SystemProperties, config: GrpcConfig, now_ms: int) -> None:
    if properties.HasField("delivery_timestamp"):
        delay = milliseconds(properties.delivery_timestamp) - now_ms
        if delay > config.max_delay_time_mills:
            raise StatusError(
                pb.ILLEGAL_DELIVERY_TIME,
                f"the max delay time of message is too large, max is {config.max_delay_time_mills}",
            )
    if properties.HasField("orphaned_transaction_recovery_duration"):
        seconds = properties.orphaned_transaction_recovery_duration.seconds
        if seconds > config.max_transaction_recovery_second:
            raise StatusError(
                pb.BAD_REQUEST,
                "the max transaction recovery time of message is too large, max is "
                f"{config.max_transaction_recovery_second}",
            )


def _check_words(text: str, code: pb.Code, what: str) -> int:
    """The size of a text, which may be empty but not blank."""
    if text and not text.strip():
        raise StatusError(code, f"{what} cannot be blank")
    _check_text(text, code, what)
    return len(text.encode())


def _check_text(text: str, code: pb.Code, what: str) -> None:
    if _CONTROL.search(text):
        raise StatusError(code, f"{what} cannot contain control characters")


def milliseconds(value: Timestamp | Duration) -> int:
    """A protobuf timestamp or duration in milliseconds."""
    return int(value.seconds * 1000 + value.nanos // 1_000_000)
