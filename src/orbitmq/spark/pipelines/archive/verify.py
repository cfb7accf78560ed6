"""Verification of written files: each offset once, read back from the files."""

from __future__ import annotations

import dataclasses
import itertools
import posixpath
import urllib.parse
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.archive.directory import DAY, ArchiveError
from orbitmq.spark.topic_source.offsets import described

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from orbitmq.spark.pipelines.archive.directory import Range


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file written by Spark."""

    path: str
    folder: str
    """``topic=…/day=…``, as Spark spells it."""
    topic: str
    day: str
    rows: int
    size: int
    runs: Mapping[MessageQueue, list[Range]]
    """Offsets of queues that lie end to end in it."""


def written_files(files: pafs.FileSystem, directory: str) -> list[WrittenFile]:
    """All that was written below a directory, in the order of names. Raises OSError, ArchiveError."""
    selector = pafs.FileSelector(directory, allow_not_found=True, recursive=True)
    found = sorted(
        (one for one in files.get_file_info(selector) if one.base_name.endswith(".parquet")),
        key=lambda one: str(one.path),
    )
    return [_written(files, one.path, one.size, posixpath.relpath(one.path, directory)) for one in found]


def _written(files: pafs.FileSystem, path: str, size: int, relative: str) -> WrittenFile:
    folder = posixpath.dirname(relative)
    named = dict(part.split("=", 1) for part in folder.split("/"))
    topic = urllib.parse.unquote(named["topic"])
    runs: dict[MessageQueue, list[Range]] = {}
    with files.open_input_file(path) as source, pq.ParquetFile(source, read_dictionary=["broker"]) as parquet:
        for number in range(parquet.num_row_groups):
            group = parquet.read_row_group(number, ["broker", "queue_id", "queue_offset"])
            for batch in group.to_batches():
                _add_runs(runs, topic, batch)
        rows = int(parquet.metadata.num_rows)
    return WrittenFile(path, folder, topic, named[DAY], rows, size, runs)


def _add_runs(runs: dict[MessageQueue, list[Range]], topic: str, batch: pa.RecordBatch) -> None:
    if not batch.num_rows:
        return
    brokers = batch.column(0)
    codes, names = brokers.indices.to_numpy(), brokers.dictionary.to_pylist()
    numbers, offsets = batch.column(1).to_numpy(), batch.column(2).to_numpy()
    breaks = (np.diff(codes) != 0) | (np.diff(numbers) != 0) | (np.diff(offsets) != 1)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(offsets)])).tolist()
    for first, after in itertools.pairwise(starts):
        queue = MessageQueue(topic, names[codes[first]], int(numbers[first]))
        runs.setdefault(queue, []).append((int(offsets[first]), int(offsets[after - 1]) + 1))


def missing_of(
    ranges: Mapping[MessageQueue, Range], written: Iterable[WrittenFile]
) -> dict[MessageQueue, tuple[Range, ...]]:
    """The offsets of the ranges that are in no file. Raises ArchiveError for duplicates and foreign offsets."""
    found: dict[MessageQueue, list[Range]] = {}
    for file in written:
        for queue, runs in file.runs.items():
            found.setdefault(queue, []).extend(runs)
    if strangers := found.keys() - ranges.keys():
        raise ArchiveError(f"{described(strangers)} was read but is not part of this segment")
    missing = {queue: _gaps(queue, of, sorted(found.get(queue, []))) for queue, of in ranges.items()}
    return {queue: gaps for queue, gaps in missing.items() if gaps}


def _gaps(queue: MessageQueue, of: Range, runs: list[Range]) -> tuple[Range, ...]:
    gaps = []
    position, end = of
    for start, after in runs:
        if start < position or after > end:
            raise ArchiveError(
                f"the offsets {start} to {after - 1} of {described([queue])} were written twice or are not of this "
                "segment, which is a fault of this program"
            )
        if start > position:
            gaps.append((position, start))
        position = after
    if position < end:
        gaps.append((position, end))
    return tuple(gaps)


def in_words(missing: Mapping[MessageQueue, Iterable[Range]], most: int = 3) -> str:
    """Some ranges of offsets, with their queues."""
    words = [
        f"{start} to {end - 1} of {described([queue])}"
        for queue, gaps in sorted(missing.items(), key=lambda item: item[0])
        for start, end in gaps
    ]
    return ", ".join(words[:most]) + (f" and {len(words) - most} more ranges" if len(words) > most else "")
