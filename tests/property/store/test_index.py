"""The index for any keys, any batches and any damage."""

from __future__ import annotations

import os
import struct
import tempfile
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.protocol.java import index_hashes
from orbitmq.store.index import index_file
from orbitmq.store.index.format import HEADER_SIZE, IndexHeader, file_size
from orbitmq.store.index.index_file import IndexFile
from orbitmq.store.index.key_index import KeyIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.native.buffer import Buffer

FOREVER = (1 << 63) - 1
T0 = 1_700_000_000_000
SLOTS = 7
ENTRIES = 120


class MemoryMap:
    """A mapped file that is only memory."""

    def __init__(self, data: bytes = bytes(file_size(SLOTS, ENTRIES))) -> None:
        self.path = "memory"
        self.size = len(data)
        self.buffer: Buffer = bytearray(data)

    def reserve(self, start: int, end: int) -> None:
        assert 0 <= start < end <= self.size

    def warm(self, start: int, end: int, *, is_synced_often: bool = False) -> None: ...

    def expect_reading(self) -> None: ...

    def is_in_memory(self, start: int, end: int) -> bool:
        return True

    def fetch(self, parts: Sequence[tuple[int, int]]) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


def in_memory(data: bytes = bytes(file_size(SLOTS, ENTRIES))) -> IndexFile:
    return IndexFile(MemoryMap(data), SLOTS, ENTRIES, writable=True)


def contents(file: IndexFile) -> bytes:
    return bytes(file.mapped.buffer[:])


hashes = st.one_of(st.integers(0, 12), st.integers(0, 0x7FFFFFFF))
times = st.one_of(st.integers(T0 - 10_000, T0 + 100_000), st.integers(0, 1 << 52))
puts = st.lists(st.tuples(hashes, st.integers(0, (1 << 63) - 1), times), max_size=140)


noisy_slots = st.lists(st.one_of(st.just(0), st.integers(-2, 50)), min_size=SLOTS, max_size=SLOTS)


