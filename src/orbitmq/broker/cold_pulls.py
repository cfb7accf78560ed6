"""Pulls of records that are not in memory: they wait while a thread fetches these, and nobody else does."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store.cold_log import ColdLog, Range
    from orbitmq.store.service import RunBlocking

log = logging.getLogger("orbitmq.broker")

MOST_AT_ONCE = 2
"""Fetches that go on together; threads are for flushing too."""


class ColdPulls:
    """Fetches what is read, once for all who wait for it."""

    def __init__(self, cold: ColdLog, run_blocking: RunBlocking) -> None:
        self._cold = cold
        self._run_blocking = run_blocking
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._fetching: dict[Range, asyncio.Task[None]] = {}
        cold.fetch_ahead = self._begin

    def wait(self, gap: list[Range], answer: Callable[[], None]) -> None:
        """Call ``answer`` when a gap has been fetched, or could not be: whoever reads then waits for the disk."""
        for one in gap:
            self._begin(one)
        tasks = [self._fetching[one] for one in gap]
        missing = len(tasks)

        def done(_: asyncio.Task[None]) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                answer()

        for task in tasks:
            task.add_done_callback(done)

    async def stop(self) -> None:
        """Let everything end that was begun, and begin nothing more."""
        self._cold.fetch_ahead = None
        await asyncio.gather(*self._fetching.values())

    def _begin(self, wanted: Range) -> None:
        if wanted not in self._fetching:
            self._fetching[wanted] = asyncio.get_running_loop().create_task(self._fetch(wanted))

    async def _fetch(self, wanted: Range) -> None:
        try:
            async with self._room:
                await self._run_blocking(self._cold.fetching([wanted]))
        except OSError as error:
            log.warning("the log could not be read ahead from %d on: %s", wanted[0], error)
        finally:
            del self._fetching[wanted]
