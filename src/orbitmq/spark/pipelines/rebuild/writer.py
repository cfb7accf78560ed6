"""The writer tasks of a rebuild: files of consume queues, and files of the index.

Queues whose units follow each other are copied into their files, several files to a task. A queue in which
something is missing or comes twice is put together unit by unit by the broker's own code, which knows what is to be
done then. Each file gets its name when it is complete and on the disk, because Spark may have a task done twice.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import uuid
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.spark.pipelines.rebuild.shuffle_files import Entries, read_entries, read_queue_offsets, read_units
from orbitmq.store.consumequeue.batch_consume_queue import FILLER as BATCH_FILLER
from orbitmq.store.consumequeue.batch_consume_queue import UNIT as BATCH_UNIT
from orbitmq.store.consumequeue.batch_consume_queue import UNIT_SIZE as BATCH_UNIT_SIZE
from orbitmq.store.consumequeue.batch_consume_queue import BatchConsumeQueue
from orbitmq.store.consumequeue.consume_queue import FILLER, UNIT, UNIT_SIZE, ConsumeQueue
from orbitmq.store.consumequeue.unit_file import file_name, write_fully
from orbitmq.store.index.format import IndexHeader
from orbitmq.store.index.index_file import IndexFile

if TYPE_CHECKING:
    import struct
    from collections.abc import Iterator, Sequence

    from orbitmq.spark.pipelines.rebuild.log_chunks import QueueRun

    Runs = Sequence[tuple[int, QueueRun]]

BLOCK = 1 << 20
"""Entries put into the index at once: some 50 MB."""


class QueueFile(NamedTuple):
    """One file of a queue, with the sources of its units."""

    path: str
    size: int
    fillers: int
    """Units in front of the first, in the first file of a queue whose oldest records have expired."""
    chunks: tuple[tuple[int, QueueRun, int, int], ...]
    """Numbers of chunks, and which units of a run are taken."""


class WholeQueue(NamedTuple):
    """A queue that is built unit by unit."""

    directory: str
    topic: str
    queue_id: int
    is_batch: bool
    file_size: int
    runs: Runs


class IndexRange(NamedTuple):
    """One file of the index: its range of entries, and the chunks that have them."""

    path: str
    start: int
    end: int
    chunks: tuple[tuple[int, int, int], ...]
    """Numbers of chunks with entries, how many they have, and the number of the first among all."""


class QueueEnds(NamedTuple):
    """The bounds of a built queue: its smallest offset, and the one after the largest."""

    topic: str
    queue_id: int
    low: int
    high: int


class IndexEnds(NamedTuple):
    """Of a file of the index: when its first and its last entry were stored, and where the last one leads."""

    path: str
    first_ms: int
    last_ms: int
    last_offset: int


Work = tuple[QueueFile, ...] | WholeQueue | IndexRange


@dataclasses.dataclass(frozen=True, slots=True)
class Writing:
    """Writes the files. It is pickled at the driver and used in the tasks."""

    parts: str
    slots: int
    entries: int

    def write(self, work: Work) -> QueueEnds | IndexEnds | None:
        """Write what a task was given. Raises OSError."""
        if isinstance(work, WholeQueue):
            return self._whole_queue(work)
        if isinstance(work, IndexRange):
            return self._index_file(work)
        self._queue_files(work)
        return None

    def _hidden(self) -> str:
        """A name for what is not complete, where no broker would look at it: tasks may be cut off anywhere."""
        return os.path.join(self.parts, f"unfinished-{uuid.uuid4().hex}")

    # Queues

    def _queue_files(self, files: tuple[QueueFile, ...]) -> None:
        disk = LocalDisk()
        names = [self._hidden() for _ in files]
        for file, hidden in zip(files, names, strict=True):
            disk.create(hidden, file.size)
            at = 0
            if file.fillers:
                write_fully(disk, hidden, 0, FILLER * file.fillers)
                at = file.fillers * UNIT_SIZE
            for number, run, start, end in file.chunks:
                units = read_units(self.parts, number, run, start, end)
                write_fully(disk, hidden, at, units)
                at += len(units)
        disk.sync_many(names, ())
        for file, hidden in zip(files, names, strict=True):
            _reveal(hidden, file.path)

    def _whole_queue(self, work: WholeQueue) -> QueueEnds:
        disk = LocalDisk()
        hidden = self._hidden()
        try:
            queue = self._put_together(disk, hidden, work)
            ends = QueueEnds(work.topic, work.queue_id, queue.min_offset, queue.max_offset)
            files, _ = queue.take_unsynced()
            disk.sync_many(files, [hidden] if files else ())
            if files and not os.path.isdir(work.directory):
                _reveal(hidden, work.directory)
        finally:
            disk.close()
            shutil.rmtree(hidden, ignore_errors=True)
        return ends

    def _put_together(self, disk: LocalDisk, directory: str, work: WholeQueue) -> ConsumeQueue | BatchConsumeQueue:
        queue: ConsumeQueue | BatchConsumeQueue
        if work.is_batch:
            queue = batches = BatchConsumeQueue(disk, directory, work.topic, work.queue_id, work.file_size)
            for unit in self._units(work.runs, BATCH_UNIT):
                offset, size, code, time, base, count, _, _ = unit
                if batches.put(base, offset, size, code, time, count) and batches.tail_size >= batches.full_at:
                    batches.write_out(BATCH_FILLER)
            batches.write_out(BATCH_FILLER)
            return batches
        queue = ConsumeQueue(disk, directory, work.topic, work.queue_id, work.file_size)
        numbers = (at for number, run in work.runs for at in read_queue_offsets(self.parts, number, run).tolist())
        for (offset, size, code), queue_offset in zip(self._units(work.runs, UNIT), numbers, strict=True):
            # As a dispatcher does, for what a queue makes of a gap depends on what is in its files by then.
            if queue.put(queue_offset, offset, size, code) and queue.tail_size >= queue.full_at:
                queue.write_out(FILLER)
        queue.write_out(FILLER)
        return queue

    def _units(self, runs: Runs, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        for number, run in runs:
            yield from layout.iter_unpack(read_units(self.parts, number, run, 0, run.units))

    # The index

    def _index_file(self, work: IndexRange) -> IndexEnds:
        disk = LocalDisk()
        hidden = self._hidden()
        file = IndexFile.create(disk, hidden, self.slots, self.entries)
        try:
            if work.start:
                # A file begins where the one before it ended, until its first entry says better.
                before = next(self._entries(work.chunks, work.start - 1, work.start))
                end = IndexHeader(end_timestamp=int(before.time[0]), end_offset=int(before.offset[0]))
                file.inherit(end)
            first_ms: int | None = None
            for run in self._entries(work.chunks, work.start, work.end):
                if first_ms is None:
                    first_ms = int(run.time[0])
                file.put(run.key_hash, run.offset, run.time)
            file.mapped.sync()
            ends = IndexEnds(work.path, first_ms or 0, file.header.end_timestamp, file.header.end_offset)
        except BaseException:
            file.close()
            disk.remove(hidden)
            raise
        file.close()
        _reveal(hidden, work.path)
        return ends

    def _entries(self, chunks: Sequence[tuple[int, int, int]], start: int, end: int) -> Iterator[Entries]:
        for number, count, first in chunks:
            low, high = max(start - first, 0), min(end - first, count)
            for at in range(low, high, BLOCK):
                yield read_entries(self.parts, number, count, at, min(at + BLOCK, high))


def _reveal(hidden: str, path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.replace(hidden, path)


def files_of(directory: str, file_size: int, runs: Runs) -> Iterator[QueueFile]:
    """The files of a queue whose units follow each other."""
    first_run = runs[0][1]
    unit_size = BATCH_UNIT_SIZE if first_run.is_batch else UNIT_SIZE
    per_file = file_size // unit_size
    # Units of batches are numbered from 0, others by their queue offsets.
    begin = 0 if first_run.is_batch else first_run.first
    total = sum(run.units for _, run in runs)
    base = begin - begin % per_file
    while base < begin + total:
        chunks = []
        at = begin
        for number, run in runs:
            low, high = max(base - at, 0), min(base + per_file - at, run.units)
            if low < high:
                chunks.append((number, run, low, high))
            at += run.units
        path = os.path.join(directory, file_name(base * unit_size))
        yield QueueFile(path, file_size, max(begin - base, 0), tuple(chunks))
        base += per_file
