"""A clock that runs as the event loop's does, and can be moved ahead."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from orbitmq.store.clock import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable


class MovableClock(Clock, Protocol):
    """A clock whose owner may let time pass: ``LoopClock`` and ``ManualClock``."""

    def advance(self, ms: int) -> None:
        """Let this many milliseconds pass."""


class LoopClock:
    """Starts with this machine's time and goes on as ``seconds`` does, which is a loop's ``time``.

    A loop in virtual time makes it virtual too. Its local time is UTC, so a test means the same on every machine.
    """

    __slots__ = ("_began", "_seconds", "_start_ms")

    def __init__(self, seconds: Callable[[], float], start_ms: int | None = None) -> None:
        self._seconds = seconds
        self._began = seconds()
        self._start_ms = SystemClock().now_ms() if start_ms is None else start_ms

    def now_ms(self) -> int:
        return self._start_ms + int((self._seconds() - self._began) * 1000)

    def hour(self) -> int:
        return time.gmtime(self.now_ms() // 1000).tm_hour

    def stamp(self) -> str:
        now = self.now_ms()
        return time.strftime("%Y%m%d%H%M%S", time.gmtime(now // 1000)) + f"{now % 1000:03d}"

    def advance(self, ms: int) -> None:
        """Let this many milliseconds pass at once."""
        if ms < 0:
            raise ValueError(f"time passes forward, not by {ms} ms")
        self._start_ms += ms
