"""What one task reads: ranges of queues cut so that there are enough of them, and none is too long.

The same ranges are always cut in the same way: a batch that Spark runs again has the partitions it had before.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeVar

from orbitmq.client.range_reading import QueueRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Key = TypeVar("Key")


def split(
    ranges: Iterable[QueueRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueRange]:
    """Ranges of at most ``max_records`` offsets, and if these are too few, about ``min_partitions`` of them.

    Without either a queue is one range. Those that get a share of less than one are left whole, and do not count
    when the rest is shared.
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
        pieces = 1 if rest == 0 or one in small else _share(_size(one), rest, wanted)
        if max_records is not None:
            pieces = max(pieces, -(-_size(one) // max_records))
        found += _cut(one, pieces)
    return found


def _size(one: QueueRange) -> int:
    return one.end - one.start


def _share(size: int, total: int, parts: int) -> int:
    """How many of ``parts`` a range gets, rounded, and one at least."""
    return max((2 * size * parts + total) // (2 * total), 1)


def _cut(one: QueueRange, pieces: int) -> list[QueueRange]:
    """Pieces that differ by one offset at most; never an empty one."""
    size = _size(one)
    pieces = min(pieces, size)
    edges = [one.start + size * number // pieces for number in range(pieces + 1)]
    return [QueueRange(one.queue, start, end) for start, end in itertools.pairwise(edges)]


def shared(most: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """What each gets of ``most`` by its size. Who has something gets something, so that it may be more in all.

    It is never less: of a stream that is read by equal batches nothing is left over for a small one behind them.
    """
    total = sum(sizes.values())
    if total <= most:
        return dict(sizes)
    parts = {key: min(max(most * size // total, 1), size) for key, size in sizes.items()}
    left = most - sum(parts.values())
    # What rounding left over goes to those that lost most by it, not to those that got more than their share.
    rounded = [key for key, size in sizes.items() if most * size >= total]
    rounded.sort(key=lambda key: most * sizes[key] % total, reverse=True)
    for key in rounded[: max(left, 0)]:
        parts[key] += 1
    return parts
