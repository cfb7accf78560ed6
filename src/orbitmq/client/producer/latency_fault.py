"""Latency fault tolerance: avoids brokers that were slow or failed recently (RocketMQ: LatencyFaultTolerance)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.producer.config import ProducerConfig
    from orbitmq.client.producer.send import Sender

log = logging.getLogger("orbitmq.client")

DETECT_PAUSE = 3.0
"""Seconds between two checks for due probes, as in Java."""


@dataclasses.dataclass(frozen=True, slots=True)
class FaultLadder:
    """Steps from a latency to the time for which a broker is avoided, in seconds, both ascending."""

    latency_max: tuple[float, ...]
    not_available_duration: tuple[float, ...]
    isolation: float
    """Latency that a failure counts as."""
    is_legacy: bool = False
    """Rules of RocketMQ up to 4.9: a shorter time replaces a longer one, and reachability is not tracked."""

    def __post_init__(self) -> None:
        if not self.latency_max or len(self.latency_max) != len(self.not_available_duration):
            raise ValueError("a ladder needs as many not_available_duration as latency_max values")
        if list(self.latency_max) != sorted(self.latency_max):
            raise ValueError("the latencies of a ladder must ascend")

    def seconds(self, latency: float) -> float:
        """For how long a broker with this latency is avoided."""
        for step in range(len(self.latency_max) - 1, -1, -1):
            if latency >= self.latency_max[step]:
                return self.not_available_duration[step]
        return 0.0


LADDER_5 = FaultLadder(
    latency_max=(0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
    not_available_duration=(0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
    isolation=10.0,
)
"""RocketMQ 5."""

LADDER_4_9 = FaultLadder(
    latency_max=(0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
    not_available_duration=(0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
    isolation=30.0,
    is_legacy=True,
)
"""RocketMQ up to 4.9."""


@dataclasses.dataclass(slots=True)
class _Fault:
    latency: float
    avoided_until: float
    is_reachable: bool
    probed_until: float = 0.0
    """No probe before this."""


class LatencyFaults:
    """Latency and faults by broker name. ``now`` is a monotonic clock in seconds."""

    __slots__ = ("_faults", "_now", "_turn", "ladder")

    def __init__(self, ladder: FaultLadder, now: Callable[[], float]) -> None:
        self.ladder = ladder
        self._now = now
        self._faults: dict[str, _Fault] = {}
        self._turn = 0

    def update(self, broker_name: str, latency: float, *, failed: bool = False, is_reachable: bool = True) -> None:
        """Record the latency or failure of a send."""
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
        """A broker of the better half, round robin, as in RocketMQ up to 4.9."""
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
        """Probe brokers that are due. ``is_well`` returns None for an unknown broker."""
        for broker_name in tuple(self._faults):
            fault = self._faults.get(broker_name)
            if fault is None or self._now() < fault.probed_until:
                continue
            fault.probed_until = self._now() + interval
            answer = await is_well(broker_name)
            if answer is None:
                self.forget(broker_name)
            elif answer and not fault.is_reachable:
                log.info("latency faults: the broker %s is reachable again", broker_name)
                fault.is_reachable = True


class BrokerDetector:
    """Probes brokers of topics that were sent to, and that a fault made unreachable (``start_detector_enable``)."""

    def __init__(
        self, instance: ClientInstance, sender: Sender, config: ProducerConfig, faults: LatencyFaults
    ) -> None:
        self._instance = instance
        self._sender = sender
        self._config = config
        self._faults = faults

    async def run(self) -> None:
        """Probe what is due, until cancelled."""
        while True:
            await asyncio.sleep(DETECT_PAUSE)
            await self._faults.probe(self._config.detect_interval, self._is_well)

    async def _is_well(self, broker_name: str) -> bool | None:
        """True if a broker responds; None if its address is unknown."""
        for topic in self._sender.wire_topics():
            address = self._instance.address(topic, broker_name)
            if address is None:
                continue
            request = Command(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": topic, "queueId": "0"})
            try:
                await self._instance.call(address, request, self._config.detect_timeout)
            except (RemotingError, OrbitMQError):
                return False
            return True
        return None
