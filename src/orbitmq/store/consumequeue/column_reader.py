"""Reads consume queue units as columns, without opening the queue: nothing is written or repaired."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orbitmq.store.consumequeue.batch_consume_queue import UNIT as BATCH_UNIT
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE
from orbitmq.store.consumequeue.consume_queue import UNIT as PLAIN_UNIT
from orbitmq.store.consumequeue.unit_file import file_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record_columns import Flags, Ints

PLAIN = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
BATCH = np.dtype(
    [
        ("offset", ">i8"), ("size", ">i4"), ("code", ">i8"), ("store_timestamp", ">i8"), ("base", ">i8"),
        ("count", ">i2"), ("compacted", ">i4"), ("reserved", ">i4"),
    ]
)  # fmt: skip
assert (PLAIN.itemsize, BATCH.itemsize) == (PLAIN_UNIT.size, BATCH_UNIT.size)

Units = npt.NDArray[np.void]

_BLOCK = 65536
_BEYOND = 1024
"""Units examined behind the end, in case a page before them was lost."""
_FAR = 4096
"""Units further apart than this are read separately."""


class UnitReader:
    """Units of one queue directory as found in its files. Missing parts read as zeros."""

    def __init__(self, disk: Disk, directory: str, kind: np.dtype[np.void], file_size: int) -> None:
        self.directory = directory
        self.kind = kind
        self.faults: list[tuple[str, str]] = []
        """Files of the wrong size, and the reason."""
        self._disk = disk
        self._file_size = file_size
        self.per_file = file_size // kind.itemsize
        self.bases: list[int] = []
        for name in disk.list(directory):
            if len(name) == 20 and name.isdigit():
                path = os.path.join(directory, name)
                stat = disk.stat(path)
                size = 0 if stat is None else stat.size
                if size not in {0, file_size}:
                    self.faults.append((path, f"the file has {size} bytes where others have {file_size}"))
                if size:
                    self.bases.append(int(name))
        self.first = self.bases[0] // kind.itemsize if self.bases else 0
        self.end = self._find_end()

    def _find_end(self) -> int:
        """Number of the unit after the last written one."""
        for base in reversed(self.bases):
            low = base // self.kind.itemsize
            high = low + self.per_file
            if not self._is_written(low):
                continue
            while high - low > 1:
                middle = (low + high) // 2
                if self._is_written(middle):
                    low = middle
                else:
                    high = middle
            beyond = np.flatnonzero(self.read(high, high + _BEYOND)["size"] > 0)
            return high + (int(beyond[-1]) + 1 if len(beyond) else 0)
        return self.first

    def _is_written(self, number: int) -> bool:
        return bool(self.read(number, number + 1)["size"][0] > 0)

    def place(self, number: int) -> tuple[str, int]:
        """File of a unit, and the byte offset of the unit in it."""
        position = number * self.kind.itemsize
        within = position % self._file_size
        return os.path.join(self.directory, file_name(position - within)), within

    def read(self, start: int, stop: int) -> Units:
        """The units numbered from ``start`` to before ``stop``."""
        parts = []
        while start < stop:
            count = min(stop - start, self.per_file - start % self.per_file)
            path, within = self.place(start)
            length = count * self.kind.itemsize
            parts.append(self._disk.pread(path, within, length).ljust(length, b"\0"))
            start += count
        return np.frombuffer(b"".join(parts), self.kind)

    def at(self, numbers: Ints) -> Units:
        """The units with these numbers, in this order; zeros where there is no file."""
        rows = np.zeros(len(numbers), self.kind)
        inside = np.flatnonzero((numbers >= self.first) & (numbers < self._limit))
        inside = inside[np.argsort(numbers[inside], kind="stable")]
        sorted_numbers = numbers[inside]
        for part in np.split(np.arange(len(inside)), np.flatnonzero(np.diff(sorted_numbers) > _FAR) + 1):
            if len(part):
                low, high = int(sorted_numbers[part[0]]), int(sorted_numbers[part[-1]])
                rows[inside[part]] = self.read(low, high + 1)[sorted_numbers[part] - low]
        return rows

    @property
    def _limit(self) -> int:
        return self.bases[-1] // self.kind.itemsize + self.per_file if self.bases else 0

    def blocks(self, stop: int) -> Iterator[tuple[int, Units]]:
        """All units before number ``stop``, with the number of the first of each block."""
        for start in range(self.first, stop, _BLOCK):
            yield start, self.read(start, min(start + _BLOCK, stop))

    def first_record(self, log_start: int) -> int | None:
        """The number of the first unit whose record is still in the log."""
        for start, rows in self.blocks(self.end):
            found = np.flatnonzero(is_record(rows) & (rows["offset"] >= log_start))
            if len(found):
                return start + int(found[0])
        return None


def is_record(rows: Units) -> Flags:
    """Mask of units that point to a record: neither unwritten nor a filler."""
    sizes = rows["size"]
    result: Flags = (sizes > 0) & (sizes != FILLER_SIZE)
    return result
