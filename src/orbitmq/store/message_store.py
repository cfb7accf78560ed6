"""The store: RocketMQ's files behind a few verbs (open, append, read, flush, close).

Everything here is synchronous and belongs to one thread. Nothing waits for the disk except ``open``, ``close``,
``flush`` and ``sync_queues``; a broker leaves these to ``StoreService``, which does the waiting in a thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from orbitmq.platform.clock import SystemClock
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.local_mapped_file import machine_memory
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message.message_id import encode_offset_id
from orbitmq.store.append.appender import Appender
from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.commitlog.commit_log import CommitLog
from orbitmq.store.commitlog.failed_sync_marker import FailedSyncMarker
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.config import FlushDiskType
from orbitmq.store.consumequeue.close_snapshot import CloseSnapshot
from orbitmq.store.consumequeue.flush import QueueFlush
from orbitmq.store.consumequeue.repair import QueueRepairs
from orbitmq.store.consumequeue.table import QueueTable
from orbitmq.store.dispatch.dispatcher import Dispatcher
from orbitmq.store.dispatch.reput import Reput
from orbitmq.store.errors import DiskFaultError, FlushFailedError, StoreError, StoreLockedError
from orbitmq.store.index.key_index import KeyIndex
from orbitmq.store.reader import Reader
from orbitmq.store.recovery.abort_file import AbortFile
from orbitmq.store.recovery.deleted_topics import DeletedTopics
from orbitmq.store.recovery.missing_log import Ends, assigned_ends, continue_queue_offsets, missing_end, refuse
from orbitmq.store.recovery.quarantine import Quarantine
from orbitmq.store.recovery.recovery import PreviousRun, Recovery, RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.table import Queue

logger = logging.getLogger(__name__)

NEW_QUEUES_AT_CLOSE = 20_000
"""Maximum number of consume queues without a file that a close creates files for, about 0.5 ms each. A client may
have sent to hundreds of thousands of queues a moment ago. The log holds all of them: the next start reads it."""

INDEX_BATCH = 512
"""Records whose keys are put into the index together. More would cost less each, but their slots are spread over
the file, and after a sync the first store to each page takes microseconds that block the loop."""


class MessageStore:
    """An open store: commit log, consume queues, index, recovery, and the background state they share."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        clock: Clock,
        release: Callable[[], None],
        memory_size: int,
        *,
        dispatches_later: bool = False,
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
        self.deleted = DeletedTopics(disk, config.path("config"))
        self.dispatcher.deleted = self.deleted.ends
        self._reput = Reput(files, self.dispatcher)
        self.repairs = QueueRepairs(files, self.dispatcher)
        self.reader = Reader(disk, config, self.log, self.queues, self.index, memory_size, self.repairs, clock)
        self.appender = Appender(
            config, clock, self.log, self.queues, self.dispatcher, dispatches_later=dispatches_later
        )
        # Bound methods: saves one call for each message.
        self.append = self.appender.append
        self.append_many = self.appender.append_many
        self.append_batch = self.appender.append_batch
        self.append_inner_batch = self.appender.append_inner_batch
        self.append_raw = self.appender.append_raw
        self.get = self.reader.get
        self.query = self.reader.query
        self.record = self.reader.record
        self.log_failure: str | None = None
        """Why a sync of the log failed; None if none did. No later sync proves that those bytes are on disk."""
        self.derived_are_suspect = False
        """A sync of queues or index failed: the next start must not trust these files."""
        self.readable_to: int | None = None
        """Confirm offset of a replica: records from here on are not readable, another master may cut them off."""
        self.rebuilds = 0
        """Number of queues rebuilt from the log since the store was opened."""
        self.recovery: RecoveryReport
        self._snapshot: CloseSnapshot | None = None
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
        dispatches_later: bool = False,
    ) -> MessageStore:
        """Open a store: create it if it is new, recover it if it was not closed cleanly.

        ``batch_topics`` are those with ``queue.type=BatchCQ`` that have no queue on disk yet. ``dispatches_later``:
        records are readable once ``readable_to`` covers them, not when they are appended.
        """
        disk = disk or LocalDisk()
        root = config.store_path_root_dir
        # Directories of the log may be links if the operator names them: that puts the log on another disk.
        for directory in (root, *(config.commit_log_dirs if config.store_path_commit_log else ())):
            disk.refuse_links(directory)
        try:
            release = disk.lock(config.path("lock"))
        except BlockingIOError:
            raise StoreLockedError(
                f"the store {root} is open in another process: stop that one, or give another storePathRootDir"
            ) from None
        except OSError as error:
            raise DiskFaultError(f"the store {root} cannot be opened for writing: {error.strerror}") from error
        try:
            memory_size = memory_size or machine_memory()
            store = cls(
                config, disk, clock or SystemClock(), release, memory_size, dispatches_later=dispatches_later
            )
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
        abort = AbortFile(disk, config)
        clean = not abort.exists
        self._snapshot = CloseSnapshot.load(disk, config.store_path_root_dir)
        files = self.log.files
        files.load()
        self.queues.load()
        # Only OrbitMQ writes the snapshot: if there is one, the last clean close was its own.
        is_trusted = (clean or abort.is_own) and self._snapshot is not None
        missing = missing_end(files, self.checkpoint, self._snapshot, is_own=is_trusted)
        ends: Ends = {}
        if missing:
            if not config.accept_lost_log:
                raise refuse(files, missing, config)
            ends = assigned_ends(disk, self.queues, self._snapshot, config.mapped_file_size_consume_queue)
            self._snapshot = self._snapshot or CloseSnapshot({})
        elif self._snapshot is not None:
            ends = self._snapshot.resumes_at
        self.queues.resumes_at = ends
        if clean:
            # Not earlier: a store that is refused, because of a wrong setting for instance, stays cleanly closed.
            abort.create()
        previous = PreviousRun(clean, abort.is_own, self._snapshot)
        self._recovery = recovery = Recovery(
            disk, config, files, self.queues, self.dispatcher, self.checkpoint, previous,
            Quarantine(disk, self.clock, config.store_path_root_dir, config.quarantine_max_bytes),
        )  # fmt: skip
        self.recovery = report = recovery.run()
        if self.deleted.follow_log(self.log.files.start, report.log_end):
            self.deleted.persist()
        lost = continue_queue_offsets(self.queues, self.dispatcher, ends)
        if missing and self._snapshot is not None:
            logger.error(
                "recovery: lost the log from %d to %d (acceptLostLog): %d queue offsets have no message",
                report.log_end, missing, lost,
            )  # fmt: skip
            self.checkpoint.logics_physical_offset = 0
            self.checkpoint.store(disk, config.path("checkpoint"))
            self._snapshot.log_end = report.log_end
            self._snapshot.resumes_at = ends
            self._snapshot.store(disk, config.store_path_root_dir)
        if not clean:
            self.checkpoint.store(disk, config.path("checkpoint"))
        self.log.open_at(report.log_end)
        self.log.last_store_timestamp = report.newest_timestamp or self.checkpoint.physic_msg_timestamp
        self.dispatcher.position = report.log_end
        self.reader.checked_from = report.log_end
        self.queues.open_queue = self._open_queue
        self._is_open = True

    def _open_queue(self, queue: Queue) -> None:
        """Open a queue at its first use: it cannot hold anything after the end found by recovery."""
        report = self.recovery
        self._recovery.open_untouched(queue, report.log_end)
        start = self.log.start
        is_behind = report.clean and self._snapshot is not None and self._snapshot.is_above(queue, start)
        # If all records of a queue have expired, there is nothing to rebuild but its numbering.
        if is_behind or (queue.gaps and queue.max_physical > start):
            self.rebuilds += 1
            self.queues.topic(queue.topic).queues[queue.queue_id] = queue
            self._recovery.rebuild([queue], report.log_end)
            report.rebuilt_queues.append((queue.topic, queue.queue_id))

    def begin_at(self, offset: int) -> None:
        """Begin an empty log at the start of a file other than the first, as that of a slave does.

        The master may have removed the files before it.
        """
        self.log.begin_at(offset)
        self.dispatcher.position = self.reader.checked_from = offset

    def close(self) -> None:
        """Make everything durable and mark the exit as clean."""
        if not self._is_open:
            return
        self._is_open = False
        self.appender.gate.close("closed", "the store is closed: open it again")
        try:
            self._leave_clean()
        except OSError as error:
            raise DiskFaultError(
                f"the store {self.config.store_path_root_dir} cannot be closed cleanly, recovery follows: "
                f"{error.strerror or error}: {error.filename or 'unknown file'}"
            ) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release files and lock without writing: what is not flushed stays as after a crash."""
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
        # The next start dispatches the whole log too.
        self.readable_to = None
        self.flush()
        if self.dispatcher.fault is not None:
            self.dispatcher.repair(self.log.files)
        new = sum(not queue.file_count for queue in self.dispatcher.unwritten)
        if new > NEW_QUEUES_AT_CLOSE:
            logger.warning(
                "store: closed without writing consume queues: %d new ones have no file yet, and at most %d are "
                "created by a close; the next start reads them from the log",
                *(new, NEW_QUEUES_AT_CLOSE),
            )
            return
        self.sync_queues()
        if self.dispatcher.position < self.log.end or self.dispatcher.fault is not None or self.derived_are_suspect:
            return  # part of a replica's record, or a failing disk: the next start recovers
        snapshot = self._snapshot or CloseSnapshot({})
        snapshot.update(self.queues)
        snapshot.log_end = self.log.end
        snapshot.resumes_at = {}
        if self.index is not None:
            snapshot.indexed_to, snapshot.index_end = self.dispatcher.position, self.index.end_offset
        snapshot.store(self.disk, self.config.store_path_root_dir)
        self.log.drop_next_file()
        AbortFile(self.disk, self.config).remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._is_open

    # Visible state

    @property
    def visible_end(self) -> int:
        """Records before this offset are visible: they are as safe as the flush policy promises."""
        is_sync = self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        end = self.log.flushed if is_sync else self.log.committed
        return end if self.readable_to is None else min(end, self.readable_to)

    @property
    def skipped_records(self) -> int:
        """Records that could not be dispatched and that no queue has."""
        return self._reput.skipped

    def catch_up(self, most: int = 1 << 62) -> int:
        """Dispatch records that became visible since they were appended; returns how many."""
        if self.dispatcher.position >= self.visible_end:
            return 0
        count = self._reput.catch_up(self.visible_end, most)
        # For the log of a slave, whose records are read here for the first time.
        self.log.last_store_timestamp = max(self.log.last_store_timestamp, self.dispatcher.last_store_timestamp)
        return count

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The smallest readable queue offset; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset after the newest readable message; 0 for an unknown queue."""
        queue = self.queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def message_id(self, offset: int) -> str:
        """The offset message id of the record at a physical offset."""
        return encode_offset_id(self.log.store_host, offset)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic: its records stay in the log until they expire, but are never put into a queue again.

        Blocks until the deletion is on disk. A broker does the two steps itself, the blocking one in a worker
        thread.
        """
        if self.mark_deleted(topic):
            self.deleted.persist()
        self.remove_queues(topic)

    def mark_deleted(self, topic: str) -> bool:
        """Hide the current records of a topic; False if it has no queue, in which case ``deleted`` did not
        change."""
        if topic not in self.queues.topics and topic not in self.queues.names():
            return False
        self.deleted.follow_log(self.log.files.start, self.log.end)
        self.deleted.ends[topic] = self.log.end
        return True

    def remove_queues(self, topic: str) -> None:
        """Remove the queue files of a topic. Only after ``mark_deleted`` and once ``deleted`` is on disk."""
        self.queues.remove_topic(topic)
        self.dispatcher.unwritten = [queue for queue in self.dispatcher.unwritten if queue.topic != topic]
        if self._snapshot is not None and self._snapshot.ranges.pop(topic, None) is not None:
            self._snapshot.store(self.disk, self.config.store_path_root_dir)

    # Flushing, in one thread. StoreService does the same with the blocking calls in worker threads.

    def flush(self) -> int:
        """Sync the log and dispatch what became visible; returns the flushed offset."""
        if self.log_failure is not None:
            raise FlushFailedError(self.log_failure)
        end, store_timestamp, files = self.log.flush_targets()
        try:
            for file in files:
                file.sync()
        except OSError as error:
            raise self.on_flush_failed(error) from error
        self.on_flushed(end, store_timestamp)
        return end

    def on_flushed(self, end: int, store_timestamp: int) -> None:
        """Record that a sync of ``log.flush_targets`` succeeded."""
        if self.log_failure is not None:
            raise FlushFailedError(self.log_failure)
        self.log.mark_flushed(end)
        self.checkpoint.physic_msg_timestamp = max(self.checkpoint.physic_msg_timestamp, store_timestamp)
        self.catch_up()

    def on_flush_failed(self, error: OSError) -> FlushFailedError:
        """Handle a failed sync of the log: the kernel may have dropped the pages, so no later sync covers them.

        The store refuses further messages and remains readable. A restart finds out what is on disk.
        """
        try:
            FailedSyncMarker(self.disk, self.config.store_path_root_dir).leave()
            what = "broker"
        except OSError:
            # The next process would read the page cache as if it were the disk; after a reboot only the disk is
            # left.
            what = "machine"
        reason = f"the disk failed to store the log ({error.strerror}): check the disk, then restart the {what}"
        self.log_failure = reason
        self.appender.gate.close("flush", reason)
        return FlushFailedError(reason)

    def sync_queues(self) -> None:
        """Write and sync queues and index, then update the checkpoint."""
        sync = QueueFlush(self)
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
