"""Flush trigger: flushes internally generated appends; under SYNC_FLUSH they become visible only once flushed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.store import MessageStore


class FlushTrigger:
    """Call it after appends. Under ASYNC_FLUSH it does nothing."""

    __slots__ = ("_flushed", "_flushing", "_is_wanted", "_once_more", "_store")

    def __init__(self, store: MessageStore, flushed: Callable[[int], Awaitable[None]]) -> None:
        self._store = store
        self._flushed = flushed
        self._flushing: asyncio.Future[None] | None = None
        self._once_more = False
        self._is_wanted = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def __call__(self) -> None:
        if not self._is_wanted:
            return
        if self._flushing is not None:
            self._once_more = True
            return
        self._once_more = False
        self._flushing = asyncio.ensure_future(self._flushed(self._store.log.end))
        self._flushing.add_done_callback(self._done)

    def _done(self, flushing: asyncio.Future[None]) -> None:
        self._flushing = None
        # A flush error is reported to the next producer request.
        if not flushing.cancelled() and flushing.exception() is None and self._once_more:
            self()
