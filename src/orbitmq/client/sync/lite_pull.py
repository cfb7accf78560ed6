"""Blocking lite pull consumer: ``poll`` waits for messages, and the consumer is an iterator."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from orbitmq.client.lite_pull.consumer import LitePullConsumer as AsyncLitePullConsumer
from orbitmq.client.sync.bridge import SyncMember

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.lite_pull.config import LitePullOptions
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.sync.bridge import SyncLoop
    from orbitmq.protocol.bodies import MessageQueue

T = TypeVar("T")

AHEAD = 128
"""Messages that an iteration takes from the loop at a time."""


class LitePullConsumer(SyncMember[AsyncLitePullConsumer]):
    """Pulls messages.

    ::

        with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            for message in consumer:
                ...

    Methods are those of ``orbitmq.aio.LitePullConsumer``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[LitePullOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError for invalid options."""
        super().__init__(AsyncLitePullConsumer(name_servers, group=group, **options))
        self._ahead: collections.deque[PulledMessage] = collections.deque()
        """Polled for the iteration and not handed out yet. Before any other call they are given back."""
        self._in_hand = 0
        """Offset of the message that was handed out last."""

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._client.group

    def _running(self) -> SyncLoop:
        loop = super()._running()
        if self._ahead:
            unread = list(self._ahead)
            self._ahead.clear()
            loop.do(_called(lambda: self._client.give_back(unread, self._in_hand)))
        return loop

    def close(self) -> None:
        """Wait for work in flight, then leave. Does nothing if it was never started."""
        if self._loop is not None:
            self._running()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # After an exception, the polled messages are delivered again.
        if self._loop is not None:
            self._running()
        self._end(lambda: self._client.__aexit__(kind, error, None))

    def _call(self, work: Callable[[], T]) -> T:
        """Call a function on the client's loop, or here before the start."""
        return work() if self._loop is None else self._call_on_loop(work)

    # Subscription and assignment

    def subscribe(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        message_queue_listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
        | None = None,
    ) -> None:
        """Subscribe to a topic, whose queues the group shares; again to replace the filter."""
        self._call(
            lambda: self._client.subscribe(topic, tags=tags, sql=sql, message_queue_listener=message_queue_listener)
        )

    def unsubscribe(self, topic: str) -> None:
        self._call(lambda: self._client.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Assign exactly these queues, independent of the group's other members."""
        chosen = list(queues)
        self._call(lambda: self._client.assign(chosen))

    def set_sub_expression_for_assign(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Set the filter of a topic whose queues are assigned. Only before the start."""
        self._client.set_sub_expression_for_assign(topic, tags=tags, sql=sql)

    def assignment(self) -> set[MessageQueue]:
        """The assigned queues."""
        return self._call(self._client.assignment)

    # Messages

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """Poll messages of one queue; empty after ``timeout`` seconds."""
        return self._running().do(self._client.poll(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        if not self._ahead:
            # Many at a time: a call on the loop costs more than most messages.
            self._ahead.extend(super()._running().do(self._client.take_ahead(AHEAD)))
            if not self._ahead:
                raise StopIteration
        message = self._ahead.popleft()
        self._in_hand = message.offset
        return message

    def pause(self, *queues: MessageQueue) -> None:
        """Pause these queues, or all, until ``resume``."""
        self._call_on_loop(lambda: self._client.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        self._call_on_loop(lambda: self._client.resume(*queues))

    # Offsets

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Seek to an offset of a queue."""
        self._running().do(self._client.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Seek to the oldest message of a queue."""
        self._running().do(self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Seek behind the newest message of a queue."""
        self._running().do(self._client.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, when: float | datetime.datetime) -> None:
        """Seek to the first message of a queue stored at or after a time."""
        self._running().do(self._client.seek_to_time(queue, when))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset behind the polled messages of a queue; None until its first pull."""
        return self._call_on_loop(lambda: self._client.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The committed offset of the group in a queue, or None."""
        return self._running().do(self._client.committed(queue))

    def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit the positions of all queues or of some, or the given offsets."""
        self._running().do(self._client.commit(offsets, persist=persist))

    def lag(self) -> dict[MessageQueue, int]:
        """Messages of each assigned queue behind the last poll. Raises OrbitMQError."""
        return self._running().do(self._client.lag())

    # Topics

    def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """The queues of a topic. Raises NoRouteError."""
        return self._running().do(self._client.fetch_message_queues(topic))

    def offset_for_timestamp(self, queue: MessageQueue, when: float | datetime.datetime) -> int:
        """The offset of the first message stored at or after a time (seconds since 1970, or a datetime)."""
        return self._running().do(self._client.offset_for_timestamp(queue, when))


async def _called(work: Callable[[], None]) -> None:
    work()
