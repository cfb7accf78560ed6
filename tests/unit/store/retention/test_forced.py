"""Forced cleaning on a disk that is too full: no more files than are needed, oldest first, each one logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.platform.disk import Space
from orbitmq.store.retention.retention import Retention
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import LOG_FILE, T0, open_small, send

if TYPE_CHECKING:
    import pytest

    from orbitmq.store import MessageStore

SIZE = 3000
"""Of a message that has a log file to itself."""
WHOLE = 100 * LOG_FILE


class FillingDisk(MemoryDisk):
    """A disk of 100 log files of which other programs use a part; ``is_late`` frees removed files only later."""

    def __init__(self, clock: ManualClock, others: int) -> None:
        super().__init__(clock=clock)
        self.others = others
        self.is_late = False
        self.seen = 0

    def space(self, path: str) -> Space:
        if not self.is_late or not self.seen:
            self.seen = len(self.list("/store/commitlog"))
        used = (self.others + self.seen) * LOG_FILE
        return Space(WHOLE, used, WHOLE - used)


def filled(others: int, files: int = 10) -> tuple[MessageStore, FillingDisk]:
    clock = ManualClock(T0)
    disk = FillingDisk(clock, others)
    store = open_small("/store", disk=disk, clock=clock)
    send(store, files, size=SIZE)
    store.flush()
    clock.advance(5000)
    assert len(disk.list("/store/commitlog")) == files
    return store, disk


def test_only_as_many_files_go_as_bring_the_disk_back_to_the_limit() -> None:
    store, _ = filled(others=78)
    report = Retention(store).run()
    assert report.reason == "the disk is 88% full"
    assert len(report.log_files) == len(report.forced_files) == 3
    assert store.log.start == 3 * LOG_FILE
    assert Retention(store).run().log_files == []
    store.close()


def test_each_file_is_logged_with_its_age_and_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = filled(others=77)
    with caplog.at_level(logging.WARNING):
        Retention(store).run()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0] == (
        f"retention: removed log file /store/commitlog/{0:020d} of 4096 bytes before fileReservedTime=72 h, its "
        "newest message is 5 s old: the disk was 87% full, limit 85% (diskSpaceCleanForciblyRatio)"
    )
    store.close()


def test_space_that_is_freed_late_does_not_cost_more_files() -> None:
    store, disk = filled(others=78)
    disk.is_late = True
    assert len(Retention(store).run().log_files) == 3
    disk.is_late = False
    assert Retention(store).run().log_files == []
    store.close()


def test_the_newest_file_stays_however_full_the_disk_is() -> None:
    store, disk = filled(others=89)
    retention = Retention(store)
    for _ in range(3):
        retention.run()
    assert disk.list("/store/commitlog") == [f"{9 * LOG_FILE:020d}"]
    store.close()


def test_queues_on_a_full_disk_of_their_own_cost_one_log_file_in_a_round() -> None:
    class QueuesElsewhere(FillingDisk):
        def space(self, path: str) -> Space:
            return Space(50, 45, 5) if path.endswith("consumequeue") else super().space(path)

    clock = ManualClock(T0)
    disk = QueuesElsewhere(clock, 0)
    store = open_small("/store", disk=disk, clock=clock)
    send(store, 6, size=SIZE)
    store.flush()
    retention = Retention(store)
    assert [len(retention.run().log_files) for _ in range(3)] == [1, 1, 1]
    store.close()
