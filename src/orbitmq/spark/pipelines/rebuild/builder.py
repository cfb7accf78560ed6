"""The planner of a rebuild: queues and index are built beside the store by tasks.

Who runs the tasks is handed in (``RunTasks``): Spark, or for tests a plain loop. Nothing here knows of Spark.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from orbitmq.spark.pipelines.rebuild.log_chunks import Walked, cut, follow_each_other, queues_of, settle
from orbitmq.spark.pipelines.rebuild.reader import Reading
from orbitmq.spark.pipelines.rebuild.writer import (
    IndexEnds,
    IndexRange,
    QueueEnds,
    QueueFile,
    WholeQueue,
    Work,
    Writing,
    files_of,
)
from orbitmq.store.background.checkpoint import LATEST_TIMESTAMP, Checkpoint
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.consumequeue.close_snapshot import CloseSnapshot
from orbitmq.store.recovery.deleted_topics import DeletedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orbitmq.platform.disk import Disk
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.tools.detect_layout import Layout

T = TypeVar("T")
R = TypeVar("R")

PARTS = "parts"
FILE_COST = 1 << 16
"""Making a file takes about as long as copying so many bytes."""
MAX_COPIED = 64 << 20
"""Bytes of queue files that one task writes."""


class RunTasks(Protocol):
    """A parallel map over items with results in their order."""

    def __call__(self, task: Callable[[T], R], items: Sequence[T], doing: str) -> list[R]: ...


@dataclasses.dataclass(slots=True)
class Built:
    """The built files, in a directory of their own."""

    scratch: str
    walked: Walked
    floor: CloseSnapshot
    checkpoint: Checkpoint
    """As it may be once what was built is in its place."""
    queue_files: int
    queues_put_together: int
    """Queues in which something was missing or came twice."""
    index_files: int
    index_entries: int
    chunks: int

    @property
    def queues(self) -> int:
        return sum(len(held) for held in self.floor.ranges.values())

    @property
    def messages(self) -> int:
        return sum(high - low for held in self.floor.ranges.values() for low, high in held.values())


def build(
    disk: Disk,
    layout: Layout,
    scratch: str,
    run_tasks: RunTasks,
    *,
    parallelism: int,
    chunk_bytes: int | None = None,
) -> Built:
    """Build queues and index of a store in the scratch directory.

    Raises PipelineError for a log that is damaged in its middle, StoreError for one that has holes, OSError.
    """
    config = layout.config
    files = LogFiles(disk, config.commit_log_dirs, config.mapped_file_size_commit_log, writable=False)
    files.load()
    checkpoint = Checkpoint.load(disk, config.path("checkpoint"))
    parts = os.path.join(scratch, PARTS)
    deleted = DeletedTopics(disk, config.path("config"), read_only=True).ends
    reading = Reading(config, frozenset(layout.batch_topics), checkpoint.physic_msg_timestamp, parts, deleted)
    try:
        chunks = cut(files, parallelism, chunk_bytes)
        reads = run_tasks(reading.read, chunks, "the log is read")
        walked = settle(
            files,
            reads,
            lambda chunk: run_tasks(reading.read, [chunk], "a chunk of the log is read again")[0],
            torn_from=reading.torn_from,
            check_property_crc=config.force_verify_prop_crc,
        )
    finally:
        files.close()
    plan = _Plan(config, walked, scratch)
    works = plan.works(parallelism)
    writing = Writing(parts, config.max_hash_slot_num, config.max_index_num)
    results = run_tasks(writing.write, works, "queues and index are written")
    floor = CloseSnapshot({})
    for topic, queue_id, low, high in [*plan.ends, *(each for each in results if isinstance(each, QueueEnds))]:
        floor.ranges.setdefault(topic, {})[queue_id] = (low, high)
    indexed = [each for each in results if isinstance(each, IndexEnds)]
    _name_index_files(disk, config, indexed)
    _note_ends(floor, checkpoint, walked, indexed, has_index=config.message_index_enable)
    return Built(
        scratch=scratch,
        walked=walked,
        floor=floor,
        checkpoint=checkpoint,
        queue_files=plan.queue_files,
        queues_put_together=plan.put_together,
        index_files=len(indexed),
        index_entries=plan.entries,
        chunks=len(chunks),
    )


class _Plan:
    """The assignment of files to tasks."""

    def __init__(self, config: StoreConfig, walked: Walked, scratch: str) -> None:
        self._config = config
        self._scratch = scratch
        self.ends: list[QueueEnds] = []
        """Of queues about which there is nothing to find out."""
        self.entries = 0
        self._files: list[QueueFile] = []
        self._whole: list[WholeQueue] = []
        self._index: list[IndexRange] = []
        for (topic, queue_id), runs in queues_of(walked).items():
            is_batch = runs[0][1].is_batch
            folder = "batchconsumequeue" if is_batch else "consumequeue"
            directory = os.path.join(scratch, folder, topic, str(queue_id))
            size = (
                config.mapper_file_size_batch_consume_queue if is_batch else config.mapped_file_size_consume_queue
            )
            if follow_each_other(run for _, run in runs):
                self._files += files_of(directory, size, runs)
                self.ends.append(QueueEnds(topic, queue_id, runs[0][1].first, runs[-1][1].next))
            else:
                self._whole.append(WholeQueue(directory, topic, queue_id, is_batch, size, runs))
        self._plan_index(walked)

    def _plan_index(self, walked: Walked) -> None:
        chunks = []
        for read in walked.chunks:
            if read.entries:
                chunks.append((read.chunk.number, read.entries, self.entries))
                self.entries += read.entries
        # Entry 0 of a file is never used.
        room = self._config.max_index_num - 1
        for start in range(0, self.entries, room):
            end = min(start + room, self.entries)
            path = os.path.join(self._scratch, "index", f"{start // room:017d}")
            # The one before the first is looked at too.
            held = tuple(chunk for chunk in chunks if chunk[2] < end and chunk[2] + chunk[1] >= start)
            self._index.append(IndexRange(path, start, end, held))

    @property
    def queue_files(self) -> int:
        return len(self._files)

    @property
    def put_together(self) -> int:
        return len(self._whole)

    def works(self, parallelism: int) -> list[Work]:
        """The work of each task, longest first, so that tasks finish together."""
        return [*self._index, *self._whole, *self._bundles(parallelism)]

    def _bundles(self, parallelism: int) -> Iterable[tuple[QueueFile, ...]]:
        cost = {file.path: FILE_COST + sum(end - at for *_, at, end in file.chunks) * 20 for file in self._files}
        most = min(MAX_COPIED, sum(cost.values()) // (2 * max(parallelism, 1)) + 1)
        bundle: list[QueueFile] = []
        size = 0
        for file in self._files:
            bundle.append(file)
            size += cost[file.path]
            if size >= most:
                yield tuple(bundle)
                bundle, size = [], 0
        if bundle:
            yield tuple(bundle)


def _name_index_files(disk: Disk, config: StoreConfig, built: Sequence[IndexEnds]) -> None:
    """Give the index its files' names.

    A broker names them by the moment at which it makes them, which nothing in the log tells. So the names that are
    there stay, and further ones are the moment at which the first record in them was stored.
    """
    known = [name for name in disk.list(config.path("index")) if len(name) == 17 and name.isdigit()]
    name = ""
    for number, ends in enumerate(built):
        wanted = known[number] if number < len(known) else _stamp(ends.first_ms)
        name = wanted if wanted > name else str(int(name) + 1).zfill(17)
        os.replace(ends.path, os.path.join(os.path.dirname(ends.path), f"named-{name}"))
    for hidden in disk.list(os.path.dirname(built[0].path)) if built else ():
        folder = os.path.dirname(built[0].path)
        os.replace(os.path.join(folder, hidden), os.path.join(folder, hidden.removeprefix("named-")))


def _stamp(ms: int) -> str:
    ms = min(max(ms, 0), LATEST_TIMESTAMP)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(ms // 1000)).zfill(14) + f"{ms % 1000:03d}"


def _note_ends(
    floor: CloseSnapshot, checkpoint: Checkpoint, walked: Walked, indexed: Sequence[IndexEnds], *, has_index: bool
) -> None:
    """Write the files that a broker writes when it closes a store."""
    newest = next((read.newest_ms for read in reversed(walked.chunks) if read.newest_ms), 0)
    last: Any = next((read for read in reversed(walked.chunks) if read.dispatched >= 0), None)
    checkpoint.physic_msg_timestamp = max(checkpoint.physic_msg_timestamp, newest)
    if last is not None:
        checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, last.dispatched_ms)
        checkpoint.logics_physical_offset = last.dispatched or checkpoint.logics_physical_offset
    floor.log_end = walked.log_end
    if has_index:
        checkpoint.index_msg_timestamp = indexed[-1].last_ms if indexed else 0
        floor.indexed_to, floor.index_end = walked.log_end, indexed[-1].last_offset if indexed else 0


def sync_names(disk: Disk, scratch: str, folders: Iterable[str]) -> None:
    """Make the names of all directories that were built durable; the files themselves are."""
    directories = [directory for folder in folders for directory, _, _ in os.walk(os.path.join(scratch, folder))]
    disk.sync_many((), [*directories, scratch])
