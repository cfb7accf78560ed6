"""The store: RocketMQ's files behind a few verbs (open, append, read, flush, close).

Everything here is synchronous and belongs to one thread. Nothing waits for the disk except ``open``, ``close``,
``flush`` and ``sync_queues``; a broker leaves these to ``StoreService``, which does the waiting in a thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message_id import encode_offset_id
from orbitmq.store.appending import Appender
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.clock import SystemClock
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import FlushDiskType
from orbitmq.store.disk import LocalDisk, machine_memory
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.errors import DiskFaultError, FlushFailedError, StoreError, StoreLockedError
from orbitmq.store.key_index import KeyIndex
from orbitmq.store.log_files import LogFiles
from orbitmq.store.queue_floor import QueueFloor
from orbitmq.store.queue_sync import QueueSync
from orbitmq.store.queue_table import QueueTable
from orbitmq.store.reading import Reader
from orbitmq.store.recovery import Recovery, RecoveryReport
from orbitmq.store.showing import Showing
from orbitmq.store.unflushed import UnflushedMark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.store.clock import Clock
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.disk import Disk
    from orbitmq.store.queue_table import Queue

ABORT_MARK = "orbitmq"
"""Stands in ``abort`` behind the process id (RocketMQ writes the id alone), so that recovery knows whose it was."""

INDEX_BATCH = 512
"""Records whose keys wait to be put into the index together. More would cost less each, but their slots lie
anywhere, and after a sync the first store to each page takes microseconds, for which everything waits."""


class MessageStore:
    """An open store."""

    def __init__(
        self, config: StoreConfig, disk: Disk, clock: Clock, release: Callable[[], None], memory_size: int
    ) -> None:
        self.config = config
        self.disk = disk
        self.clock = clock
        self._release = release
        self.checkpoint = Checkpoint.load(disk, config.path("checkpoint"))
        files = LogFiles(
            disk, config.commit_log_dirs, config.mapped_file_size_commit_log, read_only_dirs=config.read_only_dirs
        )
        address = f"[{config.broker_ip1}]" if ":" in config.broker_ip1 else config.broker_ip1
        self.log = CommitLog(
            files,
            host_bytes(f"{address}:{config.listen_port}"),
            append_crc_property=config.enabled_append_prop_crc,
            pool_size=config.transient_store_pool_size if config.transient_store_pool_enable else 0,
            is_synced_often=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        )
        self.queues = QueueTable(disk, config)
        self.index: KeyIndex | None = None
        if config.message_index_enable:
            self.index = KeyIndex(
                disk,
                clock,
                config.path("index"),
                slots=config.max_hash_slot_num,
                entries=config.max_index_num,
                max_results=config.max_msgs_num_batch,
                max_pending=INDEX_BATCH,
            )
        self.dispatcher = Dispatcher(self.queues, self.index, config)
        self._showing = Showing(files, self.dispatcher)
        self.reader = Reader(disk, config, self.log, self.queues, self.index, memory_size, self._mend_index)
        self.appender = Appender(config, clock, self.log, self.queues, self.dispatcher)
        # The verbs of a store, without a call in between on the path of every message.
        self.append = self.appender.append
        self.append_many = self.appender.append_many
        self.append_batch = self.appender.append_batch
        self.append_inner_batch = self.appender.append_inner_batch
        self.append_raw = self.appender.append_raw
        self.get = self.reader.get
        self.query = self.reader.query
        self.record = self.reader.record
        self.log_failure: str | None = None
        """Why a sync of the log failed. No later one can vouch for what it covered."""
        self.derived_are_suspect = False
        """A sync of queues or index failed: the next start must not trust them."""
        self.rebuilds = 0
        """How often a queue was written again from the log since the store was opened."""
        self.recovery: RecoveryReport
        self._floor: QueueFloor | None = None
        self._is_open = False

    # Opening and closing

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        batch_topics: Iterable[str] = (),
        memory_size: int | None = None,
    ) -> MessageStore:
        """Open a store, making it if it is new and recovering it if it was not closed properly.

        ``batch_topics`` are those with ``queue.type=BatchCQ`` that have no queue on disk yet.
        """
        disk = disk or LocalDisk()
        root = config.store_path_root_dir
        try:
            release = disk.lock(config.path("lock"))
        except BlockingIOError:
            raise StoreLockedError(
                f"the store {root} is open in another process: stop that one, or give another storePathRootDir"
            ) from None
        except OSError as error:
            raise DiskFaultError(f"the store {root} cannot be opened for writing: {error.strerror}") from error
        try:
            store = cls(config, disk, clock or SystemClock(), release, memory_size or machine_memory())
            store.queues.batch_topics.update(batch_topics)
            store._recover()
        except OSError as error:
            release()
            raise DiskFaultError(
                f"the store {root} cannot be opened: {error.strerror or error}: {error.filename or 'unknown file'}"
            ) from error
        except BaseException:
            release()
            raise
        return store

    def _recover(self) -> None:
        config, disk = self.config, self.disk
        abort = config.path("abort")
        clean = disk.stat(abort) is None
        self._floor = QueueFloor.load(disk, config.store_path_root_dir)
        self.log.files.load()
        self.queues.load()
        if clean:
            # Only now: a store that is refused, by a wrong setting say, stays one that was closed properly.
            disk.write(abort, f"{os.getpid()} {ABORT_MARK}".encode())
            disk.sync(abort)
            disk.sync_dir(config.store_path_root_dir)
        self._recovery = recovery = Recovery(
            disk, config, self.log.files, self.queues, self.dispatcher, self.checkpoint, self._floor,
            clean=clean, is_own=disk.read(abort).endswith(ABORT_MARK.encode()),
        )  # fmt: skip
        self.recovery = report = recovery.run()
        if not clean:
            self.checkpoint.store(disk, config.path("checkpoint"))
        self.log.open_at(report.log_end)
        self.log.last_store_timestamp = report.newest_timestamp or self.checkpoint.physic_msg_timestamp
        self.dispatcher.position = report.log_end
        self.reader.checked_from = report.log_end
        self.queues.open_queue = self._open_queue
        self._is_open = True

    def _open_queue(self, queue: Queue) -> None:
        """Open a queue that was not touched before: it cannot hold anything after the end found by recovery."""
        report = self.recovery
        self._recovery.open_untouched(queue, report.log_end)
        start = self.log.start
        is_behind = report.clean and self._floor is not None and self._floor.is_above(queue, start)
        # Of a queue whose records have all expired there is nothing to write again but its numbering.
        if is_behind or (queue.gaps and queue.max_physical > start):
            self.rebuilds += 1
            self.queues.topic(queue.topic).queues[queue.queue_id] = queue
            self._recovery.rebuild([queue], report.log_end)
            report.rebuilt_queues.append((queue.topic, queue.queue_id))

    def close(self) -> None:
        """Make everything durable and leave the mark of a clean exit."""
        if not self._is_open:
            return
        self._is_open = False
        self.appender.gate.close("closed", "the store is closed: open it again")
        try:
            self._leave_clean()
        except OSError as error:
            raise DiskFaultError(
                f"the store {self.config.store_path_root_dir} cannot be closed properly, the next start will look "
                f"through it: {error.strerror or error}: {error.filename or 'unknown file'}"
            ) from error
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Give up files and lock without writing anything: what is not flushed is left as a crash leaves it."""
        self._is_open = False
        self.appender.gate.close("closed", "the store is closed: open it again")
        self.log.close()
        if self.index is not None:
            self.index.forget()
        if isinstance(self.disk, LocalDisk):
            self.disk.close()
        self._release()

    def _leave_clean(self) -> None:
        self.log.commit()
        self.flush()
        if self.dispatcher.fault is not None:
            self.dispatcher.mend(self.log.files)
        self.sync_queues()
        if self.dispatcher.position < self.log.end or self.dispatcher.fault is not None or self.derived_are_suspect:
            return  # part of a replica's record, or a failing disk: the next start looks at it again
        floor = self._floor or QueueFloor({})
        floor.update(self.queues)
        if self.index is not None:
            floor.indexed_to, floor.index_end = self.dispatcher.position, self.index.end_offset
        floor.store(self.disk, self.config.store_path_root_dir)
        self.log.drop_spare()
        self.disk.remove(self.config.path("abort"))
        self.disk.sync_dir(self.config.store_path_root_dir)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    # What readers see

    @property
    def visible_end(self) -> int:
        """Records before this offset may be shown: they are as safe as the flush policy promises."""
        if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return self.log.flushed
        return self.log.committed

    def catch_up(self, most: int = 1 << 62) -> int:
        """Dispatch records that became visible since they were appended; returns how many."""
        if self.dispatcher.position >= self.visible_end:
            return 0
        return self._showing.catch_up(self.visible_end, most)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The smallest queue offset that can be read; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset after the newest message that can be read; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def _mend_index(self) -> None:
        # Not left to the next message: where none comes, as after a recovery, nobody else would try again.
        if self.dispatcher.index_gap is not None:
            self.dispatcher.mend_index(self.log.files)

    def message_id(self, offset: int) -> str:
        """The offset message id of the record at a physical offset."""
        return encode_offset_id(self.log.store_host, offset)

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic. Its records stay in the log until they expire."""
        self.queues.remove_topic(topic)
        self.dispatcher.unwritten = [queue for queue in self.dispatcher.unwritten if queue.topic != topic]
        if self._floor is not None and self._floor.ranges.pop(topic, None) is not None:
            self._floor.store(self.disk, self.config.store_path_root_dir)

    # Making durable, in one thread. StoreService does the same with the waiting elsewhere.

    def flush(self) -> int:
        """Sync the log and show what that made safe; returns the flushed offset."""
        if self.log_failure is not None:
            raise FlushFailedError(self.log_failure)
        end, store_timestamp, files = self.log.flush_targets()
        try:
            for file in files:
                file.sync()
        except OSError as error:
            raise self.note_flush_failure(error) from error
        self.note_flushed(end, store_timestamp)
        return end

    def note_flushed(self, end: int, store_timestamp: int) -> None:
        """A sync of what ``log.flush_targets`` named has come back."""
        if self.log_failure is not None:
            raise FlushFailedError(self.log_failure)
        self.log.mark_flushed(end)
        self.checkpoint.physic_msg_timestamp = max(self.checkpoint.physic_msg_timestamp, store_timestamp)
        self.catch_up()

    def note_flush_failure(self, error: OSError) -> FlushFailedError:
        """A sync of the log failed: the kernel may have dropped the pages, so no later sync can vouch for them.

        The store takes no more messages; what it has can still be read. A restart finds out what is on disk.
        """
        try:
            UnflushedMark(self.disk, self.config.store_path_root_dir).leave()
            what = "broker"
        except OSError:
            # The next process would take what is in memory for what is on disk; after a reboot only that is there.
            what = "machine"
        reason = f"the disk failed to store the log ({error.strerror}): check the disk, then restart the {what}"
        self.log_failure = reason
        self.appender.gate.close("flush", reason)
        return FlushFailedError(reason)

    def sync_queues(self) -> None:
        """Write and sync queues and index, then say so in the checkpoint."""
        sync = QueueSync(self)
        sync.prepare()
        try:
            sync.run()
        except (OSError, StoreError):
            sync.undo()
            raise
        sync.finish()
        self.store_checkpoint()

    def store_checkpoint(self) -> None:
        """Write the checkpoint. Blocks; may be called from a worker thread."""
        self.checkpoint.store(self.disk, self.config.path("checkpoint"))
