"""Records of a queue for one answer. Twin of ``native/src/store/gather_records.c``."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.native.results import Gathered

if TYPE_CHECKING:
    from orbitmq.native.buffer import Buffer

_UNIT = struct.Struct(">qiq")
_HEAD = struct.Struct(">i8xi4xqq")
"""Of a record: its size, queue id, queue offset and offset in the log."""
_FILLER_SIZE = 0x7FFFFFFF
_MAX_OFFSET = 1 << 63


def gather_records(
    units: bytes,
    buffer: Buffer,
    base: int,
    end: int,
    max_bytes: int,
    copied: int,
    copied_each: int,
    queue_id: int,
    number: int,
    /,
) -> Gathered | None:
    """The records that consume queue units lead to, up to ``max_bytes`` but at least one.

    ``buffer`` is one file of the log, whose first byte has the offset ``base``; the log ends at ``end``. Scattered
    records are copied if they have no more than ``copied`` bytes and ``copied_each`` each. ``queue_id`` and
    ``number`` are the queue and the queue offset of the first unit, which each record must name; a negative number
    stands for a light queue, which holds records of others.

    None if the records need the Python reader: fillers, records in another file, or damaged units. Records of a
    queue lie in the log in the order of their queue offsets, so units that go backwards are damaged.
    """
    found = list(_UNIT.iter_unpack(units))
    if not found or any(size <= 0 or size == _FILLER_SIZE for _, size, _ in found):
        return None
    before = 0
    for at, size, _ in found:
        if at < before or at + size >= _MAX_OFFSET:
            return None
        before = at + size
    total = sum([size for _, size, _ in found])
    while total > max_bytes and len(found) > 1:
        total -= found.pop()[1]
    first = found[0][0]
    last, size, _ = found[-1]
    stop = last + size
    if base < 0 or first < base or stop > end or stop - base > len(buffer):
        return None
    if number >= 0 and not _are_of_queue(found, buffer, base, queue_id, number):
        return None
    records = None
    if total != stop - first and total <= copied + copied_each * len(found):
        records = b"".join([buffer[at - base : at - base + size] for at, size, _ in found])
        if len(records) != total:
            return None
    return Gathered(len(found), total, last, stop, records)


def _are_of_queue(found: list[tuple[int, int, int]], buffer: Buffer, base: int, queue_id: int, number: int) -> bool:
    if number + len(found) >= _MAX_OFFSET:
        return False
    for expected, (at, size, _) in enumerate(found, number):
        if at - base > len(buffer) - _HEAD.size:
            return False
        if _HEAD.unpack_from(buffer, at - base) != (size, queue_id, expected, at):
            return False
    return True
