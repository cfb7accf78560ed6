"""Short cache of reads: many viewers of a page cost a cluster as much as one."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")

MAX_ENTRIES = 512


@dataclasses.dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Any]
    expires: float


class Cache:
    """Values with a lifetime. Concurrent reads of a key share one computation; errors are not kept."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: dict[Hashable, _Entry] = {}

    async def get(self, key: Hashable, seconds: float, compute: Callable[[], Awaitable[T]]) -> T:
        """The value of a key that is at most ``seconds`` old."""
        entry = self._entries.get(key)
        if entry is None or (entry.task.done() and (entry.expires <= self._now() or _has_failed(entry.task))):
            entry = _Entry(asyncio.ensure_future(_as_task(compute())), float("inf"))
            self._make_room()
            self._entries[key] = entry
            entry.task.add_done_callback(lambda _: self._finished(key, entry, seconds))
        # A viewer who leaves must not cancel the read for the others.
        result: T = await asyncio.shield(entry.task)
        return result

    def _finished(self, key: Hashable, entry: _Entry, seconds: float) -> None:
        entry.expires = self._now() + seconds
        if _has_failed(entry.task) and self._entries.get(key) is entry:
            del self._entries[key]

    def _make_room(self) -> None:
        if len(self._entries) >= MAX_ENTRIES:
            now = self._now()
            self._entries = {key: entry for key, entry in self._entries.items() if entry.expires > now}
        while len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def clear(self) -> None:
        """Forget everything: after a change, what is read next must have it."""
        self._entries.clear()


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _as_task(work: Awaitable[T]) -> T:
    return await work
