"""ManualClock: virtual time that moves only by ``advance``."""

from __future__ import annotations

import time


class ManualClock:
    """Virtual time for a store. Its local time is UTC, so a test means the same on every machine."""

    __slots__ = ("_now_ms", "_passed_ms")

    def __init__(self, start_ms: int = 0) -> None:
        if start_ms < 0:
            raise ValueError(f"start_ms is milliseconds since the epoch, not {start_ms}")
        self._now_ms = start_ms
        self._passed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        # From 0, as after a reboot: native code compares deadlines with the monotonic clock of the machine.
        return self._passed_ms / 1000

    def hour(self) -> int:
        return time.gmtime(self._now_ms // 1000).tm_hour

    def stamp(self) -> str:
        seconds = time.strftime("%Y%m%d%H%M%S", time.gmtime(self._now_ms // 1000))
        return f"{seconds}{self._now_ms % 1000:03d}"

    def advance(self, ms: int) -> None:
        """Move time forward by ``ms`` milliseconds."""
        if ms < 0:
            raise ValueError(f"time passes forward, not by {ms} ms")
        self._now_ms += ms
        self._passed_ms += ms
