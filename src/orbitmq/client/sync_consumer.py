"""The push consumer for plain code: handlers run in threads, and ``run`` lasts until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from orbitmq.client.consumer import Consumer as AsyncConsumer
from orbitmq.client.sync_loop import SyncFace

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq.client.consume_hooks import ConsumeHook
    from orbitmq.client.consumer_config import ConsumerOptions
    from orbitmq.protocol.bodies import MessageQueue

HandlerT = TypeVar("HandlerT", bound="Callable[[Any], Any]")


class Consumer(SyncFace[AsyncConsumer]):
    """Calls handlers with the messages of topics.

    ::

        consumer = Consumer("127.0.0.1:9876", group="billing")

        @consumer.on("orders", tags="paid || refunded")
        def handle(message): ...          # returns: done; raises: retried later

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
        """Nothing is connected before ``start``. Raises InvalidMessageError."""
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
    ) -> Callable[[HandlerT], HandlerT]:
        """Make a function the handler of a topic. See ``orbitmq.aio.Consumer.on``."""
        return self._client.on(topic, tags=tags, sql=sql, inline=inline, batch=batch)

    def subscribe(
        self,
        topic: str,
        handler: Callable[[Any], Any],
        *,
        tags: str | None = None,
        sql: str | None = None,
        inline: bool | None = None,
        batch: bool | None = None,
    ) -> None:
        """The same as ``on``, also while the consumer runs; then it can change what is wanted of a topic."""
        if self._loop is None:
            self._client.on(topic, tags=tags, sql=sql, inline=inline, batch=batch)(handler)
            return
        self._loop.do(self._client.subscribe(topic, handler, tags=tags, sql=sql, inline=inline, batch=batch))

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no longer."""
        self._running().do(self._client.unsubscribe(topic))

    # Running

    def close(self) -> None:
        """Finish what has begun, save how far the group has come, and leave it. Ends ``run`` too."""
        self._over.set()
        super().close()

    def run(self) -> None:
        """Consume until Ctrl-C, SIGTERM, or ``close`` by another thread."""
        with signals_set(self._over):
            if self._loop is None:
                self.start()
            try:
                self._over.wait()
            finally:
                self.close()

    # While it runs

    def pause(self) -> None:
        """Get no more messages for now. What is here already is still consumed."""
        self._there(self._client.pause)

    suspend = pause

    def resume(self) -> None:
        self._there(self._client.resume)

    @property
    def is_paused(self) -> bool:
        return self._there(lambda: self._client.is_paused)

    @property
    def consume_threads(self) -> int:
        """How many handlers are called at the same time. Can be set while the consumer runs."""
        return self._there(lambda: self._client.consume_threads)

    @consume_threads.setter
    def consume_threads(self, count: int) -> None:
        self._there(lambda: setattr(self._client, "consume_threads", count))

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member of the group consumes at the moment."""
        return self._there(lambda: self._client.queues)

    @property
    def client_id(self) -> str:
        return self._there(lambda: self._client.client_id)

    def persist_offsets(self) -> None:
        """Save how far the group has come now, and not only every few seconds."""
        self._running().do(self._client.persist_offsets())

    def reset_to_time(self, topic: str, when: float | datetime.datetime) -> dict[MessageQueue, int]:
        """Let the whole group go on at the messages of a topic stored at a time, or after it."""
        return self._running().do(self._client.reset_to_time(topic, when))


@contextlib.contextmanager
def signals_set(over: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end what waits for the event; only the main thread may ask for that."""
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
