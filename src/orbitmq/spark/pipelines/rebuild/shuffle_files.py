"""The files between the tasks that read the log and those that write queues and index: units, and index entries.

Both kinds of task reach them by the same path, as they reach the store.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from orbitmq.spark.pipelines.rebuild.log_chunks import QueueRun
from orbitmq.store.consumequeue.batch_consume_queue import UNIT_SIZE as BATCH_UNIT_SIZE
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.message.record_columns import Flags, Ints
    from orbitmq.spark.pipelines.rebuild.topics import NotedQueues, Put

UNIT = np.dtype([("offset", ">i8"), ("size", ">i4"), ("code", ">i8")])
BATCH_UNIT = np.dtype(
    [
        ("offset", ">i8"), ("size", ">i4"), ("code", ">i8"), ("time", ">i8"), ("base", ">i8"), ("count", ">i2"),
        ("compacted", ">i4"), ("reserved", ">i4"),
    ]
)  # fmt: skip
assert (UNIT.itemsize, BATCH_UNIT.itemsize) == (UNIT_SIZE, BATCH_UNIT_SIZE)

_ENTRY_FIELDS = ("<i4", "<i8", "<i8")
_OFFSET = "<i8"


class Entries(NamedTuple):
    """Entries of the index, in its order."""

    key_hash: npt.NDArray[np.int32]
    offset: Ints
    time: Ints


class EntryColumns:
    """Entries in order of appearance, run by run."""

    def __init__(self) -> None:
        self.runs: list[Entries] = []

    def add(self, key_hash: npt.NDArray[np.int32], offset: Ints, time: Ints) -> None:
        self.runs.append(Entries(key_hash, offset, time))


class UnitColumns:
    """Units of many queues in order of appearance, run by run; the columns are those of ``Put``."""

    def __init__(self) -> None:
        self._runs: list[tuple[Ints, ...]] = []
        self._puts: list[Put] = []

    def add(self, queue: Ints, queue_offset: Ints, offset: Ints, size: Ints, code: Ints) -> None:
        self._runs.append((queue, queue_offset, offset, size, code))

    def add_puts(self, puts: Sequence[Put]) -> None:
        self._puts += puts

    def plain(self) -> tuple[Ints, ...]:
        """Queue, queue offset, offset, size and code of all units."""
        return tuple(np.concatenate(column) for column in zip(*self._runs, _empty(5), strict=True))

    def puts(self) -> tuple[Ints, ...]:
        """The columns of what was put one by one."""
        rows = np.array(self._puts, np.int64).reshape(-1, 7)
        return tuple(rows.T)


def _empty(count: int) -> tuple[Ints, ...]:
    return (np.zeros(0, np.int64),) * count


def write_units(parts: str, number: int, units: UnitColumns, queues: NotedQueues) -> tuple[QueueRun, ...]:
    """Write the units of a chunk, those of a queue together and in the order of the log."""
    is_batch = np.array([queue.is_batch for queue in queues.numbered], np.bool_)
    puts = units.puts()
    batch = is_batch[puts[0]] if len(puts[0]) else np.zeros(0, np.bool_)
    plain = units.plain()
    if len(puts[0]):
        plain = tuple(np.append(own, put[~batch]) for own, put in zip(plain, puts[:5], strict=True))
    runs: list[QueueRun] = []
    with _Part(_units_path(parts, number)) as file:
        queue, queue_offset, offset, size, code = _sorted(plain, is_mixed=len(puts[0]) > 0)
        records = np.empty(len(queue), UNIT)
        records["offset"], records["size"], records["code"] = offset, size, code
        nexts = queue_offset + 1
        runs += _runs(file, queues, queue, queue_offset, nexts, offset, records)
        queue, queue_offset, offset, size, code, time, count = _sorted(
            tuple(column[batch] for column in puts), is_mixed=True
        )
        records = np.empty(len(queue), BATCH_UNIT)
        records["offset"], records["size"], records["code"], records["time"] = offset, size, code, time
        records["base"], records["count"], records["compacted"], records["reserved"] = queue_offset, count, -1, 0
        runs += _runs(file, queues, queue, queue_offset, queue_offset + count, offset, records)
    return tuple(runs)


def _sorted(columns: tuple[Ints, ...], *, is_mixed: bool) -> tuple[Ints, ...]:
    """By queue, and within a queue as in the log, which is as they are unless they are from two sources."""
    if is_mixed:
        order = np.lexsort((columns[2], columns[0]))
    else:
        queue = columns[0]
        # Of small numbers numpy sorts by counting.
        is_small = not len(queue) or int(queue.max()) < 1 << 15
        order = np.argsort(queue.astype(np.int16) if is_small else queue, kind="stable")
    return tuple(column[order] for column in columns)


def _runs(
    file: _Part,
    queues: NotedQueues,
    queue: Ints,
    queue_offset: Ints,
    nexts: Ints,
    offset: Ints,
    records: npt.NDArray[np.void],
) -> list[QueueRun]:
    if not len(queue):
        return []
    at = file.write(records)
    starts = np.flatnonzero(np.append(True, queue[1:] != queue[:-1]))
    ends = np.append(starts[1:], len(queue))
    # A record that is put into a queue twice is in it once, whatever it says.
    follows: Flags = (queue_offset[1:] == nexts[:-1]) & (offset[1:] > offset[:-1])
    breaks = np.append(0, np.cumsum(~follows))
    runs = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        held = queues.numbered[int(queue[start])]
        is_regular = int(breaks[end - 1]) == int(breaks[start]) and int(queue_offset[start]) >= 0
        offsets_at = -1 if is_regular else file.write(queue_offset[start:end].astype(_OFFSET))
        runs.append(
            QueueRun(
                held.topic,
                held.queue_id,
                held.is_batch,
                end - start,
                int(queue_offset[start]),
                int(nexts[end - 1]),
                at + start * records.itemsize,
                offsets_at,
            )
        )
    return runs


def write_entries(parts: str, number: int, entries: EntryColumns) -> int:
    """Write the entries of a chunk, and say how many they are."""
    count = sum(len(run.key_hash) for run in entries.runs)
    if count:
        with _Part(_entries_path(parts, number)) as file:
            for column, kind in enumerate(_ENTRY_FIELDS):
                file.write(np.concatenate([run[column] for run in entries.runs]).astype(kind, copy=False))
    return count


def read_entries(parts: str, number: int, count: int, start: int, end: int) -> Entries:
    """Some of the entries of a chunk, which has so many."""
    columns = []
    at = 0
    for kind in _ENTRY_FIELDS:
        size = np.dtype(kind).itemsize
        columns.append(np.fromfile(_entries_path(parts, number), kind, end - start, offset=at + start * size))
        at += count * size
    return Entries(*columns)


def read_units(parts: str, number: int, run: QueueRun, start: int, end: int) -> bytes:
    """Some of the units of a run, as they are in a queue's file."""
    size = (BATCH_UNIT if run.is_batch else UNIT).itemsize
    with open(_units_path(parts, number), "rb") as file:
        return os.pread(file.fileno(), (end - start) * size, run.at + start * size)


def read_queue_offsets(parts: str, number: int, run: QueueRun) -> Ints:
    """The queue offsets of a run of units of a plain queue."""
    if run.offsets_at < 0:
        return np.arange(run.first, run.next)
    return np.fromfile(_units_path(parts, number), _OFFSET, run.units, offset=run.offsets_at)


def _units_path(parts: str, number: int) -> str:
    return os.path.join(parts, f"{number:08d}.units")


def _entries_path(parts: str, number: int) -> str:
    return os.path.join(parts, f"{number:08d}.entries")


class _Part:
    """A file that gets its name when it is complete: Spark may run a task twice, even in parallel."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._hidden = f"{path}.{uuid.uuid4().hex}"

    def __enter__(self) -> Self:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        self._file = open(self._hidden, "wb")
        return self

    def write(self, data: npt.NDArray[np.generic]) -> int:
        """Write an array, and say where it begins."""
        at = self._file.tell()
        np.ascontiguousarray(data).tofile(self._file)
        return at

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if failed is None:
            os.replace(self._hidden, self._path)
        else:
            os.remove(self._hidden)
