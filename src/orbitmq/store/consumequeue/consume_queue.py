"""Consume queue: 20-byte units that point into the commit log, numbered by queue offset."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from orbitmq.protocol.message.record import MIN_RECORD_SIZE
from orbitmq.store.consumequeue.unit_file import MAX_TAIL_DISTANCE, UnitFiles

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

UNIT = struct.Struct(">qiq")
"""Physical offset, record size, tags code (or the address of an extension unit)."""
UNIT_SIZE = UNIT.size

MAX_UNITS = MAX_TAIL_DISTANCE // UNIT_SIZE - 1

FILLER_SIZE = 0x7FFFFFFF
FILLER = UNIT.pack(0, FILLER_SIZE, 0)
"""Unit of a queue offset without a record: for example before the first unit of a partly expired queue."""

_pack = UNIT.pack
_unpack = UNIT.unpack

Confirm = Callable[[str, int, int, int, int], bool]
"""Callback: does the log have, for a topic, queue id and queue offset, a record with this offset and size?"""


class ConsumeQueue(UnitFiles):
    """A queue of one topic. A unit's number is its queue offset."""

    __slots__ = ("is_batch", "queue_id", "resumes_at", "topic")

    def __init__(self, disk: Disk, directory: str, topic: str, queue_id: int, file_size: int) -> None:
        super().__init__(disk, directory, UNIT_SIZE, file_size)
        self.topic = topic
        self.queue_id = queue_id
        self.is_batch = False
        self.resumes_at = -1
        """Queue offset at which numbering continued behind records lost with their log file; -1 if none were
        lost."""
        self.min_offset = 0
        self.next_offset = 0
        self.max_physical = 0

    # Opening

    def open(self, log_start: int, log_end: int, confirm: Confirm | None = None) -> None:
        """Load the units of records inside the commit log.

        After an unclean exit, ``confirm`` checks the unit's record in the log: the last unit may be torn and look
        valid. Everything behind the last confirmed unit is wiped, so that it is never found again.
        """

        def is_expired(number: int) -> bool:
            offset, size, _ = self._last_record_until(number) or (0, 0, 0)
            return size > 0 and offset < log_start

        self.load(lambda number: self._is_inside(number, log_end), None if confirm is None else is_expired)
        if confirm is not None and self.file_count:
            end = self.end
            while end > self.first:
                offset, size, _ = self.unit(end - 1) or (0, 0, 0)
                if size == FILLER_SIZE or confirm(self.topic, self.queue_id, end - 1, offset, size):
                    break
                if self._is_expired(end - 1, offset, log_start):
                    break
                end -= 1
            self._restart(end)
            self._wipe(end)
        self._settle(log_start)

    def _is_expired(self, number: int, offset: int, log_start: int) -> bool:
        """True if the record of a unit has expired from the log, so that it cannot be checked.

        A torn unit can look expired too, but not behind a unit that points further.
        """
        before = self._last_record_until(number - 1)
        return offset < log_start and (before is None or before[0] < offset)

    def _is_inside(self, number: int, log_end: int) -> bool:
        """True if the record of a unit is before ``log_end``.

        After a crash, units of lost records follow the valid ones, perhaps with holes between them. Checking both
        conditions keeps the valid ones a prefix, as bisection requires. Fillers, which point to no record, count
        like the unit before them.
        """
        found = self._last_record_until(number)
        return found is None or (found[1] > 0 and 0 <= found[0] < log_end)

    def _last_record_until(self, number: int) -> tuple[int, int, int] | None:
        """The last unit up to this one that is not a filler; None if there are only fillers."""
        run = 1  # mostly there are no fillers, and one unit is enough
        while number >= self.first:
            start = max(self.first, number + 1 - run)
            units: list[tuple[int, int, int]] = []
            while start + len(units) <= number:
                part = self.read(start + len(units), number + 1 - start - len(units))
                if not part:
                    return 0, 0, 0
                units += UNIT.iter_unpack(part)
            for unit in reversed(units):
                if unit[1] != FILLER_SIZE:
                    return unit
            number = start - 1
            run = min(2 * run, 1024)
        return None

    def restart(self, queue_offset: int) -> None:
        """Empty the queue and continue it at ``queue_offset``."""
        self.destroy()
        self.start_at(queue_offset)
        self.min_offset = self.next_offset = queue_offset
        self.max_physical = 0

    def _settle(self, log_start: int) -> None:
        self.next_offset = self.end
        self.max_physical = self._physical_end()
        self.min_offset = self.first
        self.correct_min_offset(log_start)

    def _physical_end(self) -> int:
        last = self._last_record_until(self.end - 1)
        return 0 if last is None else last[0] + last[1]

    def truncate_to_log(self, log_end: int) -> None:
        """Drop units of records at or after ``log_end``."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            if self._is_inside(middle, log_end):
                low = middle + 1
            else:
                high = middle
        if low < self.end:
            self.truncate(low)
        self.next_offset = self.end
        self.max_physical = self._physical_end()
        self.min_offset = min(self.min_offset, self.end)

    # Writing

    def put(self, queue_offset: int, offset: int, size: int, tags_code: int) -> bool:
        """Enter a dispatched record; False if it was there already.

        The log decides. Queue offset 0 in a record newer than the last one means that the topic was deleted and
        recreated: numbering restarts. An offset beyond the end means that records before it are damaged or gone;
        fillers keep their offsets. But no CRC covers the queue offset. A negative one, one in the middle of the
        queue, and one so far beyond the end that the log or a file name has no room for what is between are
        damaged: such a record gets no unit. One inside a gap shows that the record behind the gap was damaged.
        """
        end = self.end
        if offset + size <= self.max_physical:
            return False
        if queue_offset != end:
            if not 0 <= queue_offset <= MAX_UNITS:
                return False
            if end == self.first and not self.file_count and not self.tail_size:
                self.start_at(queue_offset)
                self.min_offset = queue_offset
                self.gaps += 1
            elif queue_offset < end:
                if queue_offset == 0 or end - self.first == 1:
                    self.restart(queue_offset)
                elif self._is_gap_before_last(queue_offset):
                    self.truncate(queue_offset)
                    self.next_offset = queue_offset
                else:
                    return False
            elif (
                queue_offset - end
            ) * MIN_RECORD_SIZE > offset - self.max_physical and queue_offset != self.resumes_at:
                return False
            else:
                self.add_to_tail(FILLER * (queue_offset - end))
                self.gaps += 1
        self.add_to_tail(_pack(offset, size, tags_code))
        self.end = queue_offset + 1
        self.max_physical = offset + size
        if self.next_offset <= queue_offset:  # not max(): this runs for every message
            self.next_offset = queue_offset + 1
        return True

    def put_many(self, queue_offset: int, units: bytes, max_physical: int) -> None:
        """Enter new, consecutive records. ``max_physical`` is the end of the last one in the log.

        Only for units that continue the queue: see ``put`` for all others.
        """
        assert queue_offset == self.end
        self.add_to_tail(units)
        self.end = queue_offset + len(units) // UNIT_SIZE
        self.max_physical = max_physical
        self.next_offset = max(self.next_offset, self.end)

    def _is_gap_before_last(self, queue_offset: int) -> bool:
        """True if all units from this queue offset on except the last are fillers."""
        while queue_offset < self.end - 1:
            units = self.read(queue_offset, min(1024, self.end - 1 - queue_offset))
            if units != FILLER * (len(units) // UNIT_SIZE) or not units:
                return False
            queue_offset += len(units) // UNIT_SIZE
        return self.end - 1 > self.first and self.read(self.end - 2, 1) == FILLER

    # Reading

    @property
    def max_offset(self) -> int:
        """The queue offset after the last readable one."""
        return self.end

    def units(self, queue_offset: int, count: int) -> bytes:
        """Raw units from ``queue_offset`` on, up to ``count``, to the end of their file."""
        return self.read(queue_offset, count)

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size and tags code at one queue offset."""
        data = self.read(queue_offset, 1)
        return _unpack(data) if len(data) == UNIT_SIZE else None

    # Retention

    def correct_min_offset(self, log_start: int) -> None:
        """Move the smallest readable offset to the first unit whose record is still in the log."""
        if self.max_physical <= log_start:
            self.min_offset = self.end
            return
        low, high = max(self.min_offset, self.first), self.end
        first = self._first_record_from(low)
        # In most passes nothing of a queue has expired, which this single check shows.
        if first is not None and first[1] < log_start:
            low = first[0] + 1
            while low < high:
                middle = (low + high) // 2
                real = self._first_record_from(middle)
                if real is None or real[1] >= log_start:
                    high = middle
                else:
                    low = real[0] + 1
            first = self._first_record_from(low)
        self.min_offset = self.end if first is None else first[0]

    def _first_record_from(self, queue_offset: int) -> tuple[int, int] | None:
        """Queue offset and physical offset of the first unit at or after this one that is not a filler."""
        run = 1  # mostly there are no fillers, and one unit is enough
        while queue_offset < self.end:
            units = self.read(queue_offset, run)
            if not units:
                break
            for offset, size, _ in UNIT.iter_unpack(units):
                if size != FILLER_SIZE:
                    return queue_offset, offset
                queue_offset += 1
            run = min(2 * run, 1024)
        return None

    def expire(self, log_start: int) -> int:
        """Remove units of expired records; returns how many queue files were removed."""
        self.correct_min_offset(log_start)
        return self.delete_files_below(self.min_offset)
