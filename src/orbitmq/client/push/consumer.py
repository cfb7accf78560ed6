"""Push consumer for asyncio: calls handlers with the messages of topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from orbitmq.client import health
from orbitmq.client.config import ClientConfig, name_server_list
from orbitmq.client.consumer.subscription import Subscriptions
from orbitmq.client.errors import InvalidMessageError, NotRunningError
from orbitmq.client.middleware import MiddlewareStack
from orbitmq.client.namespace import wrap
from orbitmq.client.options import split_options
from orbitmq.client.push import stop_signals
from orbitmq.client.push.config import ConsumerConfig, ConsumerOptions
from orbitmq.client.push.inbox import Inbox
from orbitmq.client.push.runtime import PushRuntime
from orbitmq.client.validation import check_group
from orbitmq.protocol.names import DEFAULT_CONSUMER_GROUP

if TYPE_CHECKING:
    import datetime
    from collections.abc import AsyncIterator, Callable, Iterable

    from orbitmq.client.consumer.hooks import ConsumeHook
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.protocol.bodies import MessageQueue

HandlerT = TypeVar("HandlerT", bound="Callable[[Any], Any]")

MAX_THREADS = 1000


class Consumer:
    """Calls handlers with the messages of topics.

    A handler that returns has consumed its message. After an exception the message is retried with backoff, and
    finally moved to the dead letter queue of the group. A handler may also return a ConsumeResult.
    Plain functions are called in threads, coroutine functions on the loop, up to ``consume_thread_max`` at a time::

        consumer = Consumer("127.0.0.1:9876", group="billing")

        @consumer.on("orders", tags="paid || refunded")
        async def handle(message): ...

        async with consumer:
            ...

    The options are the fields of ConsumerConfig and ClientConfig.
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
        check_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise InvalidMessageError(f"a consumer's group cannot be {DEFAULT_CONSUMER_GROUP}: choose another name")
        given, client_given = split_options(dict(options), ConsumerConfig, ClientConfig)
        self.config = ConsumerConfig(**given)
        self.client_config = ClientConfig(name_servers=name_server_list(name_servers), **client_given)
        self.group = group
        self._hooks = list(hooks)
        self._group = wrap(self.client_config.namespace, group)
        clock = self.client_config.clock
        self._middleware = MiddlewareStack(group, self.client_config.middleware, clock=clock)
        self._subscriptions = Subscriptions(
            self._group,
            self.client_config.namespace,
            with_retries=not self.config.is_broadcasting,
            clock=clock,
            serializer=self.client_config.serializer,
            wrap_handler=self._middleware.handler if self._middleware.wraps_handlers else None,
        )
        self._runtime: PushRuntime | None = None
        self._is_closed = False
        self._stopped: asyncio.Event | None = None
        self._inbox: Inbox | None = None

    # Subscriptions

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
        """Decorator: make a function a handler of a topic, optionally with a filter.

        A topic may have several handlers: by different tags, by SQL92, and one without a filter for the rest. A
        message goes to one of them. Raises InvalidMessageError for two handlers of one tag.

        A handler may have a typed parameter, ``def handle(order: Order, message: Message)``: it gets the body,
        decoded by ``serializer`` or that of the consumer.

        ``tags`` is ``a``, ``a || b`` or ``*``; ``sql`` is an SQL92 expression on properties. ``inline`` calls a
        plain function on the loop instead of a thread, for quick ones. ``batch``: the handler takes a list; default
        is whether ``consume_message_batch_max_size`` is more than 1.
        """
        if callable(topic):
            raise InvalidMessageError('on() takes the topic: write @consumer.on("orders") above the handler')

        def register(handler: HandlerT) -> HandlerT:
            self._add(topic, handler, tags, sql, inline, batch, replace=False, serializer=serializer)
            return handler

        if self._runtime is not None:
            raise NotRunningError("the consumer is already running: use `await consumer.subscribe(...)`")
        return register

    async def subscribe(
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

        Without a handler the messages go to ``async for message in consumer``.
        """
        if handler is None:
            if batch:
                raise InvalidMessageError("a loop over the consumer takes single messages: batch needs a handler")
            handler, batch = self._open_inbox().handle, False
        subscription = self._add(topic, handler, tags, sql, inline, batch, serializer=serializer)
        if self._runtime is not None:
            await self._runtime.subscription_changed(subscription)

    def _open_inbox(self) -> Inbox:
        if self._inbox is None:
            self._inbox = Inbox()
        return self._inbox

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """The messages of the topics that are subscribed to without a handler, until the consumer is closed.

        A message counts as consumed when the loop asks for the next one; one that the loop is left with is retried.
        Several tasks may loop at the same time.
        """
        if self._inbox is None:
            raise InvalidMessageError("no topic to loop over: `await consumer.subscribe(topic)` first")
        return self._inbox.messages()

    async def unsubscribe(self, topic: str) -> None:
        """Remove the subscription of a topic."""
        self._subscriptions.remove(topic)
        if self._runtime is not None:
            await self._runtime.subscription_changed(None)

    def _add(
        self,
        topic: str,
        handler: Callable[[Any], Any],
        tags: str | None,
        sql: str | None,
        inline: bool | None,
        batch: bool | None,
        *,
        replace: bool = True,
        serializer: Serializer | None = None,
    ) -> Any:
        return self._subscriptions.add(
            topic,
            handler,
            tags=tags,
            sql=sql,
            inline=self.config.inline if inline is None else inline,
            takes_list=self.config.consume_message_batch_max_size > 1 if batch is None else batch,
            replace=replace,
            serializer=serializer,
        )

    # Running

    async def start(self) -> Self:
        """Join the group. Messages sent after this has returned will be consumed. Raises OrbitMQError."""
        if self._runtime is not None or self._is_closed:
            raise NotRunningError("a consumer can be started only once: create another one")
        if not len(self._subscriptions):
            raise InvalidMessageError("the consumer has no handler: give it one with @consumer.on(topic)")
        member = PushRuntime(self.client_config, self.config, self._group, self._subscriptions, self._hooks)
        self._stopped = asyncio.Event()
        self._middleware.loop = asyncio.get_running_loop()
        await member.start()
        self._runtime = member
        return self

    async def close(self) -> None:
        """Wait for running handlers, persist the offsets and leave the group."""
        member = self._end()
        if member is not None:
            await member.close()

    async def abort(self) -> None:
        """Stop as if the process had been killed: no offsets are persisted, brokers are not notified. For tests."""
        member = self._end()
        if member is not None:
            await member.abandon()

    def _end(self) -> PushRuntime | None:
        """End ``run`` and iterations; returns what is still to be stopped."""
        self._is_closed = True
        member, self._runtime = self._runtime, None
        if self._inbox is not None:
            self._inbox.close()
        if self._stopped is not None:
            self._stopped.set()
        return member

    async def run(self) -> None:
        """Consume until SIGTERM, until this is cancelled (as Ctrl-C does), or until ``close`` is called."""
        terminated = asyncio.Event()
        with stop_signals.set_on_sigterm(terminated):
            if self._runtime is None:
                await self.start()
            assert self._stopped is not None
            waits = [asyncio.ensure_future(event.wait()) for event in (self._stopped, terminated)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
                await self.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # While it runs

    def _running(self) -> PushRuntime:
        if self._runtime is None:
            raise NotRunningError("the consumer is not running: start it first")
        return self._runtime

    def pause(self) -> None:
        """Pause pulling. Buffered messages are still consumed."""
        self._running().unpaused.clear()

    suspend = pause

    def resume(self) -> None:
        member = self._running()
        member.unpaused.set()
        member.rebalance_soon()

    @property
    def is_paused(self) -> bool:
        return not self._running().unpaused.is_set()

    @property
    def consume_threads(self) -> int:
        """Number of concurrent handler calls. Can be set while the consumer runs."""
        return self._running().consumption.thread_count

    @consume_threads.setter
    def consume_threads(self, count: int) -> None:
        if not 1 <= count <= MAX_THREADS:
            raise InvalidMessageError(f"consume_threads must be from 1 to {MAX_THREADS}, not {count}")
        self._running().consumption.resize(count)

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return [queue.queue for queue in self._running().queues.process_queues]

    @property
    def is_connected(self) -> bool:
        """True while a connection to a broker is open; before any topic is known, to a name server."""
        return self._runtime is not None and self._runtime.is_connected

    async def lag(self) -> dict[MessageQueue, int]:
        """Messages of each assigned queue that are not consumed yet. Raises OrbitMQError."""
        return await self._running().lag()

    def __repr__(self) -> str:
        return health.described(self, self.group, self.client_config, self._is_closed, self._runtime is not None)

    @property
    def client_id(self) -> str:
        return self._running().client_id

    async def persist_offsets(self) -> None:
        """Persist the consumed offsets now. The brokers have them when this returns."""
        await self._running().queues.persist(confirmed=True)

    async def reset_to_time(self, topic: str, when: float | datetime.datetime) -> dict[MessageQueue, int]:
        """Reset the whole group to the first messages of a topic stored at or after a time.

        ``when`` is seconds since 1970, or a datetime. Returns the offsets. Raises OrbitMQError.
        """
        seconds = when if isinstance(when, float | int) else when.timestamp()
        wrapped = wrap(self.client_config.namespace, topic)
        return await self._running().reset_to_time(wrapped, round(seconds * 1000))
