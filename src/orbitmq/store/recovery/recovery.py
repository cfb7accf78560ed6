"""Recovery: find the end of the log when a store is opened, and make queues and index match it.

The log is the truth. The start of the scan is an optimisation (everything before it is known to be on disk in log,
queues and index). No step depends on a completed earlier recovery, so an interrupted one is simply repeated.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import TYPE_CHECKING

from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message.record import MIN_RECORD_SIZE, blank, encode_record
from orbitmq.protocol.names import LMQ_PREFIX
from orbitmq.store.commitlog.failed_sync_marker import FailedSyncMarker, write_again
from orbitmq.store.commitlog.scanner import Damage, LogView, Seen, scan_past_damage
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.dispatch.dispatcher import MULTI_DISPATCH, NOT_QUEUED
from orbitmq.store.dispatch.native_reput import NativeReput
from orbitmq.store.errors import StoreDamagedError
from orbitmq.store.recovery.finish_deletion import finish_deletions
from orbitmq.store.recovery.topic_repair import is_misnamed, one_bit_away, restore_topic
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.platform.disk import Disk
    from orbitmq.store.background.checkpoint import Checkpoint
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.close_snapshot import CloseSnapshot
    from orbitmq.store.consumequeue.table import Queue, QueueTable
    from orbitmq.store.dispatch.dispatcher import Dispatcher
    from orbitmq.store.recovery.quarantine import Quarantine

logger = logging.getLogger(__name__)

MAX_DAMAGES_LOGGED = 20
"""Damaged places that one recovery logs one by one."""

FENCE_TOPIC = b"RMQ_SYS_DAMAGED"
FENCE_SYS_FLAG = 0xC
"""Transaction type rollback: neither queues nor index enter such a record, here and in RocketMQ."""


@dataclasses.dataclass(slots=True)
class RecoveryReport:
    """Result of opening a store."""

    clean: bool
    """True if the store was closed cleanly."""
    started_at: int
    """Log offset at which the scan began."""
    log_start: int
    log_end: int
    records: int = 0
    """Records scanned."""
    newest_timestamp: int = 0
    damages: list[Damage] = dataclasses.field(default_factory=list)
    """Damaged places in the log with whole records behind them."""
    end_reason: str = ""
    """Why the log ends where it does."""
    rebuilt_queues: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """Queues that were missing or incomplete and were rebuilt from the log."""
    removed_index_files: list[str] = dataclasses.field(default_factory=list)
    quarantined: list[str] = dataclasses.field(default_factory=list)
    """Copies of what was cut off the end of the log."""


@dataclasses.dataclass(frozen=True, slots=True)
class PreviousRun:
    """State in which the last process left the store."""

    clean: bool
    """It closed the store properly."""
    is_own: bool = False
    """It was OrbitMQ, and the store it opened had been closed properly before."""
    snapshot: CloseSnapshot | None = None


class Recovery:
    """One opening of a store."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        files: LogFiles,
        table: QueueTable,
        dispatcher: Dispatcher,
        checkpoint: Checkpoint,
        previous: PreviousRun,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._disk = disk
        self._config = config
        self._files = files
        self._table = table
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._snapshot = previous.snapshot
        self._clean = previous.clean
        self._is_own = previous.is_own
        self._quarantine = quarantine
        self._unflushed = FailedSyncMarker(disk, config.store_path_root_dir)
        self._at = 0

    def run(self) -> RecoveryReport:
        """Recover; afterwards the queues touched by the scan are open and the log's end is known."""
        removed = self._load_index()
        if not len(self._files):
            return self._empty(removed)
        start, index_start = self.starting_points()
        report = RecoveryReport(
            self._clean, min(start, index_start), self._files.start, start, removed_index_files=removed
        )
        self._table.open_queue = self._open_in_walk
        returned = [] if self._clean else finish_deletions(self._table, self._dispatcher.deleted)
        is_in_doubt = not self._clean and self._unflushed.is_there()
        if not self._clean and self._files.writable:
            # Before the first sync: if one fails, the next start has to know.
            self._unflushed.leave()
        report.log_end = self._walk(report, start, index_start)
        self._tell(report)
        self._keep_what_is_cut(report)
        self._settle_end(report, is_in_doubt=is_in_doubt)
        self._settle_index(report.log_end)
        self._rebuild_behind(report, saw_all=start <= self._files.start)
        if returned:
            self.rebuild([self._table.get(topic, queue_id) for topic, queue_id in returned], report.log_end)
        return report

    @staticmethod
    def _tell(report: RecoveryReport) -> None:
        for damage in report.damages[:MAX_DAMAGES_LOGGED]:
            logger.error(
                "recovery: skipped %d bytes of the log at offset %d: %s", damage.size, damage.offset, damage.reason
            )
        if len(report.damages) > MAX_DAMAGES_LOGGED:
            logger.error("recovery: skipped %d damaged places of the log in all", len(report.damages))

    def _keep_what_is_cut(self, report: RecoveryReport) -> None:
        """Copy what is behind the end of the log before it is zeroed and overwritten.

        RocketMQ leaves old bytes behind the end when it recovers, so after its own clean exit they mean nothing.
        """
        if self._quarantine is not None and self._files.writable and (self._is_own or not self._clean):
            reason = report.end_reason or "the last file ends"
            report.quarantined = self._quarantine.keep_end(self._files, report.log_end, reason)

    def _load_index(self) -> list[str]:
        index = self._dispatcher.index
        if index is None:
            return []
        checkpoint = self._checkpoint
        offset = checkpoint.logics_physical_offset
        removed = index.load(
            self._clean,
            # Offset 0 is the first record or none: too little to trust a file by its time, which may be equal.
            0 if self._is_own and not offset else checkpoint.index_msg_timestamp,
            offset,
            can_cut=self._is_own and offset > 0,
        )
        if not self._clean:
            checkpoint.index_msg_timestamp = index.flushed_timestamp
        return removed

    def _empty(self, removed: list[str]) -> RecoveryReport:
        if any(True for _ in self._table.all()):
            where = ", ".join(self._config.commit_log_dirs)
            raise StoreDamagedError(
                f"there are consume queues but no commit log in {where}: give the right storePathCommitLog, "
                "or move the consumequeue directory away to begin with an empty store"
            )
        return RecoveryReport(self._clean, 0, 0, 0, end_reason="the store is empty", removed_index_files=removed)

    # Where to begin

    def starting_points(self) -> tuple[int, int]:
        """Log offsets from which queues and index may lack records."""
        files, index = self._files, self._dispatcher.index
        begin = files.start
        if self._table.is_empty_on_disk:
            start = begin
        elif self._clean:
            start = self._last_dispatched() if self._snapshot is not None else begin
        else:
            start = self._after_crash()
        if index is None:
            return start, sys.maxsize
        indexed = index.end_offset
        if self._clean and self._snapshot is not None and index.end_offset == self._snapshot.index_end:
            # Records without keys are not in the index; the snapshot knows that they were dispatched.
            indexed = max(indexed, self._snapshot.indexed_to)
        indexed = max(indexed, begin)
        # Never begin to scan where no record begins: it would be taken for damage.
        if indexed < start and self._whole_record(indexed) is None:
            indexed = begin
        return start, indexed

    def _last_dispatched(self) -> int:
        offset = self._checkpoint.logics_physical_offset
        return offset if self._whole_record(offset) is not None else self._files.start

    def _after_crash(self) -> int:
        checkpoint = self._checkpoint
        offset, begin = checkpoint.logics_physical_offset, self._files.start
        last = self._whole_record(offset)
        if self._is_own and (last is not None or offset < begin):
            # OrbitMQ syncs log, queues and index before the checkpoint names a record. Times prove less, because a
            # clock may go back.
            return max(offset, begin)
        # RocketMQ guarantees no such order, so the times must show that the log was flushed after that record.
        if last is not None and 0 < last.store_timestamp < min(
            checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp
        ):
            return last.offset
        for base in reversed(self._files.bases):
            first = LogView(base, self._files.mapped(base).buffer).look(0)
            if isinstance(first, Seen) and 0 < first.store_timestamp <= checkpoint.min_timestamp:
                return base
        return self._files.start

    def _whole_record(self, offset: int) -> Seen | None:
        base = offset - offset % self._files.file_size
        if base not in self._files:
            return None
        found = LogView(base, self._files.mapped(base).buffer).look(offset - base)
        return found if isinstance(found, Seen) and found.body_is_intact else None

    # Scan

    def _open_in_walk(self, queue: Queue) -> None:
        # After a crash, units of records from here on may have holes: they are dropped and rewritten.
        limit = sys.maxsize if self._clean else self._at
        queue.open(self._files.start, limit, None if self._clean else self._log_has)

    def _log_has(self, topic: str, queue_id: int, queue_offset: int, offset: int, size: int) -> bool:
        seen = self._whole_record(offset)
        if seen is None or seen.size != size:
            return False
        if topic.startswith(LMQ_PREFIX):
            return True  # an LMQ holds records of other topics
        return (decode_utf8(seen.topic), seen.queue_id, seen.queue_offset) == (topic, queue_id, queue_offset)

    def _walk(self, report: RecoveryReport, start: int, index_start: int) -> int:
        end, newest = report.started_at, 0
        # After a clean close the bodies were whole; reads check them again.
        check_crc = not self._clean
        is_slave = self._config.broker_role is BrokerRole.SLAVE and not self._clean
        check_property_crc = self._config.force_verify_prop_crc and not self._clean
        runs = None
        if not check_property_crc:
            runs = NativeReput.of(
                self._files, self._dispatcher, queued_from=start, indexed_from=index_start, check_crc=check_crc
            )
        while True:
            left = sys.maxsize
            if runs is not None:
                run = runs.take(end)
                report.records += run.records
                report.newest_timestamp = run.newest or report.newest_timestamp
                newest = run.newest or newest
                end, left = run.end, runs.alone
            steps = scan_past_damage(
                self._files,
                end,
                check_crc=check_crc,
                check_property_crc=check_property_crc,
                torn_from=None if self._clean else 0 if self._is_own else self._checkpoint.physic_msg_timestamp,
                search_unwritten=not self._clean,
                newest=newest,
            )
            for found in steps:
                if isinstance(found, Damage) and not found.size:
                    report.end_reason = found.reason
                    return end
                if is_slave and (isinstance(found, Damage) or not found.body_is_intact):
                    # The master has what is damaged here, and all behind it: it is copied again.
                    reason = found.reason if isinstance(found, Damage) else "the body fails its CRC"
                    report.end_reason = f"a damaged place of a slave's log ({reason}), copied again from its master"
                    return found.offset
                end = found.offset + found.size
                if self._take(report, found, start, index_start):
                    assert isinstance(found, Seen)
                    newest = found.store_timestamp or newest
                    if runs is not None:
                        runs.learn(found)
                left -= 1
                if not left:
                    break
            else:
                return end

    def _take(self, report: RecoveryReport, found: Seen | Damage, start: int, index_start: int) -> bool:
        """Process a scanned item; returns whether it is a whole record."""
        if isinstance(found, Damage):
            report.damages.append(found)
            self._fence(found)
            return False
        report.records += 1
        report.newest_timestamp = found.store_timestamp or report.newest_timestamp
        if not found.body_is_intact:
            report.damages.append(Damage(found.offset, found.size, "the body fails its CRC"))
            return False
        self._at = found.offset
        if found.offset >= start:
            found = self._of_its_queue(found, has_damage=bool(report.damages))
            self._dispatcher.dispatch_scanned(found, to_index=found.offset >= index_start)
        else:
            self._dispatcher.index_scanned(found)
        return True

    def _of_its_queue(self, seen: Seen, *, has_damage: bool) -> Seen:
        """The record with its correct topic, if a bit of the name is flipped.

        It then does not continue the queue that it names, but exactly the queue of a topic that differs in one bit,
        and the records behind it agree. A topic whose first record this is, is not doubted.
        """
        if seen.sys_flag & NOT_QUEUED or not seen.queue_offset:
            return seen
        named = self._table.find(decode_utf8(seen.topic), seen.queue_id)
        if named is not None and (named.is_batch or named.end == seen.queue_offset):
            return seen
        if named is not None and named.max_physical >= seen.offset + seen.size:
            return seen  # it is there already
        for topic in one_bit_away(seen.topic):
            queue = self._table.find(decode_utf8(topic), seen.queue_id)
            if (
                isinstance(queue, ConsumeQueue)
                and queue.end == seen.queue_offset
                and 0 < queue.max_physical <= seen.offset
                and is_misnamed(self._files, seen, topic, named.end if named else 0, has_damage=has_damage)
                and restore_topic(self._files, seen, topic)
            ):
                return seen._replace(topic=topic)
        return seen

    def _fence(self, damage: Damage) -> None:
        """Overwrite damage with one record that is invisible to consumers, so that every scan passes it."""
        if not self._files.writable:
            return
        base = damage.offset - damage.offset % self._files.file_size
        mapped = self._files.mapped(base)
        position = damage.offset - base
        stop = position + damage.size
        mapped.reserve(position, stop)
        if stop == self._files.file_size:
            mapped.buffer[position : position + 8] = blank(damage.size)
        elif damage.size > MIN_RECORD_SIZE:
            # The smallest record is as large as this one with a topic of one letter.
            topic = FENCE_TOPIC[: damage.size - MIN_RECORD_SIZE]
            room = damage.size - MIN_RECORD_SIZE - len(topic)
            mapped.buffer[position:stop] = encode_record(
                topic=topic,
                queue_id=0,
                body=bytes(mapped.buffer[stop - room : stop]),
                physical_offset=damage.offset,
                sys_flag=FENCE_SYS_FLAG,
                born_host=bytes(8),
                store_host=bytes(8),
            )
        mapped.sync()

    def _settle_end(self, report: RecoveryReport, *, is_in_doubt: bool) -> None:
        """Wipe everything behind the end of the log, in the log and in open queues."""
        end = report.log_end
        if self._files.writable and not self._clean:
            self._make_durable(end, is_in_doubt=is_in_doubt)
        for queue in self._table.opened():
            if queue.max_physical > end:
                queue.truncate_to_log(end)
        self._table.open_queue = lambda queue: self.open_untouched(queue, end)
        if not self._clean:
            # Every queue, and durably: a unit of a lost record would be found again once the log has grown past the
            # offset that it points to.
            for queue in self._table.all():
                self._dispatcher.mark_unsynced(queue)

    def _make_durable(self, end: int, *, is_in_doubt: bool) -> None:
        """Make the log on disk what the scan found, up to its end and behind it.

        From here on it counts as flushed. What a power cut then took away would leave a hole before the checkpoint,
        where no scan after a crash would find it.
        """
        files = self._files
        start, last = min(self._after_crash(), end), end - end % files.file_size
        if last in files:
            self._disk.zero(files.path(last), end - last)
        if is_in_doubt:
            write_again(files, start, end)
        for base in range(start - start % files.file_size, last + 1, files.file_size):
            if base in files:
                files.mapped(base).sync()
        self._unflushed.remove()

    def open_untouched(self, queue: Queue, end: int) -> None:
        """Open a queue of which the scan saw no record: it holds nothing behind ``end``."""
        queue.open(self._files.start, end, None if self._clean else self._log_has)

    def _settle_index(self, end: int) -> None:
        """Remove index entries of records behind the end of the log."""
        index = self._dispatcher.index
        if index is not None and index.end_offset >= end and index.delete_from(end):
            for seen in self._records(max(index.end_offset, self._files.start), end):
                self._dispatcher.index_scanned(seen)

    def _records(self, start: int, end: int) -> Iterator[Seen]:
        """Records between two offsets. Everything before the end of the log was written once, so zeros are
        damage."""
        for found in scan_past_damage(self._files, start, check_crc=False, search_unwritten=True):
            if found.offset >= end:
                return
            if isinstance(found, Seen):
                yield found
            if found.offset + found.size >= end:
                return  # what is behind it is not searched

    # Queues that lack more than the scan covered

    def _rebuild_behind(self, report: RecoveryReport, *, saw_all: bool) -> None:
        begin = self._files.start
        # If all of the log was scanned, a record missing in a queue is missing in the log.
        behind = [
            queue
            for queue in self._table.opened()
            if queue.max_physical > begin and (queue.has_hole if saw_all else queue.gaps)
        ]
        if self._snapshot is not None and not saw_all:
            behind += [self._table.get(name, queue_id) for name, queue_id in self._snapshot.missing(self._table)]
        if behind:
            self.rebuild(behind, report.log_end)
            report.rebuilt_queues.extend((queue.topic, queue.queue_id) for queue in behind)

    def rebuild(self, queues: Sequence[Queue], end: int) -> None:
        """Rebuild queues from the whole log.

        Until that is on disk the checkpoint must not cover them, so it is reset first.
        """
        checkpoint, dispatcher = self._checkpoint, self._dispatcher
        checkpoint.logics_msg_timestamp = checkpoint.index_msg_timestamp = checkpoint.logics_physical_offset = 0
        checkpoint.store(self._disk, self._config.path("checkpoint"))
        wanted = {(queue.topic, queue.queue_id) for queue in queues}
        light = any(queue.topic.startswith(LMQ_PREFIX) for queue in queues)
        for queue in queues:
            queue.destroy()
            queue.min_offset = queue.next_offset = queue.max_physical = 0
        last = dispatcher.last_offset, dispatcher.last_store_timestamp
        for seen in self._records(self._files.start, end):
            if (decode_utf8(seen.topic), seen.queue_id) in wanted or (light and MULTI_DISPATCH in seen.properties):
                dispatcher.dispatch_scanned(seen, to_index=False)
        dispatcher.last_offset, dispatcher.last_store_timestamp = last
