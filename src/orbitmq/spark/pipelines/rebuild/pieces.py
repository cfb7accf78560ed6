"""A log cut into pieces that are read side by side, and the proof that together they were one walk from its start.

A piece is a range of bytes, wherever records happen to begin. Its reader looks for the first whole record that
begins there and follows the sizes from it, so what it read depends on a guess: a body may hold bytes that look like
a record. But each reader says where it began and where its walk led, and the walk of one piece must lead to where
the next one began, all the way from the first byte of the log. Where it does not, that piece is read once more from
the right place. In the end every record was reached as recovery reaches it, and none by a guess.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.spark.pipelines.running import PipelineError
from orbitmq.store.bulk_scan import scan_log
from orbitmq.store.scan import Damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orbitmq.store.log_files import LogFiles

LEAST_PIECE = 8 << 20
MOST_PIECE = 128 << 20
"""Of the smallest records, a task holds half a gigabyte of what it made of this many bytes."""


class Piece(NamedTuple):
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
    """What a piece has of one queue: units that lie together in the piece's file."""

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
    """Where in the file their queue offsets are; -1 if these follow each other and nobody needs to be told."""


@dataclasses.dataclass(frozen=True, slots=True)
class PieceRead:
    """How the walk through a piece went, and what was made of its records."""

    piece: Piece
    first: int | None
    """Where the first record begins; None if none does in this piece."""
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
    """The whole log, piece by piece."""

    pieces: list[PieceRead]
    log_start: int
    log_end: int

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.pieces)


class DamagedInTheMiddleError(PipelineError):
    """Something in a log is no record, and records follow it."""


def cut(files: LogFiles, parallelism: int, size: int | None = None) -> list[Piece]:
    """The pieces of a log, each in one file. What was never written to is left out.

    Unless their size is given, each of the tasks that run at once has a few pieces, and none of them too much.
    """
    written = {base: _written(files, base) for base in files.bases}
    if size is None:
        size = min(max(sum(written.values()) // (3 * max(parallelism, 1)), LEAST_PIECE), MOST_PIECE)
    pieces: list[Piece] = []
    for base, length in written.items():
        starts = list(range(base, base + length, size)) or [base]
        if len(starts) > 1 and base + length - starts[-1] < size // 2:
            starts.pop()
        # The last one goes to the end of the file: only a look there tells why the records end.
        for start, end in zip(starts, [*starts[1:], base + files.file_size], strict=True):
            pieces.append(Piece(len(pieces), base, start, end, base + length, start == base))
    return pieces


def _written(files: LogFiles, base: int) -> int:
    return max((end for _, end in files.disk.written_ranges(files.path(base), 0)), default=0)


def settle(
    files: LogFiles,
    reads: Sequence[PieceRead],
    read_again: Callable[[Piece], PieceRead],
    *,
    torn_from: int,
    check_property_crc: bool = False,
) -> Walked:
    """Follow the walk from piece to piece; ``read_again`` reads one that began in the wrong place.

    Raises DamagedInTheMiddleError.
    """
    expected = log_end = files.start
    last: int | None = None
    walked: list[PieceRead] = []
    for read in reads:
        piece = read.piece
        if expected >= piece.end:
            continue
        if expected != read.first:
            again = piece._replace(number=len(reads) + piece.number, start=expected, is_exact=True)
            read = read_again(again)  # noqa: PLW2901
        if read.records:
            last, log_end = read.last, read.end
            walked.append(read)
        if read.stop is not None:
            _refuse_damage(files, files.start if last is None else last, log_end, torn_from, check_property_crc)
            break
        expected = piece.base + files.file_size if read.is_file_done else read.next
    return Walked(walked, files.start, log_end)


def _refuse_damage(files: LogFiles, start: int, end: int, torn_from: int, check_property_crc: bool) -> None:
    """Be sure that the log ends where the walk did: recovery is asked, from the last whole record on."""
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
            "behind it: 'orbitmq store rebuild' mends the log and builds from what is whole"
        )


def queues_of(walked: Walked) -> dict[tuple[str, int], list[tuple[int, QueueRun]]]:
    """By queue, its runs with the numbers of their pieces, in the order of the log."""
    queues: dict[tuple[str, int], list[tuple[int, QueueRun]]] = {}
    for read in walked.pieces:
        for run in read.runs:
            queues.setdefault((run.topic, run.queue_id), []).append((read.piece.number, run))
    return queues


def follow_each_other(runs: Iterable[QueueRun]) -> bool:
    """Whether all units of a queue have the numbers after each other, so that there is nothing to decide."""
    expected: int | None = None
    for run in runs:
        if run.offsets_at >= 0 or run.first < 0 or expected not in {None, run.first}:
            return False
        expected = run.next
    return True
