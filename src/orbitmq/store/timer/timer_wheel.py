"""The timer wheel: for each slot of two weeks, the positions in the timer log of the messages due in it.

The slots are in memory and written to the file ``timerwheel`` in whole pages, only after the timer log that they
point into is on disk. So the file may lag the log, but is never ahead of it.
"""

from __future__ import annotations

import functools
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.lazy_import import lazy_module
from orbitmq.platform.local_mapped_file import blank_memory
from orbitmq.store.consumequeue.unit_file import write_fully
from orbitmq.store.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import numpy.typing as npt

    from orbitmq.platform.disk import Disk
else:
    np = lazy_module("numpy")

WINDOW = 7 * 86_400
"""Maximum distance in slots of a message from now: ahead, or behind after the broker was down."""

SLOTS = 2 * WINDOW

_SLOT = struct.Struct(">qqqii")
"""Slot time, positions of the oldest and the newest unit, number of messages, reserved."""
SLOT_SIZE = _SLOT.size
MAX_IN_SLOT = 0x7FFFFFFF
"""Messages are counted in a signed 32-bit integer."""
FILE_SIZE = SLOTS * SLOT_SIZE
PAGE = 4096
_SLOTS_OF_PAGE = PAGE // SLOT_SIZE
_READ_BLOCK = 1 << 16
_FIRST_LOOK = 1024
"""Slots searched first for the next one that is not empty."""

