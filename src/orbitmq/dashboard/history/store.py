"""History store: a ring of samples in one file of fixed size, mapped into memory.

Three levels: an hour in steps of 5 s, a day in steps of a minute, a week in steps of ten minutes. Each level has a
row per step with a value per series, so that one sample of all series is one write to neighbouring bytes. The
coarser levels have the means of what they cover. A row has the number of its step: an old row is never taken for a
new one, and gaps stay gaps. When all columns are in use, the series that was not written for longest loses its own.

The file is a cache: one with another layout, or a damaged one, is made again.
"""

from __future__ import annotations

import dataclasses
import logging
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger("orbitmq.dashboard")

MAGIC = b"ORBHIST1"
HEADER = 4096
NAME_SIZE = 384
"""Bytes of a series' entry: eight for the time of its last sample, two for the length of its name, and the name."""
_ENTRY = struct.Struct("<qH")
MAX_NAME = NAME_SIZE - _ENTRY.size


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """Rows of one resolution."""

    step: int
    """Seconds."""
    rows: int

    @property
    def span(self) -> int:
        return self.step * self.rows


LEVELS = (Level(5, 720), Level(60, 1440), Level(600, 1008))
_ROWS = sum(level.rows for level in LEVELS)


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """Samples of one series, oldest first, without the gaps."""

    step: int
    times: list[int]
    """Seconds since the epoch."""
    values: list[float]


def series_that_fit(mib: int) -> int:
    """Number of series in a file of this size."""
    return ((mib << 20) - HEADER - _ROWS * 8) // (NAME_SIZE + _ROWS * 4)


class HistoryStore:
    """The file. Writes are stores to mapped memory, which the system writes back; a crash loses seconds at most."""

    def __init__(self, memory: np.memmap[Any, Any], capacity: int) -> None:
        self._memory = memory
        self._capacity = capacity
        self._names = memory[HEADER : HEADER + capacity * NAME_SIZE].reshape(capacity, NAME_SIZE)
        self._ticks, self._values = [], []
        at = HEADER + capacity * NAME_SIZE
        for level in LEVELS:
            self._ticks.append(memory[at : at + level.rows * 8].view(np.int64))
            at += level.rows * 8
        for level in LEVELS:
            size = level.rows * capacity * 4
            self._values.append(memory[at : at + size].view(np.float32).reshape(level.rows, capacity))
            at += size
        self._columns: dict[str, int] = {}
        self._last = np.zeros(capacity, np.int64)
        self._read_names()

    @classmethod
    def open(cls, path: Path, mib: int) -> HistoryStore:
        """The history in a file, which is created or replaced if it has another size. Raises OSError."""
        capacity = max(series_that_fit(mib), 1)
        size = HEADER + capacity * (NAME_SIZE + _ROWS * 4) + _ROWS * 8
        size += -size % 8
        header = MAGIC + struct.pack("<IQ", capacity, size)
        try:
            with path.open("rb") as file:
                is_known = file.read(len(header)) == header and path.stat().st_size == size
        except FileNotFoundError:
            is_known = False
        if not is_known:
            _create(path, header, size)
        memory = np.memmap(path, np.uint8, "r+", shape=(size,))
        return cls(memory, capacity)

    def close(self) -> None:
        self._memory.flush()

    def names(self) -> list[str]:
        return sorted(self._columns)

    # Writing

    def write(self, now: int, samples: Mapping[str, float]) -> None:
        """Store a sample of some series at a time, in seconds since the epoch."""
        columns = np.array([self._column(name) for name in samples], np.intp)
        if not len(columns):
            return
        values = np.array(list(samples.values()), np.float32)
        self._last[columns] = now
        for column in columns:
            _ENTRY.pack_into(self._names[column], 0, now, _length_of(self._names[column]))
        fine = LEVELS[0]
        self._row(0, now // fine.step)[columns] = values
        for number in (1, 2):
            self._condense(number, now, columns)

    def _condense(self, number: int, now: int, columns: np.ndarray[Any, Any]) -> None:
        """Set the row of a coarser level to the means of the finer one's rows that it covers."""
        level, finer = LEVELS[number], LEVELS[number - 1]
        tick = now // level.step
        first = tick * level.step // finer.step
        ticks = np.arange(first, now // finer.step + 1)
        rows = ticks[self._ticks[number - 1][ticks % finer.rows] == ticks] % finer.rows
        part = self._values[number - 1][np.ix_(rows, columns)].astype(np.float64)
        known = ~np.isnan(part)
        counts = known.sum(axis=0)
        sums = np.where(known, part, 0.0).sum(axis=0)
        means = np.divide(sums, counts, out=np.full(len(columns), np.nan), where=counts > 0)
        self._row(number, tick)[columns] = means

    def _row(self, number: int, tick: int) -> np.ndarray[Any, Any]:
        """The row of a step; one of an earlier round is cleared."""
        at = tick % LEVELS[number].rows
        if self._ticks[number][at] != tick:
            self._values[number][at] = np.nan
            self._ticks[number][at] = tick
        row: np.ndarray[Any, Any] = self._values[number][at]
        return row

    # Reading

    def read(self, name: str, begin: int, end: int) -> Series:
        """The samples of a series between two times, from the finest level that reaches back to the begin."""
        number = next((at for at, level in enumerate(LEVELS) if level.span >= end - begin), len(LEVELS) - 1)
        level = LEVELS[number]
        column = self._columns.get(name)
        if column is None or end < begin:
            return Series(level.step, [], [])
        last = end // level.step
        ticks = np.arange(max(begin // level.step, last - level.rows + 1), last + 1)
        rows = ticks % level.rows
        values = self._values[number][rows, column]
        known = (self._ticks[number][rows] == ticks) & ~np.isnan(values)
        return Series(level.step, (ticks[known] * level.step).tolist(), [float(one) for one in values[known]])

    # Columns

    def _column(self, name: str) -> int:
        name = _cut(name)
        column = self._columns.get(name)
        if column is None:
            column = self._free_column()
            encoded = name.encode()
            entry = self._names[column]
            entry[:] = 0
            _ENTRY.pack_into(entry, 0, 0, len(encoded))
            entry[_ENTRY.size : _ENTRY.size + len(encoded)] = np.frombuffer(encoded, np.uint8)
            self._columns[name] = column
        return column

    def _free_column(self) -> int:
        if len(self._columns) < self._capacity:
            used = set(self._columns.values())
            return next(at for at in range(len(used), -1, -1) if at not in used)
        name = min(self._columns, key=lambda one: self._last[self._columns[one]])
        column = self._columns.pop(name)
        for values in self._values:
            values[:, column] = np.nan
        return column

    def _read_names(self) -> None:
        for column in range(self._capacity):
            entry = self._names[column]
            last, length = _ENTRY.unpack_from(entry)
            if not 0 < length <= MAX_NAME:
                continue
            try:
                name = bytes(entry[_ENTRY.size : _ENTRY.size + length]).decode()
            except UnicodeDecodeError:
                log.warning("history: damaged name of a series left out")
                continue
            if name not in self._columns:
                self._columns[name] = column
                self._last[column] = last


def _length_of(entry: np.ndarray[Any, Any]) -> int:
    length: int = _ENTRY.unpack_from(entry.tobytes())[1]
    return length


def _cut(name: str) -> str:
    return name.encode()[:MAX_NAME].decode(errors="ignore")


def _create(path: Path, header: bytes, size: int) -> None:
    partial = path.with_suffix(".tmp")
    partial.touch(0o600)
    with partial.open("r+b") as file:
        file.truncate(0)
        file.truncate(size)
        file.write(header)
    partial.replace(path)
