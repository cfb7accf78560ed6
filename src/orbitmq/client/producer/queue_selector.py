"""Queue selection: round robin past failed brokers, by hash of a key, or by the application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from orbitmq.client.errors import InvalidMessageError
from orbitmq.platform.clock import SYSTEM_RANDOM
from orbitmq.protocol.java import string_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from orbitmq.client.message import Message
    from orbitmq.client.producer.latency_fault import LatencyFaults
    from orbitmq.protocol.bodies import MessageQueue

    Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]
    """Chooses a queue of a topic for a message. The last argument is the sender's ``arg``."""

_POSITIVE = 0x7FFFFFFF


class OnBroker(Protocol):
    """A queue in any form."""

    @property
    def broker_name(self) -> str: ...


Q = TypeVar("Q", bound=OnBroker)


class RoundRobin:
    """Round robin over the queues of a topic. It starts at random, so that producers do not move in lockstep."""

    __slots__ = ("_at", "_random")

    def __init__(self, random: Random = SYSTEM_RANDOM) -> None:
        self._random = random
        self._at = random.getrandbits(31)

    def next(self, queues: Sequence[Q]) -> Q:
        self._at = at = self._at + 1 & _POSITIVE
        return queues[at % len(queues)]

    def next_elsewhere(self, queues: Sequence[Q], last_broker: str) -> Q:
        """The next queue on a broker other than the failed one, if there is one."""
        for _ in queues:
            queue = self.next(queues)
            if queue.broker_name != last_broker:
                return queue
        return self.next(queues)

    def next_good(self, queues: Sequence[Q], last_broker: str | None, faults: LatencyFaults) -> Q:
        """The next queue of a broker that is not avoided."""
        if faults.ladder.is_legacy:
            return self._next_good_as_4_9(queues, faults)
        if last_broker is not None:
            self._at = self._random.getrandbits(31)
        for is_good in (faults.is_available, faults.is_reachable):
            for _ in queues:
                queue = self.next(queues)
                if queue.broker_name != last_broker and is_good(queue.broker_name):
                    return queue
        return self.next(queues)

    def _next_good_as_4_9(self, queues: Sequence[Q], faults: LatencyFaults) -> Q:
        for _ in queues:
            queue = self.next(queues)
            if faults.is_available(queue.broker_name):
                return queue
        least_bad = faults.least_bad()
        if least_bad is not None:
            on_it = [queue for queue in queues if queue.broker_name == least_bad]
            if on_it:
                return self.next(on_it)
            faults.forget(least_bad)
        return self.next(queues)


def java_hash(value: object) -> int:
    """Java's ``hashCode`` of a value."""
    if isinstance(value, str):
        return string_hash(value)
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return value
        if -(1 << 63) <= value < 1 << 63:
            bits = (value ^ value >> 32) & 0xFFFFFFFF
            return bits - (1 << 32) if bits >> 31 else bits
    raise InvalidMessageError(f"queues are chosen by the hash of a text or a 64-bit number, not of {value!r}")


def index_by_hash(value: object, count: int) -> int:
    """Index among ``count`` queues that Java's SelectMessageQueueByHash chooses for a value."""
    # Java's remainder has the sign of the dividend; its selector takes the absolute value afterwards.
    return abs(java_hash(value)) % count


def by_hash(queues: Sequence[MessageQueue], _: Message, arg: object) -> MessageQueue:
    """Selector: messages with the same ``arg`` go to the same queue, as with Java's SelectMessageQueueByHash."""
    return queues[index_by_hash(arg, len(queues))]


def by_random(queues: Sequence[MessageQueue], _: Message, __: object) -> MessageQueue:
    """Selector: a random queue."""
    return SYSTEM_RANDOM.choice(queues)
