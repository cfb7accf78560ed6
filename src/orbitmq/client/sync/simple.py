"""Blocking simple consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from orbitmq.client.simple.consumer import SimpleConsumer as AsyncSimpleConsumer
from orbitmq.client.sync.bridge import SyncMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.client.simple.config import SimpleOptions
    from orbitmq.client.simple.popped_message import PoppedMessage
    from orbitmq.protocol.bodies import MessageQueue

T = TypeVar("T")


class SimpleConsumer(SyncMember[AsyncSimpleConsumer]):
    """Receives and acknowledges. Any number of threads may do so at the same time.

    ::

        with SimpleConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            for message in consumer.receive():
                ...
                consumer.ack(message)

    Methods are those of ``orbitmq.aio.SimpleConsumer``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[SimpleOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError for invalid options."""
        super().__init__(AsyncSimpleConsumer(name_servers, group=group, **options))

    @property
    def group(self) -> str:
        return self._client.group

    def _call(self, work: Callable[[], T]) -> T:
        return work() if self._loop is None else self._call_on_loop(work)

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Subscribe to a topic; again to replace its filter."""
        self._call(lambda: self._client.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._call(lambda: self._client.unsubscribe(topic))

    def receive(
        self, max_messages: int | None = None, *, invisible: float | None = None, timeout: float | None = None
    ) -> list[PoppedMessage]:
        """Receive messages; empty after ``timeout`` seconds."""
        return self._running().do(self._client.receive(max_messages, invisible=invisible, timeout=timeout))

    def ack(self, *messages: PoppedMessage) -> None:
        """Acknowledge messages as consumed."""
        self._running().do(self._client.ack(*messages))

    def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Change for how long a message stays invisible, from now on; 0 redelivers it at once."""
        self._running().do(self._client.change_invisible(message, seconds))

    def dead_letter(self, message: PoppedMessage) -> None:
        """Move a message to the group's dead letter queue."""
        self._running().do(self._client.dead_letter(message))

    def lag(self) -> dict[MessageQueue, int]:
        """Messages of each queue of the topics that the group has not acknowledged. Raises OrbitMQError."""
        return self._running().do(self._client.lag())

    def __iter__(self) -> Iterator[PoppedMessage]:
        """Messages one by one, until the consumer is closed. The loop acknowledges each."""
        return self._iterate(aiter(self._client))
