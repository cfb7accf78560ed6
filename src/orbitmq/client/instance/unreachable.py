"""Unreachable brokers: addresses that refused a connection a moment ago; readers use another replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_SECONDS = 2.0
MAX_SECONDS = 30.0
"""An address is avoided for so long after a failed attempt to connect; the time doubles with every further failure.
A connection ends it at once: heartbeats try all brokers of a consumer every half minute."""

MAX_ADDRESSES = 10_000
"""Beyond that the table is cleared: brokers that moved leave their old addresses behind."""


class UnreachableBrokers:
    """Addresses that readers avoid while another replica has the queue."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._avoided: dict[str, tuple[float, float]] = {}
        """By address, the end of the time for which it is avoided, and its length."""

    def failed(self, address: str) -> None:
        """An attempt to connect failed."""
        if len(self._avoided) >= MAX_ADDRESSES:
            self._avoided.clear()
        _, seconds = self._avoided.get(address, (0.0, FIRST_SECONDS / 2))
        seconds = min(seconds * 2, MAX_SECONDS)
        self._avoided[address] = self._monotonic() + seconds, seconds

    def connected(self, address: str) -> None:
        """A connection was opened."""
        self._avoided.pop(address, None)

    def __contains__(self, address: object) -> bool:
        avoided = self._avoided.get(address) if isinstance(address, str) else None
        return avoided is not None and self._monotonic() < avoided[0]
