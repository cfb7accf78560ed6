"""Making consume queues and index durable, in three steps, of which only the second blocks.

``prepare`` and ``finish`` belong to the store's thread, ``run`` may be done by a worker meanwhile. The order
matters: the log first, then what is derived from it, then the checkpoint that says so.

Up to where a round vouches is noted before the first queue is written. So ``prepare`` may be done in slices
(``writing``), and messages may be stored between them: what they add to a queue is more than was promised. A queue
stays among those that wait until it is written; what happens to it between slices happens to it as at any time.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from orbitmq.store.errors import DiskFaultError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from orbitmq.store.index_part import IndexSync
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.queue_table import Queue


def _never() -> bool:
    return False


class QueueSync:
    """One round of flushing what is derived from the log."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        # In columns and not a tuple for each queue, which would be work for the garbage collector.
        self._taken: list[Queue] = []
        self._counts: list[int] = []
        """Of each queue, how many of ``_files`` are its own, and ..."""
        self._are_new: list[bool] = []
        """... whether files of it were made or removed."""
        self._files: list[str] = []
        self._directories: dict[str, None] = {}
        """Directories with new names in them, each once: a queue's own, and those above it up to the root."""
        self._index: IndexSync | None = None
        self._index_has_all = False
        """Whether every record up to where the round vouches is in what ``_index`` syncs."""
        self.position = 0
        """Up to where the log must be on disk for ``finish`` to vouch for the queues."""
        self._rebuilds = 0
        self._last_offset = 0
        self._store_timestamp = 0

    def prepare(self) -> None:
        """Write the queues' tails and collect what is to be synced."""
        for _ in self.writing(_never):
            pass

    def writing(self, is_due: Callable[[], bool]) -> Generator[None, None, None]:
        """``prepare`` in slices, each of which ends when ``is_due``, which is asked after every queue.

        If the disk refuses, or this is closed before its end, everything waits for the next round again.
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
            # First, for it can fail: nothing that is to be synced has been taken from its owner yet.
            store.index.flush_pending()
            self._index = store.index.begin_sync()
            # Now and not at the end: what is mended meanwhile was put too late to be synced by this round.
            self._index_has_all = dispatcher.index_gap is None
        self.position = dispatcher.position
        self._rebuilds = store.rebuilds
        self._store_timestamp = dispatcher.last_store_timestamp
        self._last_offset = dispatcher.last_offset

    def _write_slice(self, most: int, is_due: Callable[[], bool]) -> int:
        """Write the queues that have waited longest, as far as the round vouches for them; returns how many.

        Those that are written wait no more, those that got something since then wait for the next round.
        """
        write_out = self._store.queues.write_out
        unwritten = self._store.dispatcher.unwritten
        count = 0
        try:
            for queue in itertools.islice(unwritten, most):
                # With many messages most are written because a page of them was full, before it is their turn.
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
            # All at once: what is behind them moves up each time.
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
        """Nothing was synced yet, so nothing is lost."""
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
        """Wait for the disk. Touches nothing that the store's thread changes."""
        disk = self._store.disk
        files = self._files
        directories = [*self._directories, self._store.config.store_path_root_dir] if self._directories else []
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
                checkpoint.index_msg_timestamp = store.index.flushed_timestamp if self._index_has_all else 0

    def undo(self) -> None:
        """The disk failed. The kernel may have dropped what it could not write, so a later sync proves nothing.

        The checkpoint stays where it is until a restart has written queues and index again from the log.
        """
        store = self._store
        store.derived_are_suspect = True
        self._give_back_queues()
        if self._index is not None:
            assert store.index is not None
            store.index.end_sync(self._index)
