"""Clock and random source: the interfaces through which everything else reads time and randomness."""

from __future__ import annotations

import os
import time
from random import Random
from typing import Protocol


class Clock(Protocol):
    """Source of time. A simulation hands in its own."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since some moment, never going back: for durations and deadlines."""

    def hour(self) -> int:
        """The local hour of the day, 0 to 23 (``deleteWhen`` is given in local time)."""

    def stamp(self) -> str:
        """The local time as 17 digits, ``yyyyMMddHHmmssSSS``, as index files are named."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def hour(self) -> int:
        return time.localtime().tm_hour

    def stamp(self) -> str:
        now = time.time_ns() // 1_000_000
        return time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"


SYSTEM_CLOCK = SystemClock()

SYSTEM_RANDOM = Random()
"""Random numbers that a forked process does not share with its parent."""

os.register_at_fork(after_in_child=SYSTEM_RANDOM.seed)
