"""Rebuilds consume queues and index from the log alone, and swaps them in at the end.

The result equals that of opening a store without queues, because that is the method: a new store directory is
opened beside the old files, with the same log. Until the swap only the log's own recovery has touched the store;
the swap is a few renames, and interrupted between any of them it leaves a store that a broker opens and that can be
rebuilt again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.platform.clock import SystemClock
from orbitmq.platform.settings import ConfigError
from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.consumequeue.close_snapshot import FILE_NAME as FLOOR_NAME
from orbitmq.store.errors import DiskFaultError, StoreError, StoreLockedError
from orbitmq.store.message_store import MessageStore
from orbitmq.store.recovery.abort_file import AbortFile
from orbitmq.store.recovery.deleted_topics import DELETED_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store.commitlog.scanner import Damage
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.tools.detect_layout import Layout

SCRATCH = "orbitmq.rebuild"
"""The build directory, in the store's root so that renames suffice. RocketMQ ignores it."""

OLD = "old"
BUILT = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
"""Directories derived from the log. ``consumequeue_ext`` is not rebuilt: the new units do not point there."""


@dataclasses.dataclass(slots=True)
class Rebuilt:
    """Result of a rebuild."""

    records: int
    log_end: int
    end_reason: str
    damages: list[Damage]
    queues: int
    messages: int
    index_files: int
    had_extensions: bool
    """True if there were extension units; filters now read the messages themselves."""


@contextlib.contextmanager
def exclusive(disk: Disk, root: str) -> Iterator[None]:
    """Hold the lock of a store, after undoing an interrupted rebuild."""
    try:
        release = disk.lock(os.path.join(root, "lock"))
    except BlockingIOError:
        raise StoreLockedError(f"the store {root} is open in another process: stop that one first") from None
    except OSError as error:
        raise DiskFaultError(f"the store {root} cannot be opened for writing: {error.strerror}") from error
    try:
        _put_back(disk, root)
        yield
    finally:
        release()


def rebuild(disk: Disk, layout: Layout, *, clock: Clock | None = None) -> Rebuilt:
    """Rebuild queues and index. Only inside ``exclusive``, with the layout detected there."""
    config = layout.config
    check_settings(layout)
    check_log(disk, config)
    try:
        built = _build(disk, layout, clock or SystemClock())
    except (Exception, KeyboardInterrupt):
        remove_tree(disk, config.path(SCRATCH))
        raise
    swap_in(disk, config)
    remove_tree(disk, config.path(SCRATCH))
    return built


def _put_back(disk: Disk, root: str) -> None:
    """Undo an interrupted rebuild: moved directories return, unless there is something new."""
    scratch = os.path.join(root, SCRATCH)
    moved = False
    for name in BUILT:
        old, place = os.path.join(scratch, OLD, name), os.path.join(root, name)
        if disk.stat(old) is not None and disk.stat(place) is None:
            disk.rename(old, place)
            moved = True
    if moved:
        disk.sync_dir(root)
    remove_tree(disk, scratch)


def check_settings(layout: Layout) -> None:
    """Refuse unknown settings. Raises ConfigError."""
    if not layout.index_is_known:
        raise ConfigError(
            "the numbers of slots and entries of the index cannot be derived from its files: give the broker.conf"
        )


def check_log(disk: Disk, config: StoreConfig) -> None:
    """Refuse a store without a log, or with a hole in it. Raises StoreError."""
    files = LogFiles(disk, config.commit_log_dirs, config.mapped_file_size_commit_log, writable=False)
    files.load()
    if not len(files):
        where = ", ".join(config.commit_log_dirs)
        raise StoreError(f"there is no log in {where} to build from: give the right storePathCommitLog with --conf")


def _build(disk: Disk, layout: Layout, clock: Clock) -> Rebuilt:
    config = layout.config
    scratch = config.path(SCRATCH)
    beside = dataclasses.replace(
        config, store_path_root_dir=scratch, store_path_commit_log=",".join(config.commit_log_dirs)
    )
    checkpoint = Checkpoint.load(disk, config.path("checkpoint"))
    checkpoint.store(disk, beside.path("checkpoint"))
    deleted = DELETED_TOPICS.load(disk, config.path("config"), read_only=True)
    if deleted.end_offsets:
        DELETED_TOPICS.persist(disk, beside.path("config"), deleted)
    # Recovery is stricter with a log that was not closed: it searches behind zeros, and for torn records.
    disk.write(beside.path("abort"), b"")
    store = MessageStore.open(beside, disk=disk, clock=clock, batch_topics=layout.batch_topics)
    try:
        queues = list(store.queues.all())
        built = Rebuilt(
            records=store.recovery.records,
            log_end=store.recovery.log_end,
            end_reason=store.recovery.end_reason,
            damages=store.recovery.damages,
            queues=len(queues),
            messages=sum(queue.max_offset - queue.min_offset for queue in queues),
            index_files=0,
            had_extensions=disk.stat(config.path("consumequeue_ext")) is not None,
        )
        store.close()
    finally:
        if store.is_open:
            store.abandon()
    if AbortFile(disk, beside).exists:
        raise StoreError(f"the new queues in {scratch} could not be completed: check the disk and try again")
    built.index_files = len(disk.list(beside.path("index")))
    return built


def swap_in(disk: Disk, config: StoreConfig) -> None:
    """Replace the store's files by those of the build directory, all of which are on disk.

    The checkpoint and the close snapshot written for them move along. The old files are in ``OLD`` afterwards.
    """
    root, scratch = config.store_path_root_dir, config.path(SCRATCH)
    old = os.path.join(scratch, OLD)
    _distrust_queues(disk, config)
    disk.write(os.path.join(old, "README"), b"Queues and index before they were built again; safe to delete.\n")
    for name in BUILT:
        place, new = os.path.join(root, name), os.path.join(scratch, name)
        if disk.stat(place) is not None:
            disk.rename(place, os.path.join(old, name))
        if disk.stat(new) is not None:
            disk.rename(new, place)
    for directory in (old, scratch, root):
        disk.sync_dir(directory)
    # Not earlier: the checkpoint may cover the new files only once they are in place.
    for name in ("checkpoint", FLOOR_NAME):
        disk.rename(os.path.join(scratch, name), os.path.join(root, name))
    disk.sync_dir(root)


def _distrust_queues(disk: Disk, config: StoreConfig) -> None:
    """Until the swap is done, a start must read the whole log, whatever queues and index it finds."""
    disk.remove(config.path(FLOOR_NAME))
    checkpoint = Checkpoint.load(disk, config.path("checkpoint"))
    checkpoint.logics_msg_timestamp = checkpoint.index_msg_timestamp = checkpoint.logics_physical_offset = 0
    checkpoint.store(disk, config.path("checkpoint"))
    disk.sync_dir(config.store_path_root_dir)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory and its contents, if it exists."""
    found = disk.stat(path)
    if found is None:
        return
    if found.is_dir:
        for name in disk.list(path):
            remove_tree(disk, os.path.join(path, name))
    disk.remove(path)
