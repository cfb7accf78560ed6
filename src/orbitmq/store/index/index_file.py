"""One index file: entries are put, and looked up by the hash of a key."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.platform.local_mapped_file import LARGE_PAGE
from orbitmq.store.index.arrays import IndexArrays
from orbitmq.store.index.entries import as_column, put_entries
from orbitmq.store.index.format import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
    check_size,
    file_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.platform.disk import Disk, MappedFile
    from orbitmq.store.index.entries import Column, Plain
    from orbitmq.store.index.format import IndexEntry

RESERVE_AHEAD = 1 << 20
"""Disk space is reserved in steps of this many bytes: one system call per 50,000 entries."""

AHEAD_STEP = 8 << 20
"""Bytes preallocated by a worker thread when less than that is left: the new page that every hundredth message
needs costs a tenth of the rest of all hundred. Checked ten times a second, this is enough for four million entries
in that second."""

BUSY_ENTRIES = 50_000
"""Nothing is preallocated until a file has this many entries: brokers of tests rarely reach it."""

WALK_LIMIT = 4096
"""Maximum number of links followed one by one before the rest of the file is searched in blocks.

All messages of one tag share a slot, so a chain may have millions of links; following them would block a broker for
seconds.
"""


class IndexFile:
    """A mapped index file.

    Not here: the choice of the file, the form of a key, the time of a sync.
    """

    __slots__ = (
        "_entries_at",
        "_first_put",
        "_reserved_to",
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
        self.header = IndexHeader.decode(mapped.buffer[:HEADER_SIZE])
        # No assumption: a file of RocketMQ is sparse where it has not been written yet.
        self._reserved_to = 0
        self._first_put = self.header.next_entry

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
        """Create an empty file and reserve the space of its slot table. Leaves nothing behind on refusal."""
        try:
            disk.create(path, file_size(slots, entries))
            mapped = disk.map(path)
            try:
                # Before anything is read: on a full tmpfs, reading a hole kills the process too.
                mapped.reserve(0, HEADER_SIZE + slots * SLOT_SIZE)
                file = cls(mapped, slots, entries, writable=True)
                file.reserve(0)
            except BaseException:
                mapped.close()
                raise
        except BaseException:
            with contextlib.suppress(OSError):
                # An empty index file may remain, which is harmless.
                disk.remove(path)
            raise
        return file

    @property
    def room(self) -> int:
        """Number of further entries that fit."""
        return max(0, self.capacity - self.header.next_entry)

    @property
    def ready(self) -> int:
        """Number of entries that fit into the reserved space."""
        space = self._reserved_to - self._entries_at
        return min(space // ENTRY_SIZE, self.capacity) - self.header.next_entry

    def reserve(self, count: int) -> int:
        """Reserve the disk space of the next ``count`` entries; returns how many of them fit into the file.

        Raises ``OSError`` if the disk has no room.
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

    def wants_space(self) -> Callable[[], int] | None:
        """A blocking call that reserves and prefaults more of the file; None if that is not necessary yet."""
        mapped, start = self.mapped, self._reserved_to
        put = self.header.next_entry
        if (
            start - self._entries_at - put * ENTRY_SIZE >= AHEAD_STEP
            or put - self._first_put < BUSY_ENTRIES
            or start >= mapped.size
            or not self.room
        ):
            return None
        stop = min((start + AHEAD_STEP) // LARGE_PAGE * LARGE_PAGE, mapped.size)

        def own() -> int:
            mapped.reserve(start, stop)
            mapped.warm(start, stop)
            return stop

        return own

    def keep_space(self, stop: int) -> None:
        """Account for the space that ``wants_space`` reserved."""
        self._reserved_to = max(self._reserved_to, stop)

    def inherit(self, previous: IndexHeader) -> None:
        """Let a file without entries begin where the previous one ended."""
        self.reserve(0)
        self.header.inherit(previous)
        self._store_header()

    def put(self, hashes: Plain | Column, offsets: Plain | Column, timestamps: Plain | Column) -> int:
        """Put entries in this order, as many as fit; returns how many.

        ``OSError`` means that the disk has no room; the file is then unchanged. Hashes are not negative.
        """
        count = self.reserve(len(hashes))
        if not count:
            return 0
        header = self.header
        first = header.next_entry
        if count < len(hashes):
            hashes, offsets, timestamps = hashes[:count], offsets[:count], timestamps[:count]
        places = as_column("q", offsets)
        times = as_column("q", timestamps)
        header.used_slots += put_entries(
            self.mapped.buffer,
            self.slot_count,
            first,
            header.begin_timestamp,
            as_column("i", hashes),
            places,
            times,
        )
        if first == 1:
            header.begin_timestamp = int(times[0])
            header.begin_offset = int(places[0])
        header.next_entry = first + count
        header.end_offset = int(places[-1])
        header.end_timestamp = int(times[-1])
        self._store_header()
        return count

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
        (number,) = SLOT.unpack_from(buffer, HEADER_SIZE + key_hash % self.slot_count * SLOT_SIZE)
        found: list[int] = []
        steps = 0
        while 0 < number < limit and len(found) < max_num:
            if steps >= walk_limit:
                self._arrays().sweep(found, key_hash, number, max_num, begin, end)
                break
            steps += 1
            entry_hash, offset, diff, previous = self._entry(number)
            timestamp = begin_timestamp + diff * 1000
            if diff < 0:
                break
            if entry_hash == key_hash and begin <= timestamp <= end:
                found.append(offset)
            if timestamp < begin:
                break
            # Downwards only, or a damaged file could lead in a circle.
            limit = number
            number = previous
        return found

    def entries(self) -> Iterator[IndexEntry]:
        """All entries in the order of insertion."""
        return self._arrays().entries()

    def count_at_end(self, offset: int) -> int:
        """Number of newest entries that belong to the record at this physical offset."""
        number = min(self.header.next_entry, self.capacity) - 1
        count = 0
        while number - count > 0 and self._entry(number - count)[1] == offset:
            count += 1
        return count

    def find_damage(self) -> str | None:
        """Rebuild the file in memory from its entries and describe the first difference; None for a sound file."""
        header = self.header
        # What is wrong with an unsound file is for the Python twin to find out.
        if (
            native.load().is_compiled
            and header.next_entry <= self.capacity
            and native.load().is_sound(
                self.mapped.buffer,
                self.slot_count,
                header.next_entry,
                header.begin_offset,
                header.end_offset,
                header.used_slots,
            )
        ):
            return None
        return self._arrays().find_damage()

    def cut_after(self, offset: int, end_timestamp: int) -> int:
        """Remove the entries of records after ``offset`` and rebuild the slot table from the remaining ones;
        returns the position in the file behind which nothing may follow.

        Remaining entries must be whole; slots, header and everything behind may be as a crash left them.
        """
        header = self.header
        self.reserve(0)
        if native.load().is_compiled:
            entries = min(header.next_entry, self.capacity)
            header.next_entry, header.end_offset, header.used_slots = native.load().cut_entries(
                self.mapped.buffer, self.slot_count, entries, header.begin_offset, offset
            )
        else:
            self._arrays().cut_after(offset)
        header.end_timestamp = min(header.end_timestamp, end_timestamp)
        self._store_header()
        return self._entries_at + header.next_entry * ENTRY_SIZE

    def close(self) -> None:
        """Release the file."""
        self.mapped.close()

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        """Hash, offset, seconds and the number of the previous entry of the slot."""
        return ENTRY.unpack_from(self.mapped.buffer, self._entries_at + number * ENTRY_SIZE)

    def _arrays(self) -> IndexArrays:
        return IndexArrays(self.mapped.buffer, self.header, self.slot_count, self.capacity)
