"""Queue of the key index: records whose keys are not in the files yet, and the next batch of keys."""

from __future__ import annotations

import dataclasses
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


ROUND = 8192
"""Keys put in one batch; hashing pads them to the longest, so this limits memory to some 20 MB."""

Text = str | bytes
Property = bytes | None
Pending = tuple[Text, int, int, Property, Property, Property]
"""A record: topic, offset, store timestamp, unique key, keys and tags."""


class Hashed:
    """Records whose keys native code has hashed."""

    __slots__ = ("_hashes", "_offsets", "_timestamps", "count")

    def __init__(self) -> None:
        self.count = 0
        self._hashes: list[bytes] = []
        self._offsets: list[bytes] = []
        self._timestamps: list[bytes] = []

    def add(self, count: int, hashes: bytes, offsets: bytes, timestamps: bytes) -> None:
        """Add records: for each of their keys the hash, the record's offset and its store timestamp."""
        self.count += count
        self._hashes.append(hashes)
        self._offsets.append(offsets)
        self._timestamps.append(timestamps)

    def columns(self) -> tuple[array[int], array[int], array[int]]:
        """Hashes, offsets and timestamps of all keys."""
        hashes = array("i", b"".join(self._hashes))
        return hashes, array("q", b"".join(self._offsets)), array("q", b"".join(self._timestamps))


def unhashed_first(waiting: Sequence[Pending | Hashed]) -> Iterator[Pending]:
    """The queued records before the first hashed ones."""
    for one in waiting:
        if isinstance(one, Hashed):
            return
        yield one


@dataclasses.dataclass(slots=True)
class Round:
    """The oldest queued records, as many as one batch takes."""

    keys: list[bytes]
    """Keys of all records, each prefixed with the topic."""
    offsets: list[int]
    timestamps: list[int]
    counts: list[int]
    """Number of keys of each record."""

    def each(self, values: list[int]) -> array[int]:
        """The value of its record for each key."""
        return array("q", [value for value, count in zip(values, self.counts, strict=True) for _ in range(count)])


def next_round(pending: Iterable[Pending], stored_end: int, count_stored: Callable[[int], int]) -> Round:
    """The next batch. Records before ``stored_end`` are in the index already, and of the one exactly there as many
    keys as ``count_stored`` returns.
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
                # The keys of this record were split over two files, of which only the first survived.
                del out[total : total + count_stored(offset)]
            if len(out) > total:
                end = offset
        counts.append(len(out) - total)
        total = len(out)
        if total >= ROUND:
            break
    return Round(out, offsets, timestamps, counts)
