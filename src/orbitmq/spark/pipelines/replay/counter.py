"""Counts of the archived messages of each queue for a replay, with their times, read from narrow columns only.

Without Spark: four columns of a message are a few bytes in a Parquet file, so the count is done before Spark would
have started, and errors in a request are reported at once.
"""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.archive.directory import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

    from orbitmq.spark.pipelines.archive.directory import Archive, ArchivedFile, Segment
    from orbitmq.spark.pipelines.replay.request import ReplayRequest

    Numbers = npt.NDArray[np.int64]

LIFE_BITS = 48
"""A position is the life of a queue, above these bits, and the offset in it: offsets count from 0 again after a
topic was deleted and made again."""

_COLUMNS = ["broker", "queue_id", "queue_offset", "store_timestamp"]


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Segments without a recreated queue between them."""

    files: tuple[ArchivedFile, ...]
    lives: Mapping[MessageQueue, int]
    """How often queues had been recreated before; 0 for those not listed."""

    def life(self, queue: MessageQueue) -> int:
        return self.lives.get(queue, 0)


@dataclasses.dataclass(slots=True)
class Counted:
    """The counts of one queue."""

    rows: int = 0
    first_us: int = 0
    last_us: int = 0
    """The times of the oldest and of the newest."""
    spans: list[tuple[int, int, int, int]] = dataclasses.field(default_factory=list)
    """First and last position, and oldest and newest time, of what was read at once."""
    has_gone_back: bool = False
    """Whether the clock of its broker has: some message is older than one before it."""

    def add(self, rows: int, span: tuple[int, int, int, int], has_gone_back: bool) -> None:
        self.first_us = span[2] if not self.rows else min(self.first_us, span[2])
        self.last_us = span[3] if not self.rows else max(self.last_us, span[3])
        self.rows += rows
        self.spans.append(span)
        self.has_gone_back = self.has_gone_back or has_gone_back

    def join(self) -> None:
        """Look at times between spans as well. Spans in each other's way are taken for the worst."""
        self.spans.sort()
        for (_, last, _, newest), (first, _, oldest, _) in zip(self.spans, self.spans[1:], strict=False):
            self.has_gone_back = self.has_gone_back or first <= last or oldest < newest


def parts_of(segments: Iterable[Segment], request: ReplayRequest) -> list[Part]:
    """The files that may hold the requested messages, split where one of their queues was recreated."""
    wanted = set(request.topics)
    first_day, last_day = _day(request.start_ms), _day(request.until_ms)
    lives: dict[MessageQueue, int] = {}
    parts: list[Part] = []
    files: list[ArchivedFile] = []
    for segment in segments:
        recreated = [queue for queue in segment.recreated if queue.topic in wanted]
        if recreated:
            parts.append(Part(tuple(files), dict(lives)))
            files = []
            for queue in recreated:
                lives[queue] = lives.get(queue, 0) + 1
        files += [
            file
            for file in segment.files
            if file.topic in wanted
            and (first_day is None or file.day >= first_day)
            and (last_day is None or file.day <= last_day)
        ]
    return [part for part in (*parts, Part(tuple(files), lives)) if part.files]


def counted(
    archive: Archive,
    parts: Sequence[Part],
    request: ReplayRequest,
    done: Mapping[MessageQueue, int] | None = None,
    at: Callable[[int], None] | None = None,
) -> dict[MessageQueue, Counted]:
    """The messages to replay of each queue, after the positions ``done``. Raises ArchiveError, OSError.

    ``at`` is called with the number of files read so far.
    """
    found: dict[MessageQueue, Counted] = {}
    number = 0
    for part in parts:
        for file in part.files:
            _count_file(archive, part, file, request, done or {}, found)
            number += 1
            if at is not None:
                at(number)
    for of in found.values():
        of.join()
    return found


def _count_file(
    archive: Archive,
    part: Part,
    file: ArchivedFile,
    request: ReplayRequest,
    done: Mapping[MessageQueue, int],
    found: dict[MessageQueue, Counted],
) -> None:
    path = archive.within(file.path)
    try:
        with archive.files.open_input_file(path) as source, pq.ParquetFile(source) as parquet:
            for number in range(parquet.num_row_groups):
                _count_rows(parquet.read_row_group(number, _COLUMNS), file.topic, part, request, done, found)
    except (FileNotFoundError, pa.ArrowInvalid, KeyError) as error:
        raise ArchiveError(f"the archive is damaged: {file.path} cannot be read: {error}") from error


def _count_rows(
    table: pa.Table,
    topic: str,
    part: Part,
    request: ReplayRequest,
    done: Mapping[MessageQueue, int],
    found: dict[MessageQueue, Counted],
) -> None:
    times = np.asarray(pc.cast(table.column("store_timestamp"), pa.timestamp("us", tz="UTC"))).astype(np.int64)
    wanted = np.ones(len(times), np.bool_)
    if request.start_ms is not None:
        wanted &= times >= request.start_ms * 1000
    if request.until_ms is not None:
        wanted &= times < request.until_ms * 1000
    table, times = table.filter(pa.array(wanted)), times[wanted]
    if not len(times):
        return
    brokers = table.column("broker").combine_chunks().dictionary_encode()
    queue_ids = np.asarray(table.column("queue_id")).astype(np.int64)
    offsets = np.asarray(table.column("queue_offset")).astype(np.int64)
    codes = np.asarray(brokers.indices).astype(np.int64) << 32 | queue_ids
    order = np.lexsort((offsets, codes))
    codes, offsets, times = codes[order], offsets[order], times[order]
    begins = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), codes[1:] != codes[:-1]]))
    for begin, end in zip(begins, [*begins[1:], len(codes)], strict=True):
        broker = brokers.dictionary[int(codes[begin]) >> 32].as_py()
        queue = MessageQueue(topic, broker, int(codes[begin]) & 0xFFFFFFFF)
        life = part.life(queue) << LIFE_BITS
        at = int(begin) + int(np.searchsorted(offsets[begin:end], done.get(queue, -1) - life, side="right"))
        if at < end:
            here = times[at:end]
            span = (life | int(offsets[at]), life | int(offsets[end - 1]), int(here.min()), int(here.max()))
            found.setdefault(queue, Counted()).add(int(end) - at, span, bool((np.diff(here) < 0).any()))


def _day(ms: int | None) -> str | None:
    if ms is None:
        return None
    # Times out of what a calendar has are before or after all days that there are.
    ms = min(max(ms, 0), 253_402_300_799_000)
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).date().isoformat()
