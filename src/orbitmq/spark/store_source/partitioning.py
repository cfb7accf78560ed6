"""Partitioning of a commit log: byte ranges that tasks read in parallel, with each record in exactly one of them.

A part is a range of bytes of a log file, wherever records happen to begin. What a task makes of it runs from the
first whole record that begins in the range to the first whole one that begins in a later range. Both tasks at an
edge search for the same record, so they agree on it whatever lies around it, and damage at an edge is met by the
first of the two.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from orbitmq.spark.topic_source.offset_bounds import CLOCK_SLACK_MS
from orbitmq.store.commitlog.find_end import find_end
from orbitmq.store.commitlog.scanner import LogView, Seen

if TYPE_CHECKING:
    from orbitmq.store.commitlog.mapped_files import LogFiles

LARGEST_BLANK = 16 << 20
"""A file ends with a blank where the next record does not fit any more, and records are smaller than this."""

FINE_PARTS = 2
FINE = 4
"""The last partitions of a log are split further, so that tasks that finish early have work left."""


@dataclasses.dataclass(frozen=True, slots=True)
class StorePartition(InputPartition):
    """Bytes of one log file, as offsets in the log."""

    base: int
    """The offset of the file."""
    start: int
    end: int
    limit: int
    """The end of the file, or of the log if that is before."""

    def edges(self, view: LogView) -> tuple[int, int]:
        """The start and the end of the read: offsets of records, or the ends of the file."""
        return self._edge(view, self.start), self._edge(view, self.end)

    def _edge(self, view: LogView, offset: int) -> int:
        if offset in (self.base, self.limit):
            return offset
        position = offset - self.base
        found = view.next_record(position - 1, 0, [(position, self.limit - self.base)])
        if found is None or view.blank_before(found, LARGEST_BLANK):
            return self.limit
        return min(self.base + found, self.limit)


def cut(log: LogFiles, size: int, low_ms: int | None = None, high_ms: int | None = None) -> list[StorePartition]:
    """The partitions of the current log, of at most ``size`` bytes, without those outside of the time range."""
    end = find_end(log)
    parts = []
    for base in log.bases:
        stat = log.disk.stat(log.path(base))
        limit = min(base + (0 if stat is None else stat.size), end)
        edges = _edges(base, limit, size, fine_from=end - FINE_PARTS * size)
        parts += [StorePartition(base, start, stop, limit) for start, stop in itertools.pairwise(edges)]
    if low_ms is None and high_ms is None:
        return parts
    return _within(log, parts, low_ms, high_ms)


def _edges(base: int, limit: int, size: int, fine_from: int) -> list[int]:
    """The boundaries of the partitions of a file; after ``fine_from`` they are smaller."""
    edges = list(range(base, min(limit, max(fine_from, base)), size))
    fine = max(size // FINE, 1)
    edges += range(edges[-1] + size if edges else base, limit, fine)
    return [*edges, limit] if limit > base else []


def _within(
    log: LogFiles, parts: list[StorePartition], low_ms: int | None, high_ms: int | None
) -> list[StorePartition]:
    """Without files, and in files that are partly wanted without parts, of another time.

    A file or part is not later than what the next one begins with. To look at the parts of files that are wanted or
    not as a whole would cost a read from the disk for each.
    """
    low = None if low_ms is None else low_ms - CLOCK_SLACK_MS
    high = None if high_ms is None else high_ms + CLOCK_SLACK_MS

    def is_wanted(first: int | None, after: int | None) -> bool:
        return not (low is not None and after is not None and after < low) and not (
            high is not None and first is not None and first > high
        )

    files = [list(group) for _, group in itertools.groupby(parts, key=lambda part: part.base)]
    starts = [_first_time(log, group[0]) for group in files]
    kept: list[StorePartition] = []
    for group, first, after in zip(files, starts, [*starts[1:], None], strict=True):
        if not is_wanted(first, after):
            continue
        begins_before = low is not None and (first is None or first < low)
        ends_after = high is not None and (after is None or after > high)
        if not begins_before and not ends_after:
            kept += group
            continue
        times = [first, *(_first_time(log, part) for part in group[1:]), after]
        pairs = zip(group, itertools.pairwise(times), strict=True)
        kept += [part for part, (begin, end) in pairs if is_wanted(begin, end)]
    return kept


def _first_time(log: LogFiles, part: StorePartition) -> int | None:
    """The store time of the first record of a partition, if there is one."""
    # Not kept open: a log may have more files than a process may open.
    mapped = log.disk.map(log.path(part.base), writable=False)
    view = LogView(part.base, mapped.buffer)
    first, _ = part.edges(view)
    seen = view.look(first - part.base, check_crc=False) if first < part.end else None
    mapped.close()
    return seen.store_timestamp if isinstance(seen, Seen) else None
