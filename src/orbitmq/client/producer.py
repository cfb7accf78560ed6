"""The producer: what an application sends messages with."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Unpack, cast

from orbitmq.client import forks, namespaces
from orbitmq.client.accumulating import Accumulator
from orbitmq.client.batching import PartlySentError, check_batch, cut
from orbitmq.client.config import (
    DEFAULT_INSTANCE,
    ClientConfig,
    name_server_list,
    unique_ids_for,
    unique_instance_name,
)
from orbitmq.client.errors import (
    BrokerError,
    NotRunningError,
    OrbitMQError,
    SendError,
)
from orbitmq.client.fault_latency import DETECT_PAUSE, FaultLatency
from orbitmq.client.finding import MOST_FOUND, find
from orbitmq.client.in_flight import InFlight
from orbitmq.client.instance import ClientInstance
from orbitmq.client.outgoing import Preparing
from orbitmq.client.posting import Post
from orbitmq.client.producer_config import ProducerConfig, ProducerOptions, split_options
from orbitmq.client.recalling import recall
from orbitmq.client.request_reply import check_request, create_reply
from orbitmq.client.requesting import Requesting
from orbitmq.client.send_requests import member_receipts
from orbitmq.client.sending import Sender
from orbitmq.client.validation import check_message, check_topic_to_send
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from orbitmq.client.messages import Message, Receipt, ReceivedMessage
    from orbitmq.client.queue_choice import Selector
    from orbitmq.client.send_hooks import SendHook
    from orbitmq.client.tracing_hooks import SendTracing
    from orbitmq.protocol.bodies import MessageQueue

    Callback: TypeAlias = Callable[[Receipt | None, BaseException | None], None]
    """Called with the receipt, or with what went wrong."""

log = logging.getLogger("orbitmq.client")

DEFAULT_GROUP = "ORBITMQ_PRODUCER"
"""For those to whom the group means nothing: it matters for transactions only."""

ONEWAY_BURST = 64 << 10
"""After so many bytes sent without an answer the loop gets a turn, for nothing else would make the sender wait."""


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
        """Nothing is connected before ``start``. Raises InvalidMessageError for options that cannot be."""
        own, shared = split_options(cast("dict[str, Any]", options), ProducerConfig, ClientConfig)
        self.config = ProducerConfig(group=group, **own)
        self.client_config = ClientConfig(name_servers=name_server_list(name_servers), **shared)
        self.group = namespaces.wrap(self.client_config.namespace, group)
        """As brokers know it."""
        self._hooks = list(hooks)
        self._in_flight = InFlight(*self.config.most_in_flight)
        self._most_bytes = self.config.max_message_size
        self._seconds = self.config.send_msg_timeout
        self._oneway_bytes = 0
        self._was_started = self._is_open = False
        self._tracing: SendTracing | None = None
        self._accumulator: Accumulator | None = None
        self._detecting: asyncio.Task[None] | None = None

    # Life

    def topics(self) -> Iterable[str]:
        """The topics that were sent to, as brokers know them."""
        return (*self._sender.wire_topics(), *self._requesting.reply_topics) if self._was_started else ()

    def add_hook(self, hook: SendHook) -> None:
        """Have something called before and after each send from now on."""
        self._hooks.append(hook)

    async def start(self) -> Self:
        """Be ready to send. Name servers and brokers need not be there yet."""
        if self._was_started:
            raise NotRunningError("a producer can be started once only: make another one")
        config, own = self.client_config, self.config
        self._loop = loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._forks = forks.count
        name = unique_instance_name() if config.instance_name == DEFAULT_INSTANCE else config.instance_name
        self._instance = instance = ClientInstance.acquire(config, config.client_id(name))
        faults = FaultLatency(own.fault_ladder, loop.time) if own.send_latency_fault_enable else None
        self._preparing = Preparing(own, config.namespace, unique_ids_for(config))
        self._sender = Sender(instance, own, self._hooks, faults, _now_ms)
        self._requesting = Requesting(instance, self._sender)
        try:
            await self._trace()
            instance.add_producer(self)
            self._was_started = True
            if own.auto_batch:
                self._accumulator = Accumulator(
                    self._send_gathered,
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
            self._detecting = loop.create_task(self._detect(faults))
        self._is_open = True
        return self

    async def _trace(self) -> None:
        """Begin to write down what is sent, if that is wanted."""
        if not self.client_config.enable_trace:
            return
        from orbitmq.client.tracing import PRODUCE, TraceDispatcher  # noqa: PLC0415 - it has a producer itself
        from orbitmq.client.tracing_hooks import SendTracing  # noqa: PLC0415 - few trace

        dispatcher = TraceDispatcher(self.client_config, self.config.group, PRODUCE)
        await dispatcher.start()
        self._tracing = SendTracing(dispatcher)
        self._hooks.append(self._tracing)

    async def close(self) -> None:
        """Wait for what is on its way, then leave. From the beginning of this on nothing more can be sent."""
        if not self._is_open:
            return
        self._is_open = False
        try:
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
        if forks.count != self._forks:
            raise NotRunningError("this producer was made before a fork; make one in the process that uses it")
        # Asking asyncio for the running loop would cost a system call.
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

        It goes to the next queue in turn and, if that fails, to another broker, for ``timeout`` seconds in all. If
        a ``queue`` is given, or a ``selector`` that chooses one by ``arg``, or if the message has a sharding key,
        it goes there or nowhere. Raises InvalidMessageError, NoRouteError, BrokerError, SendError and its kinds.
        """
        self._check_running()
        check_message(message, self._most_bytes)
        accumulator = self._accumulator
        if accumulator is not None and timeout is None and selector is None and accumulator.takes(message):
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
            publishing = sender.ready(message.topic) or await sender.find(message.topic, deadline)
            preparing = self._preparing
            slow = preparing.is_slow(message)
            outgoing = await preparing.one_apart(message) if slow else preparing.one(message)
            fixed = publishing.fixed(message, queue, selector, arg)
            return await sender.send(outgoing, publishing, fixed, began, deadline)
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
        """Send a message without waiting: the cheapest way to have many on their way at a time.

        What becomes of it is in the future, and is told to ``callback`` if there is one. Raises TooManySendsError
        if as many are on their way as allowed: whoever sends as fast as it can awaits ``room`` before each.
        """
        self._check_running()
        check_message(message, self._most_bytes)
        accumulator = self._accumulator
        if accumulator is not None and timeout is None and selector is None and accumulator.takes(message):
            future = accumulator.add(message, queue)
        else:
            post = Post(self._sender, self._in_flight, message, self._seconds if timeout is None else timeout)
            post.start(self._preparing, queue, selector, arg)
            future = post.future
        if callback is not None:
            future.add_done_callback(lambda done: _call_back(callback, done))
        return future

    async def room(self) -> None:
        """Wait until ``send_nowait`` may be called again. Costs next to nothing if it may be already."""
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
        """Send a message and do not ask what became of it. Raises SendError if there is nobody to send it to."""
        self._check_running()
        check_message(message, self._most_bytes)
        sender = self._sender
        size = len(message.body)
        await self._in_flight.enter_later(size, self._seconds)
        try:
            publishing = sender.ready(message.topic) or await sender.find(
                message.topic, sender.time() + self._seconds
            )
            preparing = self._preparing
            slow = preparing.is_slow(message)
            outgoing = await preparing.one_apart(message) if slow else preparing.one(message)
            fixed = publishing.fixed(message, queue, selector, arg)
            self._oneway_bytes += await sender.send_oneway(outgoing, publishing, fixed)
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
        """Send many messages of one topic in as few requests as the size limit allows, one after the other.

        The receipts come in the order of the messages. Raises InvalidMessageError before anything is sent,
        PartlySentError if something was, and otherwise what ``send`` raises.
        """
        self._check_running()
        return await self._send_many(list(messages), queue, self._seconds if timeout is None else timeout)

    async def _send_gathered(self, messages: Sequence[Message], queue: MessageQueue | None) -> list[Receipt]:
        return await self._send_many(messages, queue, self._seconds)

    async def _send_many(
        self, messages: Sequence[Message], queue: MessageQueue | None, seconds: float
    ) -> list[Receipt]:
        check_batch(messages, self._most_bytes)
        check_topic_to_send(messages[0].topic)
        items = [self._preparing.item(message) for message in messages]
        receipts: list[Receipt] = []
        for begin, end in tuple(cut(items, self._most_bytes)):
            try:
                receipts += await self._send_part(messages[begin:end], items[begin:end], queue, seconds)
            except OrbitMQError as error:
                if not receipts:
                    raise
                raise PartlySentError(receipts, messages[begin:], error) from error
        return receipts

    async def _send_part(
        self,
        messages: Sequence[Message],
        items: Sequence[tuple[int, bytes, bytes]],
        queue: MessageQueue | None,
        seconds: float,
    ) -> list[Receipt]:
        sender = self._sender
        began = sender.time()
        deadline = began + seconds
        outgoing = self._preparing.batch(messages, items)
        size = len(outgoing.body)
        await self._in_flight.enter_later(size, seconds)
        try:
            topic = messages[0].topic
            publishing = sender.ready(topic) or await sender.find(topic, deadline)
            fixed = None if queue is None else publishing.target_of(queue)
            receipt = await sender.send(outgoing, publishing, fixed, began, deadline)
        finally:
            self._in_flight.leave(size)
        return member_receipts(receipt, outgoing.message_id.split(","))

    async def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:  # noqa: ASYNC109
        """Take back a message that waits for its time; returns its id. ``recall_handle`` is in its receipt.

        Raises InvalidMessageError for what is no handle, BrokerError if the time has come or the broker does not
        allow it (``recallMessageEnable``), NoRouteError and SendError if it cannot be reached.
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
        """Send a message and wait for the reply of whoever consumes it.

        Raises RequestTimeoutError if it was sent and no reply came, and otherwise what ``send`` raises.
        """
        self._check_running()
        check_message(message, self._most_bytes)
        check_request(message, timeout)

        async def send(request: Message, seconds: float) -> Receipt:
            return await self.send(request, timeout=seconds, queue=queue, selector=selector, arg=arg)

        return await self._requesting.ask(message, timeout, send)

    async def reply_to(
        self,
        request: ReceivedMessage,
        body: bytes | str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as in ``send``
        tags: str | None = None,
        keys: str = "",
    ) -> Receipt:
        """Answer a request that a consumer has got, and wait until the asking client has the answer.

        Raises CannotReplyError for a message that is no request, SendError if the client is not there any more,
        and otherwise what ``send`` raises.
        """
        reply = create_reply(request, body, tags=tags, keys=keys)
        seconds = self._seconds if timeout is None else timeout
        queues = await self.queues(reply.topic)
        # The broker over which the request came knows the client for certain.
        near = [queue for queue in queues if queue.broker_name == request.broker_name]
        if near:
            try:
                return await self.send(reply, timeout=seconds, queue=random.choice(near))
            except (BrokerError, SendError):
                if len(near) == len(queues):
                    raise
        return await self.send(reply, timeout=seconds)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        most: int = MOST_FOUND,
        since: float | datetime.datetime | None = None,
        until: float | datetime.datetime | None = None,
    ) -> list[ReceivedMessage]:
        """The messages of a topic that have a key, whoever sent them, oldest first; at most so many of each broker.

        The ``message_id`` of a receipt is a key as well. ``since`` and ``until`` are seconds since 1970 or
        datetimes, by when messages were stored. A broker that cannot be asked is left out, if there is another.
        Raises OrbitMQError.
        """
        self._check_running()
        return await find(self._instance, topic, key, most=most, since=since, until=until)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to, in the order in which selectors get them."""
        self._check_running()
        found = await self._sender.find(topic, self._sender.time() + self._seconds)
        return list(found.queues)

    # What goes on beside it

    async def _look_up_topics(self) -> None:
        for topic in self.config.topics:
            try:
                await self._sender.find(topic, self._loop.time() + self._seconds)
            except OrbitMQError as error:
                log.warning("the route of %s is not known yet: %s", topic, error)

    async def _detect(self, faults: FaultLatency) -> None:
        while True:
            await asyncio.sleep(DETECT_PAUSE)
            await faults.probe(self.config.detect_interval, self._is_well)

    async def _is_well(self, broker_name: str) -> bool | None:
        """Whether a broker answers; None if nobody knows where it is."""
        for topic in self._sender.wire_topics():
            address = self._instance.address(topic, broker_name)
            if address is None:
                continue
            request = Command(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": topic, "queueId": "0"})
            try:
                await self._instance.call(address, request, self.config.detect_timeout)
            except (RemotingError, OrbitMQError):
                return False
            return True
        return None


def _call_back(callback: Callback, done: asyncio.Future[Receipt]) -> None:
    if done.cancelled():
        callback(None, asyncio.CancelledError())
        return
    error = done.exception()
    callback(done.result() if error is None else None, error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
