"""Asynchronous sends, by the rules of Java's clients, without a task for each.

Network failures are retried: on another broker if the queue is free to choose, otherwise on the same one. A refusal
by a broker is final.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NotRunningError, SendError
from orbitmq.client.producer.hooks import Communication
from orbitmq.client.producer.send import send_failure
from orbitmq.client.producer.wire import receipt_of
from orbitmq.remoting import CallTimeoutError, RemotingError, TooManyCallsError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from orbitmq.client.message import Message, Receipt
    from orbitmq.client.producer.backpressure import InFlight
    from orbitmq.client.producer.hooks import SendContext
    from orbitmq.client.producer.message_encoder import EncodedMessage, MessageEncoder
    from orbitmq.client.producer.queue_selector import Selector
    from orbitmq.client.producer.send import Sender
    from orbitmq.client.producer.topic_publish_info import Target, TopicPublishInfo
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection


class AsyncSend:
    """One message in flight. ``future`` has its receipt or error."""

    __slots__ = (
        "_attempt_began",
        "_began",
        "_brokers",
        "_context",
        "_deadline",
        "_fixed",
        "_in_flight",
        "_message",
        "_outgoing",
        "_publish_info",
        "_sender",
        "_size",
        "_target",
        "future",
    )

    _outgoing: EncodedMessage
    _publish_info: TopicPublishInfo
    _target: Target
    _attempt_began: float

    def __init__(self, sender: Sender, in_flight: InFlight, message: Message, seconds: float) -> None:
        """Reserves capacity in flight. Raises TooManySendsError."""
        self._size = size = len(message.body)
        in_flight.enter(size)
        self._sender = sender
        self._in_flight = in_flight
        self._message = message
        self._began = began = sender.time()
        self._deadline = began + seconds
        self._brokers: list[str] | None = None
        """Brokers of failed attempts."""
        self._context: SendContext | None = None
        self._fixed: Target | None = None
        self.future: asyncio.Future[Receipt] = sender.loop.create_future()

    def start(
        self, encoder: MessageEncoder, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> None:
        """Send it now, or once route and connection are available. Raises InvalidMessageError."""
        sender = self._sender
        message = self._message
        publish_info = sender.ready(message.topic)
        if publish_info is None or encoder.is_slow(message):
            sender.run(self._ending_on_cancel(self._start_later(encoder, queue, selector, arg)))
            return
        try:
            self._outgoing = encoder.encode(message)
            self._fixed = fixed = publish_info.fixed(message, queue, selector, arg)
            self._publish_info = publish_info
            self._target = target = fixed or publish_info.choose(None, sender.faults)
        except BaseException:
            self._in_flight.leave(self._size)
            raise
        connection = target.link.ready()
        if connection is None:
            sender.run(self._ending_on_cancel(self._connect_and_send()))
        else:
            self._send(connection)

    async def _ending_on_cancel(self, job: Coroutine[None, None, None]) -> None:
        try:
            await job
        except asyncio.CancelledError:
            self._end(None, NotRunningError("the producer was closed before the message was sent"))
            raise

    async def _start_later(
        self, encoder: MessageEncoder, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> None:
        sender = self._sender
        message = self._message
        try:
            self._publish_info = sender.ready(message.topic) or await sender.find(message.topic, self._deadline)
            slow = encoder.is_slow(message)
            self._outgoing = await encoder.encode_in_thread(message) if slow else encoder.encode(message)
            self._fixed = fixed = self._publish_info.fixed(message, queue, selector, arg)
            self._target = fixed or self._publish_info.choose(None, sender.faults)
        except Exception as error:
            self._end(None, error)
        else:
            await self._connect_and_send()

    async def _connect_and_send(self) -> None:
        self._attempt_began = self._sender.time()
        try:
            connection = await self._sender.connect(self._target, self._publish_info, self._deadline)
        except RemotingError as error:
            self._retry_or_fail(error, is_reachable=False)
        except Exception as error:
            self._end(None, error)
        else:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        sender = self._sender
        target = self._target
        self._attempt_began = now = sender.time()
        try:
            if sender.hooks and self._context is None:
                self._context = sender.before(self._outgoing, target, Communication.ASYNC)
            opaque = connection.next_opaque()
            request = self._outgoing.request(target, opaque, sender.now_ms())
            call = connection.exchange(opaque, request, self._deadline - now)
        except RemotingError as error:
            self._retry_or_fail(error, is_reachable=False)
        except Exception as error:
            self._end(None, error)
        else:
            call.add_done_callback(self._on_response)

    def _on_response(self, call: asyncio.Future[Command]) -> None:
        error = call.exception()
        if error is not None:
            connection = self._target.link.connection
            if isinstance(error, CallTimeoutError) and connection is not None:
                self._sender.doubt(connection)
            self._retry_or_fail(error if isinstance(error, RemotingError) else RemotingError(str(error)))
            return
        target = self._target
        try:
            receipt = receipt_of(call.result(), target.queue, target.link.address or "", self._outgoing.message_id)
        except (BrokerError, SendError) as refused:
            self._record_failure(is_reachable=True)
            self._sender.refresh_soon(self._publish_info.wire_topic)
            self._end(None, refused)
            return
        faults = self._sender.faults
        if faults is not None:
            faults.update(target.broker_name, self._sender.time() - self._attempt_began)
        self._end(receipt, None)

    def _retry_or_fail(self, error: RemotingError, *, is_reachable: bool = True) -> None:
        """Retry after a failed attempt, or fail if no attempt or time is left."""
        sender = self._sender
        self._record_failure(is_reachable=is_reachable)
        if self._brokers is None:
            self._brokers = []
        self._brokers.append(self._target.broker_name)
        left = sender.config.retry_times_when_send_async_failed + 1 - len(self._brokers)
        if (
            left <= 0
            or self.future.done()
            or isinstance(error, TooManyCallsError)
            or sender.time() >= self._deadline
        ):
            sender.refresh_soon(self._publish_info.wire_topic)
            failure = send_failure(self._publish_info.topic, self._brokers, sender.time() - self._began, error)
            failure.__cause__ = error
            self._end(None, failure)
        else:
            sender.run(self._ending_on_cancel(self._retry(left)))

    async def _retry(self, attempts_left: int) -> None:
        sender = self._sender
        last_broker = self._target.broker_name
        self._publish_info = publish_info = await sender.elsewhere(
            self._publish_info, last_broker, self._deadline, attempts_left
        )
        if self._fixed is None:
            self._target = publish_info.choose(last_broker, sender.faults)
        else:
            # The same queue, whose master may be another one by now.
            self._target = publish_info.target_of(self._fixed.queue)
        await self._connect_and_send()

    def _record_failure(self, *, is_reachable: bool) -> None:
        sender = self._sender
        if sender.faults is not None:
            sender.faults.update(
                self._target.broker_name,
                sender.time() - self._attempt_began,
                failed=True,
                is_reachable=is_reachable,
            )

    def _end(self, receipt: Receipt | None, error: Exception | None) -> None:
        self._in_flight.leave(self._size)
        if self._context is not None:
            self._sender.after(self._context, receipt, error)
        future = self.future
        if future.done():
            # The waiter has cancelled it.
            return
        if receipt is not None:
            future.set_result(receipt)
        elif error is not None:
            future.set_exception(error)
