"""Timer rates: messages entered and delivered per second."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.store import Clock

INTERVAL_MS = 1000
POINTS = 11
"""Rates are averages of the last ten seconds."""


class TimerRates:
    """Two counters with samples of the last seconds."""

    def __init__(self, clock: Clock) -> None:
        self.entered = 0
        self.delivered = 0
        self._points = collections.deque([(clock.now_ms(), 0, 0)], POINTS)

    def sample(self, now_ms: int) -> None:
        """Take a sample if the last one is old enough."""
        if not 0 <= now_ms - self._points[-1][0] < INTERVAL_MS:
            self._points.append((now_ms, self.entered, self.delivered))

    def per_second(self) -> tuple[float, float]:
        """Rates of messages entered and delivered."""
        (begin, entered, delivered), (end, entered_now, delivered_now) = self._points[0], self._points[-1]
        seconds = max(end - begin, INTERVAL_MS) / 1000
        return (entered_now - entered) / seconds, (delivered_now - delivered) / seconds
