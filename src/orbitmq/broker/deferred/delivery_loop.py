"""Delivery loop: runs a service of deferred messages in bounded slices on the event loop, with retry and wake-up.

Shared by delay levels and the timer. A slice takes about a millisecond, so a million messages that are due at once
are delivered at full throughput and requests of clients are served in between.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.quarantine import is_transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

SLICE_RECORDS = 128
SLICE_BYTES = 256 * 1024
"""Limits of one slice: about a millisecond of work."""

RETRY_MS = 100
"""Backoff after the store refused an append, and while a deferred message is not yet visible."""

MAX_WAIT_MS = 1000
"""Longest time between two slices: the wall clock may be set, and the timers of the event loop do not follow it."""


class SliceBudget:
    """Records and bytes that one slice may still deliver."""

    __slots__ = ("records", "size")

    def __init__(self) -> None:
        self.records = SLICE_RECORDS
        self.size = SLICE_BYTES

    def spend(self, records: int, size: int) -> None:
        self.records -= records
        self.size -= size

    @property
    def is_spent(self) -> bool:
        return self.records <= 0 or self.size <= 0


class RepeatedWarning:
    """A warning about a failure that persists over retries: logged when its text changes, until ``clear``."""

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = ""

    def log(self, text: str, error: BaseException) -> None:
        """Log the warning, with a traceback if the error is not a transient one of the store."""
        if text != self.text:
            self.text = text
            log.warning("%s", text, exc_info=None if is_transient(error) else error)

    def clear(self) -> None:
        self.text = ""


class DeliveryLoop:
    """Calls ``run_slice`` on the event loop between ``start`` and ``stop``.

    ``run_slice`` does at most one slice of work and returns the time, in milliseconds of the clock, at which it has
    more to do. It is called then, but after ``MAX_WAIT_MS`` at the latest. If it raises, it is called again after
    that time: a failure must not end delivery.
    """

    __slots__ = ("_clock", "_handle", "_is_running", "_name", "_run_slice", "_wakes_at_ms")

    def __init__(self, name: str, clock: Clock, run_slice: Callable[[], int]) -> None:
        """``name`` of the service, for log lines."""
        self._name = name
        self._clock = clock
        self._run_slice = run_slice
        self._is_running = False
        self._wakes_at_ms = 0
        self._handle: asyncio.TimerHandle | asyncio.Handle | None = None

    def start(self) -> None:
        self._is_running = True
        self._wake_at(0)

    def stop(self) -> None:
        self._is_running = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def wake_by(self, time_ms: int) -> None:
        """Run the next slice at this time if it is planned for later."""
        if self._is_running and time_ms < self._wakes_at_ms:
            self._wake_at(time_ms)

    def _wake_at(self, time_ms: int) -> None:
        if self._handle is not None:
            self._handle.cancel()
        now = self._clock.now_ms()
        self._wakes_at_ms = min(time_ms, now + MAX_WAIT_MS)
        loop = asyncio.get_running_loop()
        wait = self._wakes_at_ms - now
        self._handle = loop.call_later(wait / 1000, self._wake) if wait > 0 else loop.call_soon(self._wake)

    def _wake(self) -> None:
        try:
            next_ms = self._run_slice()
        except Exception:
            log.exception("%s: delivery failed, will retry in %d ms", self._name, MAX_WAIT_MS)
            next_ms = self._clock.now_ms() + MAX_WAIT_MS
        if self._is_running:
            self._wake_at(next_ms)
