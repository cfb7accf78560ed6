"""Long work on an event loop, done in slices of a few milliseconds with other work in between."""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

SLICE_SECONDS = 0.005
PIECES_AT_ONCE = 500
"""A slice ends after so many pieces of work too, which take about 10 µs each."""

SORTED_AT_ONCE = 8_192
"""Names that one call sorts, in two to four milliseconds, during which no other thread runs."""

T = TypeVar("T")


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a turn of the event loop after every slice.

    Whatever the loop's body relies on has to be looked up again for every item: other requests run in between.

    Each call has a slice of its own. Where one is inside another and short, the outer one has to be in slices too.
    """
    clock = time.monotonic
    end, pieces = clock() + SLICE_SECONDS, 0
    for item in items:
        yield item
        pieces += 1
        if pieces >= PIECES_AT_ONCE or clock() >= end:
            await asyncio.sleep(0)
            end, pieces = clock() + SLICE_SECONDS, 0


def sorted_names(names: Sequence[str]) -> list[str]:
    """The names in order, for a thread: unlike one ``sorted`` of very many, it lets the event loop in."""
    parts = [sorted(names[at : at + SORTED_AT_ONCE]) for at in range(0, len(names), SORTED_AT_ONCE)]
    return parts[0] if len(parts) == 1 else list(heapq.merge(*parts))
