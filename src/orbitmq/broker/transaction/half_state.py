"""Half-message state of one queue: which half messages were ended, and the offsets of their copies."""

from __future__ import annotations

import collections

PENDING = 0
COMMITTED = 1
ROLLED_BACK = 2
ENDED = 3
"""Committed or rolled back, as an op message of a previous run says."""

MAX_REMEMBERED = 100_000
"""Cache limit for copies of half messages and their outcomes; the oldest are evicted. A producer that ends an
evicted one again, by another of its offsets, ends it twice, as in RocketMQ."""

TRIM = 1 << 16
"""Bytes before ``base`` that are dropped at once: dropping each one would move all later ones each time."""


class HalfQueueState:
    """The half messages of one queue, one byte each from ``base`` on; all before ``base`` are done.

    A half message that is checked, or may not be checked yet, is appended again at the end of the queue. Its
    producer may not know the new offset and may end it by any offset that it had.
    """

    __slots__ = ("_late", "_marks", "_moved", "_origin", "base")

    def __init__(self, base: int) -> None:
        self.base = base
        self._origin = base
        self._marks = bytearray()
        # An OrderedDict: in a plain dict, finding the oldest entry scans the slots of all removed ones.
        self._moved: collections.OrderedDict[int, int] = collections.OrderedDict()
        self._late: collections.OrderedDict[int, int] = collections.OrderedDict()

    def state(self, offset: int) -> int:
        """The known state of a half message."""
        if offset < self.base:
            return self._late.get(offset, PENDING)
        index = offset - self._origin
        return self._marks[index] if index < len(self._marks) else PENDING

    def end(self, offset: int, state: int, *, has_copies: bool = False) -> None:
        """Record the end of a half message. One that has copies may be ended again, also much later."""
        if offset < self.base or has_copies:
            _remember(self._late, offset, state)
        if offset < self.base:
            return
        marks = self._marks
        missing = offset - self._origin + 1 - len(marks)
        if missing > 0:
            marks.extend(bytes(missing))
        marks[offset - self._origin] = state

    def put_back(self, offset: int, copy: int) -> None:
        """Record that a half message was appended again, at ``copy``."""
        _remember(self._moved, offset, copy)

    def is_put_back(self, offset: int) -> bool:
        return offset in self._moved

    def offsets_of(self, offset: int) -> list[int]:
        """All offsets of a half message from this one on; the last is its newest copy."""
        offsets = [offset]
        while (copy := self._moved.get(offsets[-1])) is not None:
            offsets.append(copy)
        return offsets

    def pass_over(self, offset: int) -> None:
        """Mark everything before an offset as done."""
        self.base = offset
        if offset - self._origin >= TRIM:
            del self._marks[: offset - self._origin]
            self._origin = offset

    def pass_ended(self) -> None:
        """Advance ``base`` over ended half messages, up to the first pending one."""
        marks = self._marks
        begin = self.base - self._origin
        if begin < len(marks):
            first = marks.find(PENDING, begin)
            self.pass_over(self._origin + (len(marks) if first < 0 else first))


def _remember(table: collections.OrderedDict[int, int], key: int, value: int) -> None:
    table[key] = value
    if len(table) > MAX_REMEMBERED:
        table.popitem(last=False)
