"""Blocking push consumer: handlers run in threads, and ``run`` blocks until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from orbitmq.client.push.consumer import Consumer as AsyncConsumer
from orbitmq.client.sync.bridge import SyncMember

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.client.consumer.hooks import ConsumeHook
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.push.config import ConsumerOptions
    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.protocol.bodies import MessageQueue

HandlerT = TypeVar("HandlerT", bound="Callable[[Any], Any]")


class Consumer(SyncMember[AsyncConsumer]):
    """Calls handlers with the messages of topics.

    ::

        consumer = Consumer("127.0.0.1:9876", group="billing")

        @consumer.on("orders", tags="paid || refunded")
        def handle(message): ...          # return: consumed; exception: retried

        consumer.run()                    # until Ctrl-C; `with consumer:` runs it in the background

    The options are the fields of ``ConsumerConfig`` and ``ClientConfig``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        hooks: Iterable[ConsumeHook] = (),
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError."""
        super().__init__(AsyncConsumer(name_servers, group=group, hooks=hooks, **options))
        self._over = threading.Event()

    @property
    def group(self) -> str:
        return self._client.group

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        inline: bool | None = None,
        batch: bool | None = None,
        serializer: Serializer | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Make a function a handler of a topic. See ``orbitmq.aio.Consumer.on``."""
        return self._client.on(topic, tags=tags, sql=sql, inline=inline, batch=batch, serializer=serializer)

    def subscribe(
        self,
        topic: str,
        handler: Callable[[Any], Any] | None = None,
        *,
        tags: str | None = None,
        sql: str | None = None,
        inline: bool | None = None,
        batch: bool | None = None,
        serializer: Serializer | None = None,
    ) -> None:
        """Like ``on``, also while the consumer runs, but it replaces all filters and handlers of the topic.

        Without a handler the messages go to ``for message in consumer``.
        """
        work = self._client.subscribe(
            topic, handler, tags=tags, sql=sql, inline=inline, batch=batch, serializer=serializer
        )
        if self._loop is not None:
            self._loop.do(work)
            return
        # Before the start it awaits nothing.
        with contextlib.suppress(StopIteration):
            work.send(None)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """The messages of the topics that are subscribed to without a handler, until the consumer is closed.

        A message counts as consumed when the loop asks for the next one; one that the loop is left with is retried.
        Several threads may loop at the same time.
        """
        return self._iterate(aiter(self._client))

    def unsubscribe(self, topic: str) -> None:
        """Remove the subscription of a topic."""
        self._running().do(self._client.unsubscribe(topic))

    # Running

    def close(self) -> None:
        """Wait for running handlers, persist the offsets and leave the group. Ends ``run`` too."""
        self._over.set()
        super().close()

    def run(self) -> None:
        """Consume until Ctrl-C, SIGTERM, or ``close`` by another thread."""
        with set_on_signals(self._over):
            if self._loop is None:
                self.start()
            try:
                self._over.wait()
            finally:
                self.close()

    # While it runs

    def pause(self) -> None:
        """Pause pulling. Buffered messages are still consumed."""
        self._call_on_loop(self._client.pause)

    suspend = pause

    def resume(self) -> None:
        self._call_on_loop(self._client.resume)

    @property
    def is_paused(self) -> bool:
        return self._call_on_loop(lambda: self._client.is_paused)

    @property
    def consume_threads(self) -> int:
        """Number of concurrent handler calls. Can be set while the consumer runs."""
        return self._call_on_loop(lambda: self._client.consume_threads)

    @consume_threads.setter
    def consume_threads(self, count: int) -> None:
        self._call_on_loop(lambda: setattr(self._client, "consume_threads", count))

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return self._call_on_loop(lambda: self._client.queues)

    def lag(self) -> dict[MessageQueue, int]:
        """Messages of each assigned queue that are not consumed yet. Raises OrbitMQError."""
        return self._running().do(self._client.lag())

    @property
    def client_id(self) -> str:
        return self._call_on_loop(lambda: self._client.client_id)

    def persist_offsets(self) -> None:
        """Persist the consumed offsets now. The brokers have them when this returns."""
        self._running().do(self._client.persist_offsets())

    def reset_to_time(self, topic: str, when: float | datetime.datetime) -> dict[MessageQueue, int]:
        """Reset the whole group to the first messages of a topic stored at or after a time."""
        return self._running().do(self._client.reset_to_time(topic, when))


@contextlib.contextmanager
def set_on_signals(over: threading.Event) -> Iterator[None]:
    """Set the event on Ctrl-C and SIGTERM. Only the main thread can install signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: over.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
