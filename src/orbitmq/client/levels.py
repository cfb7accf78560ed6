"""The most important message first: what waits in a consumer for its handler, in the order of levels.

A message's level is that of its topic, where an application has given topics levels, and then its own priority. Of
the same level the one that came first is first.
"""

from __future__ import annotations

import heapq
import itertools
import queue
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from orbitmq.protocol import property_names as names
from orbitmq.protocol.properties import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orbitmq.client.pulled_message import PulledMessage

Level: TypeAlias = "tuple[int, int]"
"""Of the topic, and of the message in it. The greater one comes first."""

T = TypeVar("T")

_PRIORITY = names.PRIORITY.encode()
_LAST = (-(1 << 62), 0)
"""Below every level."""


class Levels:
    """Tells the levels of messages."""

    __slots__ = ("_of_topics",)

    def __init__(self, of_topics: Mapping[str, int]) -> None:
        self._of_topics = dict(of_topics)

    def of(self, message: PulledMessage) -> Level:
        text = find(message.stored_properties, _PRIORITY)
        # Whoever sent it may have written anything.
        own = int(text) if text is not None and text.isdigit() and len(text) < 10 else -1
        return self._of_topics.get(message.topic, 0), own


class ByLevel(Generic[T]):
    """What waits, the highest level first; used like a deque."""

    __slots__ = ("_heap", "_level_of", "_numbers")

    def __init__(self, level_of: Callable[[T], Level]) -> None:
        self._level_of = level_of
        self._heap: list[tuple[int, int, int, T]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def extend(self, items: Iterable[T]) -> None:
        for item in items:
            topic, own = self._level_of(item)
            heapq.heappush(self._heap, (-topic, -own, next(self._numbers), item))

    def popleft(self) -> T:
        return heapq.heappop(self._heap)[3]

    def clear(self) -> None:
        self._heap.clear()


class QueueByLevel(Generic[T]):
    """The same between threads; used like a SimpleQueue. None, which ends a thread, comes when all else is done."""

    __slots__ = ("_level_of", "_numbers", "_queue")

    def __init__(self, level_of: Callable[[T], Level]) -> None:
        self._level_of = level_of
        self._queue: queue.PriorityQueue[tuple[int, int, int, T | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()

    def put(self, item: T | None) -> None:
        topic, own = _LAST if item is None else self._level_of(item)
        self._queue.put((-topic, -own, next(self._numbers), item))

    def get(self) -> T | None:
        return self._queue.get()[3]

    def get_nowait(self) -> T | None:
        """Raises queue.Empty."""
        return self._queue.get_nowait()[3]
