"""Persistence of consumer offsets: writes those of all groups to ``consumerOffset.json``, in the background."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.store import StoreError
from orbitmq.store.config_tables import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.runtime import BrokerRuntime

log = logging.getLogger("orbitmq.broker")


class OffsetPersistence:
    """Writes the table at most once at a time; a failure is retried at the next interval."""

    def __init__(self, runtime: BrokerRuntime, offsets: OffsetTable, required_end: Callable[[], int]) -> None:
        """``required_end`` returns the end of the log that has to be safe before the offsets are written.

        A pop moves its group on because a check point in the log will bring the messages back. After a power cut
        that left the offset and not the check point they would be lost.
        """
        self._flushed = runtime.flushed
        self._writer = runtime.writer
        self._offsets = offsets
        self._required_end = required_end
        self._persisting: asyncio.Task[None] | None = None

    def persist(self) -> None:
        """Begin to write the offsets, unless that is in progress or nothing has changed."""
        if self._persisting is None or self._persisting.done():
            self._persisting = asyncio.get_running_loop().create_task(self._persist())

    async def stop(self) -> None:
        """Wait for the write that is in progress."""
        if self._persisting is not None:
            await self._persisting

    async def _persist(self) -> None:
        try:
            table = await self._offsets.take_changed()
            if table is None:
                return
            end = self._required_end()
            if end:
                await self._flushed(end)
        except Exception as error:
            # Otherwise what has changed would be written after the next commit of a client only.
            self._offsets.mark_changed()
            log.warning(
                "offsets: failed to persist consumer offsets, will retry: %s",
                error,
                exc_info=None if isinstance(error, StoreError) else error,
            )
            return
        self._writer.mark(CONSUMER_OFFSETS, lambda: table, is_copy=True)
