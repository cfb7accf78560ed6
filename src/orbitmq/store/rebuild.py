"""Building consume queues and index again from the log alone, and swapping them in at the end.

What is built is what opening a store without queues builds, because that is what happens: a new store directory is
opened beside the old files, with the same log. Until the swap nothing but the log's own recovery has touched the
store; the swap is a few renames, and cut off anywhere between them it leaves a store that a broker opens and that
can be rebuilt again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.settings import ConfigError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.clock import SystemClock
from orbitmq.store.errors import DiskFaultError, StoreError, StoreLockedError
from orbitmq.store.log_files import LogFiles
from orbitmq.store.message_store import MessageStore
from orbitmq.store.queue_floor import FILE_NAME as FLOOR_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.clock import Clock
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.disk import Disk
    from orbitmq.store.layout import Layout
    from orbitmq.store.scan import Damage

SCRATCH = "orbitmq.rebuild"
"""The directory in which is built, in the store's root so that a rename suffices. RocketMQ ignores it."""

OLD = "old"
BUILT = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index")
"""What is derived from the log. Nothing is built for ``consumequeue_ext``: the new units do not lead there."""


@dataclasses.dataclass(slots=True)
class Rebuilt:
    """What was built."""

    records: int
    log_end: int
    end_reason: str
    damages: list[Damage]
    queues: int
    messages: int
    index_files: int
    had_extensions: bool
    """Whether there were extension units; filters now look at the messages themselves."""


@contextlib.contextmanager
def exclusive(disk: Disk, root: str) -> Iterator[None]:
    """Hold the lock of a store, with what an interrupted rebuild may have left there undone."""
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
    """Build queues and index again. Only inside ``exclusive``, and with the layout as it is seen there."""
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
    """Undo what an interrupted rebuild left: what it had moved away returns, unless there is something new."""
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
    """Refuse to build what cannot be known. Raises ConfigError."""
    if not layout.index_is_known:
        raise ConfigError(
            "the numbers of slots and entries of the index cannot be told from its files: give the broker.conf"
        )


def check_log(disk: Disk, config: StoreConfig) -> None:
    """Refuse a store without a log, or with one that has holes. Raises StoreError."""
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
    # Recovery looks harder at a log that was not closed: behind zeros too, and for torn records.
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
            store.let_go()
    if disk.stat(beside.path("abort")) is not None:
        raise StoreError(f"the new queues in {scratch} could not be completed: check the disk and try again")
    built.index_files = len(disk.list(beside.path("index")))
    return built


def swap_in(disk: Disk, config: StoreConfig) -> None:
    """Put what is in the scratch directory, all of it on disk, in the place of what the store had.

    With it go the checkpoint and the floor that were written for it. What the store had is in ``OLD`` afterwards.
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
    # Only now, with the new files in their places, may the checkpoint vouch for them.
    for name in ("checkpoint", FLOOR_NAME):
        disk.rename(os.path.join(scratch, name), os.path.join(root, name))
    disk.sync_dir(root)


def _distrust_queues(disk: Disk, config: StoreConfig) -> None:
    """Until the swap is done, a start must read the whole log, whatever it then finds of queues and index."""
    disk.remove(config.path(FLOOR_NAME))
    checkpoint = Checkpoint.load(disk, config.path("checkpoint"))
    checkpoint.logics_msg_timestamp = checkpoint.index_msg_timestamp = checkpoint.logics_physical_offset = 0
    checkpoint.store(disk, config.path("checkpoint"))
    disk.sync_dir(config.store_path_root_dir)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a directory with all that is in it, if it is there."""
    found = disk.stat(path)
    if found is None:
        return
    if found.is_dir:
        for name in disk.list(path):
            remove_tree(disk, os.path.join(path, name))
    disk.remove(path)
