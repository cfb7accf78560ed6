"""Repairs flipped bits in the topic name of a record, with the help of its queue.

The CRC of a record covers its body only. Its topic is unprotected (unless the ``__CRC32#`` property is written), so
a flipped bit moves the record to another topic. If a queue unit points to the record, and queue id, queue offset,
position, size and body CRC match, and the names differ in one or two bits, then the name is damaged and the queue
is right.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.commitlog.scanner import Seen

logger = logging.getLogger(__name__)

MAX_BITS = 2
"""Maximum number of flipped bits; names that differ in more are different topics."""


def is_near(topic: bytes, other: bytes) -> bool:
    """True if two names differ in one or two bits."""
    if len(topic) != len(other) or topic == other:
        return False
    return (int.from_bytes(topic, "big") ^ int.from_bytes(other, "big")).bit_count() <= MAX_BITS


def one_bit_away(topic: bytes) -> Iterator[bytes]:
    """Every name that differs in one bit."""
    for at, letter in enumerate(topic):
        for bit in range(8):
            yield topic[:at] + bytes((letter ^ 1 << bit,)) + topic[at + 1 :]


def restore_topic(files: LogFiles, seen: Seen, topic: bytes) -> bool:
    """Restore the name in a record if the stored one is nearly the same; returns whether it was restored."""
    if not files.writable or not seen.body_is_intact or not is_near(seen.topic, topic):
        return False
    base = seen.offset - seen.offset % files.file_size
    if base not in files:
        return False
    at = seen.offset - base + seen.size - len(seen.properties) - 2 - len(topic)
    buffer = files.mapped(base).buffer
    if bytes(buffer[at : at + len(topic)]) != seen.topic:
        return False
    buffer[at : at + len(topic)] = topic
    logger.error(
        "commit log: restored the topic of the record at %d: %r is %r with flipped bits",
        seen.offset,
        seen.topic,
        topic,
    )
    return True
