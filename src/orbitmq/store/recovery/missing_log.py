"""Detects a log that ends before its recorded end, before anything is written, so that no queue offset is reused.

The checkpoint names the last record that is on disk in log, queues and index, and ``orbitmq.queues`` the end of the
log at the last clean close. If the log's files end before that, the last of them were removed or emptied. The store
then refuses to open: new records would take the place of the missing ones, and restoring the file would no longer
help. With ``acceptLostLog=true`` it opens, and every queue continues behind the offsets it has assigned, with
fillers for what is lost, so that consumer offsets stay valid. Physical offsets are reused.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.consume_queue import FILLER, UNIT_SIZE, ConsumeQueue
from orbitmq.store.consumequeue.unit_file import file_name
from orbitmq.store.errors import StoreDamagedError

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk
    from orbitmq.store.background.checkpoint import Checkpoint
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.close_snapshot import CloseSnapshot
    from orbitmq.store.consumequeue.table import QueueTable
    from orbitmq.store.dispatch.dispatcher import Dispatcher

logger = logging.getLogger(__name__)

Ends = dict[tuple[str, int], int]
"""By topic and queue id, the queue offset after the last assigned one."""

_CHUNK = 100_000


def missing_end(files: LogFiles, checkpoint: Checkpoint, snapshot: CloseSnapshot | None, *, is_own: bool) -> int:
    """The recorded end of the log if its files end before that; 0 if nothing is missing."""
    known = snapshot.log_end if snapshot is not None else 0
    if is_own and checkpoint.logics_physical_offset:
        known = max(known, checkpoint.logics_physical_offset + 1)
    return known if len(files) and known > files.limit else 0


def refuse(files: LogFiles, end: int, config: StoreConfig) -> StoreDamagedError:
    """The error for a store whose log lacks its last files."""
    return StoreDamagedError(
        f"commit log file {file_name(files.limit)} is missing or empty: the log reached offset {end}, its files "
        f"end at {files.limit} in {', '.join(config.commit_log_dirs)}. Restore the file, or start once with "
        "acceptLostLog=true to go on without its messages"
    )


def assigned_ends(disk: Disk, table: QueueTable, snapshot: CloseSnapshot | None, file_size: int) -> Ends:
    """The assigned queue offsets, according to the queues on disk and the last clean close."""
    ends: Ends = {}
    for topic, queues in (snapshot.ranges if snapshot is not None else {}).items():
        for queue_id, (_, high) in queues.items():
            ends[topic, queue_id] = high
    for name in disk.list(table.root):
        for queue_id_text in disk.list(os.path.join(table.root, name)):
            if queue_id_text.isdigit():
                key = name, int(queue_id_text)
                held = _units_end(disk, os.path.join(table.root, name, queue_id_text), file_size)
                ends[key] = max(ends.get(key, 0), held)
    return ends


def _units_end(disk: Disk, directory: str, file_size: int) -> int:
    """Number of the unit after the last written one in a queue's files."""
    for name in reversed([name for name in disk.list(directory) if len(name) == 20 and name.isdigit()]):
        data = disk.pread(os.path.join(directory, name), 0, file_size).rstrip(b"\0")
        if data:
            return int(name) // UNIT_SIZE + -(-len(data) // UNIT_SIZE)
    return 0


def continue_queue_offsets(table: QueueTable, dispatcher: Dispatcher, ends: Ends) -> int:
    """Continue queues behind their assigned offsets; returns how many queue offsets have no message now."""
    lost = 0
    for (topic, queue_id), end in ends.items():
        queue = table.get(topic, queue_id)
        if not isinstance(queue, ConsumeQueue) or queue.end >= end:
            continue
        lost += end - queue.end
        if queue.end == queue.first and not queue.file_count and not queue.tail_size:
            queue.start_at(end)
            queue.min_offset = queue.next_offset = end
            continue
        while queue.end < end:
            count = min(_CHUNK, end - queue.end)
            queue.put_many(queue.end, FILLER * count, queue.max_physical)
            queue.write_out(FILLER)
        dispatcher.mark_unsynced(queue)
    return lost
