"""Which brokers were slow or failed lately, and for how long they are avoided."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("orbitmq.client")

DETECT_PAUSE = 3.0
"""Seconds between two looks at which brokers are due for a probe, as in Java."""


@dataclasses.dataclass(frozen=True, slots=True)
class FaultLadder:
    """From which latency on a broker is avoided for how long, in seconds. Both go up, step by step."""

    latency_max: tuple[float, ...]
    not_available_duration: tuple[float, ...]
    isolation: float
    """The latency that a failure counts as."""
    is_legacy: bool = False
    """As up to 4.9: a shorter time to be avoided replaces a longer one, and reachability is not kept."""

    def __post_init__(self) -> None:
        if not self.latency_max or len(self.latency_max) != len(self.not_available_duration):
            raise ValueError("a ladder needs as many times to be avoided as it has latencies")
        if list(self.latency_max) != sorted(self.latency_max):
            raise ValueError("the latencies of a ladder must go up")

    def seconds(self, latency: float) -> float:
        """For how long a broker is avoided that took so long."""
        for step in range(len(self.latency_max) - 1, -1, -1):
            if latency >= self.latency_max[step]:
                return self.not_available_duration[step]
        return 0.0


LADDER_5 = FaultLadder(
    latency_max=(0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
    not_available_duration=(0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
    isolation=10.0,
)
"""Of RocketMQ 5."""

LADDER_4_9 = FaultLadder(
    latency_max=(0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
    not_available_duration=(0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
    isolation=30.0,
    is_legacy=True,
)
"""Of RocketMQ up to 4.9."""


@dataclasses.dataclass(slots=True)
class _Fault:
    latency: float
    avoided_until: float
    is_reachable: bool
    probed_until: float = 0.0
    """No probe before this."""


class FaultLatency:
    """What is known of the brokers that were sent to, by name. ``now`` is a clock in seconds that nobody sets."""

    __slots__ = ("_faults", "_now", "_turn", "ladder")

    def __init__(self, ladder: FaultLadder, now: Callable[[], float]) -> None:
        self.ladder = ladder
        self._now = now
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def update(self, broker_name: str, latency: float, *, failed: bool = False, is_reachable: bool = True) -> None:
        """A send to a broker took so long, or failed."""
        seconds = self.ladder.seconds(self.ladder.isolation if failed else latency)
        now = self._now()
        fault = self._faults.get(broker_name)
        if fault is None:
            self._faults[broker_name] = _Fault(latency, now + seconds, is_reachable)
            return
        fault.latency = latency
        fault.is_reachable = is_reachable
        if self.ladder.is_legacy or (seconds > 0 and now + seconds > fault.avoided_until):
            fault.avoided_until = now + seconds

    def is_available(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or self._now() >= fault.avoided_until

    def is_reachable(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def forget(self, broker_name: str) -> None:
        self._faults.pop(broker_name, None)

    def least_bad(self) -> str | None:
        """One of the better half of the brokers that are known, each time another. As up to 4.9."""
        now = self._now()
        ranked = sorted(
            self._faults,
            key=lambda name: (
                now < self._faults[name].avoided_until,
                self._faults[name].latency,
                self._faults[name].avoided_until,
            ),
        )
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(len(ranked) // 2, 1)]

    async def probe(self, interval: float, is_well: Callable[[str], Awaitable[bool | None]]) -> None:
        """Ask brokers that are due whether they are reachable again; None of one says that nobody knows it."""
        for broker_name in tuple(self._faults):
            fault = self._faults.get(broker_name)
            if fault is None or self._now() < fault.probed_until:
                continue
            fault.probed_until = self._now() + interval
            answer = await is_well(broker_name)
            if answer is None:
                self.forget(broker_name)
            elif answer and not fault.is_reachable:
                log.info("the broker %s is reachable again", broker_name)
                fault.is_reachable = True
