"""A consumer that asks for messages when it wants them: of its share of a topic's queues, or of queues it chose."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from orbitmq.client import consume_hooks
from orbitmq.client.config import DEFAULT_INSTANCE, ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.consume_from import max_offset, min_offset, offset_at
from orbitmq.client.errors import InvalidMessageError, NotRunningError, OrbitMQError
from orbitmq.client.instance import ClientInstance
from orbitmq.client.lite_pull_config import LitePullConfig, LitePullOptions
from orbitmq.client.lite_pull_member import PullMember, now_ms
from orbitmq.client.namespaces import unwrap, wrap
from orbitmq.client.offset_store import LocalOffsets, RemoteOffsets
from orbitmq.client.producer_config import split_options
from orbitmq.client.queue_changes import QueueChanges
from orbitmq.client.tracing_hooks import consume_tracing
from orbitmq.client.tracing_records import ConsumeOutcome
from orbitmq.client.validation import check_group, check_topic
from orbitmq.filter import SQL92, TAG, FilterError, compile_subscription, subscription_data
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.names import DEFAULT_CONSUMER_GROUP
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from orbitmq.client.assigned_queues import AssignedQueue
    from orbitmq.client.messages import ReceivedMessage
    from orbitmq.client.offset_store import OffsetStore
    from orbitmq.client.tracing_hooks import ConsumeTracing
    from orbitmq.protocol.bodies import SubscriptionData

log = logging.getLogger("orbitmq.client")

STREAM_SUFFIX = "@STREAM"
"""The end of pull consumers' client ids, as in Java: their long polls have connections of their own."""


