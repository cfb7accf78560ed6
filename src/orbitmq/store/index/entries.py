"""Puts entries into an index file in plain Python (twin: native/src/store/index_put.c), and links entries of slots.

Columns are arrays of Python or of numpy: hashes of 32 bits, offsets and timestamps of 64.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from orbitmq import native
from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.java import index_hashes
from orbitmq.store.index.format import (
    ENTRY,
    ENTRY_SIZE,
    ENTRY_TYPE,
    HEADER_SIZE,
    MAX_TIME_DIFF,
    SLOT,
    SLOT_SIZE,
    SLOT_TYPE,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from orbitmq.native.buffer import Buffer

    Ints = npt.NDArray[np.int64]
    Plain = list[int] | tuple[int, ...] | range
    Column = array[int] | npt.NDArray[np.int32] | Ints
else:
    np = lazy_module("numpy")

FEW = 32
"""Up to this many entries a plain loop (0.7 µs each) is faster than numpy (25 µs, then 0.05 µs each)."""


def plain_hash_keys(keys: list[bytes]) -> bytes:
    """Index hash of each key, given in UTF-8: native-endian 32-bit integers."""
    return index_hashes(keys).tobytes()


def plain_put_entries(
    buffer: Buffer, slots: int, first: int, begin: int, hashes: Column, offsets: Column, timestamps: Column
) -> int:
    """Put entries, numbered from ``first``, into a file with this many slots and this begin timestamp; returns how
    many slots were empty before. Hashes are not negative.

    A file's begin before its first entry is inherited from the previous file, and applies to that entry only.
    """
    if len(hashes) > FEW:
        columns = np.asarray(hashes), np.asarray(offsets), np.asarray(timestamps)
        return _put_many(buffer, slots, first, begin, *columns)
    number = first
    at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
    opened = 0
    for key_hash, offset, timestamp in zip(hashes.tolist(), offsets.tolist(), timestamps.tolist(), strict=True):
        slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
        (previous,) = SLOT.unpack_from(buffer, slot_at)
        if not 0 < previous < number:
            previous = 0
            opened += 1
        diff = (timestamp - begin) // 1000 if begin > 0 else 0
        ENTRY.pack_into(buffer, at, key_hash, offset, min(max(diff, 0), MAX_TIME_DIFF), previous)
        SLOT.pack_into(buffer, slot_at, number)
        if number == 1:
            begin = timestamp
        number += 1
        at += ENTRY_SIZE
    return opened


def _put_many(
    buffer: Buffer,
    slots: int,
    first: int,
    begin: int,
    hashes: npt.NDArray[np.signedinteger],
    offsets: Ints,
    timestamps: Ints,
) -> int:
    count = len(hashes)
    table = np.frombuffer(buffer, SLOT_TYPE, slots, HEADER_SIZE)
    rows = np.frombuffer(buffer, ENTRY_TYPE, count, HEADER_SIZE + slots * SLOT_SIZE + first * ENTRY_SIZE)
    diffs = _time_diffs(timestamps, int(timestamps[0]) if first == 1 else begin)
    if first == 1:
        diffs[0] = _time_diffs(timestamps[:1], begin)[0]
    links = link(table, hashes % slots, first)
    rows["hash"] = hashes
    rows["offset"] = offsets
    rows["diff"] = diffs
    rows["prev"] = links.previous
    table[links.slots] = links.newest
    return links.opened


def _time_diffs(timestamps: Ints, begin: int) -> Ints:
    if begin <= 0:
        return np.zeros(len(timestamps), np.int64)
    diffs = (timestamps - begin) // 1000
    np.maximum(diffs, 0, out=diffs)
    return np.minimum(diffs, MAX_TIME_DIFF, out=diffs)


_NATIVE = native.load()
put_entries = _NATIVE.put_entries if _NATIVE.is_compiled else plain_put_entries
hash_keys = _NATIVE.hash_keys if _NATIVE.is_compiled else plain_hash_keys


def as_column(code: str, values: Plain | Column) -> Column:
    """Numbers as an ``array`` column of this type."""
    return array(code, values) if isinstance(values, (list, tuple, range)) else values


class Links(NamedTuple):
    """Result of linking a sequence of entries to the slots."""

    previous: npt.NDArray[np.int64]
    """For each entry the number of the previous one in its slot, or 0."""
    slots: npt.NDArray[np.int64]
    """The slots that change, without duplicates."""
    newest: npt.NDArray[np.int64]
    """Their new contents."""
    opened: int
    """Number of slots that were empty."""


def link(table: npt.NDArray[np.int32], slots: npt.NDArray[np.signedinteger], first: int) -> Links:
    """Link entries numbered from ``first``, which fall into these slots, to the entries in the table."""
    # One sort of (slot, order) groups the entries of a slot and preserves their order.
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
    # A link must point to an older entry; anything else is 0 or a damaged file.
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
