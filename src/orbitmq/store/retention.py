"""Retention: which log files go, and when; queues and index follow.

Expired files go in the hours of ``deleteWhen``, or at once when the disk is fuller than ``diskMaxUsedSpaceRatio``.
Over ``diskSpaceCleanForciblyRatio`` files go whatever their age, and over ``diskSpaceWarningLevelRatio`` the store
takes no more messages until there is room again. The newest file and what is not flushed never go. A reader that
holds slices of a file that goes can read them to the end: the name is removed, the bytes live until it lets go.

With ``archiveGroup`` a file goes only if every message in it is archived. What happens when the disk is full and
the archiver is behind is ``archiveFullPolicy``'s business: such files stay, and at last the store takes no more; or
they go when files go whatever their age, and an error names what is lost.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.store.config import DELETE
from orbitmq.store.log_files import FileRemoval
from orbitmq.store.retention_archive import ArchivedLog

if TYPE_CHECKING:
    from orbitmq.store.message_store import MessageStore
    from orbitmq.store.pace import Pace
    from orbitmq.store.service import RunBlocking

logger = logging.getLogger(__name__)

MANUAL_ROUNDS = 20
"""Rounds for which a request by hand is honoured, as in RocketMQ: one round may not remove all there is."""

HOUR_MS = 3_600_000

Blocking: TypeAlias = Callable[[], None]
Steps: TypeAlias = "Generator[Blocking | None, None, RetentionReport]"
"""A round, which hands out what waits for the disk and goes on when that is done. None lets others go first."""


@dataclasses.dataclass(slots=True)
class RetentionReport:
    """What one round removed."""

    reason: str = ""
    """Why files could go; empty if there was none."""
    log_files: list[str] = dataclasses.field(default_factory=list)
    queue_files: int = 0
    index_files: int = 0
    waits: str = ""
    """Why a file stays that could go: it is not archived."""


class Retention:
    """Removes what has expired from a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.archived = ArchivedLog(store)
        self._waits = ""
        self._told_at: int | None = None
        self._manual_rounds = 0
        config = store.config
        self._max_used = _clamp(config.disk_max_used_space_ratio, 10, 95)
        self._forcibly = _clamp(config.disk_space_clean_forcibly_ratio, 30, 85)
        self._warning = _clamp(config.disk_space_warning_level_ratio, 35, 90)

    def request(self) -> None:
        """Remove expired files now, without waiting for the hour."""
        self._manual_rounds = MANUAL_ROUNDS

    def run(self) -> RetentionReport:
        """One round, in one go."""
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
        """One round, with the waiting elsewhere and what is long in slices."""
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
        at_any_age = used > min(self._forcibly, self._warning) and config.clean_file_forcibly_enable
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
                age = 0 if found is None else found.mtime_ms
                if not (at_any_age or age <= expired_before) or base + files.file_size > self._removable_end():
                    break
                if not self._may_go(base, path, at_any_age, report):
                    break
                yield from self._remove(base)
                report.log_files.append(path)
            if files.start > start:
                yield from self._following(report)
        except BaseException:
            # Also when the disk refuses to go on: no queue may lead to what is gone.
            if files.start > start:
                self._follow(report)
            raise
        finally:
            self._waits = report.waits
        return report

    def _remove(self, base: int) -> Generator[Blocking | None, None, None]:
        # Mapped, because whoever reads meanwhile would no longer find the name.
        self._store.log.files.mapped(base)
        removal = FileRemoval(self._store.log.files, base)
        try:
            yield removal.run
        finally:
            removal.finish()
        yield removal.let_go

    def _may_go(self, base: int, path: str, at_any_age: bool, report: RetentionReport) -> bool:
        """Whether a file is archived, or has to go all the same."""
        end = base + self._store.log.files.file_size
        if self.archived.reaches(end):
            return True
        if at_any_age and self._store.config.archive_full_policy == DELETE:
            self.archived.tell_lost(path, end)
            return True
        report.waits = self.archived.reason()
        now = self._store.clock.now_ms()
        if self._told_at is None or now - self._told_at >= HOUR_MS:
            self._told_at = now
            logger.warning("%s could be removed but stays: %s", path, report.waits)
        return False

    def _removable_end(self) -> int:
        store = self._store
        return min(store.log.flushed, store.dispatcher.position)

    def _follow(self, report: RetentionReport) -> None:
        """Let queues and index forget what the log no longer has."""
        for _ in self._following(report):
            pass

    def _following(self, report: RetentionReport) -> Generator[Blocking | None, None, None]:
        """``_follow`` with a turn for others after each queue.

        Queues that nobody touched follow when they are opened: their smallest offset is found from the log.
        """
        store = self._store
        start = store.log.start
        for queue in list(store.queues.opened()):
            topic = store.queues.topics.get(queue.topic)
            if topic is not None and topic.queues.get(queue.queue_id) is queue:  # not deleted meanwhile
                report.queue_files += queue.expire(start)
            yield None
        if store.index is not None:
            report.index_files = len(store.index.delete_before(start))

    def used_ratio(self) -> float:
        """How full the disks are: the emptiest of the log's, or the queues' if that is fuller."""
        store = self._store
        log = min(store.disk.space(path).ratio for path in store.config.commit_log_dirs)
        return max(log, store.disk.space(store.config.path("consumequeue")).ratio)

    def _gate(self, used: float) -> None:
        gate = self._store.appender.gate
        if used > self._warning:
            archive = f", or archive: {self._waits}" if self._waits else ""
            gate.close(
                "disk",
                f"the disk is {used:.0%} full, messages are taken up to {self._warning:.0%}: free space{archive}",
            )
        elif used <= self._forcibly:
            gate.open("disk")

    def _reason(self, used: float) -> str:
        if used > min(self._max_used, self._forcibly, self._warning):
            return f"the disk is {used:.0%} full"
        if self._manual_rounds:
            return "asked for"
        if self._store.clock.hour() in self._store.config.delete_hours:
            return f"it is {self._store.clock.hour():02d} o'clock"
        return ""


def _clamp(percent: int, low: int, high: int) -> float:
    return min(max(percent, low), high) / 100
