"""Retention: removal of log files; queues and index follow.

Expired files are removed in the hours of ``deleteWhen``, or at once when the disk is fuller than
``diskMaxUsedSpaceRatio``. Over ``diskSpaceCleanForciblyRatio`` files are removed at any age, oldest first, and only
until the disk is back at that ratio: usage is measured again after each file. Each of these files is logged,
because its messages have not expired. Over ``diskSpaceWarningLevelRatio`` the store refuses messages until there is
room. The newest file and unflushed data are never removed. A reader with slices of a removed file can finish: the
name is gone, the bytes stay until the slices are released.

With ``archiveGroup`` a file is removed only if every message in it is archived. ``archiveFullPolicy`` decides when
the disk is full and the archiver lags: such files stay, until the store refuses messages; or they are removed at
any age, and an error names what is lost.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.store.commitlog.mapped_files import FileRemoval
from orbitmq.store.config import DELETE
from orbitmq.store.retention.archive_barrier import ArchivedLog
from orbitmq.store.retention.disk_shortage import Shortage

if TYPE_CHECKING:
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.store.background.time_slicing import Pace
    from orbitmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

MANUAL_ROUNDS = 20
"""Rounds in which a manual request is honoured, as in RocketMQ: one round may not remove everything."""

HOUR_MS = 3_600_000

Blocking: TypeAlias = Callable[[], None]
Steps: TypeAlias = "Generator[Blocking | None, None, RetentionReport]"
"""A round as a generator: yields blocking calls for a worker thread, and None to yield to the loop."""


@dataclasses.dataclass(slots=True)
class RetentionReport:
    """Result of one round."""

    reason: str = ""
    """Why files could be removed; empty if there was no reason."""
    log_files: list[str] = dataclasses.field(default_factory=list)
    forced_files: list[str] = dataclasses.field(default_factory=list)
    """Those of them that had not expired and were removed because the disk was too full."""
    queue_files: int = 0
    index_files: int = 0
    waits: str = ""
    """Why a removable file stays: it is not archived."""


class Retention:
    """Removes expired data from a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.archived = ArchivedLog(store)
        self.held_from: Callable[[], int] = lambda: 1 << 62
        """Where the part of the log begins that a connected slave still needs. A full disk does not wait for it."""
        self._waits = ""
        self._told_at: int | None = None
        self._refusing_logged_at: int | None = None
        """When it was last logged that the disk is too full for sends. None while they are accepted."""
        self._manual_rounds = 0
        config = store.config
        self._max_used = _clamp(config.disk_max_used_space_ratio, 10, 95)
        self._forcibly = _clamp(config.disk_space_clean_forcibly_ratio, 30, 85)
        self._warning = _clamp(config.disk_space_warning_level_ratio, 35, 90)

    def request(self) -> None:
        """Remove expired files in the next round, regardless of the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def run(self) -> RetentionReport:
        """One round, blocking."""
        steps = self._round()
        try:
            while True:
                work = next(steps)
                if work is None:
                    continue
                try:
                    work()
                except BaseException as error:
                    steps.throw(error)
        except StopIteration as stop:
            report: RetentionReport = stop.value
            return report

    async def run_with(self, run_blocking: RunBlocking, pace: Pace) -> RetentionReport:
        """One round, with blocking calls in a worker thread and long work in slices."""
        steps = self._round()
        try:
            while True:
                work = next(steps)
                try:
                    if work is not None:
                        await run_blocking(work)
                    elif pace.is_due():
                        await pace.pause()
                except BaseException as error:
                    steps.throw(error)
        except StopIteration as stop:
            report: RetentionReport = stop.value
            return report

    def _round(self) -> Steps:
        store, config = self._store, self._store.config
        used = self.used_ratio()
        self._gate(used)
        shortage = self._shortage() if config.clean_file_forcibly_enable else None
        report = RetentionReport(self._reason(used))
        if not report.reason:
            return report
        if self._manual_rounds:
            self._manual_rounds -= 1
        expired_before = store.clock.now_ms() - config.file_reserved_time * HOUR_MS
        files = store.log.files
        start = files.start
        try:
            for base in files.bases[:-1][: config.delete_file_batch_max]:
                path = files.path(base)
                found = store.disk.stat(path)
                modified = 0 if found is None else found.mtime_ms
                is_forced = modified > expired_before
                if is_forced and (shortage is None or not shortage.lasts):
                    break
                if base + files.file_size > self._removable_end():
                    break
                if shortage is None and base + files.file_size > self.held_from():
                    report.waits = "a slave has not copied it yet"
                    break
                if not self._may_go(base, path, shortage is not None, report):
                    break
                yield from self._remove(base)
                report.log_files.append(path)
                if is_forced:
                    report.forced_files.append(path)
                    self._log_forced(path, used, modified)
                if shortage is not None:
                    shortage.on_removed(os.path.dirname(path), files.file_size)
            if files.start > start:
                yield from self._following(report)
        except BaseException:
            # Even if the disk fails here: no queue may point to a removed record.
            if files.start > start:
                self._follow(report)
            raise
        finally:
            self._waits = report.waits
        return report

    def _remove(self, base: int) -> Generator[Blocking | None, None, None]:
        # Mapped first, because concurrent readers would no longer find the name.
        self._store.log.files.mapped(base)
        removal = FileRemoval(self._store.log.files, base)
        try:
            yield removal.run
        finally:
            removal.finish()
        yield removal.abandon

    def _may_go(self, base: int, path: str, at_any_age: bool, report: RetentionReport) -> bool:
        """True if a file is archived, or must be removed anyway."""
        end = base + self._store.log.files.file_size
        if self.archived.reaches(end):
            return True
        if at_any_age and self._store.config.archive_full_policy == DELETE:
            self.archived.log_lost(path, end)
            return True
        report.waits = self.archived.reason()
        now = self._store.clock.now_ms()
        if self._told_at is None or now - self._told_at >= HOUR_MS:
            self._told_at = now
            logger.warning("retention: %s could be removed but stays: %s", path, report.waits)
        return False

    def _shortage(self) -> Shortage | None:
        """Space that the disks lack to be below the forced-cleanup ratio; None if they are below it."""
        store = self._store
        shortage = Shortage(
            store.disk,
            store.config.commit_log_dirs,
            store.config.path("consumequeue"),
            min(self._forcibly, self._warning),
        )
        return shortage if shortage.lasts else None

    def _log_forced(self, path: str, used: float, modified: int) -> None:
        logger.warning(
            "retention: removed log file %s of %d bytes before fileReservedTime=%d h, its newest message is %d s "
            "old: the disk was %.0f%% full, limit %.0f%% (diskSpaceCleanForciblyRatio)",
            path,
            self._store.log.files.file_size,
            self._store.config.file_reserved_time,
            max(self._store.clock.now_ms() - modified, 0) // 1000,
            used * 100,
            min(self._forcibly, self._warning) * 100,
        )

    def _removable_end(self) -> int:
        store = self._store
        return min(store.log.flushed, store.dispatcher.position)

    def _follow(self, report: RetentionReport) -> None:
        """Remove queue units and index entries of records that the log no longer has."""
        for _ in self._following(report):
            pass

    def _following(self, report: RetentionReport) -> Generator[Blocking | None, None, None]:
        """``_follow``, yielding to the loop after each queue.

        Unopened queues follow when they are opened: their smallest offset is then found from the log.
        """
        store = self._store
        start = store.log.start
        failure: Exception | None = None
        for queue in list(store.queues.opened()):
            topic = store.queues.topics.get(queue.topic)
            if topic is not None and topic.queues.get(queue.queue_id) is queue:  # not deleted meanwhile
                try:
                    report.queue_files += queue.expire(start)
                except Exception as error:
                    # The others must follow all the same: a full disk needs their files.
                    logger.error("retention: queue %s/%d skipped: %s", queue.topic, queue.queue_id, error)
                    failure = failure or error
            yield None
        if store.index is not None:
            report.index_files = len(store.index.delete_before(start))
        if failure is not None:
            raise failure

    def used_ratio(self) -> float:
        """Disk usage: the least of the log's disks, or that of the queues if it is higher."""
        store = self._store
        log = min(store.disk.space(path).ratio for path in store.config.commit_log_dirs)
        return max(log, store.disk.space(store.config.path("consumequeue")).ratio)

    def _gate(self, used: float) -> None:
        gate = self._store.appender.gate
        if used > self._warning:
            archive = f", or archive: {self._waits}" if self._waits else ""
            reason = f"the disk is {used:.0%} full, refusing messages over {self._warning:.0%}: free space{archive}"
            now = self._store.clock.now_ms()
            if self._refusing_logged_at is None or now - self._refusing_logged_at >= HOUR_MS:
                self._refusing_logged_at = now
                logger.error("store: sends are refused: %s", reason)
            gate.close("disk", reason)
        elif used <= self._forcibly:
            if self._refusing_logged_at is not None:
                self._refusing_logged_at = None
                logger.warning("store: sends are accepted again: the disk is %.0f%% full", used * 100)
            gate.open("disk")

    def _reason(self, used: float) -> str:
        if used > min(self._max_used, self._forcibly, self._warning):
            return f"the disk is {used:.0%} full"
        if self._manual_rounds:
            return "requested by hand"
        if self._store.clock.hour() in self._store.config.delete_hours:
            return f"it is {self._store.clock.hour():02d} o'clock"
        return ""


def _clamp(percent: int, low: int, high: int) -> float:
    return min(max(percent, low), high) / 100
