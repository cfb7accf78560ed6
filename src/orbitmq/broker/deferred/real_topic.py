"""Real topic and queue of a deferred message: the properties REAL_TOPIC and REAL_QID."""

from __future__ import annotations

import functools

from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find, with_property, without

MAX_QUEUE_ID = (1 << 31) - 1

REAL_TOPIC = names.REAL_TOPIC.encode()
REAL_QUEUE_ID = names.REAL_QUEUE_ID.encode()

_MAX_CACHED = 256
_text = functools.lru_cache(maxsize=8192)(decode_utf8)


def with_real_topic(properties: bytes, topic: str, queue_id: int) -> bytes:
    """Properties with the real topic and queue of a message that is stored under a system topic."""
    if _is_plain(properties, topic):
        # Nearly all messages, in one step.
        return properties + b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (
            topic.encode("utf-8", "replace"),
            queue_id,
        )
    properties = with_property(properties, REAL_TOPIC, topic.encode("utf-8", "replace"))
    return with_property(properties, REAL_QUEUE_ID, b"%d" % queue_id)


def with_property_and_real_topic(properties: bytes, name: bytes, value: bytes, topic: str, queue_id: int) -> bytes:
    """The same with one more property in front of them."""
    if name not in properties and value and b"\x02" not in value and _is_plain(properties, topic):
        return properties + b"%b\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (
            name,
            value,
            topic.encode("utf-8", "replace"),
            queue_id,
        )
    return with_real_topic(with_property(properties, name, value), topic, queue_id)


def _is_plain(properties: bytes, topic: str) -> bool:
    """True if the real topic can be appended to these properties as they are."""
    return b"REAL_" not in properties and properties[-1:] == b"\x02" and topic != "" and "\x02" not in topic


def without_real_topic(properties: bytes, topic: str, queue_id: int) -> bytes:
    """Properties without the real topic and queue, for delivery to them."""
    rest = properties.removesuffix(
        b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic.encode("utf-8", "replace"), queue_id)
    )
    # Other brokers write them elsewhere, and senders may have set them as well.
    return without(rest, (REAL_TOPIC, REAL_QUEUE_ID)) if b"REAL_" in rest else rest


def real_topic_of(properties: bytes) -> str:
    """The real topic of a deferred message; empty if it has none."""
    topic = find(properties, REAL_TOPIC)
    if topic is None:
        return ""
    # Few topics, many messages.
    return _text(topic) if len(topic) <= _MAX_CACHED else decode_utf8(topic)


def real_queue_of(properties: bytes) -> tuple[str, int] | None:
    """The real topic and queue of a deferred message; None if they are missing or malformed."""
    _, is_there, tail = properties.rpartition(b"\x02REAL_TOPIC\x01")
    if is_there and len(tail) <= _MAX_CACHED:
        # Few targets and many messages, which nearly all end with these properties.
        queue = _real_queue_of_tail(tail)
        if queue is not None:
            return queue
    return _parse_real_queue(properties)


@functools.lru_cache(maxsize=8192)
def _real_queue_of_tail(tail: bytes) -> tuple[str, int] | None:
    return _parse_real_queue(b"REAL_TOPIC\x01" + tail)


def _parse_real_queue(properties: bytes) -> tuple[str, int] | None:
    topic = real_topic_of(properties)
    number = find(properties, REAL_QUEUE_ID)
    if not topic or number is None or not number.isdigit() or len(number) > 10:
        return None
    queue_id = int(number)
    return None if queue_id > MAX_QUEUE_ID else (topic, queue_id)
