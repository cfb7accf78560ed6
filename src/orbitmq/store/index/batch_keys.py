"""Tags and keys of a client's batch for queues and index, found and hashed all at once.

Only for batches in the usual form: properties with a final separator, none empty, none twice in a message, one key
per message, all in ASCII. For others the result is None, and the caller falls back to message by message, with the
same result.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.java import string_hash
from orbitmq.store.append.batch_decoder import pieces

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from orbitmq.store.append.batch_decoder import BatchItems, Bytes, Ints

    Hashes = npt.NDArray[np.uint32]
else:
    np = lazy_module("numpy")

MANY = 64
"""From this size on a batch is worth the fixed cost of some 100 µs, and an index put of its own."""

_END = 2
_WIDEST = 256
"""Longer values are rare, and one would make the table of all values as wide."""


@dataclasses.dataclass(slots=True)
class _Values:
    """One property of the messages of a batch that have it."""

    rows: Ints
    """The numbers of these messages, ascending."""
    hashes: Hashes
    """Java hash codes of the values."""
    powers: Hashes
    """Factors for the hash of a prefix of each value."""

    def behind(self, prefix: str) -> npt.NDArray[np.int32]:
        """Index hashes of the values with this prefix."""
        whole = np.uint32(string_hash(prefix) & 0xFFFFFFFF) * self.powers + self.hashes
        # The absolute value of the smallest int32 is itself; without its sign bit it is 0, as required.
        return np.abs(whole.view(np.int32)) & np.int32(0x7FFFFFFF)


@dataclasses.dataclass(slots=True)
class BatchKeys:
    """Tags and keys of a batch."""

    count: int
    _unique: _Values
    _keys: _Values
    _tags: _Values

    @classmethod
    def of(cls, items: BatchItems) -> BatchKeys | None:
        """Tags and keys in the properties of these items; None if they must be read one by one."""
        found = _Properties.of(items)
        if found is None:
            return None
        unique, keys, tags = (found.values(name) for name in (b"UNIQ_KEY", b"KEYS", b"TAGS"))
        if unique is None or keys is None or tags is None:
            return None
        return cls(len(items), unique, keys, tags)

    def tags_codes(self) -> Ints:
        """Tags code of each message for its queue unit."""
        codes = np.zeros(self.count, np.int64)
        codes[self._tags.rows] = self._tags.hashes.view(np.int32)
        return codes

    def index_entries(self, topic: str) -> tuple[Ints, npt.NDArray[np.int32]]:
        """Index entries in order: for each the number of its message, and its hash."""
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
    """Properties of all messages of a batch, contiguous, after one final separator."""

    data: Bytes
    starts: Ints
    """Start of each message's properties."""
    bounds: Ints
    """Ends of single properties; each but the last is the start of the next one."""

    @classmethod
    def of(cls, items: BatchItems) -> _Properties | None:
        data, sizes = _side_by_side(items)
        starts = np.cumsum(sizes) - sizes + 1
        # The last byte of the message's properties, or of the previous message's if it has none.
        if not bool((data[starts + sizes - 1] == _END).all()):
            return None
        return cls(data, starts, np.flatnonzero(data == _END))

    def values(self, name: bytes) -> _Values | None:
        """The values of one property; None if they must be found one by one."""
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
        # A key with a space in it is several keys.
        if int(table.max()) > 127 or (name == b"KEYS" and bool((table == 32).any())):
            return None
        powers = _powers()
        hashes = table.astype(np.uint32) @ powers[:longest][::-1]
        return _Values(rows, hashes, powers[lengths])

    def _rows(self, places: Ints) -> Ints | None:
        """The messages at these positions; None if two are in one."""
        if len(places) == len(self.starts) and bool(
            ((places >= self.starts) & (places < np.append(self.starts[1:], len(self.data)))).all()
        ):
            return np.arange(len(places))
        rows = np.searchsorted(self.starts, places, side="right") - 1
        return None if bool((rows[1:] == rows[:-1]).any()) else rows

    def _table(self, ends: Ints, lengths: Ints, longest: int) -> Bytes:
        """The values as rows of one width, padded with leading zeros, which do not change a hash."""
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
    """The properties of all messages after one separator, and their sizes."""
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
    """Powers of 31 modulo 2**32, from 1 on."""
    return np.array([pow(31, n, 1 << 32) for n in range(_WIDEST + 1)], np.uint32)
