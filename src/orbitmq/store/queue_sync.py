"""Making consume queues and index durable, in three steps, of which only the second blocks.

``prepare`` and ``finish`` belong to the store's thread, ``run`` may be done by a worker meanwhile. The order
matters: the log first, then what is derived from it, then the checkpoint that says so.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.store.index_part import IndexSync
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.queue_table import Queue


class QueueSync:
    """One round of flushing what is derived from the log."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._taken: list[tuple[Queue, tuple[list[str], bool]]] = []
        self._index: IndexSync | None = None
        self.position = 0
        """Up to where the log must be on disk for ``finish`` to vouch for the queues."""
        self._rebuilds = 0
        self._last_offset = 0
        self._store_timestamp = 0

    def prepare(self) -> None:
        """Write the queues' tails and collect what is to be synced."""
        store = self._store
        dispatcher = store.dispatcher
        if store.index is not None:
            # First, for it can fail: nothing that is to be synced has been taken from its owner yet.
            store.index.flush_pending()
        self.position = dispatcher.position
        self._rebuilds = store.rebuilds
        self._store_timestamp = dispatcher.last_store_timestamp
        self._last_offset = dispatcher.last_offset
        queues, dispatcher.unwritten = dispatcher.unwritten, []
        try:
            store.queues.write_out(queues)
        except OSError as error:
            dispatcher.unwritten = queues
            dispatcher.fault = DiskFaultError(
                f"the consume queues of {store.queues.root} cannot be written ({error.strerror}): free space"
            )
            raise dispatcher.fault from error
        for queue in queues:
            queue.is_queued = False
            self._taken.append((queue, queue.take_unsynced()))
        if store.index is not None:
            self._index = store.index.begin_sync()

    def run(self) -> None:
        """Wait for the disk. Touches nothing that the store's thread changes."""
        disk = self._store.disk
        files = [file for _, (files, _) in self._taken for file in files]
        directories = list(self._new_directories())
        while True:
            try:
                disk.sync_many(files, directories)
                break
            except FileNotFoundError:
                # A topic was deleted meanwhile, or its queue expired: what is gone needs no sync.
                count = len(files) + len(directories)
                files = [path for path in files if disk.stat(path) is not None]
                directories = [path for path in directories if disk.stat(path) is not None]
                if len(files) + len(directories) == count:
                    raise
        if self._index is not None:
            self._index.run()

    def _new_directories(self) -> Iterator[str]:
        """Directories with new names in them: a queue's own, and those above it up to the store's root."""
        root = self._store.config.store_path_root_dir
        seen: set[str] = set()
        for queue, (_, is_new) in self._taken:
            directory = queue.directory if is_new else root
            while len(directory) > len(root) and directory not in seen:
                seen.add(directory)
                yield directory
                directory = os.path.dirname(directory)
        if seen:
            yield root

    def finish(self) -> None:
        """All of it is on disk: the checkpoint may say so."""
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
            # A queue that is being written again from the log was not part of this round.
            and store.rebuilds == self._rebuilds
        ):
            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, self._store_timestamp)
            checkpoint.logics_physical_offset = self._last_offset or checkpoint.logics_physical_offset
            if store.index is not None:
                has_all = store.dispatcher.index_gap is None
                checkpoint.index_msg_timestamp = store.index.flushed_timestamp if has_all else 0

    def undo(self) -> None:
        """The disk failed. The kernel may have dropped what it could not write, so a later sync proves nothing.

        The checkpoint stays where it is until a restart has written queues and index again from the log.
        """
        store = self._store
        store.derived_are_suspect = True
        for queue, taken in self._taken:
            queue.give_back_unsynced(taken)
            if not queue.is_queued:
                queue.is_queued = True
                store.dispatcher.unwritten.append(queue)
        if self._index is not None:
            assert store.index is not None
            store.index.end_sync(self._index)
