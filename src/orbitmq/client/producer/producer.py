"""Producer for asyncio."""

from __future__ import annotations

import asyncio
import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack, cast

from orbitmq.client import health
from orbitmq.client import namespace as namespaces
from orbitmq.client.config import (
    ClientConfig,
    name_server_list,
    unique_ids_for,
)
from orbitmq.client.errors import (
    BrokerError,
    InvalidMessageError,
    NotRunningError,
    OrbitMQError,
    SendError,
    TooManySendsError,
)
from orbitmq.client.instance import fork_guard
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.middleware import MiddlewareStack
from orbitmq.client.options import split_options
from orbitmq.client.producer.accumulator import Accumulator
from orbitmq.client.producer.async_send import AsyncSend
from orbitmq.client.producer.backpressure import InFlight
from orbitmq.client.producer.batch import BatchSend
from orbitmq.client.producer.config import ProducerConfig, ProducerOptions
from orbitmq.client.producer.hooks import Communication
from orbitmq.client.producer.latency_fault import BrokerDetector, LatencyFaults
from orbitmq.client.producer.message_encoder import MessageEncoder
from orbitmq.client.producer.recall import recall
from orbitmq.client.producer.request import RequestSender
from orbitmq.client.producer.request_reply import check_request, create_reply
from orbitmq.client.producer.send import DirectParts, Sender
from orbitmq.client.query.find import MAX_FOUND, find
from orbitmq.client.validation import check_message

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from orbitmq.client.message import Message, Receipt, ReceivedMessage
    from orbitmq.client.producer.hooks import SendHook
    from orbitmq.client.producer.queue_selector import Selector
    from orbitmq.client.producer.send import BegunSend
    from orbitmq.client.trace.hooks import SendTracing
    from orbitmq.protocol.bodies import MessageQueue

    Callback: TypeAlias = Callable[[Receipt | None, BaseException | None], None]
    """Called with the receipt, or with what went wrong."""

log = logging.getLogger("orbitmq.client")

DEFAULT_GROUP = "ORBITMQ_PRODUCER"
"""Default group. The group matters for transactions only."""

ONEWAY_BURST = 64 << 10
"""Bytes of one-way sends after which the sender yields to the loop; it would not wait otherwise."""


