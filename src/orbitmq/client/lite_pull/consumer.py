"""Lite pull consumer for asyncio: polls messages of subscribed topics or of queues assigned by hand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from orbitmq.client import health
from orbitmq.client.config import ClientConfig, name_server_list
from orbitmq.client.consumer import hooks as consume_hooks
from orbitmq.client.consumer.offset_store import LocalOffsets, RemoteOffsets
from orbitmq.client.consumer.start_offset import max_offset, min_offset, offset_at
from orbitmq.client.consumer.tracing import consume_tracing
from orbitmq.client.errors import InvalidMessageError, NotRunningError, OrbitMQError
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.instance.route_listener import QueueListeners
from orbitmq.client.lite_pull.config import LitePullConfig, LitePullOptions
from orbitmq.client.lite_pull.runtime import LitePullRuntime
from orbitmq.client.namespace import unwrap, wrap
from orbitmq.client.options import split_options
from orbitmq.client.trace.encoding import ConsumeOutcome
from orbitmq.client.validation import check_group, check_topic
from orbitmq.filter import SQL92, TAG, FilterError, compile_subscription, subscription_data
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.names import DEFAULT_CONSUMER_GROUP
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from orbitmq.client.consumer.offset_store import OffsetStore
    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.lite_pull.assigned_queues import AssignedQueue
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.trace.hooks import ConsumeTracing
    from orbitmq.protocol.bodies import SubscriptionData

log = logging.getLogger("orbitmq.client")

STREAM_SUFFIX = "@STREAM"
"""Suffix of pull consumers' client ids, as in Java: gives their long polls separate connections."""


