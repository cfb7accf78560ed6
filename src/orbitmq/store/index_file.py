"""One index file: a hash table from keys to places in the commit log, in RocketMQ's byte format.

All integers are big-endian.

==============  =====  ====================================================================================
area            bytes  contents
==============  =====  ====================================================================================
header          40     begin and end timestamp, begin and end physical offset (8 bytes each), number of slots
                       in use, number of the next entry (4 bytes each)
slots           4 x s  number of the newest entry of the slot, 0 for none
entries         20 x n  key hash (4), physical offset (8), seconds since the begin timestamp (4), number of the
                       entry before it in the same slot (4)
==============  =====  ====================================================================================

Entries are numbered from 1; entry 0 is never used. A link always leads to a smaller number, so that a walk along
links ends whatever the bytes are. The keys themselves are not stored: different keys may have the same hash, and
whoever asks compares.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.lazily import lazy_module
from orbitmq.store.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from orbitmq.store.disk import Disk, MappedFile

    Ints = npt.NDArray[np.int64]
else:
    np = lazy_module("numpy")

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20

MAX_TIME_DIFF = 0x7FFFFFFF

FEW = 32
"""Up to this many entries a plain loop (0.7 µs each) is faster than numpy (25 µs, then 0.05 µs each)."""

RESERVE_AHEAD = 1 << 20
"""Space is taken from the disk in steps of this many bytes: one system call per 50,000 entries."""

WALK_LIMIT = 4096
"""Links followed one by one before the rest of the file is searched in blocks instead.

All messages of one tag share a slot, so a chain may have millions of links; followed singly they would stop a
broker for seconds.
"""

_BLOCK = 1 << 16

_HEADER = struct.Struct(">qqqqIi")
_ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
_SLOT_TYPE = ">i4"
ENTRY_TYPE = [("hash", ">i4"), ("offset", ">i8"), ("diff", ">i4"), ("prev", ">i4")]


def file_size(slots: int, entries: int) -> int:
    """The length of every index file with these numbers of slots and entries."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


@dataclasses.dataclass(slots=True)
class IndexHeader:
    """The first 40 bytes of the file."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_entry: int = 1

    @classmethod
    def decode(cls, data: bytes | bytearray) -> IndexHeader:
        """Decode the header; a file in which nothing was ever put has a next entry of 0, which means 1."""
        header = cls(*_HEADER.unpack(data))
        header.next_entry = max(1, header.next_entry)
        return header

    def encode(self) -> bytes:
        return _HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots & 0xFFFFFFFF,
            self.next_entry,
        )

    def inherit(self, previous: IndexHeader) -> None:
        """Begin where the previous file ended, until a first entry says better."""
        if previous.end_offset > 0:
            self.begin_offset = self.end_offset = previous.end_offset
        if previous.end_timestamp > 0:
            self.begin_timestamp = self.end_timestamp = previous.end_timestamp

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether an entry of this file may have been stored from ``begin`` to ``end``."""
        return begin <= self.end_timestamp and end >= self.begin_timestamp


class IndexEntry(NamedTuple):
    """An entry as a tool sees it. The timestamp is exact to a second only."""

    number: int
    key_hash: int
    offset: int
    timestamp: int
    previous: int


