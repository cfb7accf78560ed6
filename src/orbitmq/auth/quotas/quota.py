"""Quota: requests per second of a name, such as a user or a topic. A second's worth may come at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NAMES = 100_000
"""Names whose requests are counted. Beyond that, those that have not sent for a second are forgotten."""


class Quota:
    """A token bucket for each name."""

    def __init__(self, per_second: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """``per_second`` is read at each request; without one, 0."""
        self._per_second = per_second
        self._now_ms = now_ms
        self._left: dict[str, tuple[float, int]] = {}
        """Requests that are left, at a time."""

    def __len__(self) -> int:
        return len(self._left)

    def admits(self, name: str) -> bool:
        """Count a request of this name; False if its quota is used up."""
        rate = self._per_second()
        if rate <= 0:
            return True
        now = self._now_ms()
        known = self._left.get(name)
        if known is None:
            if len(self._left) >= MAX_NAMES:
                self._forget(now)
            left = float(rate)
        else:
            # A clock that was set back must not stop everybody.
            left = min(float(rate), known[0] + max(now - known[1], 0) * rate / 1000)
        admitted = left >= 1
        self._left[name] = (left - 1 if admitted else left, now)
        return admitted

    def _forget(self, now: int) -> None:
        kept = {name: known for name, known in self._left.items() if 0 <= now - known[1] < 1000}
        self._left = kept if len(kept) < MAX_NAMES else {}
