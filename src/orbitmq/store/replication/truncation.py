"""Truncation of a closed store: cuts the end of its log off that no other replica has.

The next start recovers as after a crash: queues and index lose what the log has lost. What is cut off is copied to
the quarantine first. Interrupted anywhere, it is repeated at the next handshake with the master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.consumequeue.close_snapshot import FILE_NAME as SNAPSHOT
from orbitmq.store.errors import DiskFaultError, StoreLockedError
from orbitmq.store.recovery.abort_file import AbortFile
from orbitmq.store.recovery.quarantine import Quarantine

if TYPE_CHECKING:
    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store.config import StoreConfig


def truncate(config: StoreConfig, disk: Disk, clock: Clock, end: int, known: int) -> None:
    """Cut the log of a closed store off at ``end``. Blocks; raises StoreError.

    ``known``: the offset of a record before ``end``, or 0; recovery reads the log from there.
    """
    root = config.store_path_root_dir
    try:
        release = disk.lock(config.path("lock"))
    except BlockingIOError:
        raise StoreLockedError(f"the store {root} is open: its log cannot be truncated") from None
    try:
        abort = AbortFile(disk, config)
        if not abort.exists:
            abort.create()
        files = LogFiles(
            disk, config.commit_log_dirs, config.mapped_file_size_commit_log, read_only_dirs=config.read_only_dirs
        )
        files.load()
        try:
            _cut(files, config, disk, clock, end, known)
        finally:
            files.close()
    except OSError as error:
        raise DiskFaultError(
            f"the log of store {root} cannot be truncated at {end}: {error.strerror or error}"
        ) from error
    finally:
        release()


def _cut(files: LogFiles, config: StoreConfig, disk: Disk, clock: Clock, end: int, known: int) -> None:
    root, path = config.store_path_root_dir, config.path("checkpoint")
    Quarantine(disk, clock, root, config.quarantine_max_bytes).keep_end(
        files, end, "the other replicas do not have this part of the log"
    )
    # The bounds of queues and the end of the log at the last close are not true any more.
    disk.remove(f"{root}/{SNAPSHOT}")
    disk.sync_dir(root)
    checkpoint = Checkpoint.load(disk, path)
    if checkpoint.logics_physical_offset >= end:
        base = (end - 1) // config.mapped_file_size_commit_log * config.mapped_file_size_commit_log
        checkpoint.logics_physical_offset = max(base, known, files.start) if end > files.start else 0
    checkpoint.confirm_phy_offset = min(checkpoint.confirm_phy_offset, end)
    checkpoint.store(disk, path)
    for base in reversed(files.bases):
        if base >= end and base != files.start:
            files.remove(base)
    if len(files) and end < files.limit:
        last = files.path(files.bases[-1])
        disk.zero(last, max(end - files.bases[-1], 0))
        disk.sync(last)
