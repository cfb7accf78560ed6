"""The properties of many records at once: single ones as a column of strings, all of them as a column of maps.

What counts as a property is what ``protocol.message.properties.parse`` takes, for every record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.protocol.message.property_names import KEY_SEPARATOR
from orbitmq.spark.records.arrow_buffers import as_text, bytes_of, gathered

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.protocol.message.record_columns import Bytes, Flags, Ints, RecordColumns

_END = 2
_STRINGS = pa.map_(pa.string(), pa.string())

_FEW_NAMES = 32
"""The number of different names up to which each has a bit in one integer per row."""


class PropertyItems:
    """Where the names and values of the properties of some records are."""

    __slots__ = ("_data", "_name_at", "_name_end", "_value_end", "bounds")

    def __init__(self, records: RecordColumns) -> None:
        stored = gathered(records.buffer, records.properties_at, records.ends, pa.binary())
        data, offsets = _terminated(*bytes_of(as_text(stored)))
        name_end, item_end = _name_and_item_ends(data)
        item_at = np.empty_like(item_end)
        item_at[:1] = 0
        item_at[1:] = item_end[:-1] + 1
        exists = (name_end > item_at) & (item_end > name_end + 1)
        bounds = np.searchsorted(item_end, offsets)
        if not bool(exists.all()):
            item_at, name_end, item_end = item_at[exists], name_end[exists], item_end[exists]
            bounds = _count_before(exists)[bounds]
        self._data = data
        self._name_at = item_at
        self._name_end = name_end
        self._value_end = item_end
        self.bounds = bounds
        """Where the items of each record begin among all, and where those of the last end."""

    def column(self, name: str) -> pa.Array:
        """The values of one property, null where a record has none of this name."""
        wanted = name.encode()
        found = np.flatnonzero(self._name_end - self._name_at == len(wanted))
        # Every place of the data as a text of that length: those where a name of it begins are compared.
        places = (max(len(self._data) - len(wanted) + 1, 0),)
        texts: npt.NDArray[np.bytes_] = np.ndarray(places, f"S{len(wanted)}", self._data, 0, (1,))
        found = found[texts[self._name_at[found]] == wanted]
        count = len(self.bounds) - 1
        if len(found) != count or bool(((found < self.bounds[:-1]) | (found >= self.bounds[1:])).any()):
            # Not one for each record, so some are null, and of several the last counts.
            rows = np.searchsorted(self.bounds, found, side="right") - 1
            item = np.full(count, -1)
            np.maximum.at(item, rows, found)
            found = item[item >= 0]
            order = np.cumsum(item >= 0) - 1
            return self._values(found).take(pa.array(order, mask=item < 0))
        return self._values(found)

    def maps(self) -> pa.Array:
        """All properties."""
        names = self._texts(self._name_at, self._name_end)
        counts = self._counts_once(names)
        if counts is None:
            values, bounds = self._values(slice(None)), self.bounds
        else:
            names, values = names.filter(pa.array(counts)), self._values(counts)
            bounds = _count_before(counts)[self.bounds]
        return pa.MapArray.from_arrays(pa.array(bounds.astype(np.int32)), names, values, _STRINGS)

    def _values(self, which: Flags | Ints | slice) -> pa.Array:
        return self._texts(self._name_end[which] + 1, self._value_end[which])

    def _texts(self, start: Ints, end: Ints) -> pa.Array:
        return gathered(self._data, start, end, pa.string())

    def _counts_once(self, names: pa.Array) -> Flags | None:
        """Which items no later one of the same record and name replaces; None if that is all of them."""
        rows = len(self.bounds) - 1
        if not len(names):
            return None
        encoded = names.dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        different = len(encoded.dictionary)
        if different <= _FEW_NAMES:
            starts = self.bounds[:-1][self.bounds[:-1] < self.bounds[1:]]
            bits = np.left_shift(np.int64(1), codes)
            if bool((np.add.reduceat(bits, starts) == np.bitwise_or.reduceat(bits, starts)).all()):
                return None
        row = np.repeat(np.arange(rows), np.diff(self.bounds))
        # From the back, so that the first place of a pair is its last item.
        _, places = np.unique((row * different + codes)[::-1], return_index=True)
        if len(places) == len(codes):
            return None
        counts = np.zeros(len(codes), np.bool_)
        counts[len(codes) - 1 - places] = True
        return counts


def split_keys(values: pa.Array) -> pa.Array:
    """Each value of ``KEYS`` as the list of its keys."""
    if not values.null_count and not bool((bytes_of(values)[0] == ord(KEY_SEPARATOR)).any()):
        return pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), values)
    lists = pc.split_pattern(values, KEY_SEPARATOR)
    keys = lists.values
    is_key = pc.binary_length(keys).to_numpy(zero_copy_only=False) > 0
    if bool(is_key.all()):
        return lists
    bounds = _count_before(is_key)[lists.offsets.to_numpy()].astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), keys.filter(pa.array(is_key)), mask=lists.is_null())


def _name_and_item_ends(data: Bytes) -> tuple[Ints, Ints]:
    """Where the items end, and where the name in each does: at its first 0x01, or with the item if it has none."""
    separators = np.flatnonzero(data <= _END)
    kinds = data[separators]
    if not bool(kinds.all()):
        # A NUL is a character like others.
        separators, kinds = separators[kinds > 0], kinds[kinds > 0]
    is_end = kinds == _END
    if not len(is_end) % 2 and not bool(is_end[0::2].any()) and bool(is_end[1::2].all()):
        return separators[0::2], separators[1::2]
    ends = np.flatnonzero(is_end)
    # The first separator of an item is the one behind the end of the item before.
    first = np.empty_like(ends)
    first[:1] = 0
    first[1:] = ends[:-1] + 1
    return separators[first], separators[ends]


def _terminated(data: Bytes, offsets: Ints) -> tuple[Bytes, Ints]:
    """The same with the 0x02 that the last item of a record may lack."""
    begins, ends = offsets[:-1], offsets[1:]
    lacks = ends > begins
    lacks[lacks] = data[ends[lacks] - 1] != _END
    if not bool(lacks.any()):
        return data, offsets
    return np.insert(data, ends[lacks], _END), offsets + _count_before(lacks)


def _count_before(flags: Flags) -> Ints:
    """The number of set flags before each position, with one more entry for the total."""
    counts = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=counts[1:])
    return counts
