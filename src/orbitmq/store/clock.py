"""The seam between the store and time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the store asks for the time, so that a simulator can answer."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def hour(self) -> int:
        """The local hour of the day, 0 to 23 (``deleteWhen`` is given in local time)."""

    def stamp(self) -> str:
        """The local time as 17 digits, ``yyyyMMddHHmmssSSS``, as index files are named."""


class SystemClock:
    """This machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def hour(self) -> int:
        return time.localtime().tm_hour

    def stamp(self) -> str:
        now = time.time_ns() // 1_000_000
        return time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
