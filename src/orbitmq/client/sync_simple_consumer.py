"""The simple consumer for plain code: each verb waits until it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, Unpack

from orbitmq.client.simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from orbitmq.client.sync_loop import SyncFace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.client.popped_message import PoppedMessage
    from orbitmq.client.simple_consumer_config import SimpleOptions

T = TypeVar("T")


class SimpleConsumer(SyncFace[AsyncSimpleConsumer]):
    """Receives and acknowledges. Any number of threads may do so at the same time.

    ::

        with SimpleConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            for message in consumer.receive():
                ...
                consumer.ack(message)

    See ``orbitmq.aio.SimpleConsumer``, whose verbs these are.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[SimpleOptions],
    ) -> None:
        """Nothing is connected before ``start``. Raises InvalidMessageError for options that cannot be."""
        super().__init__(AsyncSimpleConsumer(name_servers, group=group, **options))

    @property
    def group(self) -> str:
        return self._client.group

    def _anywhere(self, work: Callable[[], T]) -> T:
        return work() if self._loop is None else self._there(work)

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Receive messages of a topic too; again to change what is wanted of it."""
        self._anywhere(lambda: self._client.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        self._anywhere(lambda: self._client.unsubscribe(topic))

    def receive(
        self, max_messages: int | None = None, *, invisible: float | None = None, timeout: float | None = None
    ) -> list[PoppedMessage]:
        """Some messages, as soon as there are any; none after ``timeout`` seconds."""
        return self._running().do(self._client.receive(max_messages, invisible=invisible, timeout=timeout))

    def ack(self, *messages: PoppedMessage) -> None:
        """Say that messages are done: they never come again."""
        self._running().do(self._client.ack(*messages))

    def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Have a message hidden for so long from now on; 0 to have it again at once, or others."""
        self._running().do(self._client.change_invisible(message, seconds))

    def dead_letter(self, message: PoppedMessage) -> None:
        """Give a message up: it is put under ``%DLQ%`` and the group's name."""
        self._running().do(self._client.dead_letter(message))
