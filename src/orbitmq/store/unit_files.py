"""Fixed-size units in fixed-size files: what a consume queue is on disk.

Units are appended to a small tail in memory and written to their file a page at a time, so a queue costs no
descriptor and no map: fifty thousand of them are fifty thousand small objects. The tail may be lost with the
process, because a queue is derived from the commit log and recovery writes it again.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING

from orbitmq.kernel import QueueEnd
from orbitmq.store.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store.disk import Disk

TAIL_BYTES = 4096
"""A tail of this size is written out: one page, which is about 200 units of a plain queue."""
KEPT_BYTES = TAIL_BYTES // 8
"""What stays in memory of a tail that was written, for readers that follow the end of the queue. If it were more,
queues would be written more often, and each time costs as much as ten messages."""


FARTHEST = 1 << 63
"""Positions in files are longs in Java, and so are the numbers in the names of files."""


def write_fully(disk: Disk, path: str, offset: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of ``data``; the system may take it in pieces."""
    rest = memoryview(data)
    while rest:
        written = disk.pwrite(path, offset, rest)
        offset += written
        rest = rest[written:]


def file_name(offset: int) -> str:
    """RocketMQ's name of the file that starts at this byte offset."""
    return f"{offset:020d}"


class UnitFiles(QueueEnd):
    """An append-only sequence of units, addressed by their number."""

    __slots__ = ("_files", "_names_changed", "_unsynced", "directory", "disk", "file_size", "first",
                 "gaps", "has_hole", "unit_size", "written")  # fmt: skip

    def __init__(self, disk: Disk, directory: str, unit_size: int, file_size: int) -> None:
        super().__init__()
        self.disk = disk
        self.directory = directory
        self.unit_size = unit_size
        self.file_size = file_size
        self.first = 0
        """Number of the first unit that a file has room for."""
        self.end = 0
        """Number of the unit that comes next."""
        self.tail_start = 0
        self.written = 0
        """Units below this number are in their files."""
        self.gaps = 0
        """How often something was found missing: a file, or records before one that came."""
        self.has_hole = False
        """Whether a file was missing between others."""
        self.is_queued = False
        # The first time, for each sequence another part of a page: thousands of queues that get messages in turn
        # would else have their pages full, and be written, all in the same second. By topic and number, so that it
        # is the same wherever the store is.
        name = os.sep.join(directory.split(os.sep)[-2:])
        self.full_at = TAIL_BYTES - zlib.crc32(name.encode("utf-8", "replace")) % (TAIL_BYTES - KEPT_BYTES)
        self._files: list[int] = []
        self._unsynced: set[str] = set()
        self._names_changed = False

    # Opening

    def load(self, is_valid: Callable[[int], bool], is_expired: Callable[[int], bool] | None = None) -> None:
        """Find the files and the end of what they hold: the number of the first unit that is not valid.

        ``is_expired`` is given after an unclean exit and says whether a unit is of a record that has expired.
        """
        names = [name for name in self.disk.list(self.directory) if name.isdigit()]
        paths = [os.path.join(self.directory, name) for name in names]
        for path in paths:
            found = self.disk.stat(path)
            if found is not None and found.size == 0:
                # A crash took away the size of a file that was never synced: it holds nothing.
                self.disk.create(path, self.file_size)
            elif found is None or found.size != self.file_size:
                size = 0 if found is None else found.size
                raise StoreDamagedError(
                    f"{path} has {size} bytes but this store's queue files have {self.file_size}: "
                    "give the broker.conf the store was written with"
                )
        self._files = sorted(int(name) for name in names)
        if not self._files:
            return
        if self._files[-1] + self.file_size > FARTHEST:
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
        """Go on with files that follow each other, if one is missing between others.

        After a crash a name may be there again or not there yet. In front of the hole is what expired and was
        removed, or else what was synced, and then what is behind it was not and will be written again. After a
        proper exit somebody removed a file: the newest files are taken, and nothing is removed before the
        checkpoint is taken back.
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
        """Let an empty sequence begin at a unit other than 0."""
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
        return self.disk.pread(self._path(position - within), within, length)

    def _path(self, base: int) -> str:
        # Not by os.path.join, which takes longer than the read that it is for.
        return f"{self.directory}{os.sep}{base:020d}"

    # Writing

    def write_out(self, filler: bytes) -> None:
        """Put the tail into its files. ``filler`` is the unit in front of the first one of a new queue."""
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

    @property
    def is_unwritten(self) -> bool:
        """Whether there are units that are in memory only."""
        return self.written < self.end

    def is_unwritten_before(self, position: int) -> bool:
        """Whether there are such units of records in front of this place of the log; each begins with its own."""
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
        """Files to sync to make what was written durable, and whether files were made or removed."""
        taken = sorted(self._unsynced), self._names_changed
        self._unsynced.clear()
        self._names_changed = False
        return taken

    def give_back_unsynced(self, taken: tuple[list[str], bool]) -> None:
        """Undo ``take_unsynced`` after a sync that failed."""
        self._unsynced.update(taken[0])
        self._names_changed |= taken[1]

    # Shortening

    def truncate(self, end: int) -> None:
        """Forget the units from number ``end`` on."""
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
        """Remove every file, also those behind holes, and start again at unit 0."""
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
