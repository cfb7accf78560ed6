"""Flushes consume queues and index in three steps, of which only the second blocks.

``prepare`` and ``finish`` run in the store's thread, ``run`` in a worker. The order matters: first the log, then
what is derived from it, then the checkpoint.

The position that a flush will cover is recorded before the first queue is written. So ``prepare`` may run in slices
(``writing``) with appends between them, which only add to the queues. A queue stays among the unwritten ones until
it is written, so nothing else has to know about slices.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from orbitmq.store.errors import DiskFaultError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from orbitmq.store.consumequeue.table import Queue
    from orbitmq.store.index.segment import IndexSync
    from orbitmq.store.message_store import MessageStore


def _never() -> bool:
    return False


class QueueFlush:
    """One flush of consume queues and index."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        # Columns instead of a tuple for each queue, which would burden the garbage collector.
        self._taken: list[Queue] = []
        self._counts: list[int] = []
        """For each queue, how many of ``_files`` belong to it, and ..."""
        self._are_new: list[bool] = []
        """... whether files were created or removed."""
        self._files: list[str] = []
        self._directories: dict[str, None] = {}
        """Directories with new names, without duplicates: those of queues, and their parents up to the root."""
        self._index: IndexSync | None = None
        self._index_has_all = False
        """True if ``_index`` syncs every record up to the position that the flush covers."""
        self.position = 0
        """The log must be on disk up to here before ``finish`` may update the checkpoint."""
        self._rebuilds = 0
        self._last_offset = 0
        self._store_timestamp = 0

    def prepare(self) -> None:
        """Write the tails of queues and collect what to sync."""
        for _ in self.writing(_never):
            pass

    def writing(self, is_due: Callable[[], bool]) -> Generator[None, None, None]:
        """``prepare`` in slices, each of which ends when ``is_due``, which is checked after every queue.

        If the disk refuses, or the generator is closed early, everything stays for the next flush.
        """
        store, dispatcher = self._store, self._store.dispatcher
        self._note()
        # Later ones are behind these. If some go with their topic, a few later ones are written in their stead.
        left = len(dispatcher.unwritten)
        try:
            while True:
                left = min(left - self._write_slice(left, is_due), len(dispatcher.unwritten))
                if not left:
                    return
                yield
                if not store.is_open:
                    raise StoreError(
                        f"the store {store.config.store_path_root_dir} was closed while it was flushed"
                    )
        except OSError as error:
            self._give_back()
            dispatcher.fault = DiskFaultError(
                f"the consume queues of {store.queues.root} cannot be written ({error.strerror}): free space"
            )
            raise dispatcher.fault from error
        except BaseException:
            self._give_back()
            raise

    def _note(self) -> None:
        store, dispatcher = self._store, self._store.dispatcher
        if store.index is not None:
            # First, because it can fail: nothing has been moved out of ``unwritten`` yet.
            store.index.flush_pending()
            self._index = store.index.begin_sync()
            # Now and not at the end: what is repaired from here on is too late for this flush.
            self._index_has_all = dispatcher.index_missing_from is None
        self.position = dispatcher.position
        self._rebuilds = store.rebuilds
        self._store_timestamp = dispatcher.last_store_timestamp
        self._last_offset = dispatcher.last_offset

    def _write_slice(self, most: int, is_due: Callable[[], bool]) -> int:
        """Write the oldest unwritten queues, up to the position that the flush covers; returns how many.

        Those that were written leave the list; those that have grown since then wait for the next flush.
        """
        write_out = self._store.queues.write_out
        unwritten = self._store.dispatcher.unwritten
        count = 0
        try:
            for queue in itertools.islice(unwritten, most):
                # Under load most queues are written earlier, because a page of them was full.
                if queue.is_unwritten_before(self.position):
                    write_out((queue,))
                self._take(queue)
                if queue.is_unwritten:
                    unwritten.append(queue)
                else:
                    queue.is_queued = False
                count += 1
                if is_due():
                    break
        finally:
            # In one step: each deletion at the front moves all others.
            del unwritten[:count]
        return count

    def _take(self, queue: Queue) -> None:
        files, is_new = queue.take_unsynced()
        self._taken.append(queue)
        self._counts.append(len(files))
        self._are_new.append(is_new)
        self._files += files
        if is_new:
            root, directory = self._store.config.store_path_root_dir, queue.directory
            while len(directory) > len(root) and directory not in self._directories:
                self._directories[directory] = None
                directory = os.path.dirname(directory)

    def _give_back(self) -> None:
        """Undo: nothing was synced yet, so nothing is lost."""
        self._give_back_queues()
        if self._index is not None:
            assert self._store.index is not None
            self._store.index.give_up_sync(self._index)

    def _give_back_queues(self) -> None:
        unwritten = self._store.dispatcher.unwritten
        files = iter(self._files)
        for queue, count, is_new in zip(self._taken, self._counts, self._are_new, strict=True):
            queue.give_back_unsynced((list(itertools.islice(files, count)), is_new))
            if not queue.is_queued:
                queue.is_queued = True
                unwritten.append(queue)

    def run(self) -> None:
        """Sync. Blocks; touches nothing that the store's thread changes."""
        disk = self._store.disk
        files = self._files
        directories = [*self._directories, self._store.config.store_path_root_dir] if self._directories else []
        while True:
            try:
                disk.sync_many(files, directories)
                break
            except FileNotFoundError:
                # A topic was deleted in the meantime, or its queue expired: a removed file needs no sync.
                count = len(files) + len(directories)
                files = [path for path in files if disk.stat(path) is not None]
                directories = [path for path in directories if disk.stat(path) is not None]
                if len(files) + len(directories) == count:
                    raise
        if self._index is not None:
            self._index.run()

    def finish(self) -> None:
        """Update the checkpoint: everything is on disk."""
        store = self._store
        if self._index is not None:
            assert store.index is not None
            store.index.end_sync(self._index)
        checkpoint = store.checkpoint
        if store.index is not None and store.index.sync_failed:
            store.derived_are_suspect = True
        if (
            store.log.flushed >= self.position
            and not store.derived_are_suspect
            # A queue that is being rebuilt from the log was not part of this flush.
            and store.rebuilds == self._rebuilds
        ):
            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, self._store_timestamp)
            checkpoint.logics_physical_offset = self._last_offset or checkpoint.logics_physical_offset
            if store.index is not None:
                checkpoint.index_msg_timestamp = store.index.flushed_timestamp if self._index_has_all else 0

    def undo(self) -> None:
        """Handle a failed sync: the kernel may have dropped what it could not write, so a later sync proves
        nothing.

        The checkpoint stays where it is until a restart has rebuilt queues and index from the log.
        """
        store = self._store
        store.derived_are_suspect = True
        self._give_back_queues()
        if self._index is not None:
            assert store.index is not None
            store.index.end_sync(self._index)