@given(puts, st.lists(st.integers(1, 60), max_size=10), st.tuples(st.integers(-1, 1 << 50), times), noisy_slots)
def test_a_batch_makes_the_bytes_that_single_puts_make(
    entries: list[tuple[int, int, int]], cuts: list[int], before: tuple[int, int], slots: list[int]
) -> None:
    previous = IndexHeader(end_offset=before[0], end_timestamp=before[1])

    def fresh() -> IndexFile:
        data = bytearray(file_size(SLOTS, ENTRIES))
        struct.pack_into(f">{SLOTS}i", data, HEADER_SIZE, *slots)
        file = in_memory(bytes(data))
        file.inherit(previous)
        return file

    one_by_one, batched, together = fresh(), fresh(), fresh()
    for key_hash, offset, timestamp in entries:
        one_by_one.put([key_hash], [offset], [timestamp])
    start = 0
    for size in [*cuts, len(entries)]:
        batch = entries[start : start + min(size, batched.room)]
        start += len(batch)
        if batch:
            columns = list(zip(*batch, strict=True))
            batched.put(np.array(columns[0], np.int32), np.array(columns[1], np.int64), columns[2])
    assert contents(batched) == contents(one_by_one)
    assert batched.header == one_by_one.header
    rows = list(zip(*entries, strict=True)) or [(), (), ()]
    assert together.put(rows[0], rows[1], rows[2]) == min(len(entries), ENTRIES - 1)
    assert contents(together) == contents(one_by_one)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5000)), max_size=ENTRIES - 1),
    st.integers(0, 20),
    st.integers(0, 10),
    st.integers(-5000, 300_000),
    st.integers(-5000, 300_000),
    st.integers(0, 8),
)
def test_lookups_agree_with_lists_of_offsets(
    steps: list[tuple[int, int]], wanted: int, max_num: int, begin: int, end: int, walk_limit: int
) -> None:
    file = in_memory()
    model: dict[int, list[tuple[int, int]]] = {}
    timestamp = begins = T0 + (steps[0][1] if steps else 0)
    stamps = []
    for offset, (key_hash, step) in enumerate(steps):
        timestamp += step if offset else 0
        stamps.append(timestamp)
        # What is kept of a time is the whole seconds since the first entry.
        model.setdefault(key_hash, []).append((offset, begins + (timestamp - begins) // 1000 * 1000))
    assert file.put([key_hash for key_hash, _ in steps], range(len(steps)), stamps) == len(steps)
    low, high = begins + begin, begins + end
    expected = [offset for offset, stored in reversed(model.get(wanted, [])) if low <= stored <= high]
    assert file.lookup(wanted, max_num, low, high) == expected[:max_num]
    assert file.lookup(wanted, max_num, low, high, walk_limit=walk_limit) == expected[:max_num]
    assert file.find_damage() is None


damage = st.lists(st.tuples(st.integers(0, file_size(SLOTS, ENTRIES) - 1), st.binary(min_size=1, max_size=24)))


@given(puts, damage, hashes, st.integers(-(1 << 63), FOREVER), st.integers(-(1 << 63), FOREVER), st.integers(0, 5))
def test_no_damage_makes_a_file_hang_or_raise(
    entries: list[tuple[int, int, int]],
    damaged: list[tuple[int, bytes]],
    wanted: int,
    begin: int,
    end: int,
    walk_limit: int,
) -> None:
    file = in_memory()
    for key_hash, offset, timestamp in entries:
        file.put([key_hash], [offset], [timestamp])
    data = bytearray(contents(file))
    for at, noise in damaged:
        data[at : at + len(noise)] = noise[: len(data) - at]
    hurt = in_memory(bytes(data))
    for _ in range(2):
        for key_hash in [wanted, *(entry[0] for entry in entries)]:
            for limit in (walk_limit, index_file.WALK_LIMIT):
                assert len(hurt.lookup(key_hash, 64, begin, end, walk_limit=limit)) <= 64
                assert len(hurt.lookup(key_hash, 64, 0, FOREVER, walk_limit=limit)) <= 64
        assert hurt.count_at_end(5) <= ENTRIES
        assert len(list(hurt.entries())) < ENTRIES
        hurt.find_damage()
        room = hurt.room
        assert hurt.put([wanted] * 3, [7] * 3, [T0] * 3) == min(3, room)
        assert hurt.put(range(50), range(50), [T0] * 50) == min(50, max(0, room - 3))


@given(st.binary(min_size=file_size(SLOTS, ENTRIES), max_size=file_size(SLOTS, ENTRIES)), hashes, st.integers(0, 5))
@settings(max_examples=50)
def test_noise_instead_of_a_file_makes_no_lookup_hang_or_raise(noise: bytes, wanted: int, walk_limit: int) -> None:
    file = in_memory(noise)
    file.lookup(wanted, 64, 0, FOREVER)
    file.lookup(wanted, 64, -FOREVER, FOREVER, walk_limit=walk_limit)
    file.find_damage()


class StillClock:
    def now_ms(self) -> int:
        return T0

    def monotonic(self) -> float:
        return self.now_ms() / 1000

    def hour(self) -> int:
        return 12

    def stamp(self) -> str:
        return "20240229120000000"


words = st.binary(max_size=6).map(lambda data: data.replace(b"\1", b"").replace(b"\2", b""))
records = st.lists(
    st.tuples(
        st.sampled_from(["a", "b#c", "ü"]),
        st.none() | words,
        st.none() | st.lists(words, max_size=6).map(b" ".join),
        st.none() | words,
    ),
    max_size=25,
)


def keys_of(topic: str, uniq_key: bytes | None, keys: bytes | None, tags: bytes | None) -> list[bytes]:
    """What the index has of a record, in its order."""
    found = [*([uniq_key] if uniq_key else []), *[key for key in (keys or b"").split(b" ") if key]]
    return [f"{topic}#".encode() + key for key in [*found, *([b"T#" + tags] if tags else [])]]


@given(records, st.lists(st.sampled_from(["flush", "reopen", "again", "hashes", "query", "none"]), max_size=25))
@settings(max_examples=40, deadline=None)
def test_how_records_are_grouped_and_replayed_does_not_change_the_files(
    rows: list[tuple[str, bytes | None, bytes | None, bytes | None]], actions: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk = LocalDisk()

        def opened(name: str) -> KeyIndex:
            index = KeyIndex(
                disk, StillClock(), f"{directory}/{name}", slots=5, entries=9, max_pending=6, max_mapped=1
            )
            index.load(True, 0)
            return index

        plain = opened("plain")
        mixed = opened("mixed")
        for number, (topic, uniq_key, keys, tags) in enumerate(rows):
            plain.add(topic.encode(), number * 100, T0 + number * 700, uniq_key, keys, tags)
        for number, (topic, uniq_key, keys, tags) in enumerate(rows):
            mixed.add(topic, number * 100, T0 + number * 700, uniq_key, keys, tags)
            action = actions[number] if number < len(actions) else "none"
            if action == "flush":
                mixed.flush_pending()
            elif action == "query":
                mixed.query("a", b"x", 64, 0, FOREVER)
            elif action == "reopen":
                mixed.close()
                mixed = opened("mixed")
            elif action == "again":
                for earlier, row in enumerate(rows[: number + 1]):
                    mixed.add(row[0], earlier * 100, T0 + earlier * 700, *row[1:])
            elif action == "hashes":
                for earlier, row in enumerate(rows[: number + 2]):
                    entries = index_hashes(keys_of(*row))
                    mixed.add_hashes(entries, np.full(len(entries), earlier * 100), T0 + earlier * 700)
        for topic, uniq_key, keys, tags in rows:
            for key in [uniq_key, *(keys or b"").split(b" ")]:
                if key:
                    assert mixed.query(topic, key, 64, 0, FOREVER) == plain.query(topic, key, 64, 0, FOREVER)
                    assert mixed.query(topic, key, 64, 0, FOREVER).offsets
            if tags:
                assert mixed.query(topic, tags, 64, 0, FOREVER, "T").offsets
        plain.close()
        mixed.close()
        names = disk.list(f"{directory}/plain")
        assert disk.list(f"{directory}/mixed") == names
        for name in names:
            assert disk.read(f"{directory}/plain/{name}") == disk.read(f"{directory}/mixed/{name}")
        disk.close()
    assert not os.path.exists(directory)
