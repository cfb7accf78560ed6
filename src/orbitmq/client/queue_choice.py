"""Which queue a message goes to: in turn, past brokers that failed, by a key, or as an application says."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.java import string_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.client.fault_latency import FaultLatency
    from orbitmq.client.messages import Message
    from orbitmq.protocol.bodies import MessageQueue

    Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]
    """Chooses one of the queues of a topic for a message; the last argument is what the sender gave with it."""

_POSITIVE = 0x7FFFFFFF


class OnBroker(Protocol):
    """A queue, in whatever form."""

    @property
    def broker_name(self) -> str: ...


Q = TypeVar("Q", bound=OnBroker)


class InTurn:
    """The queues of one topic in turn, from a random one on, so that many producers do not go in step."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at = random.getrandbits(31)

    def next(self, queues: Sequence[Q]) -> Q:
        self._at = at = self._at + 1 & _POSITIVE
        return queues[at % len(queues)]

    def next_elsewhere(self, queues: Sequence[Q], last_broker: str) -> Q:
        """The next queue of another broker than the one that failed, if there is another."""
        for _ in queues:
            queue = self.next(queues)
            if queue.broker_name != last_broker:
                return queue
        return self.next(queues)

    def next_good(self, queues: Sequence[Q], last_broker: str | None, faults: FaultLatency) -> Q:
        """The next queue of a broker that is not avoided at present."""
        if faults.ladder.is_legacy:
            return self._next_good_as_4_9(queues, faults)
        if last_broker is not None:
            self._at = random.getrandbits(31)
        for is_good in (faults.is_available, faults.is_reachable):
            for _ in queues:
                queue = self.next(queues)
                if queue.broker_name != last_broker and is_good(queue.broker_name):
                    return queue
        return self.next(queues)

    def _next_good_as_4_9(self, queues: Sequence[Q], faults: FaultLatency) -> Q:
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
    """``hashCode`` of what Java would have in the place of this value."""
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
    """The place among ``count`` queues that Java's selector by hash gives to a value."""
    # The sign of a remainder in Java is that of the dividend, and its selector takes it away after dividing.
    return abs(java_hash(value)) % count


def by_hash(queues: Sequence[MessageQueue], _: Message, arg: object) -> MessageQueue:
    """A selector: messages sent with the same argument go to the same queue, the one that Java would choose."""
    return queues[index_by_hash(arg, len(queues))]


def by_random(queues: Sequence[MessageQueue], _: Message, __: object) -> MessageQueue:
    """A selector: any queue."""
    return random.choice(queues)
