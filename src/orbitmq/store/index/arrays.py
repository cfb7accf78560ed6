"""Slots and entries of an index file as numpy arrays, a block at a time: search, listing, check and truncation.

Not for the path of every message, which does without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.store.index.entries import link
from orbitmq.store.index.format import ENTRY_TYPE, HEADER_SIZE, SLOT_SIZE, SLOT_TYPE, IndexEntry

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from orbitmq.native.buffer import Buffer
    from orbitmq.store.index.format import IndexHeader
else:
    np = lazy_module("numpy")

_BLOCK = 1 << 16


class IndexArrays:
    """Contents of a file. Must not outlive its use, or the map could not be closed."""

    __slots__ = ("_capacity", "_entries", "_header", "_slot_count", "_slots")

    def __init__(self, buffer: Buffer, header: IndexHeader, slots: int, entries: int) -> None:
        self._header = header
        self._slot_count = slots
        self._capacity = entries
        self._slots = np.frombuffer(buffer, SLOT_TYPE, slots, HEADER_SIZE)
        self._entries = np.frombuffer(buffer, ENTRY_TYPE, entries, HEADER_SIZE + slots * SLOT_SIZE)

    def sweep(self, found: list[int], key_hash: int, number: int, max_num: int, begin: int, end: int) -> None:
        """Continue a lookup from entry ``number`` by reading all entries instead of following links.

        The entries of a slot are those whose hash falls into it, so this finds what the links would.
        """
        slot = key_hash % self._slot_count
        # Times are compared as differences, as Python integers: a damaged begin must not overflow.
        earliest = -((self._header.begin_timestamp - begin) // 1000)
        latest = (end - self._header.begin_timestamp) // 1000
        while number > 0 and len(found) < max_num:
            low = max(1, number + 1 - _BLOCK)
            rows = self._entries[low : number + 1]
            hashes = rows["hash"].astype(np.int32)
            in_slot = np.flatnonzero(hashes % self._slot_count == slot)[::-1]
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
        """All entries in the order of insertion."""
        begin = self._header.begin_timestamp
        last = min(self._header.next_entry, self._capacity)
        for low in range(1, last, _BLOCK):
            rows = self._entries[low : min(low + _BLOCK, last)].tolist()
            for number, (key_hash, offset, diff, previous) in enumerate(rows, low):
                yield IndexEntry(number, key_hash, offset, begin + diff * 1000, previous)

    def find_damage(self) -> str | None:
        """Rebuild the file in memory from its entries and describe the first difference; None for a sound file."""
        header = self._header
        if header.next_entry > self._capacity:
            return f"counts {header.next_entry} entries of {self._capacity}"
        table = np.zeros(self._slot_count, np.int32)
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
            links = link(table, hashes % self._slot_count, low)
            if not np.array_equal(links.previous, rows["prev"]):
                return f"links are wrong from entry {low} on"
            table[links.slots] = links.newest
            used += links.opened
        if header.next_entry > 1 and before != header.end_offset:
            return f"ends with offset {before}, not {header.end_offset}"
        if used != header.used_slots or not np.array_equal(table, self._slots):
            return "the slot table does not fit the entries"
        return None

    def cut_after(self, offset: int) -> None:
        """Remove the entries of records after ``offset`` and rebuild the slot table from the remaining ones.

        The header gets their number and end; its times do not change.
        """
        header = self._header
        table = np.zeros(self._slot_count, np.int32)
        header.used_slots = 0
        last = header.begin_offset
        end = 1
        for low in range(1, min(header.next_entry, self._capacity), _BLOCK):
            rows = self._entries[low : min(low + _BLOCK, header.next_entry, self._capacity)]
            offsets = rows["offset"].astype(np.int64)
            # Comparison instead of subtraction: the difference of two damaged offsets may overflow.
            before = np.concatenate((np.array([last], np.int64), offsets[:-1]))
            falls = np.flatnonzero((offsets > offset) | (offsets < before))
            count = int(falls[0]) if len(falls) else len(rows)
            if count:
                links = link(table, rows["hash"][:count].astype(np.int32) % self._slot_count, low)
                table[links.slots] = links.newest
                header.used_slots += links.opened
                last = int(offsets[count - 1])
                end = low + count
            if count < len(rows):
                break
        self._slots[:] = table
        header.next_entry = end
        header.end_offset = last


def _as_int64(value: int) -> int:
    return max(-(1 << 63), min(value, (1 << 63) - 1))
