"""Fixed-size units in fixed-size files: the storage of a consume queue.

Units are appended to a small in-memory tail and written to their file a page at a time, so a queue needs no
descriptor and no map: fifty thousand queues are fifty thousand small objects. A crash may lose the tail: a queue is
derived from the commit log, and recovery rewrites it.
"""

from __future__ import annotations

import logging
import os
import zlib
from typing import TYPE_CHECKING

from orbitmq.native import QueueState
from orbitmq.store.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import Disk

logger = logging.getLogger(__name__)

TAIL_BYTES = 4096
"""A tail of this size is written: one page, about 200 units of a plain queue."""
KEPT_BYTES = TAIL_BYTES // 8
"""Bytes of a written tail retained in memory, for readers at the end of the queue. With more, queues would be
written more often, each time at the cost of ten messages."""


MAX_TAIL_DISTANCE = 1 << 63
"""File positions are Java longs, and so are the numbers in file names."""


def write_fully(disk: Disk, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of ``data``; a system call may write a part only."""
    rest = memoryview(data)
    while rest:
        written = disk.pwrite(path, offset, rest)
        offset += written
        rest = rest[written:]


def file_name(offset: int) -> str:
    """RocketMQ's name of the file that begins at this byte offset."""
    return f"{offset:020d}"


def _never() -> bool:
    return False


class UnitFiles(QueueState):
    """An append-only sequence of units, addressed by their number."""

    __slots__ = ("_files", "_names_changed", "_unsynced", "directory", "disk", "file_size", "first",
                 "gaps", "has_hole", "may_be_short", "unit_size", "written")  # fmt: skip

    def __init__(self, disk: Disk, directory: str, unit_size: int, file_size: int) -> None:
        super().__init__()
        self.disk = disk
        self.directory = directory
        self.unit_size = unit_size
        self.file_size = file_size
        self.first = 0
        """Number of the first unit that the files have room for."""
        self.end = 0
        """Number of the next unit."""
        self.tail_start = 0
        self.written = 0
        """Units below this number are in the files."""
        self.gaps = 0
        """Number of gaps found: missing files, or records missing before a dispatched one."""
        self.may_be_short: Callable[[], bool] = _never
        """Whether a file of another size is damage. If no file has the right size, the setting is wrong."""
        self.has_hole = False
        """True if a file was missing between others."""
        self.is_queued = False
        # The first tail differs in length from queue to queue: thousands of queues that receive messages in turn
        # would otherwise fill their pages, and be written, in the same second. By topic and queue id, so that it
        # does not depend on where the store is.
        name = os.sep.join(directory.split(os.sep)[-2:])
        self.full_at = TAIL_BYTES - zlib.crc32(name.encode("utf-8", "replace")) % (TAIL_BYTES - KEPT_BYTES)
        self._files: list[int] = []
        self._unsynced: set[str] = set()
        self._names_changed = False

    # Opening

    def load(self, is_valid: Callable[[int], bool], is_expired: Callable[[int], bool] | None = None) -> None:
        """Find the files and the end of their contents: the number of the first invalid unit.

        ``is_expired`` is given after an unclean exit: true for a unit whose record has expired.
        """
        names = [name for name in self.disk.list(self.directory) if name.isdigit()]
        paths = [os.path.join(self.directory, name) for name in names]
        for path in paths:
            found = self.disk.stat(path)
            if found is not None and found.size == 0:
                # A crash lost the size of a file that was never synced: it is empty.
                self.disk.create(path, self.file_size)
            elif found is not None and found.size < self.file_size and self.may_be_short():
                logger.error(
                    "consume queue file %s: truncated to %d of %d bytes, rebuilding the queue from the log",
                    path, found.size, self.file_size,
                )  # fmt: skip
                self.disk.create(path, self.file_size)
                self.gaps += 1
                self.has_hole = True
            elif found is None or found.size != self.file_size:
                size = 0 if found is None else found.size
                raise StoreDamagedError(
                    f"{path} has {size} bytes but this store's queue files have {self.file_size}: "
                    "give the broker.conf the store was written with"
                )
        self._files = sorted(int(name) for name in names)
        if not self._files:
            return
        if self._files[-1] + self.file_size > MAX_TAIL_DISTANCE:
            raise StoreDamagedError(
                f"{self._path(self._files[-1])} has a name that no file of a queue can have: remove it"
            )
        per_file = self.file_size // self.unit_size
        self.first = self._files[0] // self.unit_size
        self._restart((self._files[-1] + self.file_size) // self.unit_size)
        self._leave_holes(is_expired)
        end = self.first = self._files[0] // self.unit_size
        for base in reversed(self._files):
            low, high = base // self.unit_size, base // self.unit_size + per_file
            if not is_valid(low):
                continue
            while high - low > 1:
                middle = (low + high) // 2
                if is_valid(middle):
                    low = middle
                else:
                    high = middle
            end = high
            break
        self._restart(end)

    def _leave_holes(self, is_expired: Callable[[int], bool] | None) -> None:
        """Reduce the files to a contiguous sequence, if one is missing between others.

        After a crash, a removed name may be back, or a new one missing. Files before the hole have expired and were
        removed, or were synced, in which case those behind it were not and will be rewritten. After a clean exit a
        file was removed by hand: the newest files are used, and nothing is removed before the checkpoint is reset.
        """
        bases = self._files
        starts = [at for at in range(1, len(bases)) if bases[at] - bases[at - 1] != self.file_size]
        if not starts:
            return
        self.gaps += 1
        self.has_hole = True
        if is_expired is None:
            self._files = bases[starts[-1] :]
            return
        first = 0
        for at in starts:
            if is_expired((bases[at - 1] + self.file_size) // self.unit_size - 1):
                first = at
        end = next((at for at in starts if at > first), len(bases))
        self._files = bases[first:end]
        for base in bases[:first] + bases[end:]:
            self.disk.remove(self._path(base))
            self._names_changed = True

    def start_at(self, number: int) -> None:
        """Start an empty sequence at a unit other than 0."""
        assert not self._files
        assert not self.tail_size
        self.first = number
        self._restart(number)

    def _restart(self, end: int) -> None:
        self.revision += 1
        self.end = self.written = self.tail_start = end
        self.cut_tail(0)

    # Reading

    def read(self, number: int, count: int) -> bytes:
        """Bytes of up to ``count`` units from ``number`` on; fewer where a file or the sequence ends."""
        if number < self.first or number >= self.end:
            return b""
        count = min(count, self.end - number)
        in_files = min(max(self.tail_start - number, 0), count)
        units = self._from_file(number, in_files) if in_files else b""
        if in_files < count and len(units) == in_files * self.unit_size:
            at = (number + in_files - self.tail_start) * self.unit_size
            units += self.tail_bytes(at, at + (count - in_files) * self.unit_size)
        return units

    def _from_file(self, number: int, count: int) -> bytes:
        position = number * self.unit_size
        within = position % self.file_size
        length = min(count * self.unit_size, self.file_size - within)
        data = self.disk.pread(self._path(position - within), within, length)
        # A file truncated under the running broker may end within a unit.
        return data if len(data) == length else data[: len(data) - len(data) % self.unit_size]

    def _path(self, base: int) -> str:
        # Not os.path.join, which takes longer than the read itself.
        return f"{self.directory}{os.sep}{base:020d}"

    # Writing

    def write_out(self, filler: bytes) -> None:
        """Write the tail to the files. ``filler`` is the unit before the first one of a new queue."""
        size = self.unit_size
        while self.written < self.end:
            position = self.written * size
            within = position % self.file_size
            base = position - within
            path = self._path(base)
            if base not in self._files:
                self._create(base, filler)
            start = (self.written - self.tail_start) * size
            stop = min((self.end - self.tail_start) * size, start + self.file_size - within)
            write_fully(self.disk, path, within, self.tail_bytes(start, stop))
            self._unsynced.add(path)
            self.written += (stop - start) // size
        self.full_at = TAIL_BYTES
        kept = KEPT_BYTES // size
        if self.tail_size > kept * size:
            self.tail_start = self.end - kept
            self.shorten_tail(kept * size)

    def overwrite(self, number: int, units: bytes) -> None:
        """Replace units that are in files. A truncated file gets its size back."""
        assert self.first <= number
        assert number + len(units) // self.unit_size <= self.tail_start
        self.revision += 1
        rest = memoryview(units)
        position = number * self.unit_size
        while rest:
            within = position % self.file_size
            base = position - within
            path = self._path(base)
            self.disk.create(path, self.file_size)
            if base not in self._files:
                self._files.append(base)
                self._files.sort()
                self._names_changed = True
            piece = rest[: self.file_size - within]
            write_fully(self.disk, path, within, piece)
            self._unsynced.add(path)
            position += len(piece)
            rest = rest[len(piece) :]

    @property
    def is_unwritten(self) -> bool:
        """True if units are in memory only."""
        return self.written < self.end

    def is_unwritten_before(self, position: int) -> bool:
        """True if there are such units for records before this offset of the log; each begins with its own."""
        if not self.is_unwritten:
            return False
        at = (self.written - self.tail_start) * self.unit_size
        return int.from_bytes(self.tail_bytes(at, at + 8), "big") < position

    def _create(self, base: int, filler: bytes) -> None:
        self._names_changed = True
        path = self._path(base)
        self.disk.create(path, self.file_size)
        if not self._files and self.first * self.unit_size > base:
            write_fully(self.disk, path, 0, filler * (self.first - base // self.unit_size))
            self.first = base // self.unit_size
        self._files.append(base)
        self._files.sort()

    @property
    def is_unsynced(self) -> bool:
        return bool(self._unsynced) or self._names_changed

    def take_unsynced(self) -> tuple[list[str], bool]:
        """Files to sync to make the written units durable, and whether files were created or removed."""
        taken = sorted(self._unsynced), self._names_changed
        self._unsynced.clear()
        self._names_changed = False
        return taken

    def give_back_unsynced(self, taken: tuple[list[str], bool]) -> None:
        """Undo ``take_unsynced`` after a failed sync."""
        self._unsynced.update(taken[0])
        self._names_changed |= taken[1]

    # Shortening

    def truncate(self, end: int) -> None:
        """Drop the units from number ``end`` on."""
        assert self.first <= end <= self.end
        if end >= self.tail_start:
            self.cut_tail((end - self.tail_start) * self.unit_size)
            self.written = min(self.written, end)
            self.end = end
            self._wipe(end)
            return
        self._wipe(end)
        self._restart(end)

    def _wipe(self, end: int) -> None:
        """Zero the units after the end in its file and remove later files, so that no old unit is found again."""
        self.revision += 1
        position = end * self.unit_size
        within = position % self.file_size
        keep = position - within
        for base in [base for base in self._files if base > keep or (base == keep and not within)]:
            self.disk.remove(self._path(base))
            self._unsynced.discard(self._path(base))
            self._files.remove(base)
            self._names_changed = True
        if keep in self._files:
            self.disk.zero(self._path(keep), within)
            self._unsynced.add(self._path(keep))

    def delete_files_below(self, number: int) -> int:
        """Remove whole files of units below ``number``, never the last file; returns how many."""
        removed = 0
        while len(self._files) > 1 and self._files[0] + self.file_size <= number * self.unit_size:
            path = self._path(self._files[0])
            self.disk.remove(path)
            self._unsynced.discard(path)
            del self._files[0]
            self.first = self._files[0] // self.unit_size
            removed += 1
        return removed

    def destroy(self) -> None:
        """Remove every file, including those behind holes, and restart at unit 0."""
        for name in self.disk.list(self.directory):
            if name.isdigit():
                self.disk.remove(os.path.join(self.directory, name))
                self._names_changed = True
        self._files.clear()
        self._unsynced.clear()
        self.first = 0
        self._restart(0)

    @property
    def file_count(self) -> int:
        return len(self._files)
