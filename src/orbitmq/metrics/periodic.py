"""Periodic export: collects a snapshot at an interval and passes it to an exporter, such as the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from orbitmq.metrics.instrument import Histogram
from orbitmq.metrics.prometheus_text import number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.metrics.snapshot import Snapshot

log = logging.getLogger("orbitmq.metrics")


class Exporter(Protocol):
    """Sends or writes snapshots. Called in a thread."""

    def export(self, snapshot: Snapshot, /) -> None:
        """May raise any exception; it is logged, and the next snapshot is tried."""
        ...

    def close(self) -> None: ...


class PeriodicExporter:
    """Runs an exporter between ``start`` and ``stop``."""

    def __init__(self, collect: Callable[[], Awaitable[Snapshot]], exporter: Exporter, interval: float) -> None:
        self._collect = collect
        self._exporter = exporter
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self._failure = ""

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Export what there is, once, and stop."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self._export()
        await asyncio.get_running_loop().run_in_executor(None, self._exporter.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._export()

    async def _export(self) -> None:
        try:
            snapshot = await self._collect()
            await asyncio.get_running_loop().run_in_executor(None, self._exporter.export, snapshot)
        except Exception as error:
            # Logged once, not at every interval, while the collector is away.
            if str(error) != self._failure:
                log.warning("metrics: export failed, will retry every %g s: %s", self._interval, error)
            self._failure = str(error)
        else:
            self._failure = ""


class LogExporter:
    """Writes every series as a log line."""

    def export(self, snapshot: Snapshot) -> None:
        for instrument, series in snapshot.families():
            for labels, value in series.items():
                text = ", ".join([f"{key}={one}" for key, one in labels])
                if isinstance(value, Histogram):
                    figures = f"count={value.count} sum={number(value.total)}"
                else:
                    figures = number(value)
                log.info("metrics: %s{%s} %s", instrument.prometheus_name, text, figures)

    def close(self) -> None:
        """Nothing to release."""
