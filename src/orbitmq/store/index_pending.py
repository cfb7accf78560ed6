"""Records that wait for the key index, and the keys of those that are put next."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.lazily import lazy_module
from orbitmq.store.index_file import FEW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from orbitmq.store.index_file import Ints
else:
    np = lazy_module("numpy")

ROUND = 8192
"""Keys put in one go; hashing pads them to the longest, so this bounds memory to some 20 MB."""

Text = str | bytes
Property = bytes | None
Pending = tuple[Text, int, int, Property, Property, Property]
"""Of a record: topic, offset, store timestamp, unique key, keys and tags."""


@dataclasses.dataclass(slots=True)
class Hashed:
    """Records whose keys were hashed by who stored them."""

    count: int
    hashes: bytes
    """Of all keys, as an index has them: int32 as this machine writes them."""
    offsets: bytes
    """For each key that of its record: int64."""
    timestamp: int


def hashed_first(waiting: Sequence[Pending | Hashed]) -> list[Hashed]:
    """Those that wait hashed before the first one that does not."""
    first = []
    for one in waiting:
        if not isinstance(one, Hashed):
            break
        first.append(one)
    return first


def unhashed_first(waiting: Sequence[Pending | Hashed]) -> Iterator[Pending]:
    """The other way round."""
    for one in waiting:
        if isinstance(one, Hashed):
            return
        yield one


def columns_of(waiting: Sequence[Hashed]) -> tuple[npt.NDArray[np.int32], Ints, Ints]:
    """Hashes, offsets and timestamps of all keys."""
    hashes = np.frombuffer(b"".join([one.hashes for one in waiting]), np.int32)
    offsets = np.frombuffer(b"".join([one.offsets for one in waiting]), np.int64)
    counts = [len(one.hashes) // 4 for one in waiting]
    return hashes, offsets, np.repeat(np.array([one.timestamp for one in waiting], np.int64), counts)


@dataclasses.dataclass(slots=True)
class Round:
    """The oldest records that wait, as many as are put in one go."""

    keys: list[bytes]
    """Of all of them, each with the topic in front."""
    offsets: list[int]
    timestamps: list[int]
    counts: list[int]
    """Of each record, the last the number of its keys."""

    def each(self, values: list[int]) -> Sequence[int] | Ints:
        """For each key the value of its record."""
        if len(self.keys) <= FEW:
            return [value for value, count in zip(values, self.counts, strict=True) for _ in range(count)]
        return np.repeat(np.array(values, np.int64), self.counts)


def next_round(pending: Iterable[Pending], stored_end: int, count_stored: Callable[[int], int]) -> Round:
    """What is put next. Records before ``stored_end`` are in the index already, and of one that is exactly there so
    many keys as ``count_stored`` says.
    """
    out: list[bytes] = []
    offsets: list[int] = []
    timestamps: list[int] = []
    counts: list[int] = []
    append = out.append
    prefixes: dict[str | bytes, bytes] = {}
    end = stored_end - 1
    total = 0
    for topic, offset, timestamp, uniq_key, keys, tags in pending:
        offsets.append(offset)
        timestamps.append(timestamp)
        if offset > end:
            prefix = prefixes.get(topic)
            if prefix is None:
                encoded = topic if isinstance(topic, bytes) else topic.encode("utf-8", "replace")
                prefix = prefixes[topic] = encoded + b"#"
            if uniq_key:
                append(prefix + uniq_key)
            if keys:
                if b" " in keys:
                    out.extend([prefix + key for key in keys.split(b" ") if key])
                else:
                    append(prefix + keys)
            if tags:
                append(prefix + b"T#" + tags)
            if offset == stored_end:
                # A record whose keys were split over two files, of which only the first survived.
                del out[total : total + count_stored(offset)]
            if len(out) > total:
                end = offset
        counts.append(len(out) - total)
        total = len(out)
        if total >= ROUND:
            break
    return Round(out, offsets, timestamps, counts)
