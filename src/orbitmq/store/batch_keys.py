"""What queues and index want to know of the messages of a batch: tags and keys, found and hashed all at once.

A batch is only read here if it is as clients write it: properties that end as they should, none without a value,
none twice in a message, one key for each message, all in ASCII. Whoever gets None goes from message to message,
with the same result.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from orbitmq.lazily import lazy_module
from orbitmq.protocol.java import string_hash
from orbitmq.store.batch_items import pieces

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from orbitmq.store.batch_items import BatchItems, Bytes, Ints

    Hashes = npt.NDArray[np.uint32]
else:
    np = lazy_module("numpy")

MANY = 64
"""From here on this is worth its fixed cost of some 100 µs, and a put into the index for one batch alone."""

_END = 2
_WIDEST = 256
"""A longer value is rare, and one would make the table of all values as wide."""


@dataclasses.dataclass(slots=True)
class _Values:
    """One property of those messages of a batch that have it."""

    rows: Ints
    """Which these are, in their order."""
    hashes: Hashes
    """Java's of the values."""
    powers: Hashes
    """By what a hash of something in front of the value is multiplied."""

    def behind(self, prefix: str) -> npt.NDArray[np.int32]:
        """The hashes under which an index file keeps the values with this in front of them."""
        whole = np.uint32(string_hash(prefix) & 0xFFFFFFFF) * self.powers + self.hashes
        # The absolute value of the smallest int32 is itself; without its sign bit it is the 0 wanted here.
        return np.abs(whole.view(np.int32)) & np.int32(0x7FFFFFFF)


@dataclasses.dataclass(slots=True)
class BatchKeys:
    """The tags and keys of a batch."""

    count: int
    _unique: _Values
    _keys: _Values
    _tags: _Values

    @classmethod
    def of(cls, items: BatchItems) -> BatchKeys | None:
        """What is in the properties of these items; None if they have to be read one by one."""
        found = _Properties.of(items)
        if found is None:
            return None
        unique, keys, tags = (found.values(name) for name in (b"UNIQ_KEY", b"KEYS", b"TAGS"))
        if unique is None or keys is None or tags is None:
            return None
        return cls(len(items), unique, keys, tags)

    def tags_codes(self) -> Ints:
        """For each message what its unit in a consume queue holds."""
        codes = np.zeros(self.count, np.int64)
        codes[self._tags.rows] = self._tags.hashes.view(np.int32)
        return codes

    def index_entries(self, topic: str) -> tuple[Ints, npt.NDArray[np.int32]]:
        """The entries of an index in their order: for each the number of its message, and its hash."""
        prefix = topic + "#"
        kinds = [
            (kind.rows, kind.behind(before))
            for kind, before in ((self._unique, prefix), (self._keys, prefix), (self._tags, f"{prefix}T#"))
            if len(kind.rows)
        ]
        if len(kinds) == 1:
            return kinds[0]
        rows = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in kinds)])
        hashes = np.concatenate([np.zeros(0, np.int32), *(hashes for _, hashes in kinds)])
        order = np.argsort(rows, kind="stable")
        return rows[order], hashes[order]


@dataclasses.dataclass(slots=True)
class _Properties:
    """The properties of all messages of a batch side by side, in front of which is the end of another."""

    data: Bytes
    starts: Ints
    """Where those of each message begin."""
    bounds: Ints
    """Where single properties end; each but the last is where the next one begins."""

    @classmethod
    def of(cls, items: BatchItems) -> _Properties | None:
        data, sizes = _side_by_side(items)
        starts = np.cumsum(sizes) - sizes + 1
        # The last byte of the message, or of the one before if it has none.
        if not bool((data[starts + sizes - 1] == _END).all()):
            return None
        return cls(data, starts, np.flatnonzero(data == _END))

    def values(self, name: bytes) -> _Values | None:
        """The values of one property, or None if they have to be found one by one."""
        before = b"\x02" + name + b"\x01"
        size = len(before)
        begins = self.bounds[:-1]
        begins = begins[: int(np.searchsorted(begins, len(self.data) - size, side="right"))]
        which = np.flatnonzero(pieces(self.data, begins, size) == np.void(before))
        rows = self._rows(begins[which] + 1)
        if rows is None:
            return None
        starts, ends = begins[which] + size, self.bounds[which + 1]
        lengths = ends - starts
        if not len(which):
            return _Values(rows, np.zeros(0, np.uint32), np.zeros(0, np.uint32))
        longest = int(lengths.max())
        if not int(lengths.min()) or longest > _WIDEST:
            return None
        table = self._table(ends, lengths, longest)
        # One key with a space in it is several.
        if int(table.max()) > 127 or (name == b"KEYS" and bool((table == 32).any())):
            return None
        powers = _powers()
        hashes = table.astype(np.uint32) @ powers[:longest][::-1]
        return _Values(rows, hashes, powers[lengths])

    def _rows(self, places: Ints) -> Ints | None:
        """The messages that these places are in; None if two are in one."""
        if len(places) == len(self.starts) and bool(
            ((places >= self.starts) & (places < np.append(self.starts[1:], len(self.data)))).all()
        ):
            return np.arange(len(places))
        rows = np.searchsorted(self.starts, places, side="right") - 1
        return None if bool((rows[1:] == rows[:-1]).any()) else rows

    def _table(self, ends: Ints, lengths: Ints, longest: int) -> Bytes:
        """The values as lines of one width, with zeros in front, which make no difference to a hash."""
        data = self.data
        if int(lengths.min()) == longest:
            return pieces(data, ends - longest, longest).view(np.uint8).reshape(-1, longest)
        if int(ends[0]) < longest:
            data = np.concatenate([np.zeros(longest, np.uint8), data])
            ends = ends + longest
        table = pieces(data, ends - longest, longest).view(np.uint8).reshape(-1, longest)
        table[np.arange(longest) < (longest - lengths)[:, None]] = 0
        return table


def _side_by_side(items: BatchItems) -> tuple[Bytes, Ints]:
    """The properties of all messages behind one end of a property, and their sizes."""
    starts = items.properties_starts
    sizes = items.ends - starts
    size = int(sizes[0])
    if bool((sizes == size).all()):
        data = np.empty(1 + size * len(sizes), np.uint8)
        if size:
            data[1:] = pieces(np.frombuffer(items.batch, np.uint8), starts, size).view(np.uint8)
        data[0] = _END
        return data, sizes
    cut = map(items.batch.__getitem__, map(slice, starts.tolist(), items.ends.tolist()))
    return np.frombuffer(b"\x02" + b"".join(cut), np.uint8), sizes


@functools.cache
def _powers() -> Hashes:
    """The powers of 31 modulo 2**32, from 1 on."""
    return np.array([pow(31, n, 1 << 32) for n in range(_WIDEST + 1)], np.uint32)
