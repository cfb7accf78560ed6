"""Records that wait for the key index, and the keys of those that are put next."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.lazily import lazy_module
from orbitmq.store.index_file import FEW

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

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


def next_round(pending: Sequence[Pending], stored_end: int, count_stored: Callable[[int], int]) -> Round:
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
