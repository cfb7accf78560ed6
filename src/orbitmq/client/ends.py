"""What the shared part of clients asks of the producers and consumers that it works for."""

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
    from orbitmq.protocol.record import Record
    from orbitmq.remoting import Connection


class ProducerEnd(Protocol):
    """A producer, as its client instance knows it."""

    group: str

    def topics(self) -> Iterable[str]:
        """The topics whose routes have to be kept fresh."""


@runtime_checkable
class TransactionEnd(ProducerEnd, Protocol):
    """A producer that can be asked about transactions."""

    def check_transaction(self, connection: Connection, fields: dict[str, str], record: Record) -> None:
        """A broker wants to know what became of one (39)."""


class ConsumerEnd(Protocol):
    """A consumer, as its client instance knows it. What brokers ask for is handed on to it by group."""

    group: str

    def topics(self) -> Iterable[str]:
        """The topics whose routes have to be kept fresh."""

    def heartbeat(self) -> ConsumerData:
        """What brokers are told of it."""

    def rebalance_soon(self) -> None:
        """The members of the group, or the queues of a topic, may have changed."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """A tool wants the group to go on at other offsets (220)."""

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        """How far it has come with the queues of a topic (221)."""

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """How it is doing (307)."""

    def consume_directly(
        self, record: Record, broker_name: str
    ) -> Coroutine[None, None, ConsumeMessageDirectlyResult]:
        """Consume one message now and say what came of it (309)."""
