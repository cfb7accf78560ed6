"""Index files: their bytes beside RocketMQ's, their links, and what they do when disk or bytes are bad."""

from __future__ import annotations

import dataclasses
import errno
import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from orbitmq.platform.clock import SystemClock
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.local_mapped_file import LARGE_PAGE, LocalMappedFile
from orbitmq.protocol.java import index_hash
from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.errors import StoreDamagedError
from orbitmq.store.index import index_file
from orbitmq.store.index.entries import FEW
from orbitmq.store.index.format import IndexEntry, IndexHeader, file_size
from orbitmq.store.index.index_file import AHEAD_STEP, IndexFile
from orbitmq.store.index.key_index import IndexHits, KeyIndex
from support.store import golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Create = Callable[..., IndexFile]
    Open = Callable[..., KeyIndex]

FOREVER = (1 << 63) - 1
T0 = 1_700_000_000_000
ROLLED_BACK = 0xC


class ThriftyMap(LocalMappedFile):
    """A map that remembers which bytes were reserved and refuses more when told to."""

    def __init__(self, path: str, *, writable: bool) -> None:
        super().__init__(path, writable=writable)
        self.reserved = bytearray(self.size)
        self.full = False

    def reserve(self, start: int, end: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().reserve(start, end)
        self.reserved[start:end] = b"\1" * (end - start)


class ThriftyDisk(LocalDisk):
    def map(self, path: str, *, writable: bool = True) -> ThriftyMap:
        return ThriftyMap(path, writable=writable)


@pytest.fixture
def disk() -> Iterator[ThriftyDisk]:
    disk = ThriftyDisk()
    yield disk
    disk.close()


@pytest.fixture
def create(disk: ThriftyDisk, tmp_path: Path) -> Iterator[Create]:
    made: list[IndexFile] = []

    def create(slots: int = 10, entries: int = 100, name: str = "20240101000000000") -> IndexFile:
        made.append(IndexFile.create(disk, str(tmp_path / name), slots, entries))
        return made[-1]

    yield create
    for file in made:
        file.close()


def contents(file: IndexFile) -> bytes:
    return bytes(file.mapped.buffer[:])


def test_the_bytes_of_two_puts_are_as_rocketmq_writes_them(create: Create) -> None:
    file = create(slots=3, entries=4)
    assert file.put([7, 4], [1000, 2000], [T0, T0 + 2500]) == 2
    assert contents(file) == b"".join(
        (
            struct.pack(">qqqqii", T0, T0 + 2500, 1000, 2000, 1, 3),
            struct.pack(">iii", 0, 2, 0),
            bytes(20),
            struct.pack(">iqii", 7, 1000, 0, 0),
            struct.pack(">iqii", 4, 2000, 2, 1),
            bytes(20),
        )
    )


def test_a_key_lies_in_the_slot_of_its_hash(create: Create) -> None:
    file = create(slots=5_000_000, entries=2)
    key_hash = index_hash("TopicTest#KEY1")
    assert key_hash == 1656969516
    file.put([key_hash], [5], [T0])
    assert file.mapped.buffer[40 + 4 * 1969516 : 44 + 4 * 1969516] == struct.pack(">i", 1)


@pytest.mark.parametrize("name", golden.SETS)
def test_files_of_rocketmq_are_read_and_found_sound(name: str, tmp_path: Path) -> None:
    disk = LocalDisk()
    directory = os.path.join(golden.unpack(name, tmp_path), "index")
    headers = [row for row in golden.expected_index(name) if row["type"] == "header"]
    assert [row["file"] for row in headers] == disk.list(directory)
    for row in headers:
        file = IndexFile.open(disk, os.path.join(directory, row["file"]), 500, 2000, writable=False)
        assert file.header == IndexHeader(
            begin_timestamp=row["beginTimestamp"],
            end_timestamp=row["endTimestamp"],
            begin_offset=row["beginPhyOffset"],
            end_offset=row["endPhyOffset"],
            used_slots=row["hashSlotCount"],
            next_entry=row["indexCount"],
        )
        assert file.header.encode() == file.mapped.buffer[:40]
        assert file.find_damage() is None
        file.close()


def test_put_returns_how_many_entries_fit(create: Create) -> None:
    file = create(slots=5, entries=8)
    assert file.put(range(5), range(5), [T0] * 5) == 5
    assert file.put(range(5), range(5, 10), [T0] * 5) == 2
    assert file.put([1], [10], [T0]) == 0
    assert file.room == 0
    assert [entry.offset for entry in file.entries()] == list(range(7))
    assert file.find_damage() is None


def test_lookup_gives_the_newest_first_and_stops_when_there_are_enough(create: Create) -> None:
    file = create()
    file.put([3, 13, 3, 3], [10, 20, 30, 40], [T0, T0, T0, T0])
    assert file.lookup(3, 64, 0, FOREVER) == [40, 30, 10]
    assert file.lookup(3, 2, 0, FOREVER) == [40, 30]
    assert file.lookup(3, 0, 0, FOREVER) == []
    assert file.lookup(13, 64, 0, FOREVER) == [20]
    assert file.lookup(23, 64, 0, FOREVER) == []
    assert file.lookup(4, 64, 0, FOREVER) == []


def test_lookup_keeps_to_the_time_asked_for_in_whole_seconds(create: Create) -> None:
    file = create()
    file.put([3] * 4, [10, 20, 30, 40], [T0, T0 + 1999, T0 + 2000, T0 + 9000])
    for walk_limit in (64, 1, 0):
        assert file.lookup(3, 64, T0 + 1000, T0 + 2000, walk_limit=walk_limit) == [30, 20]
        assert file.lookup(3, 64, T0 + 1000, T0 + 1999, walk_limit=walk_limit) == [20]
        assert file.lookup(3, 64, T0 + 1001, FOREVER, walk_limit=walk_limit) == [40, 30]
        assert file.lookup(3, 64, 0, T0, walk_limit=walk_limit) == [10]
        assert file.lookup(3, 64, T0 + 9001, FOREVER, walk_limit=walk_limit) == []


def test_times_before_the_first_or_too_far_behind_it_are_clamped(create: Create) -> None:
    file = create()
    file.put([1, 1, 1], [1, 2, 3], [T0, T0 - 5000, T0 + (1 << 31) * 1000])
    assert [entry.timestamp for entry in file.entries()] == [T0, T0, T0 + 0x7FFFFFFF * 1000]
    assert file.header.end_timestamp == T0 + (1 << 31) * 1000


def test_a_file_that_follows_another_begins_where_that_ended(create: Create) -> None:
    file = create()
    file.inherit(IndexHeader(begin_timestamp=1, end_timestamp=T0, begin_offset=5, end_offset=900, next_entry=100))
    assert file.header == IndexHeader(T0, T0, 900, 900, 0, 1)
    file.put([1, 2], [1000, 1001], [T0 + 7000, T0 + 9000])
    assert file.header == IndexHeader(T0 + 7000, T0 + 9000, 1000, 1001, 2, 3)
    # The first entry was put when the file still began at the end of the one before.
    assert struct.unpack_from(">i", file.mapped.buffer, 40 + 40 + 20 + 12) == (7,)
    assert struct.unpack_from(">i", file.mapped.buffer, 40 + 40 + 40 + 12) == (2,)


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_everything_stored_was_reserved_before(count: int, create: Create) -> None:
    file = create(slots=50, entries=200)
    mapped = file.mapped
    assert isinstance(mapped, ThriftyMap)
    assert mapped.reserved.count(1) == 40 + 200
    file.put(range(count), range(count), [T0] * count)
    stored = np.frombuffer(contents(file), np.uint8) != 0
    assert not (stored & (np.frombuffer(bytes(mapped.reserved), np.uint8) == 0)).any()


@pytest.mark.parametrize("count", [FEW, FEW + 1])
def test_a_refusal_of_space_changes_nothing(count: int, disk: ThriftyDisk, create: Create, tmp_path: Path) -> None:
    file = create(slots=50, entries=200)
    file.put([1, 2, 3], [1, 2, 3], [T0] * 3)
    # Opened anew, the file has nothing reserved, as one that RocketMQ left with holes.
    again = IndexFile.open(disk, file.mapped.path, 50, 200)
    before = contents(again)
    header = again.header.encode()
    mapped = again.mapped
    assert isinstance(mapped, ThriftyMap)
    mapped.full = True
    with pytest.raises(OSError, match="No space left"):
        again.put(range(count), range(4, 4 + count), [T0] * count)
    assert contents(again) == before
    assert again.header.encode() == header
    mapped.full = False
    assert again.put(range(count), range(4, 4 + count), [T0] * count) == count
    assert again.find_damage() is None
    again.close()


def test_space_is_reserved_in_large_steps(create: Create) -> None:
    file = create(slots=10, entries=200_000)
    mapped = file.mapped
    assert isinstance(mapped, ThriftyMap)
    file.put([1], [1], [T0])
    mapped.full = True
    assert file.put([1] * 50_000, range(50_000), [T0] * 50_000) == 50_000
    with pytest.raises(OSError, match="No space left"):
        file.put([1] * 50_000, range(50_000), [T0] * 50_000)


def test_space_is_preallocated_for_a_busy_file(create: Create, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "BUSY_ENTRIES", 100)
    monkeypatch.setattr(index_file, "RESERVE_AHEAD", 0)
    entries = 600_000
    file = create(slots=10, entries=entries)
    mapped = file.mapped
    assert isinstance(mapped, ThriftyMap)
    file.put([1] * 99, range(99), [T0] * 99)
    assert file.wants_space() is None
    file.put([1], [99], [T0])
    own = file.wants_space()
    assert own is not None
    file.keep_space(own())
    owned = mapped.reserved.rindex(1) + 1
    # Whole large pages, so that none of them reaches beyond what is owned.
    assert owned % LARGE_PAGE == 0
    assert owned >= AHEAD_STEP
    mapped.full = True
    count = file.ready
    assert count == (owned - 40 - 10 * 4) // 20 - 101
    assert file.put([1] * count, range(count), [T0] * count) == count
    with pytest.raises(OSError, match="No space left"):
        file.put([1], [1], [T0])
    mapped.full = False
    while (own := file.wants_space()) is not None:
        file.keep_space(own())
    assert file.ready == file.room
    file.put([1] * file.room, range(file.room), [T0] * file.room)
    assert file.wants_space() is None


def test_creating_on_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    class FullMap(ThriftyMap):
        def __init__(self, path: str, *, writable: bool) -> None:
            super().__init__(path, writable=writable)
            self.full = True

    class FullDisk(LocalDisk):
        def map(self, path: str, *, writable: bool = True) -> FullMap:
            return FullMap(path, writable=writable)

    with pytest.raises(OSError, match="No space left"):
        IndexFile.create(FullDisk(), str(tmp_path / "20240101000000000"), 10, 10)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_size_is_refused_with_the_settings_that_made_it_so(
    disk: ThriftyDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "20240101000000000")
    disk.create(path, file_size(10, 10) + 1)
    with pytest.raises(StoreDamagedError, match="maxHashSlotNum=10 and maxIndexNum=10 make 280"):
        IndexFile.open(disk, path, 10, 10)


def test_a_circle_of_links_ends_a_lookup(create: Create) -> None:
    file = create(slots=1)
    file.put([3, 4, 5], [10, 20, 30], [T0] * 3)
    entries_at = 40 + 4
    struct.pack_into(">i", file.mapped.buffer, entries_at + 20 + 16, 3)
    assert file.lookup(3, 64, 0, FOREVER) == [10]
    assert file.lookup(9, 64, 0, FOREVER) == []
    assert file.find_damage() == "links are wrong from entry 1 on"


@pytest.mark.parametrize("link", [-1, 4, 5, 100, 0x7FFFFFFF, -0x80000000])
def test_a_slot_that_leads_nowhere_is_empty(link: int, create: Create) -> None:
    file = create(slots=1)
    file.put([3, 4, 5], [10, 20, 30], [T0] * 3)
    struct.pack_into(">i", file.mapped.buffer, 40, link)
    assert file.lookup(5, 64, 0, FOREVER) == []
    assert file.find_damage() == "the slot table does not fit the entries"
    file.put([5], [40], [T0])
    assert file.lookup(5, 64, 0, FOREVER) == [40]


def test_a_negative_time_ends_a_lookup(create: Create) -> None:
    file = create(slots=1)
    file.put([3, 3, 3], [10, 20, 30], [T0] * 3)
    struct.pack_into(">i", file.mapped.buffer, 44 + 40 + 12, -1)
    assert file.lookup(3, 64, 0, FOREVER) == [30]
    assert file.lookup(3, 64, 0, FOREVER, walk_limit=0) == [30]


def test_a_count_beyond_the_file_makes_it_full_and_harms_nothing(disk: ThriftyDisk, create: Create) -> None:
    file = create(slots=2, entries=5)
    file.put([1, 1], [10, 20], [T0] * 2)
    struct.pack_into(">i", file.mapped.buffer, 36, 1_000_000)
    again = IndexFile.open(disk, file.mapped.path, 2, 5)
    assert again.put([1], [30], [T0]) == 0
    assert again.lookup(1, 64, 0, FOREVER) == [20, 10]
    assert len(list(again.entries())) == 4
    assert again.find_damage() == "counts 1000000 entries of 5"
    again.close()


def test_lost_pages_are_found(create: Create) -> None:
    file = create(slots=5)
    file.put(range(20), range(100, 120), [T0] * 20)
    sound = contents(file)
    for start, end, damage in (
        (60 + 20, 60 + 40, "offsets go backwards"),
        (60 + 20 * 20, 60 + 20 * 21, "offsets go backwards"),
        (40, 60, "slot table"),
        (24, 32, "ends with offset"),
    ):
        file.mapped.buffer[:] = sound
        file.mapped.buffer[start:end] = bytes(end - start)
        file.header = IndexHeader.decode(file.mapped.buffer[:40])
        found = file.find_damage()
        assert found is not None
        assert damage in found


def test_a_long_chain_is_searched_in_blocks_with_the_same_result(create: Create) -> None:
    count = 150_000
    file = create(slots=7, entries=count + 1)
    hashes = np.arange(count, dtype=np.int32) % 11
    offsets = np.arange(count, dtype=np.int64) * 100
    timestamps = T0 + np.arange(count, dtype=np.int64) * 10
    assert file.put(hashes, offsets, timestamps) == count
    for key_hash, max_num, begin, end in (
        (3, 64, 0, T0 + 1000),
        (3, 64, 0, FOREVER),
        (4, 100_000, 0, FOREVER),
        (4, 100_000, T0 + 70_000, T0 + 900_000),
        (18, 64, 0, FOREVER),
        (3, 5, T0 + 2_000_000, FOREVER),
    ):
        walked = file.lookup(key_hash, max_num, begin, end, walk_limit=count)
        assert file.lookup(key_hash, max_num, begin, end) == walked
        assert file.lookup(key_hash, max_num, begin, end, walk_limit=0) == walked
    in_order = [number * 100 for number in range(count) if number % 11 == 4]
    assert file.lookup(4, count, 0, FOREVER) == in_order[::-1]


def test_entries_are_listed_in_order_with_their_links(create: Create) -> None:
    file = create(slots=3)
    file.put([7, 4, 5], [1000, 2000, 3000], [T0, T0 + 2500, T0 + 3000])
    assert list(file.entries()) == [
        IndexEntry(1, 7, 1000, T0, 0),
        IndexEntry(2, 4, 2000, T0 + 2000, 1),
        IndexEntry(3, 5, 3000, T0 + 3000, 0),
    ]
    assert file.count_at_end(3000) == 1
    assert file.count_at_end(2000) == 0


# The files a key index makes


@pytest.fixture
def open_index(disk: ThriftyDisk, tmp_path: Path) -> Iterator[Open]:
    opened: list[KeyIndex] = []

    def open_index(directory: str | None = None, *, clean: bool = True, checkpoint: int = 0) -> KeyIndex:
        index = KeyIndex(disk, SystemClock(), directory or str(tmp_path / "index"), slots=500, entries=2000)
        opened.append(index)
        index.load(clean, checkpoint)
        return index

    yield open_index
    for index in opened:
        index.close()


def add_row(index: KeyIndex, row: dict[str, Any]) -> None:
    if row.get("blank") or row.get("undecodable") or row.get("survives") is False:
        return
    if row["sysFlag"] & ROLLED_BACK == ROLLED_BACK:
        return
    found: dict[str, bytes] = {name: value.encode() for name, value in row["properties"].items()}
    index.add(
        row["topic"].encode(),
        row["physicalOffset"],
        row["storeTimestamp"],
        found.get("UNIQ_KEY"),
        found.get("KEYS"),
        found.get("TAGS"),
    )


def files_in(directory: str) -> list[bytes]:
    contents = []
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            contents.append(file.read())
    return contents


@pytest.mark.parametrize("flush_every", [1, 7, 10_000])
@pytest.mark.parametrize("name", ["basic", "extra", "ipv6"])
def test_an_index_built_from_the_records_is_the_one_rocketmq_built(
    name: str, flush_every: int, open_index: Open, tmp_path: Path
) -> None:
    theirs = files_in(os.path.join(golden.unpack(name, tmp_path), "index"))
    index = open_index()
    for number, row in enumerate(golden.expected_records(name)):
        add_row(index, row)
        if number % flush_every == 0:
            index.flush_pending()
    index.close()
    assert files_in(str(tmp_path / "index")) == theirs


def test_an_index_that_lags_the_log_is_a_prefix(open_index: Open, tmp_path: Path) -> None:
    theirs = files_in(os.path.join(golden.unpack("killed", tmp_path), "index"))
    index = open_index()
    for row in golden.expected_records("killed"):
        if row["physicalOffset"] <= 735404:
            add_row(index, row)
    index.close()
    assert files_in(str(tmp_path / "index")) == theirs


@pytest.mark.parametrize("name", golden.SETS)
def test_queries_find_what_rocketmq_finds(name: str, disk: ThriftyDisk, open_index: Open, tmp_path: Path) -> None:
    store = golden.unpack(name, tmp_path)
    clean = disk.stat(os.path.join(store, "abort")) is None
    checkpoint = Checkpoint.load(disk, os.path.join(store, "checkpoint"))
    index = open_index(os.path.join(store, "index"), clean=clean, checkpoint=checkpoint.index_msg_timestamp)
    if not clean:
        for row in golden.expected_records(name):
            add_row(index, row)
    queries = [row for row in golden.expected_index(name) if row["type"] == "query"]
    assert {row["keyKind"] for row in queries} == {"KEYS", "UNIQ_KEY", "TAGS"}
    for row in queries:
        found = index.query(row["topic"], row["key"], 64, 0, FOREVER, row["indexType"])
        assert found == IndexHits(
            row["indexOffsets"], row["indexLastUpdateTimestamp"], row["indexLastUpdatePhyoffset"]
        ), row["key"]


@pytest.mark.parametrize("name", ["killed", "torn"])
def test_after_a_crash_the_file_past_the_checkpoint_is_built_again_without_doubled_keys(
    name: str, disk: ThriftyDisk, open_index: Open, tmp_path: Path
) -> None:
    store = golden.unpack(name, tmp_path)
    headers = [row for row in golden.expected_index(name) if row["type"] == "header"]
    recovered = [row for row in golden.expected_index(name) if row["type"] == "headerAfterRecovery"]
    checkpoint = Checkpoint.load(disk, os.path.join(store, "checkpoint"))
    index = KeyIndex(disk, SystemClock(), os.path.join(store, "index"), slots=500, entries=2000)
    assert index.load(False, checkpoint.index_msg_timestamp) == [headers[-1]["file"]]
    assert index.end_offset == headers[-2]["endPhyOffset"] == 548816
    assert index.flushed_timestamp == headers[-2]["endTimestamp"]
    for row in golden.expected_records(name):
        add_row(index, row)
    index.flush_pending()
    found = [(name, dataclasses.replace(file.header)) for name, file in index.files()]
    assert [name for name, _ in found][:-1] == [row["file"] for row in recovered][:-1]
    newest = found[-1][1]
    # RocketMQ writes the one key of record 548816 that the file before already has a second time.
    assert newest.next_entry == recovered[-1]["indexCount"] - 1
    assert newest.begin_timestamp == recovered[-1]["beginTimestamp"]
    assert newest.begin_offset == recovered[-1]["beginPhyOffset"]
    assert newest.end_timestamp == recovered[-1]["endTimestamp"]
    assert newest.end_offset == recovered[-1]["endPhyOffset"]
    index.close()
    never_crashed = open_index()
    for row in golden.expected_records(name):
        add_row(never_crashed, row)
    never_crashed.close()
    assert files_in(os.path.join(store, "index")) == files_in(str(tmp_path / "index"))


def test_the_doubled_key_is_all_that_sets_rocketmqs_recovered_file_apart(
    disk: ThriftyDisk, open_index: Open, tmp_path: Path
) -> None:
    index = open_index()
    for row in golden.expected_records("killed"):
        add_row(index, row)
    index.flush_pending()
    newest = max(os.listdir(tmp_path / "index"))
    ours = [entry for name, entry in index.entries() if name == newest]
    records = [row for row in golden.expected_records("killed") if "storeTimestamp" in row]
    times = {row["physicalOffset"]: row["storeTimestamp"] for row in records}
    split = next(row for row in records if row["physicalOffset"] == 548816)
    doubled = index_hash(split["topic"] + "#" + split["properties"]["UNIQ_KEY"])
    theirs = IndexFile.create(disk, str(tmp_path / "theirs"), 500, 2000)
    theirs.put(
        [doubled, *(entry.key_hash for entry in ours)],
        [548816, *(entry.offset for entry in ours)],
        [times[offset] for offset in [548816, *(entry.offset for entry in ours)]],
    )
    expected = [row for row in golden.expected_index("killed") if row["type"] == "headerAfterRecovery"][-1]
    assert theirs.header.used_slots == expected["hashSlotCount"]
    assert theirs.header.next_entry == expected["indexCount"]
    theirs.close()
