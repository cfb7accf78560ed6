"""The key index over its row of files: what it finds, after crashes, and on bad disks."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.local_mapped_file import LocalMappedFile
from orbitmq.protocol.java import index_hash
from orbitmq.store.errors import DiskFaultError, FlushFailedError, StoreDamagedError
from orbitmq.store.index.format import file_size
from orbitmq.store.index.key_index import IndexHits, KeyIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[..., KeyIndex]

FOREVER = (1 << 63) - 1
T0 = 1_700_000_000_000


class StillClock:
    """A clock that stands until it is set."""

    def __init__(self, name: str = "20240229120000000") -> None:
        self.name = name

    def now_ms(self) -> int:
        return T0

    def monotonic(self) -> float:
        return self.now_ms() / 1000

    def hour(self) -> int:
        return 12

    def stamp(self) -> str:
        return self.name


class WatchedMap(LocalMappedFile):
    def __init__(self, path: str, disk: WatchedDisk, *, writable: bool) -> None:
        super().__init__(path, writable=writable)
        self._disk = disk

    def reserve(self, start: int, end: int) -> None:
        if self._disk.room is not None:
            if self._disk.room < end - start:
                raise OSError(errno.ENOSPC, "No space left on device")
            self._disk.room -= end - start
        super().reserve(start, end)

    def sync(self) -> None:
        if self._disk.refuse_sync:
            raise OSError(errno.EIO, "Input/output error")
        self._disk.synced.append(os.path.basename(self.path))
        super().sync()

    def close(self) -> None:
        self._disk.mapped.discard(self)
        super().close()


class WatchedDisk(LocalDisk):
    """A local disk that tells what is mapped and synced, and can be full or failing."""

    def __init__(self) -> None:
        super().__init__()
        self.mapped: set[WatchedMap] = set()
        self.synced: list[str] = []
        self.room: int | None = None
        self.refuse_sync = False
        self.refuse_map = False

    def map(self, path: str, *, writable: bool = True) -> WatchedMap:
        if self.refuse_map:
            raise OSError(errno.EMFILE, "Too many open files")
        mapped = WatchedMap(path, self, writable=writable)
        self.mapped.add(mapped)
        return mapped

    def sync_dir(self, directory: str) -> None:
        self.synced.append("directory")
        super().sync_dir(directory)


@pytest.fixture
def disk() -> Iterator[WatchedDisk]:
    disk = WatchedDisk()
    yield disk
    assert not disk.mapped
    disk.close()


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def open_index(disk: WatchedDisk, clock: StillClock, tmp_path: Path) -> Iterator[Open]:
    opened: list[KeyIndex] = []

    def open_index(
        directory: str | None = None, *, clean: bool = True, checkpoint: int = 0, **settings: int
    ) -> KeyIndex:
        index = KeyIndex(
            disk, clock, directory or str(tmp_path / "index"), **{"slots": 500, "entries": 2000, **settings}
        )
        opened.append(index)
        index.load(clean, checkpoint)
        return index

    yield open_index
    disk.room = None
    disk.refuse_sync = disk.refuse_map = False
    for index in opened:
        with contextlib.suppress(FlushFailedError):
            index.close()


def files_in(directory: str) -> list[bytes]:
    contents = []
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            contents.append(file.read())
    return contents


def hits(index: KeyIndex, topic: str, key: str, index_type: str | None = None) -> list[int]:
    return index.query(topic, key, 64, 0, FOREVER, index_type).offsets


def add_plain(index: KeyIndex, *offsets: int, keys: bytes = b"k") -> None:
    for offset in offsets:
        index.add(b"t", offset, T0 + offset, b"u%d" % offset, keys, None)


def test_a_record_is_found_by_each_of_its_keys_and_its_tag(open_index: Open) -> None:
    index = open_index()
    index.add("Topïc", 100, T0, b"unique", " one two  thrée ".encode(), "täg".encode())
    for key in ("unique", "one", "two", "thrée"):
        assert hits(index, "Topïc", key) == [100], key
        assert index.query("Topïc".encode(), key.encode(), 1, 0, FOREVER).offsets == [100]
    assert hits(index, "Topïc", "täg", "T") == [100]
    assert hits(index, "Topïc", "täg") == []
    assert hits(index, "Topïc", "") == []
    assert hits(index, "Topic", "one") == []
    order = [entry.key_hash for _, entry in index.entries()]
    texts = ("unique", "one", "two", "thrée", "T#täg")
    assert order == [index_hash("Topïc#" + text) for text in texts]


def test_other_index_types_than_the_tag_ask_for_keys(open_index: Open) -> None:
    index = open_index()
    index.add(b"t", 100, T0, b"unique", b"key", b"tag")
    assert hits(index, "t", "unique", "U") == hits(index, "t", "key", "K") == hits(index, "t", "key", "") == [100]


def test_a_record_without_keys_leaves_no_trace(open_index: Open, tmp_path: Path) -> None:
    index = open_index()
    index.add(b"t", 100, T0, None, None, None)
    index.add(b"t", 200, T0, b"", b"  ", b"")
    index.flush_pending()
    assert not (tmp_path / "index").exists()
    assert index.query("t", "", 1, 0, FOREVER) == IndexHits([], 0, 0)
    index.sync()
    assert index.flushed_timestamp == 0


def test_a_query_sees_what_was_just_added_and_is_capped(open_index: Open) -> None:
    index = open_index(max_results=3)
    add_plain(index, 10, 20, 30, 40, 50)
    assert index.pending == 5
    assert index.query("t", "k", 64, 0, FOREVER) == IndexHits([50, 40, 30], T0 + 50, 50)
    assert index.pending == 0
    assert index.query("t", "k", 2, 0, FOREVER).offsets == [50, 40]
    assert index.query("t", "k", 0, 0, FOREVER).offsets == []


def test_records_before_the_newest_indexed_one_are_skipped(open_index: Open) -> None:
    index = open_index()
    add_plain(index, 10, 30)
    index.flush_pending()
    add_plain(index, 20, 30, 40, 35, 40)
    assert hits(index, "t", "k") == [40, 30, 10]
    assert hits(index, "t", "u20") == hits(index, "t", "u35") == []


def test_adding_more_than_may_wait_puts_what_waits(open_index: Open) -> None:
    index = open_index(max_pending=10)
    for number in range(25):
        add_plain(index, number * 10)
        assert index.pending <= 10
    assert len(hits(index, "t", "k")) == 25


def test_a_message_with_thousands_of_keys_is_put_whole(open_index: Open) -> None:
    index = open_index()
    keys = [b"%d" % number for number in range(9000)]
    index.add(b"t", 1, T0, None, b" ".join(keys), None)
    index.add(b"t", 2, T0, None, b" ".join(keys), None)
    index.flush_pending()
    offsets = [entry.offset for _, entry in index.entries()]
    assert offsets == [1] * 9000 + [2] * 9000
    assert hits(index, "t", "8999") == [2, 1]
    assert [file.find_damage() for _, file in index.files()] == [None] * 10


def test_a_full_file_is_followed_by_one_with_a_later_name_even_if_the_clock_stands(
    open_index: Open, clock: StillClock, tmp_path: Path
) -> None:
    index = open_index(entries=4)
    add_plain(index, 1, 2, 3)
    index.flush_pending()
    assert sorted(os.listdir(tmp_path / "index")) == ["20240229120000000", "20240229120000001"]
    clock.name = "20230101000000000"
    add_plain(index, 4, 5)
    assert hits(index, "t", "k") == [5, 4, 3, 2, 1]
    assert sorted(os.listdir(tmp_path / "index")) == [f"2024022912000000{n}" for n in range(4)]
    clock.name = "20240229120000999"
    add_plain(index, 6, 7)
    index.flush_pending()
    assert max(os.listdir(tmp_path / "index")) == "20240229120000999"


def test_time_bounds_choose_among_files(open_index: Open) -> None:
    index = open_index(entries=5)
    for number in range(20):
        index.add(b"t", number, T0 + number * 1000, None, b"k", None)
    assert index.query("t", "k", 64, T0 + 3000, T0 + 6000).offsets == [6, 5, 4, 3]
    assert index.query("t", "k", 2, T0 + 3000, T0 + 6000).offsets == [6, 5]
    assert index.query("t", "k", 64, T0 + 18_000, FOREVER).offsets == [19, 18]
    assert index.query("t", "k", 64, 0, T0 + 1000).offsets == [1, 0]
    assert index.query("t", "k", 64, T0 + 20_000, FOREVER).offsets == []
    assert index.query("t", "k", 64, T0 + 5000, T0 + 4000).offsets == []


def test_old_files_are_mapped_on_demand_up_to_a_limit(disk: WatchedDisk, open_index: Open) -> None:
    index = open_index(entries=3, max_mapped=2)
    for number in range(20):
        index.add(b"t", number, T0 + number * 1000, None, b"k", None)
        index.flush_pending()
        assert len(disk.mapped) <= 4
    index.close()
    assert not disk.mapped
    again = open_index(entries=3, max_mapped=2)
    assert not disk.mapped
    assert again.query("t", "k", 1, 0, FOREVER).offsets == [19]
    assert len(disk.mapped) == 1
    assert again.query("t", "k", 64, 0, FOREVER).offsets == list(range(19, -1, -1))
    assert len(disk.mapped) <= 4


def test_a_loaded_index_continues_in_its_last_file(open_index: Open, tmp_path: Path) -> None:
    whole = open_index(str(tmp_path / "whole"), entries=7)
    for number in range(10):
        add_plain(whole, number)
        broken = open_index(entries=7)
        add_plain(broken, number)
        broken.close()
    whole.close()
    assert files_in(str(tmp_path / "index")) == files_in(str(tmp_path / "whole"))


def test_a_record_split_over_two_files_is_completed_when_only_the_first_survived(
    open_index: Open, tmp_path: Path
) -> None:
    index = open_index(entries=4)
    add_plain(index, 1, 2)
    index.close()
    sound = files_in(str(tmp_path / "index"))
    assert len(sound) == 2
    os.remove(tmp_path / "index" / "20240229120000001")
    again = open_index(entries=4)
    add_plain(again, 1, 2)
    again.close()
    assert files_in(str(tmp_path / "index")) == sound


def test_expired_files_are_deleted_but_never_the_newest(open_index: Open, tmp_path: Path) -> None:
    index = open_index(entries=3)
    add_plain(index, 10, 20, 30, 40)
    index.flush_pending()
    assert index.delete_before(20) == ["20240229120000000"]
    assert index.delete_before(20) == []
    assert hits(index, "t", "k") == [40, 30, 20]
    assert index.delete_before(FOREVER) == ["20240229120000001", "20240229120000002"]
    assert os.listdir(tmp_path / "index") == ["20240229120000003"]
    assert hits(index, "t", "k") == [40]


def test_entries_past_the_end_of_a_shortened_log_are_deleted_with_their_files(open_index: Open) -> None:
    index = open_index(entries=3)
    add_plain(index, 10, 20, 30, 40)
    index.sync()
    assert index.delete_from(30) == ["20240229120000003", "20240229120000002"]
    assert index.end_offset == 20
    assert index.flushed_timestamp == T0 + 20
    add_plain(index, 10, 20, 30)
    assert hits(index, "t", "k") == [30, 20, 10]


def test_destroying_leaves_nothing_and_building_starts_over(open_index: Open, tmp_path: Path) -> None:
    index = open_index(entries=3)
    add_plain(index, 10, 20, 30)
    index.sync()
    add_plain(index, 40)
    index.destroy()
    assert os.listdir(tmp_path / "index") == []
    assert (index.pending, index.end_offset, index.flushed_timestamp) == (0, 0, 0)
    add_plain(index, 5)
    assert hits(index, "t", "k") == [5]


def test_what_is_no_index_file_is_left_alone(open_index: Open, tmp_path: Path) -> None:
    (tmp_path / "index" / "20240101000000000").mkdir(parents=True)
    (tmp_path / "index" / "notes.txt").write_text("mine")
    index = open_index()
    add_plain(index, 1)
    index.close()
    assert sorted(os.listdir(tmp_path / "index")) == ["20240101000000000", "20240229120000000", "notes.txt"]


def test_a_file_of_another_size_stops_the_load(open_index: Open, tmp_path: Path) -> None:
    index = open_index()
    add_plain(index, 1)
    index.close()
    with pytest.raises(StoreDamagedError, match=re.escape(str(tmp_path / "index" / "20240229120000000"))):
        open_index(entries=2001)


def test_a_file_that_lost_its_size_is_deleted_and_so_are_those_behind_it(open_index: Open, tmp_path: Path) -> None:
    index = open_index()
    add_plain(index, 1)
    index.close()
    (tmp_path / "index" / "20240301000000000").touch()
    assert hits(open_index(), "t", "k") == [1]
    assert os.listdir(tmp_path / "index") == ["20240229120000000"]
    (tmp_path / "index" / "20240101000000000").touch()
    assert hits(open_index(), "t", "k") == []
    assert os.listdir(tmp_path / "index") == []


def test_a_file_that_was_only_just_created_begins_where_the_one_before_ended(
    disk: WatchedDisk, open_index: Open, tmp_path: Path
) -> None:
    index = open_index(entries=5)
    add_plain(index, 1, 2)
    index.close()
    disk.create(str(tmp_path / "index" / "20240301000000000"), file_size(500, 5))
    again = open_index(entries=5)
    assert again.end_offset == 2
    add_plain(again, 1, 2, 3)
    assert hits(again, "t", "k") == [3, 2, 1]
    again.close()
    third = open_index(entries=5, clean=False, checkpoint=T0 + 3)
    assert hits(third, "t", "k") == [3, 2, 1]


def test_after_a_crash_only_files_up_to_the_checkpoint_are_retained(open_index: Open, tmp_path: Path) -> None:
    index = open_index(entries=5)
    add_plain(index, 1, 2, 3, 4, 5)
    index.close()
    names = sorted(os.listdir(tmp_path / "index"))
    assert len(names) == 3
    again = KeyIndex(LocalDisk(), StillClock(), str(tmp_path / "index"), slots=500, entries=5)
    assert again.load(False, T0 + 4) == names[2:]
    assert (again.end_offset, again.flushed_timestamp) == (4, T0 + 4)
    assert again.load(False, T0 + 1) == names[:2]
    assert (again.end_offset, again.flushed_timestamp) == (0, 0)
    again.close()


def test_after_a_crash_no_file_is_retained_behind_a_deleted_one(
    disk: WatchedDisk, open_index: Open, tmp_path: Path
) -> None:
    index = open_index(entries=3)
    for offset, timestamp in ((1, T0), (2, T0 + 900), (3, T0 + 5)):
        index.add(b"t", offset, timestamp, b"u", b"k", None)
    index.close()
    again = KeyIndex(disk, StillClock(), str(tmp_path / "index"), slots=500, entries=3)
    assert again.load(False, T0 + 10) == ["20240229120000001", "20240229120000002"]
    assert again.end_offset == 1
    again.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_newest_file_half_on_disk_is_deleted_after_a_crash(clean: bool, open_index: Open, tmp_path: Path) -> None:
    index = open_index()
    add_plain(index, 1, 2, 3)
    index.close()
    with open(tmp_path / "index" / "20240229120000000", "r+b") as file:
        file.seek(40 + 4 * 500 + 20 * 5)
        file.write(bytes(20))
    again = open_index(clean=clean, checkpoint=T0 + 3)
    assert len(os.listdir(tmp_path / "index")) == clean
    assert again.end_offset == 3 * clean


def test_a_sync_is_split_so_that_a_worker_can_block(disk: WatchedDisk, open_index: Open) -> None:
    index = open_index(entries=5)
    add_plain(index, 1, 2, 3)
    index.flush_pending()
    sync = index.begin_sync()
    assert not disk.synced
    add_plain(index, 4)
    index.flush_pending()
    assert index.delete_before(FOREVER) == []
    sync.run()
    assert disk.synced == ["20240229120000000", "20240229120000001", "directory"]
    assert index.flushed_timestamp == 0
    index.end_sync(sync)
    assert index.flushed_timestamp == T0 + 3
    disk.synced.clear()
    index.sync()
    assert disk.synced == ["20240229120000001"]
    assert index.flushed_timestamp == T0 + 4
    index.sync()
    assert disk.synced == ["20240229120000001"]
    assert index.delete_before(FOREVER) == ["20240229120000000"]


def test_after_a_failed_sync_nothing_counts_as_flushed_any_more(disk: WatchedDisk, open_index: Open) -> None:
    index = open_index()
    add_plain(index, 1)
    index.sync()
    add_plain(index, 2)
    disk.refuse_sync = True
    with pytest.raises(FlushFailedError, match="Input/output error"):
        index.sync()
    assert index.flushed_timestamp == T0 + 1
    disk.refuse_sync = False
    index.sync()
    assert index.flushed_timestamp == T0 + 1
    assert hits(index, "t", "k") == [2, 1]
    with pytest.raises(FlushFailedError, match="earlier sync"):
        index.close()
    assert not disk.mapped


def test_a_full_disk_keeps_what_waits_and_changes_no_file(
    disk: WatchedDisk, open_index: Open, tmp_path: Path
) -> None:
    index = open_index(slots=10, entries=4, max_pending=8)
    add_plain(index, 1)
    index.flush_pending()
    before = files_in(str(tmp_path / "index"))
    # Enough for one new file, but the eight keys need three.
    disk.room = 200
    add_plain(index, 2, 3, 4, 5)
    with pytest.raises(DiskFaultError, match="No space left on device; free space"):
        index.flush_pending()
    assert files_in(str(tmp_path / "index")) == before
    assert (index.pending, index.end_offset) == (4, 1)
    assert index.query("t", "k", 64, 0, FOREVER) == IndexHits([1], T0 + 1, 1)
    add_plain(index, 6, 7, 8, 9)
    with pytest.raises(DiskFaultError):
        add_plain(index, 10)
    assert index.pending == 8
    disk.room = None
    assert hits(index, "t", "k") == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    index.close()
    whole = open_index(str(tmp_path / "whole"), slots=10, entries=4)
    add_plain(whole, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    whole.close()
    assert files_in(str(tmp_path / "index")) == files_in(str(tmp_path / "whole"))


def test_a_disk_that_cannot_map_is_a_disk_fault(disk: WatchedDisk, open_index: Open) -> None:
    index = open_index()
    add_plain(index, 1)
    index.close()
    again = open_index()
    disk.refuse_map = True
    with pytest.raises(DiskFaultError, match="Too many open files"):
        hits(again, "t", "k")
    add_plain(again, 2)
    with pytest.raises(DiskFaultError, match="Too many open files"):
        again.flush_pending()
    disk.refuse_map = False
    assert hits(again, "t", "k") == [2, 1]


def test_settings_that_make_no_file_are_refused(disk: WatchedDisk, clock: StillClock) -> None:
    for settings in ({"slots": 0}, {"entries": 1}, {"entries": 1 << 31}, {"max_pending": 0}, {"max_mapped": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            KeyIndex(disk, clock, "index", **settings)
