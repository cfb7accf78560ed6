"""Interfaces of the producers and consumers that register with a client instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from orbitmq.protocol.bodies import (
        ConsumeMessageDirectlyResult,
        ConsumerData,
        ConsumerRunningInfo,
        MessageQueue,
    )
    from orbitmq.protocol.message.record import Record
    from orbitmq.remoting import Connection


class RegisteredProducer(Protocol):
    """A producer, as its client instance sees it."""

    group: str

    def topics(self) -> Iterable[str]:
        """Topics whose routes the instance refreshes."""


@runtime_checkable
class RegisteredTransactionProducer(RegisteredProducer, Protocol):
    """A producer that responds to transaction checks."""

    def check_transaction(self, connection: Connection, fields: dict[str, str], record: Record) -> None:
        """Check the state of a local transaction for a broker (request code 39)."""


class RegisteredConsumer(Protocol):
    """A consumer, as its client instance sees it. Requests from brokers are dispatched by group."""

    group: str

    def topics(self) -> Iterable[str]:
        """Topics whose routes the instance refreshes."""

    def heartbeat(self) -> ConsumerData:
        """Its part of the heartbeat."""

    def rebalance_soon(self) -> None:
        """Schedule a rebalance: members of the group or queues of a topic may have changed."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Move the group to these offsets, as an admin tool requested (220)."""

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """Consumed offsets of a topic's queues (221)."""

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Run-time state for admin tools (307)."""

    def consume_directly(
        self, record: Record, broker_name: str
    ) -> Coroutine[None, None, ConsumeMessageDirectlyResult]:
        """Consume one message now and return the result (309)."""
