"""Partitioning of topics: offset ranges of queues, split into the ranges that tasks read.

The split is deterministic: a batch that Spark runs again has the same partitions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.query.range_reader import QueueRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Key = TypeVar("Key")


def split(
    ranges: Iterable[QueueRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueRange]:
    """Split ranges to at most ``max_records`` offsets, and to about ``min_partitions`` if these are too few.

    Without either a queue is one range. A range whose share is less than one stays whole, and the others share the
    rest.
    """
    whole = sorted((one for one in ranges if one.start < one.end), key=lambda one: (one.queue, one.start))
    parts = whole
    if max_records is not None:
        parts = [part for one in whole for part in _cut(one, -(-_size(one) // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(map(_size, whole))
    small = [one for one in whole if _share(_size(one), total, min_partitions) == 1]
    rest = total - sum(map(_size, small))
    wanted = max(min_partitions - len(small), 1)
    found = []
    for one in whole:
        parts_of_one = 1 if rest == 0 or one in small else _share(_size(one), rest, wanted)
        if max_records is not None:
            parts_of_one = max(parts_of_one, -(-_size(one) // max_records))
        found += _cut(one, parts_of_one)
    return found


def _size(one: QueueRange) -> int:
    return one.end - one.start


def _share(size: int, total: int, parts: int) -> int:
    """The number of ``parts`` for a range, rounded, at least one."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _cut(one: QueueRange, parts_of_one: int) -> list[QueueRange]:
    """Parts that differ by one offset at most; none is empty."""
    size = _size(one)
    parts_of_one = min(parts_of_one, size)
    bounds = [one.start + size * number // parts_of_one for number in range(parts_of_one + 1)]
    return [QueueRange(one.queue, start, end) for start, end in itertools.pairwise(bounds)]


def shared(most: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """Distribute ``most`` by size. Each key with a size gets at least one, so the total may be more than ``most``.

    It is never less: otherwise equal batches of a stream would leave a small rest for a batch of its own.
    """
    total = sum(sizes.values())
    if total <= most:
        return dict(sizes)
    parts = {key: min(max(most * size // total, 1), size) for key, size in sizes.items()}
    left = most - sum(parts.values())
    # The remainder goes to the keys that lost most by rounding, not to those with more than their share.
    rounded = [key for key, size in sizes.items() if most * size >= total]
    rounded.sort(key=lambda key: most * sizes[key] % total, reverse=True)
    for key in rounded[: max(left, 0)]:
        parts[key] += 1
    return parts
