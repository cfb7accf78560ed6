"""A consumer that settles each message by itself: receive, work, ack. What is not acknowledged comes again.

Nobody holds queues: brokers hand out messages of any queue and hide them from the rest of the group for a while
(POP). So members come and go without anything being shared out anew, and more of them than queues are of use.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from orbitmq.client.config import DEFAULT_INSTANCE, ClientConfig, name_server_list, unique_instance_name
from orbitmq.client.errors import BrokerError, InvalidMessageError, NoRouteError, NotRunningError, OrbitMQError
from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespaces import unwrap, wrap
from orbitmq.client.popped_message import PoppedMessage, popped_messages
from orbitmq.client.producer_config import split_options
from orbitmq.client.routes import MASTER
from orbitmq.client.simple_consumer_config import SimpleConfig, SimpleOptions, check_count, check_invisible
from orbitmq.client.simple_member import SimpleMember
from orbitmq.client.validation import check_group, check_topic
from orbitmq.filter import SQL92, TAG, FilterError, compile_subscription, subscription_data
from orbitmq.protocol.bodies import ConsumeFromWhere
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import DEFAULT_CONSUMER_GROUP
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from orbitmq.protocol.bodies import SubscriptionData

log = logging.getLogger("orbitmq.client")

TURN_SECONDS = 5.0
"""So long one broker is waited at, if there are several: others may have something by then."""

GRACE_SECONDS = 10.0
"""A broker may take so much longer than the time that it is asked to wait."""

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
        """Nothing is connected before ``start``. Raises InvalidMessageError for options that cannot be."""
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
        self._member: SimpleMember | None = None
        self._turns = itertools.count()
        self._was_started = False
        self._telling: asyncio.Task[None] | None = None

    # Life

    @property
    def is_running(self) -> bool:
        return self._instance is not None

    async def start(self) -> Self:
        """Join the group. Brokers and name servers need not be there yet."""
        if self._was_started:
            raise NotRunningError("a consumer can be started once only: make another one")
        config = self.client_config
        name = unique_instance_name() if config.instance_name == DEFAULT_INSTANCE else config.instance_name
        instance = ClientInstance.acquire(config, config.client_id(name))
        begins = (
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            if self.config.consume_from_first
            else ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        )
        member = SimpleMember(instance, self._group, self._subscriptions, begins)
        try:
            instance.add_consumer(member)
        except BaseException:
            await instance.release()
            raise
        self._was_started = True
        self._instance, self._member = instance, member
        await self._introduce()
        return self

    async def _introduce(self) -> None:
        """Say to brokers who is here; that is for people who look, and for groups that are to be made."""
        instance = self._instance
        if instance is None:
            return
        for topic in tuple(self._subscriptions):
            try:
                await instance.route(topic)
            except (OrbitMQError, RemotingError) as error:
                log.warning("%s waits for the topic %s: %s", self.group, topic, error)
        await instance.heartbeat_all()

    async def close(self) -> None:
        """Leave the group. What was received and not settled comes to others in its time."""
        member, self._member = self._member, None
        instance, self._instance = self._instance, None
        telling, self._telling = self._telling, None
        if member is None or instance is None:
            return
        try:
            if telling is not None:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)
            await instance.remove_consumer(member)
        finally:
            await instance.release()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Of what

    def subscribe(self, topic: str, *, tags: str | None = None, sql: str | None = None) -> None:
        """Receive messages of a topic too; again to change what is wanted of it.

        ``tags`` is like ``"paid || refunded"``, ``sql`` a SQL92 expression over properties.
        """
        check_topic(topic)
        if tags is not None and sql is not None:
            raise InvalidMessageError("give tags or sql, not both: a topic has one filter")
        kind, expression = (TAG, "*" if tags is None else tags) if sql is None else (SQL92, sql)
        try:
            compile_subscription(kind, expression)
            data = subscription_data(self._wrap(topic), kind, expression, round(time.time() * 1000))
        except FilterError as error:
            raise InvalidMessageError(f"the filter of {topic!r} cannot be read: {error}") from error
        self._subscriptions[data.topic] = data
        self._tell_soon()

    def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.pop(self._wrap(topic), None) is not None:
            self._tell_soon()

    def _tell_soon(self) -> None:
        if self._instance is not None and (self._telling is None or self._telling.done()):
            self._telling = asyncio.get_running_loop().create_task(self._introduce())

    # Messages

    async def receive(
        self,
        max_messages: int | None = None,
        *,
        invisible: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the broker that waits
    ) -> list[PoppedMessage]:
        """Some messages, as soon as there are any; none after ``timeout`` seconds.

        Nobody else of the group gets them for ``invisible`` seconds. Raises OrbitMQError, RemotingError.
        """
        config = self.config
        most = config.max_messages if max_messages is None else max_messages
        hidden = config.invisible_duration if invisible is None else invisible
        check_count(most)
        check_invisible(hidden)
        if not self._subscriptions:
            raise InvalidMessageError("nothing is subscribed: subscribe() to a topic first")
        deadline = time.monotonic() + (config.await_duration if timeout is None else timeout)
        while True:
            targets = await self._targets()
            # Everywhere without waiting, and then at one place for a while.
            for target in targets if len(targets) > 1 else ():
                if found := await self._pop(*target, most, hidden, 0.0):
                    return found
            left = deadline - time.monotonic()
            wait = max(left if len(targets) <= 1 else min(left, TURN_SECONDS), 0.0)
            if targets:
                found = await self._pop(*targets[0], most, hidden, wait)
                if found or left <= wait:
                    return found
            elif left <= 0:
                return []
            else:
                await asyncio.sleep(min(left, 1.0))

    async def _targets(self) -> list[tuple[str, str, str]]:
        """Topics with the names and addresses of their brokers; another one is the first each time."""
        instance = self._running()
        found = []
        problem: OrbitMQError | None = None
        for topic in tuple(self._subscriptions):
            try:
                route = await instance.route(topic)
            except NoRouteError as error:
                problem = error
                continue
            for name in dict.fromkeys(queue.broker_name for queue in route.subscribe_queues):
                address = route.address(name, MASTER)
                if address is not None:
                    found.append((topic, name, address))
        if not found and problem is not None and len(self._subscriptions) == 1:
            raise problem
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
            "bornTime": str(round(time.time() * 1000)),
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
            raise BrokerError(ResponseCode.SYSTEM_ERROR, f"its answer cannot be read: {error}", address) from error
        return [message for message in found if await self._is_for_us(message, subscription)]

    async def _is_for_us(self, message: PoppedMessage, subscription: SubscriptionData) -> bool:
        """Whether a message is to be handed on; if not, it is settled here."""
        wanted = compile_subscription(subscription.expression_type, subscription.sub_string)
        try:
            if not wanted.matches_all and not wanted.matches_properties(message.record.properties):
                # Another tag with the same hash, which is all that a broker compares.
                await self.ack(message)
                return False
            if 0 <= self.config.max_reconsume_times < message.reconsume_times:
                await self.dead_letter(message)
                return False
        except (OrbitMQError, RemotingError) as error:
            log.warning("%r could not be settled and comes again: %s", message, error)
            return False
        return True

    # Settling

    async def ack(self, *messages: PoppedMessage) -> None:
        """Say that messages are done: they never come again. Raises OrbitMQError, RemotingError."""
        if len(messages) == 1:
            await self._ack(messages[0])
            return
        for ended in await asyncio.gather(*(self._ack(message) for message in messages), return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _ack(self, message: PoppedMessage) -> None:
        command = Command(RequestCode.ACK_MESSAGE, ext_fields=self._fields(message))
        await self._running().call(self._address(message), command)

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Have a message hidden for so long from now on; 0 to have it again at once, or others.

        The message has a new receipt then, and is acknowledged as before. Raises OrbitMQError, RemotingError.
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
        """Give a message up: it is put under ``%DLQ%`` and the group's name. Raises OrbitMQError, RemotingError."""
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
            raise NoRouteError(message.topic, f"the broker {message.broker_name} is not known")
        return found

    def _running(self) -> ClientInstance:
        if self._instance is None:
            raise NotRunningError("this consumer does not run: use `async with`, or start() it")
        return self._instance

    def _wrap(self, topic: str) -> str:
        return wrap(self.client_config.namespace, topic)

    def _unwrap(self, topic: str) -> str:
        return unwrap(self.client_config.namespace, topic)
