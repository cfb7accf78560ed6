"""How a pull consumer gets the messages of a queue: long polls, one after the other, as far ahead as is allowed."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.client.offset_store import broker_address
from orbitmq.client.pulled_message import pulled_messages
from orbitmq.client.routes import MASTER
from orbitmq.filter import TAG
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import INT32_MAX
from orbitmq.protocol.flags import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.protocol.properties import find
from orbitmq.remoting import CallTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.client.assigned_queues import AssignedQueue, AssignedQueues
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.pulled_message import PulledMessage
    from orbitmq.protocol.bodies import MessageQueue, SubscriptionData
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

BUSY_PAUSE = 0.02
FAILURE_PAUSE = 1.0
NO_OFFSET_PAUSE = 3.0
"""Seconds until the next attempt, as in Java: after a broker was busy, after anything else, and while it is not
known where to begin."""

TAGS = b"TAGS"

NOTHING_THERE = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """How pulls are made. Times are seconds."""

    pull_batch_size: int = 10
    broker_suspend_max_time: float = 20.0
    """How long a broker holds a pull for which there is nothing."""
    consumer_timeout_when_suspend: float = 30.0
    """How long an answer may take."""


class QueuePuller:
    """Fills the queues of one consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        queues: AssignedQueues,
        settings: PullSettings,
        *,
        subscription_of: Callable[[str], SubscriptionData],
        start_offset: Callable[[MessageQueue], Coroutine[None, None, int]],
        moved: Callable[[MessageQueue, int], None],
        plain_topic: Callable[[str], str],
    ) -> None:
        """``moved`` is told when a broker made a queue go on elsewhere; ``plain_topic`` gives a topic the name that
        applications know.
        """
        self._instance = instance
        self._group = group
        self._queues = queues
        self._settings = settings
        self._subscription_of = subscription_of
        self._start_offset = start_offset
        self._moved = moved
        self._plain_topic = plain_topic
        self._without_lite: set[str] = set()
        """Addresses of brokers before 5.0, which know ordinary pulls only."""

    async def keep_pulling(self, assigned: AssignedQueue) -> None:
        """Pull from a queue until cancelled."""
        while True:
            await self._queues.until_wanted(assigned)
            try:
                if assigned.pull_offset is None:
                    assigned.pull_offset = await self._start_offset(assigned.queue)
                await self._pull(assigned)
            except Exception as error:
                await asyncio.sleep(self._pause_after(error, assigned))

    def _pause_after(self, error: Exception, assigned: AssignedQueue) -> float:
        """How many seconds to wait after something went wrong."""
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return BUSY_PAUSE
        is_expected = isinstance(error, OrbitMQError | RemotingError | ProtocolError)
        log.warning("%s could not be pulled: %s", assigned.queue, error, exc_info=not is_expected)
        # The replica that was suggested may be what is gone.
        assigned.broker_id = MASTER
        return NO_OFFSET_PAUSE if assigned.pull_offset is None else FAILURE_PAUSE

    async def _pull(self, assigned: AssignedQueue) -> None:
        queue, offset = assigned.queue, assigned.pull_offset
        assert offset is not None
        subscription = self._subscription_of(queue.topic)
        address = await self._address(assigned)
        answer = await self._answer(address, self._fields(queue, offset, subscription))
        fields = answer.ext_fields
        if answer.code == ResponseCode.SUCCESS:
            topic = self._plain_topic(queue.topic)
            delta = int(fields.get("offsetDelta") or 0)
            messages = pulled_messages(answer.body or b"", queue.broker_name, topic, offset, delta)
            self._queues.put(assigned, _wanted(messages, subscription), _next_offset(fields))
        elif answer.code in NOTHING_THERE:
            self._queues.put(assigned, (), _next_offset(fields))
        elif answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self._go_on_at(assigned, _next_offset(fields))
        else:
            raise BrokerError(answer.code, answer.remark, address)
        assigned.broker_id = int(fields.get("suggestWhichBrokerId") or MASTER)

    def _go_on_at(self, assigned: AssignedQueue, offset: int) -> None:
        """The broker does not have the offset any more, or somebody has set the group's offset there."""
        log.info("%s goes on at %d with %s, as its broker says", self._group, offset, assigned.queue)
        if assigned.messages and offset <= assigned.messages[-1].offset:
            # What was pulled before comes again from there.
            self._queues.move(assigned, offset)
        else:
            self._queues.put(assigned, (), offset)
        if assigned.position == offset:
            self._moved(assigned.queue, offset)

    async def _address(self, assigned: AssignedQueue) -> str:
        queue, instance = assigned.queue, self._instance
        known = instance.address(queue.topic, queue.broker_name, assigned.broker_id, only_this=False)
        return known or await broker_address(instance, queue)

    def _fields(self, queue: MessageQueue, offset: int, subscription: SubscriptionData) -> dict[str, str]:
        settings = self._settings
        return {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(settings.pull_batch_size),
            "maxMsgBytes": str(INT32_MAX),
            "sysFlag": str(PULL_SUSPEND | PULL_SUBSCRIPTION | PULL_LITE),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(round(settings.broker_suspend_max_time * 1000)),
            "subscription": subscription.sub_string,
            "subVersion": "0" if subscription.expression_type == TAG else str(subscription.sub_version),
            "expressionType": subscription.expression_type,
            "bname": queue.broker_name,
        }

    async def _answer(self, address: str, fields: dict[str, str]) -> Command:
        connection = await self._instance.connection(address)
        if address not in self._without_lite:
            lite = Command(RequestCode.LITE_PULL_MESSAGE, ext_fields=fields, language=LanguageCode.PYTHON)
            answer = await self._called(connection, lite)
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return answer
            self._without_lite.add(address)
        fields["sysFlag"] = str(PULL_SUSPEND | PULL_SUBSCRIPTION)
        plain = Command(RequestCode.PULL_MESSAGE, ext_fields=fields, language=LanguageCode.PYTHON)
        return await self._called(connection, plain)

    async def _called(self, connection: Connection, pull: Command) -> Command:
        try:
            return await connection.call(pull, self._settings.consumer_timeout_when_suspend)
        except CallTimeoutError:
            self._instance.doubt(connection)
            raise


def _wanted(messages: list[PulledMessage], subscription: SubscriptionData) -> list[PulledMessage]:
    """Brokers compare hashes of tags; of those with the same hash these are the right ones."""
    if subscription.expression_type != TAG or not subscription.tags_set:
        return messages
    tags = {tag.encode() for tag in subscription.tags_set}
    return [message for message in messages if find(message.stored_properties, TAGS) in tags]


def _next_offset(fields: dict[str, str]) -> int:
    try:
        return int(fields["nextBeginOffset"])
    except (KeyError, ValueError):
        raise ProtocolError("an answer to a pull does not say where to go on") from None
