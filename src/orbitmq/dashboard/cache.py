"""Short cache of reads: many viewers of a page cost a cluster as much as one."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

T = TypeVar("T")

MAX_ENTRIES = 512
REST = 5
"""A value lives for so many times as long as it took to compute, if that is longer than its lifetime."""


@dataclasses.dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Any]
    expires: float = float("inf")
    before: asyncio.Task[Any] | None = None
    """The value before it, for those who may have an old one."""


class Cache:
    """Values with a lifetime. Concurrent reads of a key share one computation; errors are not kept."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._entries: dict[Hashable, _Entry] = {}

    async def get(
        self, key: Hashable, seconds: float, compute: Callable[[], Awaitable[T]], *, may_be_old: bool = False
    ) -> T:
        """The value of a key that is at most ``seconds`` old.

        With ``may_be_old`` an older one, if there is one, while the next is being computed.
        """
        entry = self._entries.get(key)
        if entry is None or (entry.task.done() and entry.expires <= self._now()):
            before = entry.task if entry is not None and may_be_old else None
            entry = _Entry(asyncio.ensure_future(_as_task(compute())), before=before)
            self._make_room()
            self._entries[key] = entry
            self._finish(key, entry, seconds)
        if entry.before is not None and not entry.task.done():
            old: T = entry.before.result()
            return old
        # A viewer who leaves must not cancel the read for the others.
        result: T = await asyncio.shield(entry.task)
        return result

    def _finish(self, key: Hashable, entry: _Entry, seconds: float) -> None:
        """Begin the lifetime of a value when it is there; an error is forgotten."""
        begun = self._now()

        def done(task: asyncio.Task[Any]) -> None:
            now = self._now()
            entry.expires = now + max(seconds, (now - begun) * REST)
            entry.before = None
            failed = task.cancelled() or task.exception() is not None
            if failed and self._entries.get(key) is entry:
                del self._entries[key]

        entry.task.add_done_callback(done)

    def _make_room(self) -> None:
        if len(self._entries) >= MAX_ENTRIES:
            now = self._now()
            self._entries = {key: entry for key, entry in self._entries.items() if entry.expires > now}
        while len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]

    def clear(self, *, keep: Hashable = None) -> None:
        """Forget everything but one key, which expires: after a change, what is read next must have it."""
        kept = self._entries.get(keep)
        self._entries.clear()
        if kept is not None and kept.task.done():
            kept.expires = self._now()
            self._entries[keep] = kept


async def _as_task(work: Awaitable[T]) -> T:
    return await work
