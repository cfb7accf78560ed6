"""Finishes topic deletions that a power cut interrupted: queue files of a deleted topic may be back."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.platform.disk import Disk
    from orbitmq.store.consumequeue.column_reader import UnitReader
    from orbitmq.store.consumequeue.table import QueueTable

log = logging.getLogger("orbitmq.store")


def finish_deletions(table: QueueTable, deleted: Mapping[str, int]) -> list[tuple[str, int]]:
    """Remove queue files with units of deleted topics; returns the queues that must be rebuilt from the log.

    Only before any queue is opened. A deletion is on disk before the first file is removed, so a cut between leaves
    old files, perhaps beside new ones of a topic that was created again.
    """
    returned: list[tuple[str, int]] = []
    present = deleted.keys() & set(table.names())
    if not present:
        return returned
    # Here, because it loads numpy, which most starts do without.
    from orbitmq.store.consumequeue.column_reader import BATCH, PLAIN, UnitReader  # noqa: PLC0415

    for topic in present:
        for queue_id in table.queue_ids(topic):
            directory, is_batch, file_size = table.files_of(topic, queue_id)
            reader = UnitReader(table.disk, directory, BATCH if is_batch else PLAIN, file_size)
            if _has_unit_before(reader, deleted[topic]):
                _remove_files(table.disk, directory)
                returned.append((topic, queue_id))
    if returned:
        log.warning("recovery: removed queues of deleted topics that a crash had brought back: %s", returned)
    return returned


def _has_unit_before(reader: UnitReader, end: int) -> bool:
    from orbitmq.store.consumequeue.column_reader import is_record  # noqa: PLC0415

    # To the end of the last file: files from before and after a deletion may be mixed.
    stop = max((base // reader.kind.itemsize + reader.per_file for base in reader.bases), default=0)
    return any(bool((is_record(rows) & (rows["offset"] < end)).any()) for _, rows in reader.blocks(stop))


def _remove_files(disk: Disk, directory: str) -> None:
    for name in disk.list(directory):
        disk.remove(os.path.join(directory, name))
    disk.sync_dir(directory)
