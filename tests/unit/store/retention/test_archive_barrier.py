"""Retention asks the archive: which log files stay until their messages are archived, and what a full disk does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from orbitmq.platform.settings import ConfigError
from orbitmq.store import AppendRefusedError, StoreConfig
from orbitmq.store.retention import archive_barrier as module
from orbitmq.store.retention.retention import Retention
from support.store.aged_store import HOUR, PER_FILE, SIZE, Aged, aged
from support.store.stores import LOG_FILE, TOPIC, read_all, send

GROUP = "ARCHIVERS"


class Offsets:
    """What groups have committed, and how often somebody asked."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str, int], int] = {}
        self.asked = 0

    def query(self, group: str, topic: str, queue_id: int) -> int:
        self.asked += 1
        return self.of.get((group, topic, queue_id), -1)

    def commit(self, offset: int, topic: str = TOPIC, queue_id: int = 0, group: str = GROUP) -> None:
        self.of[group, topic, queue_id] = offset


def archiving(files: int = 4, **settings: Any) -> tuple[Aged, Retention, Offsets]:
    """A store with old files and a retention that knows an archive group."""
    it = aged(files, **{"archive_group": GROUP, **settings})
    it.clock.advance(73 * HOUR)
    offsets = Offsets()
    retention = Retention(it.store)
    retention.archived.committed = offsets.query
    retention.request()
    return it, retention, offsets


# What stays


def test_unarchived_files_are_never_removed() -> None:
    it, retention, _ = archiving()
    report = retention.run()
    assert report.log_files == []
    assert report.waits == f"{GROUP} has not archived all of queue 0 of {TOPIC!r}"
    assert it.files() == 4
    it.store.close()


def test_without_a_group_no_offsets_are_queried() -> None:
    it, retention, offsets = archiving(archive_group="")
    assert len(retention.run().log_files) == 3
    assert offsets.asked == 0
    it.store.close()


@pytest.mark.parametrize("archived", range(3 * PER_FILE + 2))
def test_only_files_of_which_every_message_is_archived_go(archived: int) -> None:
    it, retention, offsets = archiving()
    offsets.commit(archived)
    assert len(retention.run().log_files) == archived // PER_FILE
    # One by one, as the archive goes on.
    for offset in range(archived, 3 * PER_FILE + 2):
        offsets.commit(offset)
        retention.run()
        assert it.store.log.start == offset // PER_FILE * LOG_FILE
    it.store.close()


def test_another_group_archives_nothing() -> None:
    it, retention, offsets = archiving()
    offsets.commit(100, group="somebody")
    assert retention.run().log_files == []
    it.store.close()


def test_the_queue_that_is_most_behind_decides() -> None:
    it, retention, offsets = archiving(files=2)
    send(it.store, PER_FILE, size=SIZE, queue_id=1)
    send(it.store, 3 * PER_FILE, size=SIZE, topic="Other")
    it.store.flush()
    it.clock.advance(73 * HOUR)
    files = it.files()
    offsets.commit(it.store.max_offset(TOPIC, 0))
    offsets.commit(it.store.max_offset("Other", 0), topic="Other")
    assert len(retention.run().log_files) == 1
    offsets.commit(it.store.max_offset(TOPIC, 1), queue_id=1)
    retention.run()
    assert it.files() == 1 < files
    it.store.close()


