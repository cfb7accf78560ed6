"""Cold reads: pulls of records that are not in the page cache wait for a thread that reads them ahead.

The event loop, and with it all other requests, does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.threads import RunBlocking
    from orbitmq.store.commitlog.cold_data import ColdData, Range

log = logging.getLogger("orbitmq.broker")

MAX_FETCHES = 2
"""Concurrent fetches; the threads are needed for flushes too."""


class ColdPulls:
    """Fetches cold ranges of the log, each once for all pulls that wait for it."""

    def __init__(self, cold: ColdData, run_blocking: RunBlocking) -> None:
        self._cold = cold
        self._run_blocking = run_blocking
        self._slots = asyncio.Semaphore(MAX_FETCHES)
        self._fetching: dict[Range, asyncio.Task[None]] = {}
        cold.fetch_ahead = self._begin

    def wait(self, gap: list[Range], answer: Callable[[], None]) -> None:
        """Call ``answer`` when the cold ranges are fetched, or could not be: the read then blocks on the disk."""
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
        """Wait for the fetches in progress, and begin no others."""
        self._cold.fetch_ahead = None
        await asyncio.gather(*self._fetching.values())

    def _begin(self, wanted: Range) -> None:
        if wanted not in self._fetching:
            self._fetching[wanted] = asyncio.get_running_loop().create_task(self._fetch(wanted))

    async def _fetch(self, wanted: Range) -> None:
        try:
            async with self._slots:
                await self._run_blocking(self._cold.fetching([wanted]))
        except OSError as error:
            log.warning("pull: read-ahead of the log failed at %d: %s", wanted[0], error)
        finally:
            del self._fetching[wanted]
