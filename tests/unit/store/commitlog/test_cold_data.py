"""What of the log is fetched before it is read: windows for those who read on, single records for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.store import GetStatus
from orbitmq.store import reader as reading
from orbitmq.store.commitlog import cold_data as cold_log
from support.store.cold_disk import ColdDisk
from support.store.stores import TOPIC, open_small, send, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.store import MessageStore
    from orbitmq.store.commitlog.cold_data import Range

WINDOW = 2048
BODY = 400
FILE = 5 * WINDOW


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_log, "WINDOW", WINDOW)
    monkeypatch.setattr(cold_log, "NEAR", 0)
    monkeypatch.setattr(reading, "NEAR", 0)


@pytest.fixture
def ahead() -> list[Range]:
    """What was to be fetched ahead."""
    return []


@pytest.fixture
def store(tmp_path: Path, ahead: list[Range]) -> Iterator[MessageStore]:
    with open_small(tmp_path, disk=ColdDisk(), mapped_file_size_commit_log=FILE) as store:
        store.reader.cold.fetch_ahead = ahead.append
        yield store


def gap(store: MessageStore, offset: int = 0, most: int = 1) -> list[Range]:
    result = store.get(TOPIC, 0, offset, most, may_wait=True)
    assert result.cold_ranges or result.status is GetStatus.FOUND
    assert not (result.cold_ranges and result.slices)
    return result.cold_ranges or []


def fetch(store: MessageStore, ranges: list[Range]) -> None:
    store.reader.cold.fetching(ranges)()


def test_without_a_fetcher_reads_never_wait(store: MessageStore) -> None:
    send(store, size=BODY)
    store.reader.cold.fetch_ahead = None
    assert gap(store) == []


def test_who_cannot_wait_reads_at_once(store: MessageStore) -> None:
    send(store, size=BODY)
    assert len(served(store.get(TOPIC, 0, 0))) == 1


def test_what_is_missing_is_the_window_around_the_record(store: MessageStore) -> None:
    send(store, 8, size=BODY)
    assert gap(store) == [(0, WINDOW)]
    fetch(store, gap(store))
    assert gap(store) == []


def test_the_last_window_ends_where_the_log_does(store: MessageStore) -> None:
    send(store, 2, size=BODY)
    assert gap(store) == [(0, store.log.committed)]


def test_records_over_two_windows_want_both(store: MessageStore) -> None:
    send(store, 12, size=BODY)
    assert gap(store, most=5) == [(0, WINDOW), (WINDOW, 2 * WINDOW)]
    fetch(store, [(0, WINDOW)])
    assert gap(store, most=5) == [(WINDOW, 2 * WINDOW)]


def test_windows_are_those_of_one_file(store: MessageStore) -> None:
    send(store, 40, size=BODY)
    for offset in range(40):
        for start, end in gap(store, offset, 2):
            assert start // FILE == (end - 1) // FILE
            fetch(store, [(start, end)])
        assert gap(store, offset, 2) == []


def test_who_reads_on_finds_the_next_window_fetched(store: MessageStore, ahead: list[Range]) -> None:
    send(store, 16, size=BODY)
    fetch(store, gap(store))
    assert ahead == []
    gap(store)
    gap(store, 1)
    assert ahead == [(WINDOW, 2 * WINDOW)]
    fetch(store, ahead)
    assert gap(store, 4) == []
    assert ahead[1:] == [(2 * WINDOW, 3 * WINDOW)]


def test_of_records_far_from_each_other_only_themselves_are_fetched(store: MessageStore) -> None:
    for _ in range(4):
        send(store, size=BODY)
        send(store, 8, topic="Others", size=BODY)
    found = gap(store, most=4)
    records = served(store.get(TOPIC, 0, 0, 4))
    assert found == [(record.physical_offset, record.physical_offset + record.size) for record in records]
    fetch(store, found[:3])
    assert gap(store, most=4) == found[3:]
    fetch(store, found[3:])
    assert gap(store, most=4) == []


def test_filters_examine_resident_records(store: MessageStore) -> None:
    send(store, 3, size=BODY)
    looked: list[int] = []

    def matches(record: memoryview) -> bool:
        looked.append(len(record))
        return True

    result = store.get(TOPIC, 0, 0, matches_record=matches, may_wait=True)
    assert (result.cold_ranges, looked) == ([(0, store.log.committed)], [])
    fetch(store, result.cold_ranges or [])
    assert store.get(TOPIC, 0, 0, matches_record=matches, may_wait=True).count == len(looked) == 3


def test_records_near_the_end_count_as_resident(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NEAR", 1 << 20)
    send(store, 3, size=BODY)
    assert gap(store) == []


def test_what_another_process_has_written_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NEAR", 1 << 20)
    with open_small(tmp_path, mapped_file_size_commit_log=FILE) as before:
        send(before, 3, size=BODY)
    with open_small(tmp_path, disk=ColdDisk(), mapped_file_size_commit_log=FILE) as store:
        store.reader.cold.fetch_ahead = lambda _: None
        assert gap(store) == [(0, store.log.committed)]
