"""Simple consumer for asyncio: receive, process, ack. Unacknowledged messages are redelivered.

It uses POP: brokers return messages of any queue and make them invisible to the rest of the group for a while. No
queues are assigned, so members join and leave without a rebalance, and there can be more members than queues.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from orbitmq.client import health
from orbitmq.client.config import ClientConfig, name_server_list
from orbitmq.client.errors import BrokerError, InvalidMessageError, NoRouteError, NotRunningError, OrbitMQError
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.instance.routes import MASTER
from orbitmq.client.namespace import unwrap, wrap
from orbitmq.client.options import split_options
from orbitmq.client.query import queue_offsets as query
from orbitmq.client.simple.config import SimpleConfig, SimpleOptions, check_count, check_invisible
from orbitmq.client.simple.popped_message import PoppedMessage, popped_messages
from orbitmq.client.simple.runtime import SimpleRuntime
from orbitmq.client.validation import check_group, check_topic
from orbitmq.filter import SQL92, TAG, FilterError, compile_subscription, subscription_data
from orbitmq.protocol.bodies import ConsumeFromWhere
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import DEFAULT_CONSUMER_GROUP
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from types import TracebackType

    from orbitmq.protocol.bodies import MessageQueue, SubscriptionData

log = logging.getLogger("orbitmq.client")

POLL_SECONDS = 5.0
"""Long-polling time at one broker if there are several: others may get messages meanwhile."""

GRACE_SECONDS = 10.0
"""Time that a response may exceed the long-polling time."""

_NOTHING = frozenset(
    {ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL, ResponseCode.PULL_NOT_FOUND, ResponseCode.NO_MESSAGE}
)
_NEVER = -1


class SimpleConsumer:
    """Receives and acknowledges. It belongs to the event loop that it was started on.

    ::

        async with SimpleConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("orders", tags="paid || refunded")
            for message in await consumer.receive():
                ...
                await consumer.ack(message)

    Any number of tasks may receive at the same time. Options are those of ``SimpleConfig`` and ``ClientConfig``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        **options: Unpack[SimpleOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError for invalid options."""
        check_group(group)
        if group == DEFAULT_CONSUMER_GROUP:
            raise InvalidMessageError(f"a consumer's group cannot be {DEFAULT_CONSUMER_GROUP}: choose another name")
        own, shared = split_options(cast("dict[str, Any]", options), SimpleConfig, ClientConfig)
        self.config = SimpleConfig(**own)
        self.client_config = ClientConfig(name_servers=name_server_list(name_servers), **shared)
        self.group = group
        self._group = wrap(self.client_config.namespace, group)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._instance: ClientInstance | None = None
        self._runtime: SimpleRuntime | None = None
        self._turns = itertools.count()
        self._was_started = False
        self._registering: asyncio.Task[None] | None = None

    # Start and close

    @property
    def is_running(self) -> bool:
        return self._instance is not None

    @property
    def is_connected(self) -> bool:
        """True while a connection to a broker is open; before any topic is known, to a name server."""
        return health.is_connected(self._instance)

    async def lag(self) -> dict[MessageQueue, int]:
        """Messages of each queue of the subscribed topics that the group has not acknowledged.

        Those in flight count too. Raises OrbitMQError.
        """
        instance = self._running()
        queues = [queue for topic in tuple(self._subscriptions) for queue in await query.queues(instance, topic)]
        return await health.queue_lag(instance, self._group, queues, lambda _: None)

    def __repr__(self) -> str:
        return health.described(self, self.group, self.client_config, self._was_started, self.is_running)

    async def start(self) -> Self:
        """Join the group. Brokers and name servers may start later."""
        if self._was_started:
            raise NotRunningError("a consumer can be started only once: create another one")
        config = self.client_config
        instance = ClientInstance.acquire(config, config.client_id(config.own_instance_name))
        begins = (
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            if self.config.consume_from_first
            else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        )
        member = SimpleRuntime(instance, self._group, self._subscriptions, begins)
        try:
            instance.add_consumer(member)
        except BaseException:
            await instance.release()
            raise
        self._was_started = True
        self._instance, self._runtime = instance, member
        await self._register()
        return self

    async def _register(self) -> None:
        """Send heartbeats: for admin tools, and to auto-create the group."""
        instance = self._instance
        if instance is None:
            return
        for topic in tuple(self._subscriptions):
            try:
                await instance.route(topic)
            except (OrbitMQError, RemotingError) as error:
                log.warning("consumer: %s has no route of %s yet: %s", self.group, topic, error)
        await instance.heartbeat_all()

    async def close(self) -> None:
        """Leave the group. Unacknowledged messages become visible to other members after their time."""
        member, self._runtime = self._runtime, None
        instance, self._instance = self._instance, None
        registering, self._registering = self._registering, None
        if member is None or instance is None:
            return
        try:
            if registering is not None:
                registering.cancel()
                await asyncio.gather(registering, return_exceptions=True)
            await instance.remove_consumer(member)
        finally:
            await instance.release()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Subscriptions

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Subscribe to a topic; again to replace its filter.

        ``tags`` is like ``"paid || refunded"``, ``sql`` a SQL92 expression over properties.
        """
        check_topic(topic)
        if tags is not None and sql is not None:
            raise InvalidMessageError("give tags or sql, not both: a topic has one filter")
        kind, expression = (TAG, "*" if tags is None else tags) if sql is None else (SQL92, sql)
        try:
            compile_subscription(kind, expression)
            data = subscription_data(self._wrap(topic), kind, expression, self.client_config.clock.now_ms())
        except FilterError as error:
            raise InvalidMessageError(f"invalid filter of {topic!r}: {error}") from error
        self._subscriptions[data.topic] = data
        self._register_soon()

    def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.pop(self._wrap(topic), None) is not None:
            self._register_soon()

    def _register_soon(self) -> None:
        if self._instance is not None and (self._registering is None or self._registering.done()):
            self._registering = asyncio.get_running_loop().create_task(self._register())

    # Messages

    async def receive(
        self,
        max_messages: int | None = None,
        *,
        invisible: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the broker that waits
    ) -> list[PoppedMessage]:
        """Receive messages; empty after ``timeout`` seconds.

        They are invisible to the rest of the group for ``invisible`` seconds. Raises OrbitMQError, RemotingError.
        """
        config = self.config
        most = config.max_messages if max_messages is None else max_messages
        hidden = config.invisible_duration if invisible is None else invisible
        check_count(most)
        check_invisible(hidden)
        if not self._subscriptions:
            raise InvalidMessageError("no subscription: subscribe() to a topic first")
        clock = self.client_config.clock
        deadline = clock.monotonic() + (config.await_duration if timeout is None else timeout)
        while True:
            targets = await self._targets()
            # All brokers without waiting, then a long poll at one.
            for target in targets if len(targets) > 1 else ():
                if found := await self._pop(*target, most, hidden, 0.0):
                    return found
            left = deadline - clock.monotonic()
            wait = max(left if len(targets) <= 1 else min(left, POLL_SECONDS), 0.0)
            if targets:
                found = await self._pop(*targets[0], most, hidden, wait)
                if found or left <= wait:
                    return found
            elif left <= 0:
                return []
            else:
                await asyncio.sleep(min(left, 1.0))

    async def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        """Messages one by one, until the consumer is closed. The loop acknowledges each."""
        clock = self.client_config.clock
        while self._instance is not None:
            requested = clock.monotonic()
            for message in await self.receive():
                if clock.monotonic() - requested > self.config.invisible_duration:
                    # Visible to the group again: another member may have it by now.
                    break
                yield message

    async def _targets(self) -> list[tuple[str, str, str]]:
        """Topics with the names and addresses of their brokers, rotated by one each time."""
        instance = self._running()
        found = []
        last_error: OrbitMQError | None = None
        for topic in tuple(self._subscriptions):
            try:
                route = await instance.route(topic)
            except NoRouteError as error:
                last_error = error
                continue
            for name in dict.fromkeys(queue.broker_name for queue in route.subscribe_queues):
                address = route.address(name, MASTER)
                if address is not None:
                    found.append((topic, name, address))
        if not found and last_error is not None and len(self._subscriptions) == 1:
            raise last_error
        turn = next(self._turns) % len(found) if found else 0
        return found[turn:] + found[:turn]

    async def _pop(
        self, topic: str, broker_name: str, address: str, most: int, hidden: float, wait: float
    ) -> list[PoppedMessage]:
        instance = self._running()
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            return []
        fields = {
            "consumerGroup": self._group,
            "topic": topic,
            "queueId": "-1",
            "maxMsgNums": str(most),
            "invisibleTime": str(round(hidden * 1000)),
            "pollTime": str(round(wait * 1000)),
            "bornTime": str(self.client_config.clock.now_ms()),
            "initMode": "0" if self.config.consume_from_first else "1",
            "expType": subscription.expression_type,
            "exp": subscription.sub_string,
            "order": "false",
            "bname": broker_name,
        }
        command = Command(RequestCode.POP_MESSAGE, ext_fields=fields)
        try:
            answer = await instance.call(address, command, wait + GRACE_SECONDS)
        except BrokerError as error:
            if error.code in _NOTHING:
                return []
            raise
        try:
            found = popped_messages(answer, broker_name, topic, self._group, self._unwrap(topic))
        except ProtocolError as error:
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"malformed pop response: {error}", address) from error
        return [message for message in found if await self._is_deliverable(message, subscription)]

    async def _is_deliverable(self, message: PoppedMessage, subscription: SubscriptionData) -> bool:
        """True if a message goes to the application. Others are acknowledged or dead-lettered here."""
        message_filter = compile_subscription(subscription.expression_type, subscription.sub_string)
        try:
            if not message_filter.matches_all and not message_filter.matches_properties(message.record.properties):
                # Another tag with the same hash: brokers compare hashes only.
                await self.ack(message)
                return False
            if 0 <= self.config.max_reconsume_times < message.reconsume_times:
                await self.dead_letter(message)
                return False
        except (OrbitMQError, RemotingError) as error:
            log.warning("pop: could not acknowledge %r, it will be redelivered: %s", message, error)
            return False
        return True

    # Acknowledging

    async def ack(self, *messages: PoppedMessage) -> None:
        """Acknowledge messages as consumed. Raises OrbitMQError, RemotingError."""
        if len(messages) == 1:
            await self._ack(messages[0])
            return
        for result in await asyncio.gather(*(self._ack(message) for message in messages), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _ack(self, message: PoppedMessage) -> None:
        command = Command(RequestCode.ACK_MESSAGE, ext_fields=self._fields(message))
        await self._running().call(self._address(message), command)

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Change for how long a message stays invisible, from now on; 0 redelivers it at once.

        The message gets a new receipt and is acknowledged as before. Raises OrbitMQError, RemotingError.
        """
        check_invisible(seconds)
        fields = {**self._fields(message), "invisibleTime": str(round(seconds * 1000)), "suspend": "false"}
        command = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext_fields=fields)
        answer = await self._running().call(self._address(message), command)
        receipt = message.receipt
        message.receipt = receipt._replace(
            start_offset=receipt.start_offset if receipt.is_orderly else receipt.offset,
            pop_time=int(answer.ext_fields.get("popTime", receipt.pop_time)),
            invisible_ms=int(answer.ext_fields.get("invisibleTime", round(seconds * 1000))),
            revive_queue=int(answer.ext_fields.get("reviveQid", receipt.revive_queue)),
        )

    async def dead_letter(self, message: PoppedMessage) -> None:
        """Move a message to the group's dead letter queue. Raises OrbitMQError, RemotingError."""
        fields = {
            "offset": str(message.record.physical_offset),
            "group": self._group,
            "delayLevel": str(_NEVER),
            "originMsgId": message.message_id,
            "originTopic": message.popped_from,
            "unitMode": "false",
            "bname": message.broker_name,
        }
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
        await self._running().call(self._address(message), command)
        await self._ack(message)

    def _fields(self, message: PoppedMessage) -> dict[str, str]:
        return {
            "consumerGroup": self._group,
            "topic": message.popped_from,
            "queueId": str(message.receipt.queue_id),
            "offset": str(message.receipt.offset),
            "extraInfo": str(message.receipt),
            "bname": message.broker_name,
        }

    def _address(self, message: PoppedMessage) -> str:
        found = self._running().address(self._wrap(message.topic), message.broker_name, MASTER)
        if found is None:
            raise NoRouteError(message.topic, f"the broker {message.broker_name} is unknown")
        return found

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise NotRunningError("this consumer is not running: use `async with`, or start() it")
        return self._instance

    def _wrap(self, topic: str) -> str:
        return wrap(self.client_config.namespace, topic)

    def _unwrap(self, topic: str) -> str:
        return unwrap(self.client_config.namespace, topic)
