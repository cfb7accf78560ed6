"""Sends that nobody waits for at once, by the rules of Java's asynchronous sends, without a task for each.

Failures of the network are tried again: on another broker if any queue will do, on the same one if a queue was
asked for. A refusal by a broker is the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NotRunningError, SendError
from orbitmq.client.send_hooks import Communication
from orbitmq.client.send_requests import receipt_of
from orbitmq.client.sending import given_up
from orbitmq.remoting import CallTimeoutError, RemotingError, TooManyCallsError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from orbitmq.client.in_flight import InFlight
    from orbitmq.client.messages import Message, Receipt
    from orbitmq.client.outgoing import Outgoing, Preparing
    from orbitmq.client.publishing import Publishing, Target
    from orbitmq.client.queue_choice import Selector
    from orbitmq.client.send_hooks import SendContext
    from orbitmq.client.sending import Sender
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection


class Post:
    """One message on its way. ``future`` is what becomes of it."""

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
        "_publishing",
        "_sender",
        "_size",
        "_target",
        "future",
    )

    _outgoing: Outgoing
    _publishing: Publishing
    _target: Target
    _attempt_began: float

    def __init__(self, sender: Sender, in_flight: InFlight, message: Message, seconds: float) -> None:
        """Takes room in flight. Raises TooManySendsError."""
        self._size = size = len(message.body)
        in_flight.enter(size)
        self._sender = sender
        self._in_flight = in_flight
        self._message = message
        self._began = began = sender.time()
        self._deadline = began + seconds
        self._brokers: list[str] | None = None
        """Those where it failed."""
        self._context: SendContext | None = None
        self._fixed: Target | None = None
        self.future: asyncio.Future[Receipt] = sender.loop.create_future()

    def start(
        self, preparing: Preparing, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> None:
        """Send it now, or as soon as what it needs is there. Raises InvalidMessageError."""
        sender = self._sender
        message = self._message
        publishing = sender.ready(message.topic)
        if publishing is None or preparing.is_slow(message):
            sender.run(self._watched(self._start_later(preparing, queue, selector, arg)))
            return
        try:
            self._outgoing = preparing.one(message)
            self._fixed = fixed = publishing.fixed(message, queue, selector, arg)
            self._publishing = publishing
            self._target = target = fixed or publishing.choose(None, sender.faults)
        except BaseException:
            self._in_flight.leave(self._size)
            raise
        connection = target.link.ready()
        if connection is None:
            sender.run(self._watched(self._connect_and_go()))
        else:
            self._go(connection)

    async def _watched(self, job: Coroutine[None, None, None]) -> None:
        try:
            await job
        except asyncio.CancelledError:
            self._end(None, NotRunningError("the producer was closed before the message was sent"))
            raise

    async def _start_later(
        self, preparing: Preparing, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> None:
        sender = self._sender
        message = self._message
        try:
            self._publishing = sender.ready(message.topic) or await sender.find(message.topic, self._deadline)
            slow = preparing.is_slow(message)
            self._outgoing = await preparing.one_apart(message) if slow else preparing.one(message)
            self._fixed = fixed = self._publishing.fixed(message, queue, selector, arg)
            self._target = fixed or self._publishing.choose(None, sender.faults)
        except Exception as error:
            self._end(None, error)
        else:
            await self._connect_and_go()

    async def _connect_and_go(self) -> None:
        self._attempt_began = self._sender.time()
        try:
            connection = await self._sender.connect(self._target, self._publishing, self._deadline)
        except RemotingError as error:
            self._lost(error, is_reachable=False)
        except Exception as error:
            self._end(None, error)
        else:
            self._go(connection)

    def _go(self, connection: Connection) -> None:
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
            self._lost(error, is_reachable=False)
        except Exception as error:
            self._end(None, error)
        else:
            call.add_done_callback(self._answered)

    def _answered(self, call: asyncio.Future[Command]) -> None:
        error = call.exception()
        if error is not None:
            connection = self._target.link.connection
            if isinstance(error, CallTimeoutError) and connection is not None:
                self._sender.doubt(connection)
            self._lost(error if isinstance(error, RemotingError) else RemotingError(str(error)))
            return
        target = self._target
        try:
            receipt = receipt_of(call.result(), target.queue, target.link.address or "", self._outgoing.message_id)
        except (BrokerError, SendError) as refused:
            self._note_failure(is_reachable=True)
            self._sender.refresh_soon(self._publishing.wire_topic)
            self._end(None, refused)
            return
        faults = self._sender.faults
        if faults is not None:
            faults.update(target.broker_name, self._sender.time() - self._attempt_began)
        self._end(receipt, None)

    def _lost(self, error: RemotingError, *, is_reachable: bool = True) -> None:
        """An attempt failed on the way."""
        sender = self._sender
        self._note_failure(is_reachable=is_reachable)
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
            sender.refresh_soon(self._publishing.wire_topic)
            failure = given_up(self._publishing.topic, self._brokers, sender.time() - self._began, error)
            failure.__cause__ = error
            self._end(None, failure)
        else:
            sender.run(self._watched(self._again(left)))

    async def _again(self, attempts_left: int) -> None:
        sender = self._sender
        last_broker = self._target.broker_name
        self._publishing = publishing = await sender.elsewhere(
            self._publishing, last_broker, self._deadline, attempts_left
        )
        if self._fixed is None:
            self._target = publishing.choose(last_broker, sender.faults)
        await self._connect_and_go()

    def _note_failure(self, *, is_reachable: bool) -> None:
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
            # Whoever waited has given up.
            return
        if receipt is not None:
            future.set_result(receipt)
        elif error is not None:
            future.set_exception(error)
