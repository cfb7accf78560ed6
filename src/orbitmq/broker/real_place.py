"""Where a message belongs that is parked under a topic of the broker's own: its properties say so."""

from __future__ import annotations

import functools

from orbitmq.protocol import property_names as names
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.properties import find, with_property, without

MAX_QUEUE_ID = (1 << 31) - 1

REAL_TOPIC = names.REAL_TOPIC.encode()
REAL_QUEUE_ID = names.REAL_QUEUE_ID.encode()

_LONGEST_REMEMBERED = 256
_text = functools.lru_cache(maxsize=8192)(decode_utf8)


def with_place(properties: bytes, topic: str, queue_id: int) -> bytes:
    """The properties of a message that belongs there and is put elsewhere."""
    if _is_plain(properties, topic):
        # What nearly all messages take, in one piece.
        return properties + b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (
            topic.encode("utf-8", "replace"),
            queue_id,
        )
    properties = with_property(properties, REAL_TOPIC, topic.encode("utf-8", "replace"))
    return with_property(properties, REAL_QUEUE_ID, b"%d" % queue_id)


def with_one_and_place(properties: bytes, name: bytes, value: bytes, topic: str, queue_id: int) -> bytes:
    """The same with one more property in front of the place."""
    if name not in properties and value and b"\x02" not in value and _is_plain(properties, topic):
        return properties + b"%b\x01%b\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (
            name,
            value,
            topic.encode("utf-8", "replace"),
            queue_id,
        )
    return with_place(with_property(properties, name, value), topic, queue_id)


def _is_plain(properties: bytes, topic: str) -> bool:
    """Whether the place can be put behind these properties as they are."""
    return b"REAL_" not in properties and properties[-1:] == b"\x02" and topic != "" and "\x02" not in topic


def without_place(properties: bytes, topic: str, queue_id: int) -> bytes:
    """The properties of a message that was parked with these and is put where it belongs."""
    rest = properties.removesuffix(
        b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (topic.encode("utf-8", "replace"), queue_id)
    )
    # Other brokers put them elsewhere, and senders may have set them as well.
    return without(rest, (REAL_TOPIC, REAL_QUEUE_ID)) if b"REAL_" in rest else rest


def topic_in(properties: bytes) -> str:
    """The topic that a parked message belongs to; empty if it does not say."""
    topic = find(properties, REAL_TOPIC)
    if topic is None:
        return ""
    # There are few topics and many messages.
    return _text(topic) if len(topic) <= _LONGEST_REMEMBERED else decode_utf8(topic)


def place_in(properties: bytes) -> tuple[str, int] | None:
    """Topic and queue that a parked message belongs to; None if it does not say properly."""
    _, is_there, tail = properties.rpartition(b"\x02REAL_TOPIC\x01")
    if is_there and len(tail) <= _LONGEST_REMEMBERED:
        # There are few places and many messages, nearly all of which end with theirs.
        place = _place_of_tail(tail)
        if place is not None:
            return place
    return _place_in(properties)


@functools.lru_cache(maxsize=8192)
def _place_of_tail(tail: bytes) -> tuple[str, int] | None:
    return _place_in(b"REAL_TOPIC\x01" + tail)


def _place_in(properties: bytes) -> tuple[str, int] | None:
    topic = topic_in(properties)
    number = find(properties, REAL_QUEUE_ID)
    if not topic or number is None or not number.isdigit() or len(number) > 10:
        return None
    queue_id = int(number)
    return None if queue_id > MAX_QUEUE_ID else (topic, queue_id)
