"""Overview of a store: files, offsets, queues, times. Reads little and writes nothing."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.commitlog.scanner import LogView, Seen, scan_past_damage
from orbitmq.store.config_tables import CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from orbitmq.store.consumequeue.column_reader import BATCH, PLAIN, UnitReader
from orbitmq.store.errors import StoreError
from orbitmq.store.index.format import HEADER_SIZE, IndexHeader
from orbitmq.store.recovery.abort_file import AbortFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.platform.disk import Disk
    from orbitmq.store.commitlog.read_only import FileFault
    from orbitmq.store.tools.detect_layout import Layout


@dataclasses.dataclass(slots=True)
class LogFileOverview:
    """One file of the commit log."""

    path: str
    offset: int
    first_timestamp: int | None
    """Store timestamp of its first record; None if it has no record."""


@dataclasses.dataclass(slots=True)
class QueueOverview:
    """One consume queue."""

    topic: str
    queue_id: int
    is_batch: bool
    min_offset: int
    max_offset: int
    files: int

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclasses.dataclass(slots=True)
class IndexFileOverview:
    """One file of the key index."""

    path: str
    entries: int
    begin_timestamp: int
    end_timestamp: int
    begin_offset: int
    end_offset: int


@dataclasses.dataclass(slots=True)
class Overview:
    """Overview of a store."""

    root: str
    has_abort: bool
    abort_text: str
    log_files: list[LogFileOverview]
    log_start: int
    log_end: int
    end_reason: str
    first_timestamp: int | None
    last_timestamp: int | None
    queues: list[QueueOverview]
    index_files: list[IndexFileOverview]
    checkpoint: Checkpoint
    tables: dict[str, int]
    """Number of entries in each table below ``config``."""
    faults: list[FileFault]


def inspect(disk: Disk, layout: Layout) -> Overview:
    """Collect the overview."""
    config = layout.config
    log = ReadOnlyLog(disk, config)
    log.load()
    try:
        files = [_log_file(log, base) for base in log.bases]
        end, reason, last = _end(log, files)
    finally:
        log.close()
    abort = AbortFile(disk, config)
    return Overview(
        root=config.store_path_root_dir,
        has_abort=abort.exists,
        abort_text=abort.text,
        log_files=files,
        log_start=log.start,
        log_end=end,
        end_reason=reason,
        first_timestamp=next((file.first_timestamp for file in files if file.first_timestamp is not None), None),
        last_timestamp=last,
        queues=list(_queues(disk, layout, log.start)),
        index_files=list(_index_files(disk, config.path("index"))),
        checkpoint=Checkpoint.load(disk, config.path("checkpoint")),
        tables=_tables(disk, config.path("config")),
        faults=log.faults,
    )


def _log_file(log: ReadOnlyLog, base: int) -> LogFileOverview:
    first = LogView(base, log.mapped(base).buffer).look(0, check_crc=False)
    return LogFileOverview(log.path(base), base, first.store_timestamp if isinstance(first, Seen) else None)


def _end(log: ReadOnlyLog, files: list[LogFileOverview]) -> tuple[int, str, int | None]:
    """End of the log, the reason, and the store timestamp of its last record. Scans only the last file in use."""
    used = [file.offset for file in files if file.first_timestamp is not None]
    if not used:
        return log.start, "", None
    end, reason, last = used[-1], "", None
    for step in scan_past_damage(log, used[-1], check_crc=False):
        if isinstance(step, Seen):
            last = step.store_timestamp
        elif not step.size:
            reason = step.reason
            break
        end = step.offset + step.size
    return end, reason, last


def _queues(disk: Disk, layout: Layout, log_start: int) -> Iterator[QueueOverview]:
    config = layout.config
    for folder, is_batch in (("consumequeue", False), ("batchconsumequeue", True)):
        root = config.path(folder)
        size = config.mapper_file_size_batch_consume_queue if is_batch else config.mapped_file_size_consume_queue
        for topic in disk.list(root):
            ids = sorted(int(name) for name in disk.list(os.path.join(root, topic)) if name.isdigit())
            for queue_id in ids:
                directory = os.path.join(root, topic, str(queue_id))
                reader = UnitReader(disk, directory, BATCH if is_batch else PLAIN, size)
                low, high = _range(reader, log_start, is_batch=is_batch)
                yield QueueOverview(topic, queue_id, is_batch, low, high, len(reader.bases))


def _range(reader: UnitReader, log_start: int, *, is_batch: bool) -> tuple[int, int]:
    first = reader.first_record(log_start)
    if not is_batch:
        return reader.end if first is None else first, reader.end
    if reader.end == reader.first:
        return 0, 0
    last = reader.read(reader.end - 1, reader.end)[0]
    high = int(last["base"]) + int(last["count"])
    return high if first is None else int(reader.read(first, first + 1)["base"][0]), high


def _index_files(disk: Disk, directory: str) -> Iterator[IndexFileOverview]:
    for name in disk.list(directory):
        path = os.path.join(directory, name)
        head = disk.pread(path, 0, HEADER_SIZE) if len(name) == 17 and name.isdigit() else b""
        if len(head) == HEADER_SIZE:
            header = IndexHeader.decode(head)
            yield IndexFileOverview(
                path, header.next_entry - 1, header.begin_timestamp, header.end_timestamp, header.begin_offset,
                header.end_offset,
            )  # fmt: skip


def _tables(disk: Disk, directory: str) -> dict[str, int]:
    counts = {}
    for name, table, field in (
        ("topics", TOPICS, "topic_config_table"),
        ("groups", SUBSCRIPTION_GROUPS, "subscription_group_table"),
        ("consumerOffsets", CONSUMER_OFFSETS, "offset_table"),
    ):
        if disk.stat(os.path.join(directory, table.name)) is None:
            continue
        try:
            counts[name] = len(getattr(table.load(disk, directory, read_only=True), field) or ())
        except (StoreError, ProtocolError):
            continue
    return counts
