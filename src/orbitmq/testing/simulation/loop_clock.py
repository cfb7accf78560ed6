"""LoopClock: a clock that follows an event loop's time and can be advanced."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from orbitmq.platform.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable


class MovableClock(Clock, Protocol):
    """A clock that can be advanced: ``LoopClock`` and ``ManualClock``."""

    def advance(self, ms: int) -> None:
        """Move time forward by ``ms`` milliseconds."""


class LoopClock:
    """Starts at the system time and advances with ``seconds``, the ``time`` of an event loop.

    A loop in virtual time makes the clock virtual. Local time is UTC, so a test means the same on every machine.
    """

    __slots__ = ("_advanced_ms", "_began", "_seconds", "_start_ms")

    def __init__(self, seconds: Callable[[], float], start_ms: int | None = None) -> None:
        self._seconds = seconds
        self._began = seconds()
        self._start_ms = SystemClock().now_ms() if start_ms is None else start_ms
        self._advanced_ms = 0

    def now_ms(self) -> int:
        return self._start_ms + self._advanced_ms + int((self._seconds() - self._began) * 1000)

    def monotonic(self) -> float:
        return self._seconds() - self._began + self._advanced_ms / 1000

    def hour(self) -> int:
        return time.gmtime(self.now_ms() // 1000).tm_hour

    def stamp(self) -> str:
        now = self.now_ms()
        return time.strftime("%Y%m%d%H%M%S", time.gmtime(now // 1000)) + f"{now % 1000:03d}"

    def advance(self, ms: int) -> None:
        """Move time forward by ``ms`` milliseconds."""
        if ms < 0:
            raise ValueError(f"time passes forward, not by {ms} ms")
        self._advanced_ms += ms
