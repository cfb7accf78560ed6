"""Chunks of a log that are read in parallel, and the proof that together they are one scan from its start.

A chunk is a range of bytes, wherever records happen to begin. Its reader looks for the first whole record that
begins there and follows the sizes from it, so what it read depends on a guess: a body may hold bytes that look like
a record. But each reader says where it began and where its walk led, and the walk of one chunk must lead to where
the next one began, all the way from the first byte of the log. Where it does not, that chunk is read once more from
the right place. In the end every record was reached as recovery reaches it, and none by a guess.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.store.commitlog.column_scanner import scan_log
from orbitmq.store.commitlog.scanner import Damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orbitmq.store.commitlog.mapped_files import LogFiles

MIN_CHUNK = 8 << 20
MAX_CHUNK = 128 << 20
"""Of the smallest records, a task holds half a gigabyte of what it made of this many bytes."""


class LogChunk(NamedTuple):
    """Bytes of one log file, as offsets in the log."""

    number: int
    base: int
    start: int
    end: int
    written: int
    """Behind this offset the file was never written to; there is no need to search for records there."""
    is_exact: bool
    """Whether a record is known to begin at the start, or nothing is left to guess."""


class QueueRun(NamedTuple):
    """The units of one queue in a chunk, contiguous in the chunk's file."""

    topic: str
    queue_id: int
    is_batch: bool
    units: int
    first: int
    """The queue offset of the first, and the one after the last."""
    next: int
    at: int
    """Where in the file the units begin."""
    offsets_at: int
    """Position in the file of their queue offsets; -1 if the offsets are consecutive and not stored."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChunkResult:
    """The result of the scan of a chunk."""

    chunk: LogChunk
    first: int | None
    """Where the first record begins; None if none does in this chunk."""
    next: int
    """Where the walk goes on."""
    is_file_done: bool
    """Whether that is in the next file."""
    stop: str | None
    """Why there is no whole record where the walk should go on."""
    records: int
    last: int
    """Where the last record begins ..."""
    end: int
    """... and ends."""
    newest_ms: int
    """When the last record that says so was stored."""
    dispatched: int
    """Where the last record begins that queues and index know, or could know; -1 for none."""
    dispatched_ms: int
    entries: int
    """How many entries the index gets."""
    runs: tuple[QueueRun, ...]


@dataclasses.dataclass(slots=True)
class Walked:
    """The scan of the whole log, chunk by chunk."""

    chunks: list[ChunkResult]
    log_start: int
    log_end: int

    @property
    def records(self) -> int:
        return sum(chunk.records for chunk in self.chunks)


class DamagedInTheMiddleError(PipelineError):
    """A log is damaged before its end: records follow the damage."""


def cut(files: LogFiles, parallelism: int, size: int | None = None) -> list[LogChunk]:
    """The chunks of a log, each in one file. What was never written to is left out.

    Unless their size is given, each of the tasks that run at once has a few chunks, and none of them too much.
    """
    written = {base: _written(files, base) for base in files.bases}
    if size is None:
        size = min(max(sum(written.values()) // (3 * max(parallelism, 1)), MIN_CHUNK), MAX_CHUNK)
    chunks: list[LogChunk] = []
    for base, length in written.items():
        starts = list(range(base, base + length, size)) or [base]
        if len(starts) > 1 and base + length - starts[-1] < size // 2:
            starts.pop()
        # The last one goes to the end of the file: only a look there tells why the records end.
        for start, end in zip(starts, [*starts[1:], base + files.file_size], strict=True):
            chunks.append(LogChunk(len(chunks), base, start, end, base + length, start == base))
    return chunks


def _written(files: LogFiles, base: int) -> int:
    return max((end for _, end in files.disk.written_ranges(files.path(base), 0)), default=0)


def settle(
    files: LogFiles,
    reads: Sequence[ChunkResult],
    read_again: Callable[[LogChunk], ChunkResult],
    *,
    torn_from: int,
    check_property_crc: bool = False,
) -> Walked:
    """Follow the walk from chunk to chunk; ``read_again`` reads one that began in the wrong place.

    Raises DamagedInTheMiddleError.
    """
    expected = log_end = files.start
    last: int | None = None
    walked: list[ChunkResult] = []
    for read in reads:
        chunk = read.chunk
        if expected >= chunk.end:
            continue
        if expected != read.first:
            again = chunk._replace(number=len(reads) + chunk.number, start=expected, is_exact=True)
            read = read_again(again)  # noqa: PLW2901
        if read.records:
            last, log_end = read.last, read.end
            walked.append(read)
        if read.stop is not None:
            _refuse_damage(files, files.start if last is None else last, log_end, torn_from, check_property_crc)
            break
        expected = chunk.base + files.file_size if read.is_file_done else read.next
    return Walked(walked, files.start, log_end)


def _refuse_damage(files: LogFiles, start: int, end: int, torn_from: int, check_property_crc: bool) -> None:
    """Check that the log ends where the walk did, by recovery's scan from the last whole record on."""
    steps = scan_log(
        files, start, torn_from=torn_from, check_property_crc=check_property_crc, search_unwritten=True
    )
    for step in steps:
        if isinstance(step, Damage):
            if not step.size:
                return
            where, reason = step.offset, step.reason
        elif step.end <= end:
            continue
        else:
            where, reason = int(step.offset[0]), "the body fails its CRC"
        raise DamagedInTheMiddleError(
            f"{files.path(where - where % files.file_size)} is damaged at offset {where} ({reason}) and goes on "
            "behind it: 'orbitmq store rebuild' repairs the log and builds from the intact records"
        )


def queues_of(walked: Walked) -> dict[tuple[str, int], list[tuple[int, QueueRun]]]:
    """By queue, its runs with the numbers of their chunks, in the order of the log."""
    queues: dict[tuple[str, int], list[tuple[int, QueueRun]]] = {}
    for read in walked.chunks:
        for run in read.runs:
            queues.setdefault((run.topic, run.queue_id), []).append((read.chunk.number, run))
    return queues


def follow_each_other(runs: Iterable[QueueRun]) -> bool:
    """True if the offsets of all units of a queue are consecutive."""
    expected: int | None = None
    for run in runs:
        if run.offsets_at >= 0 or run.first < 0 or expected not in {None, run.first}:
            return False
        expected = run.next
    return True