class IndexFile:
    """A mapped index file.

    Not here: which file of several is written, what a key is, when a file is synced.
    """

    __slots__ = (
        "_entries",
        "_entries_at",
        "_reserved_to",
        "_slots",
        "capacity",
        "header",
        "mapped",
        "slot_count",
        "writable",
    )

    def __init__(self, mapped: MappedFile, slots: int, entries: int, *, writable: bool) -> None:
        check_size(mapped.path, mapped.size, slots, entries)
        self.mapped = mapped
        self.slot_count = slots
        self.capacity = entries
        self.writable = writable
        self._entries_at = HEADER_SIZE + slots * SLOT_SIZE
        self._slots = np.frombuffer(mapped.buffer, _SLOT_TYPE, slots, HEADER_SIZE)
        self._entries = np.frombuffer(mapped.buffer, ENTRY_TYPE, entries, self._entries_at)
        self.header = IndexHeader.decode(mapped.buffer[:HEADER_SIZE])
        # Nothing is taken for granted: a file that RocketMQ made has holes where it has not written yet.
        self._reserved_to = 0

    @classmethod
    def open(cls, disk: Disk, path: str, slots: int, entries: int, *, writable: bool = True) -> IndexFile:
        """Map an existing file."""
        mapped = disk.map(path, writable=writable)
        try:
            return cls(mapped, slots, entries, writable=writable)
        except BaseException:
            mapped.close()
            raise

    @classmethod
    def create(cls, disk: Disk, path: str, slots: int, entries: int) -> IndexFile:
        """Create an empty file and take the space of its slot table. Nothing is left behind on refusal."""
        try:
            disk.create(path, file_size(slots, entries))
            mapped = disk.map(path)
            try:
                # Before anything is read: on a tmpfs that is full, reading a hole kills the process too.
                mapped.reserve(0, HEADER_SIZE + slots * SLOT_SIZE)
                file = cls(mapped, slots, entries, writable=True)
                file.reserve(0)
            except BaseException:
                mapped.close()
                raise
        except BaseException:
            with contextlib.suppress(OSError):
                # What stays is an empty index file, which is harmless.
                disk.remove(path)
            raise
        return file

    @property
    def room(self) -> int:
        """How many more entries fit."""
        return max(0, self.capacity - self.header.next_entry)

    def reserve(self, count: int) -> int:
        """Take the disk space of the next ``count`` entries, and say how many of them fit into the file.

        ``OSError`` if the disk has no room.
        """
        count = min(count, self.room)
        needed = self._entries_at + (self.header.next_entry + count) * ENTRY_SIZE
        if needed <= self._reserved_to:
            return count
        start = self._reserved_to
        if not start:
            self.mapped.reserve(0, self._entries_at)
            start = self._entries_at + min(self.header.next_entry, self.capacity) * ENTRY_SIZE
        end = min(needed + (RESERVE_AHEAD if count else 0), self.mapped.size)
        if end > start:
            self.mapped.reserve(start, end)
        self._reserved_to = max(start, end)
        return count

    def inherit(self, previous: IndexHeader) -> None:
        """Let a file without entries begin where the previous one ended."""
        self.reserve(0)
        self.header.inherit(previous)
        self._store_header()

    def put(
        self,
        hashes: Sequence[int] | npt.NDArray[np.int32],
        offsets: Sequence[int] | Ints,
        timestamps: Sequence[int] | Ints,
    ) -> int:
        """Put entries in this order, as many as fit, and say how many did.

        ``OSError`` means the disk had no room; the file is then as before. Hashes are not negative.
        """
        count = self.reserve(len(hashes))
        if count:
            if count <= FEW:
                self._put_few(_plain(hashes[:count]), _plain(offsets[:count]), _plain(timestamps[:count]))
            else:
                self._put_many(
                    np.asarray(hashes[:count], np.int32),
                    np.asarray(offsets[:count], np.int64),
                    np.asarray(timestamps[:count], np.int64),
                )
        return count

    def _put_few(self, hashes: Sequence[int], offsets: Sequence[int], timestamps: Sequence[int]) -> None:
        buffer = self.mapped.buffer
        header = self.header
        slot_count = self.slot_count
        number = header.next_entry
        at = self._entries_at + number * ENTRY_SIZE
        begin = header.begin_timestamp
        for key_hash, offset, timestamp in zip(hashes, offsets, timestamps, strict=True):
            slot_at = HEADER_SIZE + key_hash % slot_count * SLOT_SIZE
            (previous,) = _SLOT.unpack_from(buffer, slot_at)
            if not 0 < previous < number:
                previous = 0
                header.used_slots += 1
            diff = (timestamp - begin) // 1000 if begin > 0 else 0
            if not 0 <= diff <= MAX_TIME_DIFF:
                diff = 0 if diff < 0 else MAX_TIME_DIFF
            _ENTRY.pack_into(buffer, at, key_hash, offset, diff, previous)
            _SLOT.pack_into(buffer, slot_at, number)
            if number == 1:
                # The first entry's own difference is to the end of the file before, as inherited.
                begin = header.begin_timestamp = timestamp
                header.begin_offset = offset
            number += 1
            at += ENTRY_SIZE
            header.end_offset = offset
            header.end_timestamp = timestamp
        header.next_entry = number
        self._store_header()

    def _put_many(self, hashes: npt.NDArray[np.int32], offsets: Ints, timestamps: Ints) -> None:
        header = self.header
        number = header.next_entry
        count = len(hashes)
        begin = header.begin_timestamp
        inherited = begin
        if number == 1:
            begin = header.begin_timestamp = int(timestamps[0])
            header.begin_offset = int(offsets[0])
        rows = self._entries[number : number + count]
        rows["hash"] = hashes
        rows["offset"] = offsets
        diffs = _time_diffs(timestamps, begin)
        if number == 1:
            diffs[0] = _time_diffs(timestamps[:1], inherited)[0]
        rows["diff"] = diffs
        links = link(self._slots, hashes % self.slot_count, number)
        rows["prev"] = links.previous
        self._slots[links.slots] = links.newest
        header.used_slots += links.opened
        header.next_entry = number + count
        header.end_offset = int(offsets[-1])
        header.end_timestamp = int(timestamps[-1])
        self._store_header()

    def _store_header(self) -> None:
        self.mapped.buffer[:HEADER_SIZE] = self.header.encode()

    def lookup(
        self, key_hash: int, max_num: int, begin: int, end: int, *, walk_limit: int = WALK_LIMIT
    ) -> list[int]:
        """Physical offsets of entries with this hash stored from ``begin`` to ``end``, newest first.

        Stops at the first entry of the slot that is older than ``begin``: entries are in order of time.
        """
        buffer = self.mapped.buffer
        header = self.header
        limit = min(header.next_entry, self.capacity)
        begin_timestamp = header.begin_timestamp
        (number,) = _SLOT.unpack_from(buffer, HEADER_SIZE + key_hash % self.slot_count * SLOT_SIZE)
        found: list[int] = []
        steps = 0
        while 0 < number < limit and len(found) < max_num:
            if steps >= walk_limit:
                self._sweep(found, key_hash, number, max_num, begin, end)
                break
            steps += 1
            entry_hash, offset, diff, previous = _ENTRY.unpack_from(buffer, self._entries_at + number * ENTRY_SIZE)
            timestamp = begin_timestamp + diff * 1000
            if diff < 0:
                break
            if entry_hash == key_hash and begin <= timestamp <= end:
                found.append(offset)
            if timestamp < begin:
                break
            # Only downwards, or a damaged file could lead in a circle.
            limit = number
            number = previous
        return found

    def _sweep(self, found: list[int], key_hash: int, number: int, max_num: int, begin: int, end: int) -> None:
        """Go on with a lookup from entry ``number`` by reading all entries instead of following links.

        The entries of a slot are those whose hash falls into it, so this finds what the links would lead to.
        """
        slot = key_hash % self.slot_count
        # Times are compared as differences, in Python's integers: a damaged begin must not overflow.
        earliest = -((self.header.begin_timestamp - begin) // 1000)
        latest = (end - self.header.begin_timestamp) // 1000
        while number > 0 and len(found) < max_num:
            low = max(1, number + 1 - _BLOCK)
            rows = self._entries[low : number + 1]
            hashes = rows["hash"].astype(np.int32)
            in_slot = np.flatnonzero(hashes % self.slot_count == slot)[::-1]
            diffs = rows["diff"][in_slot].astype(np.int64)
            stops = np.flatnonzero((diffs < 0) | (diffs < _as_int64(earliest)))
            if len(stops):
                in_slot = in_slot[: stops[0]]
                diffs = diffs[: stops[0]]
            hits = in_slot[(hashes[in_slot] == key_hash) & (diffs <= _as_int64(latest))]
            found += rows["offset"][hits[: max_num - len(found)]].tolist()
            if len(stops):
                return
            number = low - 1

    def entries(self) -> Iterator[IndexEntry]:
        """All entries in the order they were put."""
        begin = self.header.begin_timestamp
        last = min(self.header.next_entry, self.capacity)
        for low in range(1, last, _BLOCK):
            rows = self._entries[low : min(low + _BLOCK, last)].tolist()
            for number, (key_hash, offset, diff, previous) in enumerate(rows, low):
                yield IndexEntry(number, key_hash, offset, begin + diff * 1000, previous)

    def count_at_end(self, offset: int) -> int:
        """How many of the newest entries belong to the record at this physical offset."""
        number = min(self.header.next_entry, self.capacity) - 1
        count = 0
        while number - count > 0 and int(self._entries[number - count]["offset"]) == offset:
            count += 1
        return count

    def find_damage(self) -> str | None:
        """Put all entries again, in memory, and say where the file differs; None for a sound file."""
        header = self.header
        if header.next_entry > self.capacity:
            return f"counts {header.next_entry} entries of {self.capacity}"
        table = np.zeros(self.slot_count, np.int32)
        used = 0
        before = header.begin_offset
        for low in range(1, header.next_entry, _BLOCK):
            rows = self._entries[low : min(low + _BLOCK, header.next_entry)]
            hashes = rows["hash"].astype(np.int32)
            offsets = rows["offset"].astype(np.int64)
            if bool((hashes < 0).any()) or bool((rows["diff"] < 0).any()):
                return f"an entry from {low} on has a negative hash or time"
            if int(offsets[0]) < before or bool((offsets[1:] < offsets[:-1]).any()):
                return f"offsets go backwards from entry {low} on"
            before = int(offsets[-1])
            links = link(table, hashes % self.slot_count, low)
            if not np.array_equal(links.previous, rows["prev"]):
                return f"links are wrong from entry {low} on"
            table[links.slots] = links.newest
            used += links.opened
        if header.next_entry > 1 and before != header.end_offset:
            return f"ends with offset {before}, not {header.end_offset}"
        if used != header.used_slots or not np.array_equal(table, self._slots):
            return "the slot table does not fit the entries"
        return None

    def cut_after(self, offset: int, end_timestamp: int) -> int:
        """Forget the entries of records after ``offset``, make the slot table anew from those that stay, and say
        where in the file nothing may follow.

        Entries that stay must be whole; slots, header and everything behind may be as a crash left them.
        """
        header = self.header
        self.reserve(0)
        table = np.zeros(self.slot_count, np.int32)
        header.used_slots = 0
        last = header.begin_offset
        end = 1
        for low in range(1, min(header.next_entry, self.capacity), _BLOCK):
            rows = self._entries[low : min(low + _BLOCK, header.next_entry, self.capacity)]
            offsets = rows["offset"].astype(np.int64)
            falls = np.flatnonzero((offsets > offset) | (np.diff(offsets, prepend=last) < 0))
            count = int(falls[0]) if len(falls) else len(rows)
            if count:
                links = link(table, rows["hash"][:count].astype(np.int32) % self.slot_count, low)
                table[links.slots] = links.newest
                header.used_slots += links.opened
                last = int(offsets[count - 1])
                end = low + count
            if count < len(rows):
                break
        self._slots[:] = table
        header.next_entry = end
        header.end_offset = last
        header.end_timestamp = min(header.end_timestamp, end_timestamp)
        self._store_header()
        return self._entries_at + end * ENTRY_SIZE

    def close(self) -> None:
        """Forget the file."""
        self._slots = np.zeros(0, _SLOT_TYPE)
        self._entries = np.zeros(0, ENTRY_TYPE)
        self.mapped.close()


class Links(NamedTuple):
    """What putting a run of entries does to the slots."""

    previous: npt.NDArray[np.int64]
    """For each entry the number of the one before it in its slot, or 0."""
    slots: npt.NDArray[np.int64]
    """The slots that change, each once."""
    newest: npt.NDArray[np.int64]
    """The number each of them then holds."""
    opened: int
    """How many of them were empty."""


def link(table: npt.NDArray[np.int32], slots: npt.NDArray[np.signedinteger], first: int) -> Links:
    """Chain a run of entries numbered from ``first``, which fall into these slots, to what the table holds."""
    # One sort of (slot, arrival) brings the entries of a slot together and keeps their order.
    keyed = slots.astype(np.int64) << 32
    keyed |= np.arange(len(slots))
    keyed.sort()
    order = keyed & 0xFFFFFFFF
    by_slot = keyed >> 32
    numbers = order + first
    starts = np.empty(len(slots), np.bool_)
    starts[0] = True
    np.not_equal(by_slot[1:], by_slot[:-1], out=starts[1:])
    changed = by_slot[starts]
    held = table[changed].astype(np.int64)
    # What does not lead to an older entry is not a link; this is so in a damaged file only, or for 0.
    empty = (held <= 0) | (held >= numbers[starts])
    held[empty] = 0
    sorted_previous = np.empty(len(slots), np.int64)
    sorted_previous[1:] = numbers[:-1]
    sorted_previous[starts] = held
    previous = np.empty(len(slots), np.int64)
    previous[order] = sorted_previous
    ends = np.empty(len(slots), np.bool_)
    ends[:-1] = starts[1:]
    ends[-1] = True
    return Links(previous, changed, numbers[ends], int(np.count_nonzero(empty)))


def check_size(path: str, size: int, slots: int, entries: int) -> None:
    """Refuse a file of another length than the settings make."""
    if size != file_size(slots, entries):
        raise StoreDamagedError(
            f"index file {path} has {size} bytes, but maxHashSlotNum={slots} and maxIndexNum={entries} make "
            f"{file_size(slots, entries)}; set them as they were when it was written, or delete the index "
            "directory to have it built again"
        )


def _time_diffs(timestamps: Ints, begin: int) -> Ints:
    if begin <= 0:
        return np.zeros(len(timestamps), np.int64)
    diffs = (timestamps - begin) // 1000
    np.maximum(diffs, 0, out=diffs)
    return np.minimum(diffs, MAX_TIME_DIFF, out=diffs)


def _plain(values: Sequence[int] | npt.NDArray[np.signedinteger]) -> Sequence[int]:
    return values.tolist() if isinstance(values, np.ndarray) else values


def _as_int64(value: int) -> int:
    return max(-(1 << 63), min(value, (1 << 63) - 1))
