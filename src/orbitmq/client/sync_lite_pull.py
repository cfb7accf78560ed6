"""The pull consumer for plain code: ``poll`` waits for messages, and the consumer can be iterated over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from orbitmq.client.lite_pull import LitePullConsumer as AsyncLitePullConsumer
from orbitmq.client.sync_loop import SyncFace

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orbitmq.client.lite_pull_config import LitePullOptions
    from orbitmq.client.messages import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue

T = TypeVar("T")


class LitePullConsumer(SyncFace[AsyncLitePullConsumer]):
    """Pulls messages.

    ::

        with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            for message in consumer:
                ...

    See ``orbitmq.aio.LitePullConsumer``, whose verbs these are.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[LitePullOptions],
    ) -> None:
        """Nothing is connected before ``start``. Raises InvalidMessageError for options that cannot be."""
        super().__init__(AsyncLitePullConsumer(name_servers, group=group, **options))

    @property
    def group(self) -> str:
        """As brokers know it."""
        return self._client.group

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # What somebody failed to work on comes again.
        self._end(lambda: self._client.__aexit__(kind, error, None))

    def _anywhere(self, work: Callable[[], T]) -> T:
        """Run something where the consumer lives; before the start it lives nowhere in particular."""
        return work() if self._loop is None else self._there(work)

    # Of what

    def subscribe(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        message_queue_listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
        | None = None,
    ) -> None:
        """Share the queues of a topic with the group; again to change what is wanted of it."""
        self._anywhere(
            lambda: self._client.subscribe(topic, tags=tags, sql=sql, message_queue_listener=message_queue_listener)
        )

    def unsubscribe(self, topic: str) -> None:
        self._anywhere(lambda: self._client.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, whoever else does, and no others any more."""
        chosen = list(queues)
        self._anywhere(lambda: self._client.assign(chosen))

    def set_sub_expression_for_assign(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """What is wanted of a topic whose queues are assigned. Only before the start."""
        self._client.set_sub_expression_for_assign(topic, tags=tags, sql=sql)

    def assignment(self) -> set[MessageQueue]:
        """The queues that are read now."""
        return self._anywhere(self._client.assignment)

    # Messages

    def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """Some messages of one queue, as soon as there are any; none after ``timeout`` seconds."""
        return self._running().do(self._client.poll(timeout))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        try:
            return self._running().do(self._client.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def pause(self, *queues: MessageQueue) -> None:
        """Get no more messages of these queues for now."""
        self._there(lambda: self._client.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        self._there(lambda: self._client.resume(*queues))

    # Offsets

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of a queue."""
        self._running().do(self._client.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of a queue."""
        self._running().do(self._client.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the newest message of a queue."""
        self._running().do(self._client.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, when: float | datetime.datetime) -> None:
        """Go on at the first message of a queue that was stored at a time, or after it."""
        self._running().do(self._client.seek_to_time(queue, when))

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after what was handed out of a queue; None until its first pull."""
        return self._there(lambda: self._client.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue; None if there is none."""
        return self._running().do(self._client.committed(queue))

    def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit all that was handed out, of all queues or of some, or the offsets that are given."""
        self._running().do(self._client.commit(offsets, persist=persist))

    # Of topics

    def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """The queues of a topic. Raises NoRouteError."""
        return self._running().do(self._client.fetch_message_queues(topic))

    def offset_for_timestamp(self, queue: MessageQueue, when: float | datetime.datetime) -> int:
        """The offset of the first message stored at a time (seconds since 1970, or a datetime) or after it."""
        return self._running().do(self._client.offset_for_timestamp(queue, when))
