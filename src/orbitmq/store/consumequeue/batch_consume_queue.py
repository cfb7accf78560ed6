"""The consume queue of a topic with ``queue.type=BatchCQ``: a 46-byte unit for a whole inner batch."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.store.consumequeue.unit_file import MAX_TAIL_DISTANCE, UnitFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import Disk
    from orbitmq.store.consumequeue.consume_queue import Confirm

UNIT = struct.Struct(">qiqqqhii")
UNIT_SIZE = UNIT.size
FILLER = bytes(UNIT_SIZE)

MAX_OFFSET = MAX_TAIL_DISTANCE // 2
"""Larger values are damage: queue offsets are Java longs, and those of a batch are counted from its first."""


class BatchUnit(NamedTuple):
    """One unit: position of a batch in the log, and the queue offsets in it."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    message_count: int
    compacted_offset: int
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        return self.physical_offset >= 0 and self.size > 0 and self.base_offset >= 0 and self.message_count > 0


class BatchConsumeQueue(UnitFiles):
    """Units are numbered from 0 in their files; queue offsets are found by bisection on their base offset."""

    __slots__ = ("is_batch", "queue_id", "topic")

    def __init__(self, disk: Disk, directory: str, topic: str, queue_id: int, file_size: int) -> None:
        super().__init__(disk, directory, UNIT_SIZE, file_size)
        self.topic = topic
        self.queue_id = queue_id
        self.is_batch = True
        self.min_offset = 0
        self.next_offset = 0
        self.max_physical = 0

    def open(self, log_start: int, log_end: int, confirm: Confirm | None = None) -> None:
        """Load the units of records inside the commit log; see ``ConsumeQueue.open``."""

        def is_valid(number: int) -> bool:
            unit = self._unit(number)
            return unit.is_valid and unit.physical_offset < log_end

        def is_expired(number: int) -> bool:
            unit = self._unit(number)
            return unit.is_valid and unit.physical_offset < log_start

        self.load(is_valid, None if confirm is None else is_expired)
        if confirm is not None and self.file_count:
            end = self.end
            while end > self.first:
                unit = self._unit(end - 1)
                if confirm(self.topic, self.queue_id, unit.base_offset, unit.physical_offset, unit.size):
                    break
                if unit.physical_offset < log_start and (
                    end - 1 == self.first or self._unit(end - 2).physical_offset < unit.physical_offset
                ):
                    break  # expired, and not a torn unit behind one that points further
                end -= 1
            self._restart(end)
            self._wipe(end)
        self._settle(log_start)

    def _settle(self, log_start: int) -> None:
        self.next_offset = self.min_offset = self.max_physical = 0
        if self.end > self.first:
            last = self._unit(self.end - 1)
            self.next_offset = last.base_offset + last.message_count
            self.max_physical = last.physical_offset + last.size
        self.correct_min_offset(log_start)

    def truncate_to_log(self, log_end: int) -> None:
        """Drop units of records at or after ``log_end``."""
        keep = self._bisect(lambda unit: unit.physical_offset < log_end)
        if keep < self.end:
            self.truncate(keep)
        self._settle(0)

    def put(
        self, queue_offset: int, offset: int, size: int, tags_code: int, store_timestamp: int, count: int
    ) -> bool:
        """Enter a dispatched record; False if it was there already."""
        if offset + size <= self.max_physical:
            return False
        max_offset = self.max_offset
        if not 0 <= queue_offset <= MAX_OFFSET or (self.end > self.first and queue_offset - max_offset > offset):
            return False
        if 0 < queue_offset < max_offset and self.end - self.first > 1:
            # As in a plain queue: the queue offset of this record is damaged, or that of the one before it.
            before, last = self._unit(self.end - 2), self._unit(self.end - 1)
            gap = before.base_offset + before.message_count
            if queue_offset < gap or gap == last.base_offset:
                return False
            self.truncate(self.end - 1)
            self.next_offset = queue_offset
        elif queue_offset < max_offset:
            self.destroy()
            self.next_offset = 0
        elif queue_offset > max_offset:
            self.gaps += 1
        unit = UNIT.pack(offset, size, tags_code, store_timestamp, queue_offset, count, -1, 0)
        if self.end == self.first:
            self.min_offset = queue_offset
        self.add_to_tail(unit)
        self.end += 1
        self.max_physical = offset + size
        self.next_offset = max(self.next_offset, queue_offset + count)
        return True

    @property
    def max_offset(self) -> int:
        """The queue offset after the last readable one."""
        if self.end == self.first:
            return self.min_offset
        last = self._unit(self.end - 1)
        return last.base_offset + last.message_count

    def unit(self, queue_offset: int) -> BatchUnit | None:
        """The unit that holds a queue offset, or the next one after a gap."""
        number = self._bisect(lambda unit: unit.base_offset + unit.message_count <= queue_offset)
        return self._unit(number) if number < self.end else None

    def all_units(self) -> list[BatchUnit]:
        """Every unit, oldest first."""
        return [self._unit(number) for number in range(self.first, self.end)]

    def _unit(self, number: int) -> BatchUnit:
        data = self.read(number, 1)
        # Nothing can be read from a truncated file: an invalid unit.
        return BatchUnit(*UNIT.unpack(data if len(data) == UNIT_SIZE else bytes(UNIT_SIZE)))

    def _bisect(self, is_before: Callable[[BatchUnit], bool]) -> int:
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            if is_before(self._unit(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def correct_min_offset(self, log_start: int) -> None:
        """Move the smallest readable offset to the first unit whose record is still in the log."""
        number = self._bisect(lambda unit: unit.physical_offset < log_start)
        self.min_offset = self._unit(number).base_offset if number < self.end else self.next_offset

    def expire(self, log_start: int) -> int:
        """Remove units of expired records; returns how many queue files were removed."""
        self.correct_min_offset(log_start)
        return self.delete_files_below(self._bisect(lambda unit: unit.physical_offset < log_start))
