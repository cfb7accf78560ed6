"""The words of POP: names of retry topics, receipts of messages, and what an answer says about its messages.

A receipt (RocketMQ's extra info, the property ``POP_CK``) is what a consumer shows to acknowledge a message. It
says which check point covers the message, so the broker need not remember who got what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.protocol.command.fields import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import (
    POP_ORDER_REVIVE_QUEUE,
    POP_RETRY_SEPARATOR_V1,
    POP_RETRY_SEPARATOR_V2,
    RETRY_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NORMAL = "0"
RETRY_V1 = "1"
RETRY_V2 = "2"

MOST_MESSAGES = 32
"""Of one pop."""


def pop_retry_topic(topic: str, group: str, *, v2: bool = False) -> str:
    """Where messages of a topic come again for a group that did not acknowledge them."""
    separator = POP_RETRY_SEPARATOR_V2 if v2 else POP_RETRY_SEPARATOR_V1
    return f"{RETRY_PREFIX}{group}{separator}{topic}"


def topic_kind(topic: str) -> str:
    """Which kind of topic it is, as a receipt says it."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if POP_RETRY_SEPARATOR_V2 in topic else RETRY_V1


def real_topic(topic: str, group: str, kind: str | None) -> str:
    """The topic that a message was popped from. Raises ProtocolError."""
    if kind == NORMAL:
        return topic
    if kind not in (RETRY_V1, RETRY_V2):
        raise ProtocolError(f"{kind!r} is no kind of topic: give 0, 1 or 2")
    return pop_retry_topic(topic, group, v2=kind == RETRY_V2)


def normal_topic(topic: str, group: str) -> str:
    """The topic whose messages come again under this one; the topic itself if it is no retry topic of the group."""
    for separator in (POP_RETRY_SEPARATOR_V2, POP_RETRY_SEPARATOR_V1):
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


class Receipt(NamedTuple):
    """Receipt handle of a popped message, with which a consumer acknowledges it."""

    start_offset: int
    """The queue offset from which its check point counts."""
    pop_time: int
    invisible_ms: int
    revive_queue: int
    kind: str
    broker_name: str
    queue_id: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Read a receipt; what proxies add behind it is passed over. Raises ProtocolError."""
        parts = text.split(" ")
        try:
            start, pop_time, invisible, revive_queue, kind, broker_name = parts[:6]
            queue_id = parts[6] if len(parts) > 6 else "-1"
            offset = parts[7] if len(parts) > 7 else "-1"
            receipt = cls(
                int(start), int(pop_time), int(invisible), int(revive_queue), kind, broker_name, int(queue_id),
                int(offset),
            )  # fmt: skip
        except ValueError:
            raise ProtocolError(f"{text[:200]!r} is no receipt of a popped message") from None
        longs = (receipt.start_offset, receipt.pop_time, receipt.invisible_ms, receipt.offset)
        # What comes of the receipt is written with eight bytes as well, and so is the end of the invisible time.
        if (
            min(longs) < INT64_MIN
            or max(*longs, receipt.pop_time + receipt.invisible_ms) > INT64_MAX
            or not INT32_MIN <= receipt.queue_id <= INT32_MAX
        ):
            raise ProtocolError(f"{text[:200]!r} is no receipt of a popped message: a number is out of range")
        return receipt

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue == POP_ORDER_REVIVE_QUEUE

    def __str__(self) -> str:
        return " ".join(map(str, self))


def join_offsets(kind: str, queue_id: int, offsets: Iterable[int]) -> str:
    """An item of ``msgOffsetInfo``."""
    return f"{kind} {queue_id} {','.join(map(str, offsets))}"


def parse_starts(text: str) -> dict[tuple[str, int], int]:
    """``startOffsetInfo``: by kind of topic and queue, where the check point begins. Raises ProtocolError."""
    found = {}
    for kind, queue_id, start in _items(text):
        found[kind, int(queue_id)] = int(start)
    return found


def parse_offsets(text: str) -> dict[tuple[str, int], list[int]]:
    """``msgOffsetInfo``: the queue offsets of the messages. Raises ProtocolError."""
    found = {}
    for kind, queue_id, offsets in _items(text):
        found[kind, int(queue_id)] = [int(offset) for offset in offsets.split(",")]
    return found


def parse_counts(text: str) -> Mapping[tuple[str, str], int]:
    """``orderCountInfo``: by kind and queue, or by kind and ``qo<queue>%<offset>``. Raises ProtocolError."""
    return {(kind, key): int(count) for kind, key, count in _items(text)}


def _items(text: str) -> list[tuple[str, str, str]]:
    items = []
    for item in text.split(";") if text else ():
        parts = item.split(" ")
        if len(parts) != 3 or not parts[2].replace(",", "").isdigit():
            raise ProtocolError(f"{item[:200]!r} is not what a pop answers about its messages")
        items.append((parts[0], parts[1], parts[2]))
    return items
