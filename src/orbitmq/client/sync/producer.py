"""Blocking producer. Thread-safe."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Self, Unpack

from orbitmq.client.producer.producer import DEFAULT_GROUP
from orbitmq.client.producer.producer import Producer as AsyncProducer
from orbitmq.client.producer.send import BegunSend
from orbitmq.client.query.find import MAX_FOUND
from orbitmq.client.sync.bridge import SyncMember
from orbitmq.client.sync.direct_send import DirectSender

if TYPE_CHECKING:
    import concurrent.futures
    import datetime
    from collections.abc import Callable, Iterable

    from orbitmq.client.message import Message, Receipt, ReceivedMessage
    from orbitmq.client.producer.config import ProducerOptions
    from orbitmq.client.producer.hooks import SendHook
    from orbitmq.client.producer.queue_selector import Selector
    from orbitmq.client.sync.bridge import SyncLoop
    from orbitmq.protocol.bodies import MessageQueue


class Producer(SyncMember[AsyncProducer]):
    """Sends messages.

    ::

        with Producer("127.0.0.1:9876", group="orders") as producer:
            receipt = producer.send(Message("orders", b"...", tags="paid"))

    Options are those of RocketMQ's Java producer in snake case: see ``ProducerConfig`` and ``ClientConfig``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        hooks: Iterable[SendHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError for invalid options."""
        super().__init__(AsyncProducer(name_servers, group=group, hooks=hooks, **options))

    _direct: DirectSender | None = None
    """Sends in the calling thread, where nothing on the loop has to see them."""

    def start(self) -> Self:
        """Connect. Raises OrbitMQError; the client can be started again then."""
        super().start()
        self._direct = self._call_on_loop(self._direct_sender)
        return self

    def _direct_sender(self) -> DirectSender | None:
        parts = self._client.direct_parts if os.name == "posix" else None
        return None if parts is None else DirectSender(parts, asyncio.get_running_loop())

    def close(self) -> None:
        """Wait for work in flight, then leave. Does nothing if it was never started."""
        direct, self._direct = self._direct, None
        try:
            if direct is not None and not self._running().is_current_thread:
                direct.close()
        finally:
            super().close()

    @property
    def group(self) -> str:
        """The group with its namespace, as on brokers."""
        return self._client.group

    def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> Receipt:
        """Send a message and wait until a broker has stored it. See ``orbitmq.aio.Producer.send``.

        A ``selector`` is called in this thread.
        """
        loop, direct = self._running(), self._direct
        if direct is None or loop.is_current_thread:
            return self._send_on_loop(loop, message, timeout, queue, selector, arg)
        number = direct.enter()
        if number is None:
            oneways = direct.oneways
            receipt = self._send_on_loop(loop, message, timeout, queue, selector, arg)
            direct.followed(oneways)
            return receipt
        try:
            sent = direct.send(message, timeout, queue, selector, arg)
            if sent is None:
                return self._send_on_loop(loop, message, timeout, queue, selector, arg)
            # Not ``loop``: a signal handler may have closed this producer.
            return self._running().do(self._client.resume(sent)) if isinstance(sent, BegunSend) else sent
        finally:
            direct.leave(number)

    def _send_on_loop(
        self,
        loop: SyncLoop,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
    ) -> Receipt:
        return loop.do(self._client.send(message, timeout=timeout, queue=queue, selector=selector, arg=arg))

    def send_async(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        callback: Callable[[Receipt | None, BaseException | None], None] | None = None,
    ) -> concurrent.futures.Future[Receipt]:
        """Send a message without waiting. The result goes to the future and to ``callback``.

        The callback runs on the client's thread: it should be quick and must not call this producer.
        """
        future = self._running().submit(
            self._client.send(message, timeout=timeout, queue=queue, selector=selector, arg=arg)
        )
        if self._direct is not None:
            self._direct.follow(future)
        if callback is not None:
            future.add_done_callback(lambda done: _call_back(callback, done))
        return future

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> None:
        """Send a message without a response."""
        if self._direct is not None:
            self._direct.oneways += 1
        self._running().do(self._client.send_oneway(message, queue=queue, selector=selector, arg=arg))

    def send_batch(
        self, messages: Iterable[Message], *, timeout: float | None = None, queue: MessageQueue | None = None
    ) -> list[Receipt]:
        """Send messages of one topic in as few requests as the size limit allows."""
        return self._running().do(self._client.send_batch(messages, timeout=timeout, queue=queue))

    def request(
        self,
        message: Message,
        *,
        timeout: float = 3.0,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of its consumer. See ``orbitmq.aio.Producer.request``."""
        return self._running().do(
            self._client.request(message, timeout=timeout, queue=queue, selector=selector, arg=arg)
        )

    def request_async(
        self,
        message: Message,
        *,
        timeout: float = 3.0,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> concurrent.futures.Future[ReceivedMessage]:
        """Send a request without waiting. The future gets the reply or the error."""
        future = self._running().submit(
            self._client.request(message, timeout=timeout, queue=queue, selector=selector, arg=arg)
        )
        if self._direct is not None:
            self._direct.follow(future)
        return future

    def reply_to(
        self,
        request: ReceivedMessage,
        body: bytes | str,
        *,
        timeout: float | None = None,
        tags: str | None = None,
        keys: str = "",
    ) -> Receipt:
        """Reply to a request that a consumer received. See ``orbitmq.aio.Producer.reply_to``."""
        return self._running().do(self._client.reply_to(request, body, timeout=timeout, tags=tags, keys=keys))

    def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:
        """Recall a delayed message before its delivery; returns its id. See ``orbitmq.aio.Producer.recall``."""
        return self._running().do(self._client.recall(topic, recall_handle, timeout=timeout))

    def find(
        self,
        topic: str,
        key: str,
        *,
        most: int = MAX_FOUND,
        since: float | datetime.datetime | None = None,
        until: float | datetime.datetime | None = None,
    ) -> list[ReceivedMessage]:
        """Look up messages of a topic by key, oldest first. See ``orbitmq.aio.Producer.find``."""
        return self._running().do(self._client.find(topic, key, most=most, since=since, until=until))

    def ping(self, *, timeout: float | None = None) -> bool:
        """Connect if nothing is connected yet, which a producer is after its first send. False if that fails."""
        return self._running().do(self._client.ping(timeout=timeout))

    def queues(self, topic: str) -> list[MessageQueue]:
        """Writable queues of a topic, in the order that selectors get."""
        return self._running().do(self._client.queues(topic))


def _call_back(
    callback: Callable[[Receipt | None, BaseException | None], None], done: concurrent.futures.Future[Receipt]
) -> None:
    error = done.exception()
    callback(done.result() if error is None else None, error)