@pytest.mark.parametrize("kind", ["%RETRY%group", "%DLQ%group", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"])
def test_topics_outside_the_pattern_hold_nothing_back(kind: str) -> None:
    it, retention, offsets = archiving(files=1)
    offsets.commit(100)
    send(it.store, 3 * PER_FILE, size=SIZE, topic=kind)
    it.store.flush()
    it.clock.advance(73 * HOUR)
    offsets.commit(it.store.max_offset(TOPIC, 0))
    assert len(retention.run().log_files) == 3
    it.store.close()


@pytest.mark.parametrize(
    ("pattern", "goes"), [("Other", 3), ("Topic.*", 0), ("Topic", 3), ("%DLQ%.*|Other", 3), (".*", 0)]
)
def test_a_pattern_selects_the_topics_to_archive(pattern: str, goes: int) -> None:
    it, retention, _ = archiving(archive_topics=pattern)
    assert len(retention.run().log_files) == goes
    it.store.close()


def test_dead_letters_are_retained_if_the_pattern_matches_them() -> None:
    it, retention, offsets = archiving(files=1, archive_topics="%DLQ%.*")
    dead = "%DLQ%group"
    send(it.store, 3 * PER_FILE, size=SIZE, topic=dead)
    it.store.flush()
    it.clock.advance(73 * HOUR)
    assert retention.run().log_files == []
    offsets.commit(3 * PER_FILE, topic=dead)
    assert len(retention.run().log_files) == 3
    it.store.close()


def test_a_topic_that_is_deleted_holds_nothing_any_more() -> None:
    it, retention, _ = archiving()
    assert retention.run().log_files == []
    it.store.delete_topic(TOPIC)
    assert len(retention.run().log_files) == 3
    it.store.close()


def test_a_queue_that_is_shorter_than_what_was_archived_counts_from_its_first_message() -> None:
    it, retention, offsets = archiving()
    offsets.commit(1000)
    assert retention.run().log_files == []
    it.store.close()


def test_unopened_queues_hold_files_back_too() -> None:
    it, _, _ = archiving()
    it.store.close()
    it.reopen()
    offsets = Offsets()
    retention = Retention(it.store)
    retention.archived.committed = offsets.query
    retention.request()
    assert retention.run().log_files == []
    offsets.commit(2 * PER_FILE)
    assert len(retention.run().log_files) == 2
    it.store.close()


def test_settings_can_change_while_it_runs() -> None:
    it, retention, offsets = archiving()
    assert retention.run().log_files == []
    it.store.config.archive_group = "others"
    offsets.commit(PER_FILE, group="others")
    assert len(retention.run().log_files) == 1
    it.store.config.archive_topics = "nothing"
    assert len(retention.run().log_files) == 2
    it.store.close()


# How much work it is


def test_no_offsets_are_queried_while_no_file_is_removable() -> None:
    it, retention, offsets = archiving(file_reserved_time=1000)
    retention.run()
    assert offsets.asked == 0
    it.store.close()


def test_while_the_archive_stalls_only_one_queue_is_checked() -> None:
    it, retention, offsets = archiving(files=1)
    offsets.commit(1)
    for queue_id in range(1, 50):
        send(it.store, 1, size=SIZE, queue_id=queue_id)
        offsets.commit(0 if queue_id == 1 else 1, queue_id=queue_id)
    it.store.flush()
    it.clock.advance(73 * HOUR)
    assert retention.run().log_files == []
    offsets.asked = 0
    for _ in range(10):
        retention.run()
    assert offsets.asked == 10
    offsets.commit(1, queue_id=1)
    assert len(retention.run().log_files) == 10
    it.store.close()


def test_many_queues_are_checked_in_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUES_PER_ROUND", 20)
    it, retention, offsets = archiving(files=1)
    offsets.commit(1)
    for queue_id in range(1, 50):
        send(it.store, 1, size=SIZE, queue_id=queue_id)
        offsets.commit(1, queue_id=queue_id)
    it.store.flush()
    it.clock.advance(73 * HOUR)
    removed = [len(retention.run().log_files) for _ in range(3)]
    assert removed == [0, 0, 10]
    it.store.close()


def test_messages_appended_during_the_check_do_not_count_as_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUEUES_PER_ROUND", 1)
    it, retention, offsets = archiving(files=2)
    offsets.commit(PER_FILE + 1)
    send(it.store, 1, size=SIZE, queue_id=1)
    offsets.commit(1, queue_id=1)
    assert retention.run().log_files == []
    # One queue is looked at already when it gets messages that fill files.
    send(it.store, 3 * PER_FILE, size=SIZE, queue_id=1)
    it.store.flush()
    it.clock.advance(73 * HOUR)
    for _ in range(5):
        retention.run()
    assert it.store.log.start == LOG_FILE
    assert len(read_all(it.store, queue_id=1)) == 3 * PER_FILE + 1
    it.store.close()


# When the disk is full


@pytest.mark.parametrize("policy", ["", "keep"])
def test_a_full_disk_retains_unarchived_files_and_refuses_messages(policy: str) -> None:
    it, retention, offsets = archiving(archive_full_policy=policy)
    it.disk.used = 95
    for _ in range(2):
        assert retention.run().log_files == []
    with pytest.raises(AppendRefusedError, match=f"95% full.*free space, or archive: {GROUP} has not archived"):
        send(it.store)
    # The archiver comes back: files go, and there is room again.
    offsets.commit(it.store.max_offset(TOPIC, 0))
    assert len(retention.run().log_files) == 3
    it.disk.used = 50
    retention.run()
    send(it.store)
    it.store.close()


def test_a_full_disk_removes_what_is_not_archived_if_that_is_the_policy(caplog: pytest.LogCaptureFixture) -> None:
    it, retention, offsets = archiving(archive_full_policy="delete")
    offsets.commit(PER_FILE + 1)
    it.disk.used = 86
    with caplog.at_level(logging.ERROR):
        assert len(retention.run().log_files) == 3
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    start, end = PER_FILE + 1, 2 * PER_FILE
    assert f"{GROUP} has not archived: the offsets {start} to {end - 1} of queue 0 of {TOPIC!r}" in lines[0]
    assert f"{LOG_FILE:020d}" in lines[0]
    assert f"{2 * LOG_FILE:020d}" in lines[1]
    it.store.close()


def test_below_the_ratio_of_forced_cleaning_that_policy_keeps_them_too() -> None:
    it, retention, _ = archiving(archive_full_policy="delete")
    it.disk.used = 80
    assert retention.run().log_files == []
    it.store.close()


def test_a_file_held_back_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    it, retention, _ = archiving()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            retention.run()
        assert [record.getMessage() for record in caplog.records] == [
            f"retention: {it.store.log.files.path(0)} could be removed but stays: "
            f"{GROUP} has not archived all of queue 0 of {TOPIC!r}"
        ]
        it.clock.advance(HOUR)
        retention.run()
        assert len(caplog.records) == 2
    it.store.close()


# Settings


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"archiveTopics=\( is no regular expression"):
        StoreConfig(archive_topics="(")
    with pytest.raises(ConfigError, match="archiveFullPolicy=drop: keep or delete is expected"):
        StoreConfig(archive_full_policy="drop")