class Producer:
    """Sends messages. It belongs to the event loop that it was started on.

    ::

        async with Producer("127.0.0.1:9876", group="orders") as producer:
            receipt = await producer.send(Message("orders", b"...", tags="paid"))

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
        own, shared = split_options(cast("dict[str, Any]", options), ProducerConfig, ClientConfig)
        self.config = ProducerConfig(group=group, **own)
        self.client_config = ClientConfig(name_servers=name_server_list(name_servers), **shared)
        self.group = namespaces.wrap(self.client_config.namespace, group)
        """The group with its namespace, as on brokers."""
        self._hooks = list(hooks)
        self._serializer = self.client_config.serializer
        self._middleware = MiddlewareStack(group, self.client_config.middleware, clock=self.client_config.clock)
        self._is_wrapped = self._middleware.wraps_sends
        self._wrapped: set[asyncio.Task[None]] = set()
        """Sends of ``send_nowait`` inside middleware."""
        self._in_flight = InFlight(*self.config.max_in_flight)
        self._max_bytes = self.config.max_message_size
        self._seconds = self.config.send_msg_timeout
        self._oneway_bytes = 0
        self._was_started = self._is_open = False
        self._tracing: SendTracing | None = None
        self._accumulator: Accumulator | None = None
        self._detecting: asyncio.Task[None] | None = None

    # Start and close

    def topics(self) -> Iterable[str]:
        """Topics that were sent to, with namespace."""
        return (*self._sender.wire_topics(), *self._request_sender.reply_topics) if self._was_started else ()

    @property
    def is_connected(self) -> bool:
        """True while a connection to a broker is open; before any topic is known, to a name server."""
        return health.is_connected(self._instance if self._is_open else None)

    async def ping(self, *, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Connect if nothing is connected yet, which a producer is after its first send. False if that fails."""
        self._check_running()
        return await health.reach(self._instance, self.client_config.api_timeout if timeout is None else timeout)

    def __repr__(self) -> str:
        return health.described(self, self.config.group, self.client_config, self._was_started, self._is_open)

    def add_hook(self, hook: SendHook) -> None:
        """Add a hook for later sends."""
        self._hooks.append(hook)

    async def start(self) -> Self:
        """Start. Name servers and brokers may start later."""
        if self._was_started:
            raise NotRunningError("a producer can be started only once: create another one")
        config, own = self.client_config, self.config
        self._loop = loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._forks = fork_guard.count
        self._instance = instance = ClientInstance.acquire(config, config.client_id(config.own_instance_name))
        faults = LatencyFaults(own.fault_ladder, loop.time) if own.send_latency_fault_enable else None
        self._encoder = MessageEncoder(own, config.namespace, unique_ids_for(config))
        self._sender = Sender(instance, own, self._hooks, faults, config.clock.now_ms)
        self._sender.encoder = self._encoder
        self._batches = BatchSend(self._sender, self._encoder, self._in_flight, self._max_bytes, self._serializer)
        self._request_sender = RequestSender(instance, self._sender)
        try:
            await self._start_tracing()
            instance.add_producer(self)
            self._was_started = True
            if own.auto_batch:
                self._accumulator = Accumulator(
                    self._send_batched,
                    max_delay=own.batch_max_delay,
                    max_bytes=own.batch_max_bytes,
                    total_max_bytes=own.total_batch_max_bytes,
                )
            await self._look_up_topics()
            await instance.heartbeat_all()
        except BaseException:
            await self._leave()
            raise
        if faults is not None and own.start_detector_enable:
            self._detecting = loop.create_task(BrokerDetector(instance, self._sender, own, faults).run())
        self._is_open = True
        return self

    async def _start_tracing(self) -> None:
        """Start the trace dispatcher if ``enable_trace`` is on."""
        if not self.client_config.enable_trace:
            return
        from orbitmq.client.trace.dispatcher import PRODUCE, TraceDispatcher  # noqa: PLC0415
        from orbitmq.client.trace.hooks import SendTracing  # noqa: PLC0415

        dispatcher = TraceDispatcher(self.client_config, self.config.group, PRODUCE, Producer)
        await dispatcher.start()
        self._tracing = SendTracing(dispatcher)
        self._hooks.append(self._tracing)

    async def close(self) -> None:
        """Refuse new sends, wait for those in flight, and disconnect."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            while self._wrapped:
                await asyncio.wait(self._wrapped)
            if self._accumulator is not None:
                await self._accumulator.close()
            await self._in_flight.drained()
        finally:
            await self._leave()

    async def _leave(self) -> None:
        if self._detecting is not None:
            self._detecting.cancel()
            await asyncio.gather(self._detecting, return_exceptions=True)
        await self._sender.close()
        if self._tracing is not None:
            await self._tracing.dispatcher.close()
        await self._instance.remove_producer(self)
        await self._instance.release()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_running(self) -> None:
        if not self._is_open:
            state = "closed" if self._was_started else "not started: use `async with`, or await start()"
            raise NotRunningError(f"this producer is {state}")
        if fork_guard.count != self._forks:
            raise NotRunningError("this producer was created before a fork; create one in the process that uses it")
        # asyncio.get_running_loop would cost a system call.
        if get_ident() != self._thread or not self._loop.is_running():
            raise NotRunningError("this producer belongs to another event loop, the one that it was started on")

    # Sending

    async def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the time for all attempts together
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> Receipt:
        """Send a message and wait until a broker has stored it.

        The queue is chosen round robin; a failure is retried on another broker, for ``timeout`` seconds in all. If
        a ``queue`` is given, or a ``selector`` that chooses one by ``arg``, or if the message has a sharding key,
        there is no fallback to another queue. Raises InvalidMessageError, NoRouteError, BrokerError, SendError and
        its subclasses.
        """
        self._check_running()
        if self._is_wrapped:

            async def send(messages: Sequence[Message]) -> Sequence[Receipt]:
                return (await self._send(messages[0], timeout, queue, selector, arg),)

            return (await self._middleware.send((message,), Communication.SYNC, send))[0]
        return await self._send(message, timeout, queue, selector, arg)

    async def _send(
        self,
        message: Message,
        timeout: float | None,  # noqa: ASYNC109
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
    ) -> Receipt:
        check_message(message, self._max_bytes, self._serializer)
        accumulator = self._accumulator
        if accumulator is not None and timeout is None and selector is None and accumulator.accepts(message):
            return await accumulator.add(message, queue)
        sender = self._sender
        began = sender.time()
        deadline = began + (self._seconds if timeout is None else timeout)
        size = len(message.body)
        in_flight = self._in_flight
        if in_flight.fits(size):
            in_flight.enter(size)
        else:
            await in_flight.enter_later(size, deadline - began)
        try:
            publish_info = sender.ready(message.topic) or await sender.find(message.topic, deadline)
            encoder = self._encoder
            slow = encoder.is_slow(message)
            outgoing = await encoder.encode_in_thread(message) if slow else encoder.encode(message)
            fixed = publish_info.fixed(message, queue, selector, arg)
            return await sender.send(outgoing, publish_info, fixed, began, deadline)
        finally:
            in_flight.leave(size)

    @property
    def direct_parts(self) -> DirectParts | None:
        """The parts with which a blocking producer sends in the calling thread; None if the loop has to send.

        So it is where middleware wraps them, where they wait for each other, where the latency of brokers is
        recorded, and with TLS.
        """
        config = self.client_config
        if self._is_wrapped or self._accumulator is not None or self._sender.faults is not None:
            return None
        if config.tls is not None or not self.config.sync_send_connections:
            return None
        return DirectParts(self._sender, self._encoder, self._instance, config.serializer)

    async def resume(self, begun: BegunSend) -> Receipt:
        """Go on with a send that the calling thread of a blocking producer has begun."""
        self._check_running()
        sender, in_flight = self._sender, self._in_flight
        now = sender.time()
        size = len(begun.outgoing.body)
        if begun.outcome is None:
            await in_flight.enter_later(size, begun.seconds_left)
        else:
            in_flight.enter_anyway(size)
        try:
            return await sender.send(
                *(begun.outgoing, begun.publish_info, begun.fixed),
                *(now - begun.seconds_used, now + begun.seconds_left),
                (begun.target, begun.outcome),
            )
        finally:
            in_flight.leave(size)

    def send_nowait(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
        callback: Callback | None = None,
    ) -> asyncio.Future[Receipt]:
        """Send a message without waiting: the cheapest way to have many in flight.

        The result goes to the future and to ``callback``. Raises TooManySendsError at the limit of messages in
        flight: await ``room`` before each send to throttle.
        """
        self._check_running()
        if self._is_wrapped:
            future = self._post_wrapped(message, timeout, queue, selector, arg)
        else:
            future = self._post(message, timeout, queue, selector, arg)
        if callback is not None:
            future.add_done_callback(lambda done: _call_back(callback, done))
        return future

    def _post(
        self,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
    ) -> asyncio.Future[Receipt]:
        check_message(message, self._max_bytes, self._serializer)
        accumulator = self._accumulator
        if accumulator is not None and timeout is None and selector is None and accumulator.accepts(message):
            future = accumulator.add(message, queue)
        else:
            post = AsyncSend(self._sender, self._in_flight, message, self._seconds if timeout is None else timeout)
            post.start(self._encoder, queue, selector, arg)
            future = post.future
        return future

    def _post_wrapped(
        self,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
    ) -> asyncio.Future[Receipt]:
        if not self._in_flight.fits(len(message.body)):
            raise TooManySendsError("too many messages are in flight: await room() before each send")

        async def send(messages: Sequence[Message]) -> Sequence[Receipt]:
            return (await self._post(messages[0], timeout, queue, selector, arg),)

        future: asyncio.Future[Receipt] = self._loop.create_future()

        async def run() -> None:
            try:
                receipts = await self._middleware.send((message,), Communication.ASYNC, send)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(receipts[0])

        task = self._loop.create_task(run())
        self._wrapped.add(task)
        task.add_done_callback(self._wrapped.discard)
        return future

    async def room(self) -> None:
        """Wait until ``send_nowait`` has capacity. Cheap if it has."""
        if not self._in_flight.fits(0):
            await self._in_flight.room()
        if self._accumulator is not None:
            await self._accumulator.room()

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> None:
        """Send a message without a response. Raises SendError if no broker is reachable."""
        self._check_running()
        if self._is_wrapped:

            async def send(messages: Sequence[Message]) -> Sequence[Receipt]:
                await self._send_oneway(messages[0], queue, selector, arg)
                return ()

            await self._middleware.send((message,), Communication.ONEWAY, send)
        else:
            await self._send_oneway(message, queue, selector, arg)

    async def _send_oneway(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object
    ) -> None:
        check_message(message, self._max_bytes, self._serializer)
        sender = self._sender
        size = len(message.body)
        await self._in_flight.enter_later(size, self._seconds)
        try:
            publish_info = sender.ready(message.topic) or await sender.find(
                message.topic, sender.time() + self._seconds
            )
            encoder = self._encoder
            slow = encoder.is_slow(message)
            outgoing = await encoder.encode_in_thread(message) if slow else encoder.encode(message)
            fixed = publish_info.fixed(message, queue, selector, arg)
            self._oneway_bytes += await sender.send_oneway(outgoing, publish_info, fixed)
        finally:
            self._in_flight.leave(size)
        if self._oneway_bytes >= ONEWAY_BURST:
            self._oneway_bytes = 0
            await asyncio.sleep(0)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the time for all attempts of a part together
        queue: MessageQueue | None = None,
    ) -> list[Receipt]:
        """Send messages of one topic in as few requests as the size limit allows, one after the other.

        Receipts are in the order of the messages. Raises InvalidMessageError before the first request,
        PartlySentError after it, and otherwise what ``send`` raises.
        """
        self._check_running()
        if not hasattr(messages, "__iter__"):
            raise InvalidMessageError("a batch is a list of messages, not one message")
        seconds = self._seconds if timeout is None else timeout
        if not self._is_wrapped:
            return await self._batches.send(list(messages), queue, seconds)

        async def send(changed: Sequence[Message]) -> Sequence[Receipt]:
            return await self._batches.send(changed, queue, seconds)

        return list(await self._middleware.send(list(messages), Communication.SYNC, send))

    async def _send_batched(self, messages: Sequence[Message], queue: MessageQueue | None) -> list[Receipt]:
        return await self._batches.send(messages, queue, self._seconds)

    async def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:  # noqa: ASYNC109
        """Recall a delayed message before its delivery; returns its id. ``recall_handle`` is in its receipt.

        Raises InvalidMessageError for an invalid handle, BrokerError if the message is due or the broker does not
        allow recalls (``recallMessageEnable``), NoRouteError and SendError if it is unreachable.
        """
        self._check_running()
        seconds = self._seconds if timeout is None else timeout
        return await recall(self._instance, self.group, topic, recall_handle, seconds)

    # Requests and replies

    async def request(
        self,
        message: Message,
        *,
        timeout: float = 3.0,  # noqa: ASYNC109 - it is the time for sending and for the reply together
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        arg: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of its consumer.

        Raises RequestTimeoutError if no reply arrives in time, and otherwise what ``send`` raises.
        """
        self._check_running()
        check_message(message, self._max_bytes, self._serializer)
        check_request(message, timeout)

        async def send(request: Message, seconds: float) -> Receipt:
            return await self.send(request, timeout=seconds, queue=queue, selector=selector, arg=arg)

        return await self._request_sender.request(message, timeout, send)

    async def reply_to(
        self,
        request: ReceivedMessage,
        body: bytes | str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in ``send``
        tags: str | None = None,
        keys: str = "",
    ) -> Receipt:
        """Reply to a request that a consumer received, and wait until its sender has the reply.

        Raises CannotReplyError for a message that is not a request, SendError if the sender is gone, and otherwise
        what ``send`` raises.
        """
        reply = create_reply(request, body, tags=tags, keys=keys)
        seconds = self._seconds if timeout is None else timeout
        queues = await self.queues(reply.topic)
        # The broker that delivered the request certainly has a connection to its sender.
        near = [queue for queue in queues if queue.broker_name == request.broker_name]
        if near:
            try:
                return await self.send(reply, timeout=seconds, queue=self.client_config.random.choice(near))
            except (BrokerError, SendError):
                if len(near) == len(queues):
                    raise
        return await self.send(reply, timeout=seconds)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        most: int = MAX_FOUND,
        since: float | datetime.datetime | None = None,
        until: float | datetime.datetime | None = None,
    ) -> list[ReceivedMessage]:
        """Look up messages of a topic by key, oldest first, at most ``most`` of each broker.

        The ``message_id`` of a receipt is a key as well. ``since`` and ``until`` limit the store time, as seconds
        since 1970 or datetimes. An unreachable broker is skipped if another one responds. Raises OrbitMQError.
        """
        self._check_running()
        return await find(self._instance, topic, key, most=most, since=since, until=until)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Writable queues of a topic, in the order that selectors get."""
        self._check_running()
        found = await self._sender.find(topic, self._sender.time() + self._seconds)
        return list(found.queues)

    async def _look_up_topics(self) -> None:
        for topic in self.config.topics:
            try:
                await self._sender.find(topic, self._loop.time() + self._seconds)
            except OrbitMQError as error:
                log.warning("producer: no route of %s yet: %s", topic, error)


def _call_back(callback: Callback, done: asyncio.Future[Receipt]) -> None:
    if done.cancelled():
        callback(None, asyncio.CancelledError())
        return
    error = done.exception()
    callback(done.result() if error is None else None, error)
