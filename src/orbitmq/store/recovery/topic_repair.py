"""Repairs flipped bits in the topic name of a record, with the help of its queue.

The CRC of a record covers its body only. Its topic is unprotected (unless the ``__CRC32#`` property is written), so
a flipped bit moves the record to another topic. If a queue unit points to the record, and queue id, queue offset,
position, size and body CRC match, and the names differ in one or two bits, then the name is damaged and the queue
is right.

A recovery builds the queues from the log, so a record that does not continue the queue that it names may also stand
behind a lost one. The next records of both topics decide: names such as ``orders-0`` and ``orders-1`` differ in one
bit, and their queues are often equally long.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING

from orbitmq.store.commitlog.scanner import Seen, scan_past_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.commitlog.mapped_files import LogFiles

logger = logging.getLogger(__name__)

MAX_BITS = 2
"""Maximum number of flipped bits; names that differ in more are different topics."""

MAX_LOOKAHEAD = 20_000
"""Records behind a doubtful one that are searched for the next ones of its topics."""


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


def is_misnamed(files: LogFiles, seen: Seen, topic: bytes, named_end: int, *, has_damage: bool) -> bool:
    """True if the records behind one prove that it is of ``topic`` and not of the topic that it names.

    The queue that it names ends at ``named_end`` so far, and that of ``topic`` exactly before this record.
    """
    named_next, other_next = _next_offsets(files, seen, topic)
    if named_next is not None:
        # The queue that it names goes on as if this record were not there.
        return named_next == named_end
    if other_next is not None:
        return other_next == seen.queue_offset + 1
    # The last record of both. If another record is damaged, this one may be its successor.
    return not has_damage


def _next_offsets(files: LogFiles, seen: Seen, topic: bytes) -> tuple[int | None, int | None]:
    """Queue offsets of the next record of the same queue in the topic that a record names, and in another one."""
    named_next = other_next = None
    records = scan_past_damage(files, seen.offset + seen.size, check_crc=False)
    for found in itertools.islice(records, MAX_LOOKAHEAD):
        if not isinstance(found, Seen) or found.queue_id != seen.queue_id:
            continue
        if found.topic == seen.topic:
            named_next = found.queue_offset
            break
        if found.topic == topic and other_next is None:
            other_next = found.queue_offset
    return named_next, other_next


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