class LitePullConsumer:
    """Pulls messages. It belongs to the event loop that it was started on, and to one task that polls.

    ::

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            async for message in consumer:
                ...

    Either topics are subscribed, whose queues the members of the group share, or queues are assigned by hand. A
    message counts as processed at the next poll, or when the consumer closes without an exception; that is what
    ``auto_commit`` commits. Options are those of the Java consumer in snake case: see ``LitePullConfig`` and
    ``ClientConfig``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[LitePullOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError for invalid options."""
        check_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise InvalidMessageError(f"a consumer's group cannot be {DEFAULT_CONSUMER_GROUP}: choose another name")
        own, shared = split_options(cast("dict[str, Any]", options), LitePullConfig, ClientConfig)
        self.config = LitePullConfig(**own)
        self.client_config = ClientConfig(name_servers=name_server_list(name_servers), **shared)
        self.group = group
        self._group = wrap(self.client_config.namespace, group)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._listeners: dict[str, Callable[..., object]] = {}
        self._expressions: dict[str, SubscriptionData] = {}
        self._assigned: set[MessageQueue] | None = None
        self._changes = QueueListeners(self.config.topic_metadata_check_interval)
        self._watching: asyncio.Task[None] | None = None
        self._instance: ClientInstance | None = None
        self._runtime: LitePullRuntime | None = None
        self._was_started = False
        self._tracing: ConsumeTracing | None = None

    # Start and close

    @property
    def is_running(self) -> bool:
        return self._runtime is not None

    @property
    def is_connected(self) -> bool:
        """True while a connection to a broker is open; before any topic is known, to a name server."""
        return health.is_connected(self._instance)

    async def lag(self) -> dict[MessageQueue, int]:
        """Messages of each assigned queue behind the last poll. Raises OrbitMQError."""
        member = self._running()
        assigned = {one.queue: one.position for one in member.queues.all()}
        return await health.queue_lag(self._connected(), self._group, assigned, assigned.get)

    def __repr__(self) -> str:
        return health.described(self, self.group, self.client_config, self._was_started, self.is_running)

    async def start(self) -> Self:
        """Start pulling. Brokers and name servers may start later."""
        if self._was_started:
            raise NotRunningError("a consumer can be started only once: create another one")
        config = self.client_config
        is_broadcasting = self.config.shared.is_broadcasting
        name = config.instance_name if is_broadcasting else config.own_instance_name
        instance = ClientInstance.acquire(config, config.client_id(name) + STREAM_SUFFIX)
        try:
            offsets = self._offsets(instance)
            member = LitePullRuntime(
                instance, self._group, self.config, offsets, self._subscriptions, self._expressions, self._listeners
            )
            instance.add_consumer(member)
        except BaseException:
            await instance.release()
            raise
        self._was_started = True
        self._instance, self._runtime = instance, member
        try:
            tracing = consume_tracing(config, self._group)
            if tracing is not None:
                await tracing.dispatcher.start()
                self._tracing = tracing
            await self._register(instance, member)
        except BaseException:
            await self.close()
            raise
        # It may have been closed meanwhile.
        self._running()
        member.start()
        if self._subscriptions:
            member.share_queues()
        elif self._assigned is not None:
            member.assign(self._assigned)
        self._watching = asyncio.get_running_loop().create_task(self._changes.watch(instance))
        return self

    async def _register(self, instance: ClientInstance, member: LitePullRuntime) -> None:
        """Send the first heartbeats, before the rebalance asks brokers for the members."""
        for topic in member.topics():
            try:
                await instance.route(topic)
            except (OrbitMQError, RemotingError) as error:
                log.warning("consumer: %s has no route of %s yet: %s", self.group, topic, error)
        await instance.heartbeat_all()

    def _offsets(self, instance: ClientInstance) -> OffsetStore:
        if not self.config.shared.is_broadcasting:
            return RemoteOffsets(instance, self._group)
        local = LocalOffsets(self.config.local_offset_store_dir, instance.client_id, self._group)
        local.load()
        return local

    async def close(self) -> None:
        """Commit, with ``auto_commit``, and leave the group. Polled messages count as processed."""
        await self._close(is_done=True)

    async def _close(self, *, is_done: bool) -> None:
        member, self._runtime = self._runtime, None
        instance, self._instance = self._instance, None
        watching, self._watching = self._watching, None
        if member is None or instance is None:
            return
        try:
            if is_done:
                member.queues.settle()
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            await member.close()
            if self._tracing is not None:
                await self._tracing.dispatcher.close()
            await instance.remove_consumer(member)
        finally:
            await instance.release()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception, the polled messages are delivered again.
        await self._close(is_done=kind is None)

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
        """Subscribe to a topic, whose queues the group shares; again to replace the filter.

        ``tags`` is like ``"paid || refunded"``, ``sql`` a SQL92 expression over properties. The listener is called
        with the topic, all its queues and those of this consumer when its assignment has changed.
        """
        if self._assigned is not None:
            raise InvalidMessageError("this consumer has assigned queues: it cannot subscribe to topics as well")
        data = self._filter(topic, tags, sql)
        self._subscriptions[data.topic] = data
        self._listeners.pop(data.topic, None)
        if message_queue_listener is not None:
            self._listeners[data.topic] = self._outward(message_queue_listener)
        if self._runtime is not None:
            self._runtime.subscription_changed(data.topic)

    def unsubscribe(self, topic: str) -> None:
        wrapped = self._wrap(topic)
        self._listeners.pop(wrapped, None)
        if self._subscriptions.pop(wrapped, None) is not None and self._runtime is not None:
            self._runtime.subscription_changed(wrapped)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Assign exactly these queues, independent of the group's other members."""
        if self._subscriptions:
            raise InvalidMessageError("this consumer subscribes to topics: it cannot be assigned queues as well")
        self._assigned = {self._inward(queue) for queue in queues}
        if self._runtime is not None:
            self._runtime.assign(self._assigned)

    def set_sub_expression_for_assign(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Set the filter of a topic whose queues are assigned. Only before the start."""
        if self._was_started:
            raise InvalidMessageError("the filters of assigned queues are set before the consumer starts")
        data = self._filter(topic, tags, sql)
        self._expressions[data.topic] = data

    def assignment(self) -> set[MessageQueue]:
        """The assigned queues."""
        if self._runtime is None:
            return {self._plain(queue) for queue in self._assigned or ()}
        return {self._plain(assigned.queue) for assigned in self._runtime.queues.all()}

    def _filter(self, topic: str, tags: str | None, sql: str | None) -> SubscriptionData:
        check_topic(topic)
        if tags is not None and sql is not None:
            raise InvalidMessageError("give tags or sql, not both: a topic has one filter")
        kind, expression = (TAG, "*" if tags is None else tags) if sql is None else (SQL92, sql)
        try:
            # Validated here: brokers would refuse every pull, and only the log would show it.
            compile_subscription(kind, expression)
            return subscription_data(self._wrap(topic), kind, expression, self.client_config.clock.now_ms())
        except FilterError as error:
            raise InvalidMessageError(f"invalid filter of {topic!r}: {error}") from error

    # Messages

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:  # noqa: ASYNC109
        """Poll messages of one queue; empty after ``timeout`` seconds or when closed.

        Messages polled before count as processed. Raises InvalidMessageError without a subscription.
        """
        running = self._running()
        if not self._subscriptions and self._assigned is None:
            raise InvalidMessageError("no subscription: subscribe() to a topic, or assign() queues first")
        return await self._next(
            running, self.config.pull_batch_size, self.config.poll_timeout if timeout is None else timeout
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        while (member := self._runtime) is not None:
            messages = await self._next(member, 1, None)
            if messages:
                return messages[0]
        raise StopAsyncIteration

    async def take_ahead(self, most: int) -> list[PulledMessage]:
        """Poll for the blocking consumer, which hands messages out one by one; empty when closed."""
        while (member := self._runtime) is not None:
            messages = await self._next(member, most, None)
            if messages:
                return cast("list[PulledMessage]", messages)
        return []

    def give_back(self, unread: Sequence[PulledMessage], in_hand: int) -> None:
        """Return what ``take_ahead`` took and the application has not got yet."""
        if self._runtime is not None:
            self._runtime.queues.give_back(unread, in_hand)

    async def _next(self, member: LitePullRuntime, most: int, seconds: float | None) -> list[ReceivedMessage]:
        messages = member.queues.take(most)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not messages and self._runtime is member:
                    await member.queues.arrival()
                    messages = member.queues.take(most)
        taken = cast("list[ReceivedMessage]", messages)
        if taken and self._tracing is not None:
            # Polled messages count as consumed: there is no result to trace.
            context = consume_hooks.begin((self._tracing,), self._group, taken)
            consume_hooks.end((self._tracing,), context, ConsumeOutcome.SUCCESS)
        return taken

    def pause(self, *queues: MessageQueue) -> None:
        """Pause these queues, or all, until ``resume``."""
        member = self._running()
        for assigned in self._chosen(queues):
            member.queues.pause(assigned)

    def resume(self, *queues: MessageQueue) -> None:
        member = self._running()
        for assigned in self._chosen(queues):
            member.queues.resume(assigned)

    # Offsets

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Seek to an offset of a queue. Raises InvalidMessageError if it is outside the queue's bounds."""
        self._find(queue)
        inward = self._inward(queue)
        with _reaching("the bounds of", queue):
            low, high = await asyncio.gather(
                min_offset(self._connected(), inward), max_offset(self._connected(), inward)
            )
        if not low <= offset <= high:
            raise InvalidMessageError(f"{queue} has the offsets {low} to {high}: cannot seek to {offset}")
        self._running().move(self._find(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Seek to the oldest message of a queue."""
        self._find(queue)
        with _reaching("the begin of", queue):
            offset = await min_offset(self._connected(), self._inward(queue))
        self._running().move(self._find(queue), offset)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Seek behind the newest message of a queue."""
        self._find(queue)
        with _reaching("the end of", queue):
            offset = await max_offset(self._connected(), self._inward(queue))
        self._running().move(self._find(queue), offset)

    async def seek_to_time(self, queue: MessageQueue, when: float | datetime.datetime) -> None:
        """Seek to the first message of a queue stored at or after a time."""
        self._find(queue)
        offset = await self.offset_for_timestamp(queue, when)
        self._running().move(self._find(queue), offset)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset behind the polled messages of a queue; None until its first pull."""
        return self._find(queue).position

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue, committed by this consumer or another; None if there is none."""
        member = self._running()
        known = member.offsets.read(self._inward(queue))
        if known is not None:
            return known
        with _reaching("the offset of", queue):
            return await member.offsets.fetch(self._inward(queue))

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit the positions of all queues or of some, or the given offsets.

        With ``persist`` the brokers have them when this returns, otherwise soon. Raises OrbitMQError on a failure,
        and retries later.
        """
        member = self._running()
        if isinstance(offsets, Mapping):
            chosen = {self._inward(queue): offset for queue, offset in offsets.items()}
        else:
            queues = member.queues.all() if offsets is None else self._chosen(tuple(offsets))
            chosen = {one.queue: offset for one in queues if (offset := one.position) is not None}
        for queue, offset in chosen.items():
            member.offsets.update(queue, offset)
        if persist:
            with _reaching("the commit", "of offsets"):
                await member.persist_now(chosen)

    # Topics

    async def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """The queues of a topic. Raises NoRouteError."""
        check_topic(topic)
        with _reaching("the queues of", topic):
            route = await self._connected().refresh(self._wrap(topic))
        return {self._plain(queue) for queue in route.subscribe_queues}

    async def offset_for_timestamp(self, queue: MessageQueue, when: float | datetime.datetime) -> int:
        """The offset of the first message stored at or after a time (seconds since 1970, or a datetime)."""
        seconds = when if isinstance(when, float | int) else when.timestamp()
        with _reaching("an offset of", queue):
            return await offset_at(self._connected(), self._inward(queue), round(seconds * 1000))

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: Callable[[str, frozenset[MessageQueue]], object]
    ) -> None:
        """Call a function with the topic and all its queues when they change, for assignment by hand."""
        check_topic(topic)

        def call(_: str, queues: frozenset[MessageQueue]) -> None:
            listener(topic, frozenset(map(self._plain, queues)))

        self._changes.listen(self._wrap(topic), call)

    # Names and state

    def _wrap(self, topic: str) -> str:
        return wrap(self.client_config.namespace, topic)

    def _inward(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _plain(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(unwrap(self.client_config.namespace, queue.topic), queue.broker_name, queue.queue_id)

    def _outward(
        self, listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
    ) -> Callable[..., object]:
        def call(topic: str, everything: Iterable[MessageQueue], mine: Iterable[MessageQueue]) -> None:
            plain = unwrap(self.client_config.namespace, topic)
            listener(plain, list(map(self._plain, everything)), list(map(self._plain, mine)))

        return call

    def _running(self) -> LitePullRuntime:
        if self._runtime is None:
            raise NotRunningError("this consumer is not running: start it first, or use async with")
        return self._runtime

    def _connected(self) -> ClientInstance:
        self._running()
        assert self._instance is not None
        return self._instance

    def _find(self, queue: MessageQueue) -> AssignedQueue:
        assigned = self._running().queues.find(self._inward(queue))
        if assigned is None:
            raise InvalidMessageError(f"{queue} is not assigned to this consumer")
        return assigned

    def _chosen(self, queues: Sequence[MessageQueue]) -> list[AssignedQueue]:
        return [self._find(queue) for queue in queues] if queues else self._running().queues.all()


@contextlib.contextmanager
def _reaching(what: str, of: object) -> Iterator[None]:
    """Raise OrbitMQError for RemotingError."""
    try:
        yield
    except RemotingError as error:
        raise OrbitMQError(f"the request for {what} {of} failed: {error}; is its broker running?") from error
