"""Lease of a master: how long it may acknowledge messages without an answer of the controllers.

It begins when the request was sent whose answer names this broker as the master. The clock goes on while the
process or the machine is suspended: a master that was stopped and resumed must ask before it acknowledges anything.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """Seconds since the machine was started, those in which it was suspended included."""
    return time.clock_gettime(_CLOCK)


class Lease:
    """The lease of one term."""

    __slots__ = ("_config", "_renewed", "now")

    def __init__(self, config: BrokerConfig, now: Callable[[], float] = boot_time) -> None:
        self._config = config
        self.now = now
        self._renewed: float | None = None

    def renew(self, sent: float) -> None:
        """The controllers confirmed this master in an answer to a request that was sent at this time."""
        self._renewed = sent if self._renewed is None else max(self._renewed, sent)

    @property
    def seconds(self) -> float:
        return self._config.controller_heart_beat_timeout_mills / 1000

    @property
    def age(self) -> float:
        """Seconds since it was renewed; infinite if it never was."""
        return float("inf") if self._renewed is None else self.now() - self._renewed

    @property
    def is_valid(self) -> bool:
        """True if this master may acknowledge messages now."""
        return not self._config.fence_without_controller or self.age < self.seconds

    @property
    def is_in_doubt(self) -> bool:
        """True once half of it has passed: requests of this master, or their answers, are lost."""
        return self.age >= self.seconds / 2
