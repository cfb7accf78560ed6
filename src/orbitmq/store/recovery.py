"""Opening a store: find the end of the log, and make queues and index agree with it.

The log is the truth. Where the walk through it begins is an optimisation (everything before is known to be on
disk in log, queues and index); what it finds decides. Nothing here depends on having finished before, so an
interrupted recovery is simply done again.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING

from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.names import LMQ_PREFIX
from orbitmq.protocol.record import MIN_RECORD_SIZE, blank, encode_record
from orbitmq.store.dispatch import MULTI_DISPATCH
from orbitmq.store.errors import StoreDamagedError
from orbitmq.store.log_runs import LogRuns
from orbitmq.store.scan import Damage, LogView, Seen, walk_past_damage
from orbitmq.store.unflushed import UnflushedMark, write_again

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.store.checkpoint import Checkpoint
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.disk import Disk
    from orbitmq.store.dispatch import Dispatcher
    from orbitmq.store.log_files import LogFiles
    from orbitmq.store.queue_floor import QueueFloor
    from orbitmq.store.queue_table import Queue, QueueTable

FENCE_TOPIC = b"RMQ_SYS_DAMAGED"
FENCE_SYS_FLAG = 0xC
"""Transaction type rollback: neither a queue nor the index takes such a record, here and in RocketMQ."""


@dataclasses.dataclass(slots=True)
class RecoveryReport:
    """What opening a store found and did."""

    clean: bool
    """Whether the store was closed properly."""
    started_at: int
    """Where in the log the walk began."""
    log_start: int
    log_end: int
    records: int = 0
    """Records walked."""
    newest_timestamp: int = 0
    damages: list[Damage] = dataclasses.field(default_factory=list)
    """Places in the log that hold no readable record and have whole records behind them."""
    end_reason: str = ""
    """Why the log ends where it does."""
    rebuilt_queues: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """Queues that were missing or behind and were written again from the log."""
    removed_index_files: list[str] = dataclasses.field(default_factory=list)


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
        floor: QueueFloor | None,
        *,
        clean: bool,
        is_own: bool = False,
    ) -> None:
        """``is_own``: it was OrbitMQ that had the store open last and found it closed properly."""
        self._disk = disk
        self._config = config
        self._files = files
        self._table = table
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._floor = floor
        self._clean = clean
        self._is_own = is_own
        self._unflushed = UnflushedMark(disk, config.store_path_root_dir)
        self._at = 0

    def run(self) -> RecoveryReport:
        """Recover; afterwards the queues touched by the walk are open and the log's end is known."""
        removed = self._load_index()
        if not len(self._files):
            return self._empty(removed)
        start, index_start = self.starting_points()
        report = RecoveryReport(
            self._clean, min(start, index_start), self._files.start, start, removed_index_files=removed
        )
        self._table.open_queue = self._open_in_walk
        is_in_doubt = not self._clean and self._unflushed.is_there()
        if not self._clean and self._files.writable:
            # Before the first sync: if one fails, the next start has to know.
            self._unflushed.leave()
        report.log_end = self._walk(report, start, index_start)
        self._settle_end(report, is_in_doubt=is_in_doubt)
        self._settle_index(report.log_end)
        self._rebuild_behind(report, saw_all=start <= self._files.start)
        return report

    def _load_index(self) -> list[str]:
        index = self._dispatcher.index
        if index is None:
            return []
        checkpoint = self._checkpoint
        offset = checkpoint.logics_physical_offset
        removed = index.load(
            self._clean,
            # Offset 0 is the first record or none: too little to trust a file by its time, which may be the same.
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
        """Where queues may lack records, and where the index may."""
        files, index = self._files, self._dispatcher.index
        begin = files.start
        if self._table.is_empty_on_disk:
            start = begin
        elif self._clean:
            start = self._last_dispatched() if self._floor is not None else begin
        else:
            start = self._after_crash()
        if index is None:
            return start, sys.maxsize
        indexed = index.end_offset
        if self._clean and self._floor is not None and index.end_offset == self._floor.index_end:
            # Records without keys are in no index; the floor remembers that they were looked at.
            indexed = max(indexed, self._floor.indexed_to)
        indexed = max(indexed, begin)
        # Never begin to walk where no record begins: whatever lies there would be taken for damage.
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
            # OrbitMQ syncs log, queues and index before it lets the checkpoint name a record. Times prove less,
            # because a clock may go back.
            return max(offset, begin)
        # RocketMQ promises no such order, so the times must show that the log was flushed after that record.
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

    # The walk

    def _open_in_walk(self, queue: Queue) -> None:
        # After a crash, units from the place of the walk on may have holes: they are dropped and written again.
        limit = sys.maxsize if self._clean else self._at
        queue.open(self._files.start, limit, None if self._clean else self._log_has)

    def _log_has(self, topic: str, queue_id: int, queue_offset: int, offset: int, size: int) -> bool:
        seen = self._whole_record(offset)
        if seen is None or seen.size != size:
            return False
        if topic.startswith(LMQ_PREFIX):
            return True  # a light queue holds records of other topics
        return (decode_utf8(seen.topic), seen.queue_id, seen.queue_offset) == (topic, queue_id, queue_offset)

    def _walk(self, report: RecoveryReport, start: int, index_start: int) -> int:
        end, newest = report.started_at, 0
        # After a proper close the bodies were whole; whoever reads one later checks it again.
        check_crc = not self._clean
        check_property_crc = self._config.force_verify_prop_crc and not self._clean
        runs = None
        if not check_property_crc:
            runs = LogRuns.of(
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
            steps = walk_past_damage(
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
        """Take note of what was found; whether it is a whole record."""
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
            self._dispatcher.dispatch_seen(found, to_index=found.offset >= index_start)
        else:
            self._dispatcher.index_seen(found)
        return True

    def _fence(self, damage: Damage) -> None:
        """Make damage readable as one record that nobody is shown, so that every walk passes it."""
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
        """Leave nothing behind the end of the log, in the log and in the queues that are open."""
        end = report.log_end
        if self._files.writable and not self._clean:
            self._make_durable(end, is_in_doubt=is_in_doubt)
        for queue in self._table.opened():
            if queue.max_physical > end:
                queue.truncate_to_log(end)
        self._table.open_queue = lambda queue: self.open_untouched(queue, end)
        if not self._clean:
            # Every queue, and made durable: a unit of a record that did not survive would be found again, once
            # the log has grown past the place to which it leads.
            for queue in self._table.all():
                self._dispatcher.note_unsynced(queue)

    def _make_durable(self, end: int, *, is_in_doubt: bool) -> None:
        """Make the log on disk what was found of it, up to its end and behind it.

        From here on it counts as flushed. What then went with the power would leave a hole before the checkpoint,
        where no walk after a crash would find it.
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
        """Open a queue of which the walk saw no record: it holds nothing behind ``end``."""
        queue.open(self._files.start, end, None if self._clean else self._log_has)

    def _settle_index(self, end: int) -> None:
        """Let the index lead to no record behind the end of the log."""
        index = self._dispatcher.index
        if index is not None and index.end_offset >= end and index.delete_from(end):
            for seen in self._records(max(index.end_offset, self._files.start), end):
                self._dispatcher.index_seen(seen)

    def _records(self, start: int, end: int) -> Iterator[Seen]:
        """The records between two offsets. Before the end of the log all was written once, so zeros are damage."""
        for found in walk_past_damage(self._files, start, check_crc=False, search_unwritten=True):
            if found.offset >= end:
                return
            if isinstance(found, Seen):
                yield found
            if found.offset + found.size >= end:
                return  # what is behind it is not searched

    # Queues that lack more than the walk saw

    def _rebuild_behind(self, report: RecoveryReport, *, saw_all: bool) -> None:
        begin = self._files.start
        # With all of the log walked, a record that is missing in a queue is missing in the log.
        behind = [
            queue
            for queue in self._table.opened()
            if queue.max_physical > begin and (queue.has_hole if saw_all else queue.gaps)
        ]
        if self._floor is not None and not saw_all:
            behind += [self._table.get(name, queue_id) for name, queue_id in self._floor.missing(self._table)]
        if behind:
            self.rebuild(behind, report.log_end)
            report.rebuilt_queues.extend((queue.topic, queue.queue_id) for queue in behind)

    def rebuild(self, queues: Sequence[Queue], end: int) -> None:
        """Write some queues again from the whole log.

        Until that is on disk the checkpoint must not vouch for them, so it is taken back first.
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
                dispatcher.dispatch_seen(seen, to_index=False)
        dispatcher.last_offset, dispatcher.last_store_timestamp = last
