"""What became of the half messages of one queue: which were ended, and where others were put."""

from __future__ import annotations

import collections

PENDING = 0
COMMITTED = 1
ROLLED_BACK = 2
ENDED = 3
"""One or the other, as an op message of an earlier life says."""

MOST_REMEMBERED = 100_000
"""Half messages that were put back, and what became of them. Of more the oldest are forgotten: who ends such a one
once more, by another of its offsets, then ends it twice, as in RocketMQ."""

TRIM = 1 << 16
"""Bytes of what lies behind that are dropped together: one by one would move all that lies ahead each time."""


class HalfLedger:
    """One queue of half messages, a byte for each from ``base`` on: before that everything was dealt with.

    A half message that is asked about, or may not be asked about yet, is put back at the end of the queue. Its
    producer need not have heard of that, and may end it by any of the offsets that it had.
    """

    __slots__ = ("_late", "_marks", "_moved", "_origin", "base")

    def __init__(self, base: int) -> None:
        self.base = base
        self._origin = base
        self._marks = bytearray()
        # The oldest of a plain dict is found behind the places of all that were removed before it.
        self._moved: collections.OrderedDict[int, int] = collections.OrderedDict()
        self._late: collections.OrderedDict[int, int] = collections.OrderedDict()

    def state(self, offset: int) -> int:
        """What is known of a half message."""
        if offset < self.base:
            return self._late.get(offset, PENDING)
        place = offset - self._origin
        return self._marks[place] if place < len(self._marks) else PENDING

    def end(self, offset: int, state: int, *, has_copies: bool = False) -> None:
        """A half message was ended. One that has copies may be ended once more, also long after this."""
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
        """A half message lies at another offset from now on."""
        _remember(self._moved, offset, copy)

    def is_put_back(self, offset: int) -> bool:
        return offset in self._moved

    def places(self, offset: int) -> list[int]:
        """All offsets of a half message from this one on; it is at the last one now."""
        places = [offset]
        while (copy := self._moved.get(places[-1])) is not None:
            places.append(copy)
        return places

    def pass_over(self, offset: int) -> None:
        """Everything before an offset is dealt with."""
        self.base = offset
        if offset - self._origin >= TRIM:
            del self._marks[: offset - self._origin]
            self._origin = offset

    def pass_ended(self) -> None:
        """Pass over all that were ended, up to the first that was not."""
        marks = self._marks
        begin = self.base - self._origin
        if begin < len(marks):
            first = marks.find(PENDING, begin)
            self.pass_over(self._origin + (len(marks) if first < 0 else first))


def _remember(table: collections.OrderedDict[int, int], key: int, value: int) -> None:
    table[key] = value
    if len(table) > MOST_REMEMBERED:
        table.popitem(last=False)
