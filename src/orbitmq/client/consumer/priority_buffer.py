"""Priority buffers: messages that wait in a consumer for their handler, highest priority first.

The priority is the level of the topic (``topic_levels``), then the message's own priority. Messages of the same
priority keep their order.
"""

from __future__ import annotations

import heapq
import itertools
import queue
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orbitmq.client.consumer.received_message import PulledMessage

PriorityKey: TypeAlias = "tuple[int, int]"
"""Level of the topic and priority of the message. Greater comes first."""

T = TypeVar("T")

_PRIORITY = names.PRIORITY.encode()
_LAST = (-(1 << 62), 0)
"""Below every priority."""


class MessagePriorities:
    """Computes the priority of messages."""

    __slots__ = ("_of_topics",)

    def __init__(self, of_topics: Mapping[str, int]) -> None:
        self._of_topics = dict(of_topics)

    def of(self, message: PulledMessage) -> PriorityKey:
        text = find(message.stored_properties, _PRIORITY)
        # The property is not validated by brokers.
        own = int(text) if text is not None and text.isdigit() and len(text) < 10 else -1
        return self._of_topics.get(message.topic, 0), own


class PriorityBuffer(Generic[T]):
    """Priority queue with the interface of a deque, for use on the loop."""

    __slots__ = ("_heap", "_numbers", "_priority_of")

    def __init__(self, priority_of: Callable[[T], PriorityKey]) -> None:
        self._priority_of = priority_of
        self._heap: list[tuple[int, int, int, T]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def extend(self, items: Iterable[T]) -> None:
        for item in items:
            topic, own = self._priority_of(item)
            heapq.heappush(self._heap, (-topic, -own, next(self._numbers), item))

    def popleft(self) -> T:
        return heapq.heappop(self._heap)[3]

    def clear(self) -> None:
        self._heap.clear()


class ThreadPriorityQueue(Generic[T]):
    """Priority queue with the interface of a SimpleQueue, between threads. None, to end a thread, comes last."""

    __slots__ = ("_numbers", "_priority_of", "_queue")

    def __init__(self, priority_of: Callable[[T], PriorityKey]) -> None:
        self._priority_of = priority_of
        self._queue: queue.PriorityQueue[tuple[int, int, int, T | None]] = queue.PriorityQueue()
        self._numbers = itertools.count()

    def put(self, item: T | None) -> None:
        topic, own = _LAST if item is None else self._priority_of(item)
        self._queue.put((-topic, -own, next(self._numbers), item))

    def get(self) -> T | None:
        return self._queue.get()[3]

    def get_nowait(self) -> T | None:
        """Raises queue.Empty."""
        return self._queue.get_nowait()[3]
