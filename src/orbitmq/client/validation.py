"""Validation of topics, groups and messages against RocketMQ's limits, before anything is sent."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.message import Message
from orbitmq.client.serialization.body import UNSET
from orbitmq.client.serialization.serializer import AUTO
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.record import MAX_PROPERTIES_SIZE
from orbitmq.protocol.names import (
    DEFAULT_PRODUCER_GROUP,
    MAX_GROUP_LENGTH,
    MAX_TOPIC_LENGTH,
    TOPICS_CLOSED_TO_CLIENTS,
)

if TYPE_CHECKING:
    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.protocol.bodies import MessageQueue

_is_name = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_LETTERS = "letters, digits, and the characters _ - % |"


def check_topic(topic: str) -> None:
    """Raise InvalidMessageError for an invalid topic name."""
    if not isinstance(topic, str):
        raise InvalidMessageError(f"a topic is a name, not {type(topic).__name__}: {topic!r}")
    if not topic or not topic.strip():
        raise InvalidMessageError("a message needs a topic: the given one is blank")
    if len(topic) > MAX_TOPIC_LENGTH:
        raise InvalidMessageError(
            f"the topic {topic[:20]}… has {len(topic)} characters: at most {MAX_TOPIC_LENGTH} are allowed"
        )
    if not _is_name(topic):
        raise InvalidMessageError(f"the topic {topic!r} contains illegal characters: allowed are {_LETTERS}")


def check_topic_to_send(topic: str) -> None:
    """Raise InvalidMessageError for a topic that clients cannot send to."""
    check_topic(topic)
    if topic in TOPICS_CLOSED_TO_CLIENTS:
        raise InvalidMessageError(f"sending to the topic {topic!r} is forbidden: it is RocketMQ's own")


def check_group(group: str) -> None:
    """Raise InvalidMessageError for an invalid group name."""
    if not isinstance(group, str):
        raise InvalidMessageError(f"a group is a name, not {type(group).__name__}: {group!r}")
    if not group or not group.strip():
        raise InvalidMessageError("a group needs a name: the given one is blank")
    if len(group) > MAX_GROUP_LENGTH:
        raise InvalidMessageError(
            f"the group {group[:20]}… has {len(group)} characters: at most {MAX_GROUP_LENGTH} are allowed"
        )
    if not _is_name(group):
        raise InvalidMessageError(f"the group {group!r} contains illegal characters: allowed are {_LETTERS}")


def check_producer_group(group: str) -> None:
    """Raise InvalidMessageError for a group name that producers cannot use."""
    check_group(group)
    if group == DEFAULT_PRODUCER_GROUP:
        raise InvalidMessageError(f"a producer's group cannot be {DEFAULT_PRODUCER_GROUP}: choose another name")


def check_message(message: Message, max_bytes: int, serializer: Serializer = AUTO) -> None:
    """Raise InvalidMessageError for a message that brokers reject. The topic is validated separately.

    The body of a message with a ``value`` is made here.
    """
    if not isinstance(message, Message):
        raise InvalidMessageError(f"expected a Message, not {type(message).__name__}")
    if not message.body and message.value is not UNSET:
        message.body = serializer.dumps(message.value)
    size = len(message.body)
    if not size:
        raise InvalidMessageError("the body of the message is empty: brokers reject empty messages")
    if size > max_bytes:
        raise InvalidMessageError(
            f"the body of the message has {size} bytes: at most {max_bytes} are allowed (max_message_size)"
        )
    queues = message.properties.get(names.INNER_MULTI_DISPATCH)
    if queues is not None and os.sep in queues:
        raise InvalidMessageError(
            f"the property {names.INNER_MULTI_DISPATCH} must not contain {os.sep!r}: {queues}"
        )


def check_properties_size(size: int) -> None:
    """Raise InvalidMessageError for properties that do not fit into a record."""
    if size > MAX_PROPERTIES_SIZE:
        raise InvalidMessageError(
            f"the properties of the message have {size} bytes in total: at most {MAX_PROPERTIES_SIZE} are allowed"
        )


def check_queue(queue: MessageQueue, topic: str) -> None:
    """Raise InvalidMessageError for a queue of another topic."""
    if queue.topic != topic:
        raise InvalidMessageError(f"a message for the topic {topic!r} cannot go to a queue of {queue.topic!r}")
