"""The timer log: a unit of 52 bytes for each deferred message, linked to the previous unit of its slot.

A unit points to the deferred record in the commit log, and to the previous unit that is due in the same slot of the
wheel. The wheel holds the newest one of each slot. Files have one size and hold whole units; the rest at the end of
a file is marked as blank.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.lazy_import import lazy_module
from orbitmq.store.commitlog.mapped_files import LogFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from orbitmq.native.buffer import Buffer
    from orbitmq.platform.disk import Disk, MappedFile
else:
    np = lazy_module("numpy")

UNIT = struct.Struct(">iqiqiqiiq")
"""Size, position of the previous unit, magic, time of writing, delay from then on, offset and size of the record,
topic hash, reserved."""
UNIT_SIZE = UNIT.size

DEFAULT = 1
ROLL = 2
"""The message is due later than the wheel reaches: it is deferred again when this unit is due."""
DELETE = 4
"""The message recalls another one that is due in the same slot."""

NO_UNIT = -1

_BLANK = struct.Struct(">iqI")
_BLANK_MAGIC = 0xCBD43194
_RESERVE_STEP = 1 << 16

_COLUMNS = [
    ("size", ">i4"), ("previous", ">i8"), ("magic", ">i4"), ("written", ">i8"), ("delay", ">i4"),
    ("offset", ">i8"), ("record_size", ">i4"), ("topic_hash", ">i4"), ("nothing", ">i8"),
]  # fmt: skip


class TimerUnit(NamedTuple):
    """A deferred message. ``due_ms`` is the time of its slot, which is before its own if it is to roll."""

    previous: int
    magic: int
    written_ms: int
    due_ms: int
    offset: int
    size: int
    topic_hash: int

    @property
    def weight(self) -> int:
        """Its contribution to the number of deferred messages."""
        return -1 if self.magic & DELETE else 1


class TimerLog:
    """The files of ``timerlog``. An ``OSError`` comes from the disk and leaves everything unchanged."""

    def __init__(self, disk: Disk, directory: str, file_size: int) -> None:
        self._disk = disk
        self._files = LogFiles(disk, (directory,), file_size)
        self._file_size = file_size
        self._per_file = (file_size - _BLANK.size) // UNIT_SIZE
        self._reserved = 0
        self._unsynced: dict[int, MappedFile] = {}
        self.end = 0
        """Position of the next unit, or of the blank before it."""

    # Opening

    def load(self) -> None:
        """Find the files. Raises StoreDamagedError for a wrong size or a missing file."""
        self._files.load()
        self.end = self._files.start

    def find_end(self, flushed: int, log_end: int) -> int:
        """End of the units that are whole and belong to records before ``log_end``; the part before ``flushed`` is
        trusted.

        ``flushed`` is the end that was last made durable. Changes nothing.
        """
        bases = self._files.bases
        if not bases:
            return 0
        begin = max((base for base in bases if base < flushed), default=bases[0])
        for base in range(begin, self._files.limit, self._file_size):
            units = self._columns(base)
            good = (units["size"] == UNIT_SIZE) & (units["magic"] > 0) & (units["magic"] <= 0xF)
            good &= (units["offset"] >= 0) & (units["offset"] < log_end) & (units["record_size"] > 0)
            count = len(good) if good.all() else int(np.argmin(good))
            if count < self._per_file:
                return base + count * UNIT_SIZE
        return self._files.limit - self._file_size + self._per_file * UNIT_SIZE

    def cut(self, end: int) -> None:
        """Truncate the log, and leave nothing behind its end that could be read as a unit later."""
        keep = end - end % self._file_size
        for base in reversed([base for base in self._files.bases if base > keep]):
            self._unsynced.pop(base, None)
            self._files.remove(base)
        if keep in self._files:
            self._disk.zero(self._files.path(keep), end - keep)
            self._unsynced[keep] = self._files.mapped(keep)
        self.end = end
        self._reserved = end

    def close(self) -> None:
        self._files.close()

    # Reading

    @property
    def start(self) -> int:
        """Position of the first unit."""
        return self._files.start if len(self._files) else self.end

    @property
    def limit(self) -> int:
        """End of the last file."""
        return self._files.limit

    def is_full(self, end: int) -> bool:
        """True if no unit fits into the file behind this end."""
        return end % self._file_size == self._per_file * UNIT_SIZE

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position; None if there is none."""
        if position < 0:
            return None
        within = position % self._file_size
        buffer = self._files.buffer_at(position)
        if buffer is None or within + UNIT_SIZE > self._file_size:
            return None
        size, previous, magic, written, delay, offset, record_size, topic_hash, _ = UNIT.unpack_from(buffer, within)
        if size != UNIT_SIZE or not 0 < magic <= 0xF or previous >= position:
            return None
        # tuple.__new__ saves the Python call of a NamedTuple's constructor.
        return tuple.__new__(
            TimerUnit, (previous, magic, written, written + delay, offset, record_size, topic_hash)
        )

    def file_at(self, position: int) -> tuple[Buffer, int] | None:
        """The file of a position, and the position of its first byte; None if there is none."""
        buffer = self._files.buffer_at(position) if position >= 0 else None
        return None if buffer is None else (buffer, position - position % self._file_size)

    def last(self) -> TimerUnit | None:
        """The newest unit; None if there is none."""
        if self.end % self._file_size == 0 and self.end > self.start:
            return self.unit(self.end - self._file_size + (self._per_file - 1) * UNIT_SIZE)
        return self.unit(self.end - UNIT_SIZE) if self.end > self.start else None

    def columns(self, start: int) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """All units from a position to the end, file by file: their positions, and their fields as columns."""
        for base in self._files.bases:
            if base + self._file_size <= start or base >= self.end:
                continue
            first = -(-max(start - base, 0) // UNIT_SIZE)
            units = self._columns(base)[first : (self.end - base) // UNIT_SIZE]
            yield base + (first + np.arange(len(units), dtype=np.int64)) * UNIT_SIZE, units

    def _columns(self, base: int) -> npt.NDArray[np.void]:
        return np.frombuffer(self._files.mapped(base).buffer, _COLUMNS, self._per_file)

    # Writing

    def append(
        self, previous: int, magic: int, written_ms: int, due_ms: int, offset: int, size: int, topic_hash: int
    ) -> int:
        """Append a unit; returns its position."""
        end = self.end
        room = self._file_size - end % self._file_size
        if room < UNIT_SIZE + _BLANK.size:
            self._put(end, _BLANK.pack(room, 0, _BLANK_MAGIC))
            end += room
        self._put(
            end,
            UNIT.pack(
                UNIT_SIZE, previous, magic, written_ms, due_ms - written_ms, offset, size, topic_hash, 0
            ),
        )  # fmt: skip
        self.end = end + UNIT_SIZE
        return end

    def _put(self, position: int, data: bytes) -> None:
        within = position % self._file_size
        base = position - within
        file = self._unsynced.get(base)
        if file is None or position + len(data) > self._reserved:
            file = self._with_space(base, within, len(data))
        file.buffer[within : within + len(data)] = data

    def _with_space(self, base: int, within: int, size: int) -> MappedFile:
        """The file that begins at ``base``, marked as unsynced, with space reserved for this range."""
        if base not in self._files:
            self._files.adopt(base, self._files.create(base))
            self._reserved = base
        file = self._unsynced.get(base)
        if file is None:
            file = self._unsynced[base] = self._files.mapped(base)
        if base + within + size > self._reserved:
            stop = min(within + _RESERVE_STEP, self._file_size)
            file.reserve(within, stop)
            self._reserved = base + stop
        return file

    # Flushing and retention

    def take_unsynced(self) -> list[MappedFile]:
        """The files to sync."""
        taken = list(self._unsynced.values())
        self._unsynced.clear()
        return taken

    def give_back_unsynced(self, files: list[MappedFile]) -> None:
        """Undo ``take_unsynced`` after a failed sync."""
        for base in self._files.bases:
            mapped = self._files.mapped(base)
            if mapped in files:
                self._unsynced[base] = mapped

    def delete_before(self, log_start: int) -> int:
        """Remove files whose records have all left the commit log, never the newest; returns how many."""
        removed = 0
        for base in self._files.bases[:-1]:
            newest = self.unit(base + (self._per_file - 1) * UNIT_SIZE)
            if newest is not None and newest.offset >= log_start:
                break
            self._unsynced.pop(base, None)
            self._files.remove(base)
            removed += 1
        return removed