_COLUMNS = [("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("nothing", ">i4")]

Pages = list[tuple[int, bytes]]
"""Parts of the file: offset and bytes."""


class Slot(NamedTuple):
    """Messages that are due together: positions of the oldest and the newest in the timer log, and their number."""

    first: int
    last: int
    waiting: int


class TimerWheel:
    """The slots. Times are in milliseconds; those within one precision share a slot."""

    def __init__(self, disk: Disk, path: str, precision_ms: int) -> None:
        self._disk = disk
        self._path = path
        self._precision_ms = precision_ms
        # Untouched pages take no memory.
        self._slots = blank_memory(FILE_SIZE)
        self._dirty: set[int] = set()
        self._used_pages = bytearray(FILE_SIZE // PAGE)
        """For each page, whether it was ever written: empty stretches need not be searched."""
        self._is_untouched = True
        """True until the first put: most brokers need not search two weeks to find nothing."""
        self._is_name_durable = False

    @functools.cached_property
    def _columns(self) -> npt.NDArray[np.void]:
        return np.frombuffer(self._slots, _COLUMNS)

    def load(self) -> bool:
        """Read the file; False if there is none. Raises StoreDamagedError, OSError."""
        found = self._disk.stat(self._path)
        if found is None or found.size == 0:
            return False
        if found.size != FILE_SIZE:
            raise StoreDamagedError(
                f"{self._path} has {found.size} bytes, a timer wheel has {FILE_SIZE}: restore it, or move it away "
                "to have it made again from the timer log"
            )
        nothing = bytes(_READ_BLOCK)
        for start, stop in self._disk.written_ranges(self._path, 0):
            for at in range(start, stop, _READ_BLOCK):
                block = self._disk.pread(self._path, at, min(_READ_BLOCK, stop - at))
                if block != nothing[: len(block)]:
                    self._is_untouched = False
                    self._slots[at : at + len(block)] = block
                    for page in range(at // PAGE, -(-(at + len(block)) // PAGE)):
                        self._used_pages[page] = 1
        return True

    # One slot

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time; None if it is empty."""
        number = time_ms // self._precision_ms
        time, first, last, count, _ = _SLOT.unpack_from(self._slots, number % SLOTS * SLOT_SIZE)
        # tuple.__new__ saves the Python call of a NamedTuple's constructor.
        return tuple.__new__(Slot, (first, last, count)) if time == number and last >= 0 else None

    def put(self, time_ms: int, slot: Slot) -> None:
        """Replace a slot."""
        number = time_ms // self._precision_ms
        at = number % SLOTS * SLOT_SIZE
        first, last, waiting = slot
        _SLOT.pack_into(self._slots, at, number, first, last, waiting, 0)
        self._is_untouched = False
        self._used_pages[at // PAGE] = 1
        self._dirty.add(at // PAGE)

    def clear(self, time_ms: int) -> None:
        """Empty a slot."""
        at = time_ms // self._precision_ms % SLOTS * SLOT_SIZE
        self._slots[at : at + SLOT_SIZE] = bytes(SLOT_SIZE)
        self._dirty.add(at // PAGE)

    # Many slots

    def clear_all(self) -> None:
        """Empty all slots."""
        if self._is_untouched:
            return
        for index in np.nonzero(self._columns["time"])[0].tolist():
            self._slots[index * SLOT_SIZE : (index + 1) * SLOT_SIZE] = bytes(SLOT_SIZE)
            self._dirty.add(index * SLOT_SIZE // PAGE)

    def clear_between(self, start_ms: int, end_ms: int) -> None:
        """Empty the slots of a range of time."""
        if self._is_untouched:
            return
        start, end = start_ms // self._precision_ms, end_ms // self._precision_ms
        times = self._columns["time"]
        indexes = np.nonzero((times >= start) & (times < end))[0]
        # Through a view on the memory of the wheel, at once: there may be a million.
        np.frombuffer(self._slots, f"V{SLOT_SIZE}")[indexes] = np.zeros(1, f"V{SLOT_SIZE}")[0]
        self._dirty.update(np.unique(indexes * SLOT_SIZE // PAGE).tolist())

    def next_busy(self, start_ms: int, end_ms: int) -> int:
        """The time of the first non-empty slot from ``start_ms`` on, or ``end_ms``.

        Checks each slot twice at most, however far apart the two are: the clock may have jumped by years.
        """
        start, end = start_ms // self._precision_ms, end_ms // self._precision_ms
        if self._is_untouched:
            return end_ms
        times, used = self._columns["time"], self._used_pages
        turn_end = min(end, start + SLOTS)
        size = _FIRST_LOOK
        while start < turn_end:
            index = start % SLOTS
            page = index // _SLOTS_OF_PAGE
            limit = min(turn_end - start, SLOTS - index)
            if not used[page]:
                following = used.find(1, page)
                start += min(limit, (following if following >= 0 else len(used)) * _SLOTS_OF_PAGE - index)
                continue
            unused = used.find(0, page)
            count = min(limit, (unused if unused >= 0 else len(used)) * _SLOTS_OF_PAGE - index, size)
            expected = np.arange(start, start + count, dtype=np.int64)
            found = np.nonzero(times[index : index + count] == expected)[0]
            if len(found):
                return (start + int(found[0])) * self._precision_ms
            start += count
            # Usually the next one is near; otherwise there is much to search.
            size *= 2
        if start < end:
            # A full revolution is empty. The rest are slots of a time when the clock was set ahead.
            pages = np.flatnonzero(np.frombuffer(used, np.uint8))
            later = times.reshape(-1, _SLOTS_OF_PAGE)[pages]
            later = later[(later >= start) & (later < end)]
            if len(later):
                return int(later.min()) * self._precision_ms
        return end_ms

    def reaching(self, position: int) -> list[tuple[int, Slot]]:
        """Slots that point to a unit at or behind this position of the timer log, with their times."""
        if self._is_untouched:
            return []
        columns = self._columns[(self._columns["time"] > 0) & (self._columns["last"] >= position)]
        return [
            (time * self._precision_ms, Slot(first, last, count))
            for time, first, last, count, _ in columns.tolist()
        ]

    def waiting(self, start_ms: int, end_ms: int | None = None) -> int:
        """Number of messages due from ``start_ms`` on, and before ``end_ms``."""
        if self._is_untouched:
            return 0
        start = start_ms // self._precision_ms
        end = start + SLOTS if end_ms is None else end_ms // self._precision_ms
        times = self._columns["time"]
        return int(self._columns["count"][(times >= start) & (times < end)].sum(dtype=np.int64))

    def waiting_until(self, start_ms: int, ends_ms: Iterable[int]) -> list[int]:
        """Numbers of messages due from ``start_ms`` on and before each of some ascending times, with those before
        the last one counted only once."""
        counts = []
        start = start_ms // self._precision_ms
        for end_ms in ends_ms:
            end = min(end_ms // self._precision_ms, start + SLOTS)
            count = 0
            while not self._is_untouched and start < end:
                index = start % SLOTS
                slots = self._columns[index : index + min(end - start, SLOTS - index)]
                expected = np.arange(start, start + len(slots), dtype=np.int64)
                count += int(slots["count"][slots["time"] == expected].sum(dtype=np.int64))
                start += len(slots)
            counts.append(count)
            start = max(start, end)
        return counts

    # Flushing

    def take_unwritten(self) -> Pages:
        """Copies of the pages that have changed."""
        pages = sorted(self._dirty)
        self._dirty.clear()
        slots = memoryview(self._slots)
        # Adjacent pages are one part: with messages for arbitrary times, nearly all pages change.
        starts = [page for at, page in enumerate(pages) if not at or pages[at - 1] != page - 1]
        stops = [page + 1 for at, page in enumerate(pages) if at + 1 == len(pages) or pages[at + 1] != page + 1]
        return [
            (start * PAGE, bytes(slots[start * PAGE : stop * PAGE]))
            for start, stop in zip(starts, stops, strict=True)
        ]

    def give_back_unwritten(self, pages: Iterable[tuple[int, bytes]]) -> None:
        """Undo ``take_unwritten`` after a failed write."""
        for at, data in pages:
            self._dirty.update(range(at // PAGE, (at + len(data)) // PAGE))

    def write(self, pages: Pages) -> None:
        """Write pages and make them durable. Blocks; may be called from a worker thread."""
        if not pages:
            return
        found = self._disk.stat(self._path)
        if found is None or found.size < FILE_SIZE:
            self._disk.create(self._path, FILE_SIZE)
        for at, data in pages:
            write_fully(self._disk, self._path, at, data)
        self._disk.sync(self._path)
        if not self._is_name_durable:
            self._disk.sync_dir(os.path.dirname(self._path) or ".")
            self._is_name_durable = True
