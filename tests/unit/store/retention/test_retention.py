"""Retention: which log files go, and when."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.store import AppendRefusedError, PutStatus, StoredMessage
from orbitmq.store.retention.retention import MANUAL_ROUNDS, Retention
from orbitmq.testing import ManualClock
from support.store.aged_store import HOUR, PER_FILE, SIZE, GivenSpace, aged
from support.store.stores import LOG_FILE, SYNC, T0, TOPIC, offsets_of, open_small, read_all, send

TO_FOUR = 6 * HOUR
"""The clock of these tests starts at 22:13; so much later it is past four, when files are deleted."""


# When files go


def test_expired_files_wait_for_the_hour_of_deletion() -> None:
    it = aged()
    it.clock.advance(73 * HOUR)
    assert it.clock.hour() == 23
    assert Retention(it.store).run().log_files == []
    it.clock.advance(5 * HOUR)
    report = Retention(it.store).run()
    assert it.clock.hour() == 4
    assert report.reason == "it is 04 o'clock"
    assert len(report.log_files) == 3
    assert it.files() == 1
    it.store.close()


def test_files_that_are_not_old_enough_stay() -> None:
    it = aged()
    it.clock.advance(TO_FOUR)
    report = Retention(it.store).run()
    assert report.reason
    assert report.log_files == []
    assert it.files() == 4
    it.store.close()


def test_the_first_file_that_is_not_old_enough_ends_a_round() -> None:
    it = aged(file_reserved_time=3)
    it.clock.advance(2 * HOUR)
    # A second file younger than the third: restored from a backup, say.
    it.disk.pwrite(f"/store/commitlog/{LOG_FILE:020d}", LOG_FILE - 1, b"\0")
    it.clock.advance(2 * HOUR)
    retention = Retention(it.store)
    retention.request()
    assert len(retention.run().log_files) == 1
    assert it.store.log.start == LOG_FILE
    it.store.close()


@pytest.mark.parametrize(("when", "hour", "goes"), [("22", 22, True), ("04;22", 22, True), ("21;23", 22, False)])
def test_any_of_several_hours_will_do(when: str, hour: int, goes: bool) -> None:
    it = aged(delete_when=when, file_reserved_time=24)
    it.clock.advance(24 * HOUR)
    assert it.clock.hour() == hour
    assert bool(Retention(it.store).run().log_files) is goes
    it.store.close()


def test_a_request_by_hand_needs_no_hour_and_holds_for_some_rounds() -> None:
    it = aged(files=MANUAL_ROUNDS + 5, delete_file_batch_max=1)
    it.clock.advance(73 * HOUR)
    retention = Retention(it.store)
    assert not retention.run().log_files
    retention.request()
    removed = [len(retention.run().log_files) for _ in range(MANUAL_ROUNDS + 2)]
    assert removed == [1] * MANUAL_ROUNDS + [0, 0]
    it.store.close()


def test_a_request_by_hand_removes_only_what_has_expired() -> None:
    it = aged()
    retention = Retention(it.store)
    retention.request()
    assert retention.run().log_files == []
    it.store.close()


def test_a_round_removes_at_most_a_batch() -> None:
    it = aged(files=8, delete_file_batch_max=3)
    it.clock.advance(72 * HOUR + TO_FOUR)
    assert [len(Retention(it.store).run().log_files) for _ in range(4)] == [3, 3, 1, 0]
    it.store.close()


# What stays


def test_the_newest_file_is_never_removed() -> None:
    it = aged(files=1)
    it.clock.advance(1000 * HOUR + TO_FOUR)
    it.disk.used = 99
    assert Retention(it.store).run().log_files == []
    assert it.files() == 1
    assert len(read_all(it.store)) == 1
    it.store.close()


def test_a_full_newest_file_stays_too() -> None:
    it = aged(files=1)
    send(it.store, 2, size=SIZE)
    it.store.append(StoredMessage(TOPIC, 0, b"x" * (LOG_FILE - it.store.log.end - 97 - 8)))
    assert it.store.log.end == LOG_FILE - 8
    it.store.flush()
    it.disk.used = 99
    assert Retention(it.store).run().log_files == []
    it.store.close()


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
def test_what_is_not_flushed_stays(settings: dict[str, Any]) -> None:
    it = aged(files=3, **settings)
    end = it.store.log.flushed
    send(it.store, 4 * PER_FILE, size=SIZE)
    it.disk.used = 86
    while Retention(it.store).run().log_files:
        pass
    assert it.store.log.start == end - end % LOG_FILE
    it.store.flush()
    while Retention(it.store).run().log_files:
        pass
    assert it.files() == 1
    it.store.close()


# By room on the disk


@pytest.mark.parametrize(
    ("used", "expired", "removed", "takes_messages"),
    [
        (75, True, 0, True),
        (76, True, 3, True),
        (76, False, 0, True),
        (85, False, 0, True),
        (86, False, 3, True),
        (90, False, 3, True),
        (91, False, 3, False),
    ],
)
def test_a_fuller_disk_lets_more_go(used: int, expired: bool, removed: int, takes_messages: bool) -> None:
    it = aged()
    it.clock.advance(73 * HOUR if expired else 0)
    it.disk.used = used
    report = Retention(it.store).run()
    assert len(report.log_files) == removed
    assert report.reason == ("" if used == 75 else f"the disk is {used}% full")
    if takes_messages:
        send(it.store)
    else:
        with pytest.raises(AppendRefusedError, match=f"the disk is {used}% full.*free space") as refused:
            send(it.store)
        assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    it.store.close()


def test_a_full_disk_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    it = aged()
    retention = Retention(it.store)
    with caplog.at_level("WARNING", logger="orbitmq"):
        for used in (91, 92, 91, 10):
            it.disk.used = used
            retention.run()
    lines = [record.getMessage() for record in caplog.records if "sends are" in record.getMessage()]
    assert lines == [
        "store: sends are refused: the disk is 91% full, refusing messages over 90%: free space",
        "store: sends are accepted again: the disk is 10% full",
    ]
    it.store.close()


def test_messages_are_accepted_again_only_with_clearly_free_space() -> None:
    it = aged()
    retention = Retention(it.store)
    taken = []
    for used in (91, 90, 86, 85, 90, 91, 10):
        it.disk.used = used
        retention.run()
        taken.append(it.store.appender.gate.reason is None)
    assert taken == [False, False, False, True, True, False, True]
    it.store.close()


def test_files_go_at_any_age_only_where_that_is_wanted() -> None:
    it = aged(clean_file_forcibly_enable=False)
    it.disk.used = 99
    assert Retention(it.store).run().log_files == []
    it.clock.advance(73 * HOUR)
    assert len(Retention(it.store).run().log_files) == 3
    it.store.close()


def test_a_store_that_refuses_messages_always_makes_room() -> None:
    """Even if the level from which it refuses is set below the one from which files go at any age."""
    it = aged(disk_space_warning_level_ratio=40, disk_max_used_space_ratio=95)
    it.disk.used = 50
    report = Retention(it.store).run()
    assert it.store.appender.gate.reason is not None
    assert len(report.log_files) == 3
    it.store.close()


def test_forced_deletion_does_not_wait_for_a_higher_ratio_of_use() -> None:
    it = aged(disk_space_clean_forcibly_ratio=50, disk_max_used_space_ratio=95)
    it.disk.used = 60
    assert len(Retention(it.store).run().log_files) == 3
    it.store.close()


def test_levels_stay_within_the_bounds_rocketmq_sets() -> None:
    it = aged(disk_max_used_space_ratio=99, disk_space_clean_forcibly_ratio=99, disk_space_warning_level_ratio=99)
    it.disk.used = 86
    assert len(Retention(it.store).run().log_files) == 3
    it.disk.used = 91
    Retention(it.store).run()
    assert it.store.appender.gate.reason is not None
    it.store.close()


def test_the_emptiest_directory_of_the_log_decides_or_that_of_the_queues() -> None:
    clock = ManualClock(T0)
    disk = GivenSpace(clock)
    store = open_small("/store", disk=disk, clock=clock, store_path_commit_log="/a/log,/b/log")
    retention = Retention(store)
    disk.used_of = {"/a/log": 95, "/b/log": 20, "consumequeue": 10}
    assert retention.used_ratio() == 0.2
    disk.used_of["consumequeue"] = 92
    assert retention.used_ratio() == 0.92
    store.close()


def test_log_files_go_from_all_their_directories() -> None:
    clock = ManualClock(T0)
    disk = GivenSpace(clock)
    settings = {"store_path_commit_log": "/a/log,/b/log"}
    store = open_small("/store", disk=disk, clock=clock, **settings)
    sent = send(store, 6 * PER_FILE, size=SIZE)
    store.flush()
    disk.used = 88
    assert len(Retention(store).run().log_files) == 5
    assert len(disk.list("/a/log") + disk.list("/b/log")) == 1
    store.close()
    with open_small("/store", disk=disk, clock=clock, **settings) as again:
        assert offsets_of(read_all(again)) == sent[-PER_FILE:]