class LitePullConsumer:
    """Pulls messages. It belongs to the event loop that it was started on, and to one task that polls.

    ::

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            async for message in consumer:
                ...

    Either topics are subscribed, whose queues the members of the group share, or queues are assigned by hand. A
    message counts as done when more are asked for, or when the consumer is closed without an exception; that is
    what ``auto_commit`` commits. Options are those of the Java consumer in snake case: see ``LitePullConfig`` and
    ``ClientConfig``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[LitePullOptions],
    ) -> None:
        """Nothing is connected before ``start``. Raises InvalidMessageError for options that cannot be."""
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
        self._changes = QueueChanges(self.config.topic_metadata_check_interval)
        self._watching: asyncio.Task[None] | None = None
        self._instance: ClientInstance | None = None
        self._member: PullMember | None = None
        self._was_started = False
        self._tracing: ConsumeTracing | None = None

    # Life

    @property
    def is_running(self) -> bool:
        return self._member is not None

    async def start(self) -> Self:
        """Begin to pull. Brokers and name servers need not be there yet."""
        if self._was_started:
            raise NotRunningError("a consumer can be started once only: make another one")
        config = self.client_config
        is_broadcasting = self.config.shared.is_broadcasting
        name = config.instance_name
        name = unique_instance_name() if name == DEFAULT_INSTANCE and not is_broadcasting else name
        instance = ClientInstance.acquire(config, config.client_id(name) + STREAM_SUFFIX)
        try:
            offsets = self._offsets(instance)
            member = PullMember(
                instance, self._group, self.config, offsets, self._subscriptions, self._expressions, self._listeners
            )
            instance.add_consumer(member)
        except BaseException:
            await instance.release()
            raise
        self._was_started = True
        self._instance, self._member = instance, member
        try:
            tracing = consume_tracing(config, self._group)
            if tracing is not None:
                await tracing.dispatcher.start()
                self._tracing = tracing
            await self._introduce(instance, member)
        except BaseException:
            await self.close()
            raise
        # Somebody may have closed it meanwhile.
        self._running()
        member.start()
        if self._subscriptions:
            member.share_queues()
        elif self._assigned is not None:
            member.assign(self._assigned)
        self._watching = asyncio.get_running_loop().create_task(self._changes.watch(instance))
        return self

    async def _introduce(self, instance: ClientInstance, member: PullMember) -> None:
        """Say to brokers who is here, before anybody asks them who shares the queues."""
        for topic in member.topics():
            try:
                await instance.route(topic)
            except (OrbitMQError, RemotingError) as error:
                log.warning("%s waits for the topic %s: %s", self.group, topic, error)
        await instance.heartbeat_all()

    def _offsets(self, instance: ClientInstance) -> OffsetStore:
        if not self.config.shared.is_broadcasting:
            return RemoteOffsets(instance, self._group)
        local = LocalOffsets(self.config.local_offset_store_dir, instance.client_id, self._group)
        local.load()
        return local

    async def close(self) -> None:
        """Commit, if that is automatic, and leave the group. What was handed out counts as done."""
        await self._close(is_done=True)

    async def _close(self, *, is_done: bool) -> None:
        member, self._member = self._member, None
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
        # What somebody failed to work on comes again.
        await self._close(is_done=kind is None)

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
        """Share the queues of a topic with the group, now or when it starts; again to change what is wanted of it.

        ``tags`` is like ``"paid || refunded"``, ``sql`` a SQL92 expression over properties. The listener is called
        with the topic, all its queues and those of this consumer, when the last have changed.
        """
        if self._assigned is not None:
            raise InvalidMessageError(
                "queues are assigned to this consumer: it cannot subscribe to a topic as well"
            )
        data = self._filter(topic, tags, sql)
        self._subscriptions[data.topic] = data
        self._listeners.pop(data.topic, None)
        if message_queue_listener is not None:
            self._listeners[data.topic] = self._outward(message_queue_listener)
        if self._member is not None:
            self._member.subscription_changed(data.topic)

    def unsubscribe(self, topic: str) -> None:
        wrapped = self._wrap(topic)
        self._listeners.pop(wrapped, None)
        if self._subscriptions.pop(wrapped, None) is not None and self._member is not None:
            self._member.subscription_changed(wrapped)

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues, whoever else does, and no others any more."""
        if self._subscriptions:
            raise InvalidMessageError("this consumer subscribes to topics: it cannot be assigned queues as well")
        self._assigned = {self._inward(queue) for queue in queues}
        if self._member is not None:
            self._member.assign(self._assigned)

    def set_sub_expression_for_assign(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """What is wanted of a topic whose queues are assigned. Only before the start."""
        if self._was_started:
            raise InvalidMessageError("the filters of assigned queues are set before the consumer starts")
        data = self._filter(topic, tags, sql)
        self._expressions[data.topic] = data

    def assignment(self) -> set[MessageQueue]:
        """The queues that are read now."""
        if self._member is None:
            return {self._plain(queue) for queue in self._assigned or ()}
        return {self._plain(assigned.queue) for assigned in self._member.queues.all()}

    def _filter(self, topic: str, tags: str | None, sql: str | None) -> SubscriptionData:
        check_topic(topic)
        if tags is not None and sql is not None:
            raise InvalidMessageError("give tags or sql, not both: a topic has one filter")
        kind, expression = (TAG, "*" if tags is None else tags) if sql is None else (SQL92, sql)
        try:
            # Brokers would complain of a fault in the expression with every pull, and only the log would show it.
            compile_subscription(kind, expression)
            return subscription_data(self._wrap(topic), kind, expression, now_ms())
        except FilterError as error:
            raise InvalidMessageError(f"the filter of {topic!r} cannot be read: {error}") from error

    # Messages

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:  # noqa: ASYNC109
        """Some messages of one queue, as soon as there are any; none after ``timeout`` seconds, or when closed.

        Messages that were handed out before count as done.
        """
        return await self._next(
            self._running(), self.config.pull_batch_size, self.config.poll_timeout if timeout is None else timeout
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        while (member := self._member) is not None:
            messages = await self._next(member, 1, None)
            if messages:
                return messages[0]
        raise StopAsyncIteration

    async def _next(self, member: PullMember, most: int, seconds: float | None) -> list[ReceivedMessage]:
        messages = member.queues.take(most)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not messages and self._member is member:
                    await member.queues.arrival()
                    messages = member.queues.take(most)
        taken = cast("list[ReceivedMessage]", messages)
        if taken and self._tracing is not None:
            # What is handed out counts as done, and nobody says what became of it.
            context = consume_hooks.begin((self._tracing,), self._group, taken)
            consume_hooks.end((self._tracing,), context, ConsumeOutcome.SUCCESS)
        return taken

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing of these queues until they are resumed; of all, if none is given."""
        member = self._running()
        for assigned in self._chosen(queues):
            member.queues.pause(assigned)

    def resume(self, *queues: MessageQueue) -> None:
        member = self._running()
        for assigned in self._chosen(queues):
            member.queues.resume(assigned)

    # Offsets

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset of a queue. Raises InvalidMessageError if it is not between its begin and its end."""
        self._find(queue)
        inward = self._inward(queue)
        with _reaching("the bounds of", queue):
            low, high = await asyncio.gather(
                min_offset(self._connected(), inward), max_offset(self._connected(), inward)
            )
        if not low <= offset <= high:
            raise InvalidMessageError(f"{queue} has the offsets {low} to {high}: it cannot be read at {offset}")
        self._running().move(self._find(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of a queue."""
        self._find(queue)
        with _reaching("the begin of", queue):
            offset = await min_offset(self._connected(), self._inward(queue))
        self._running().move(self._find(queue), offset)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with what comes to a queue from now on."""
        self._find(queue)
        with _reaching("the end of", queue):
            offset = await max_offset(self._connected(), self._inward(queue))
        self._running().move(self._find(queue), offset)

    async def seek_to_time(self, queue: MessageQueue, when: float | datetime.datetime) -> None:
        """Go on at the first message of a queue that was stored at a time, to the millisecond, or after it."""
        self._find(queue)
        offset = await self.offset_for_timestamp(queue, when)
        self._running().move(self._find(queue), offset)

    def position(self, queue: MessageQueue) -> int | None:
        """The offset after what was handed out of a queue; None until its first pull."""
        return self._find(queue).position

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue, committed by this consumer or another; None if there is none."""
        member = self._running()
        told = member.offsets.read(self._inward(queue))
        if told is not None:
            return told
        with _reaching("the offset of", queue):
            return await member.offsets.fetch(self._inward(queue))

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int] | Iterable[MessageQueue] | None = None,
        *,
        persist: bool = True,
    ) -> None:
        """Commit all that was handed out, of all queues or of some, or the offsets that are given.

        With ``persist`` the brokers have them when this returns; without it they get them soon. Raises OrbitMQError
        if that cannot be, and tries again later.
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

    # Of topics

    async def fetch_message_queues(self, topic: str) -> set[MessageQueue]:
        """The queues of a topic. Raises NoRouteError."""
        check_topic(topic)
        with _reaching("the queues of", topic):
            route = await self._connected().refresh(self._wrap(topic))
        return {self._plain(queue) for queue in route.subscribe_queues}

    async def offset_for_timestamp(self, queue: MessageQueue, when: float | datetime.datetime) -> int:
        """The offset of the first message stored at a time (seconds since 1970, or a datetime) or after it."""
        seconds = when if isinstance(when, float | int) else when.timestamp()
        with _reaching("an offset of", queue):
            return await offset_at(self._connected(), self._inward(queue), round(seconds * 1000))

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: Callable[[str, frozenset[MessageQueue]], object]
    ) -> None:
        """Call a function with the topic and all its queues when those have changed, for who assigns by hand."""
        check_topic(topic)

        def tell(_: str, queues: frozenset[MessageQueue]) -> None:
            listener(topic, frozenset(map(self._plain, queues)))

        self._changes.listen(self._wrap(topic), tell)

    # Names, and what has to be there

    def _wrap(self, topic: str) -> str:
        return wrap(self.client_config.namespace, topic)

    def _inward(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _plain(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(unwrap(self.client_config.namespace, queue.topic), queue.broker_name, queue.queue_id)

    def _outward(
        self, listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
    ) -> Callable[..., object]:
        def tell(topic: str, everything: Iterable[MessageQueue], mine: Iterable[MessageQueue]) -> None:
            plain = unwrap(self.client_config.namespace, topic)
            listener(plain, list(map(self._plain, everything)), list(map(self._plain, mine)))

        return tell

    def _running(self) -> PullMember:
        if self._member is None:
            raise NotRunningError("this consumer is not running: start it first, or use async with")
        return self._member

    def _connected(self) -> ClientInstance:
        self._running()
        assert self._instance is not None
        return self._instance

    def _find(self, queue: MessageQueue) -> AssignedQueue:
        assigned = self._running().queues.find(self._inward(queue))
        if assigned is None:
            raise InvalidMessageError(f"{queue} is not assigned to this consumer, or is not any more")
        return assigned

    def _chosen(self, queues: Sequence[MessageQueue]) -> list[AssignedQueue]:
        return [self._find(queue) for queue in queues] if queues else self._running().queues.all()


@contextlib.contextmanager
def _reaching(what: str, of: object) -> Iterator[None]:
    """Turn what can go wrong on the way to a server into an error of the client's tree."""
    try:
        yield
    except RemotingError as error:
        raise OrbitMQError(f"{what} {of} cannot be asked for: {error}; is its broker running?") from error
