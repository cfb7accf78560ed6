"""Pull loop of lite pull consumers: long polling, one pull in flight per queue, within the prefetch limits."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.client.consumer.offset_store import broker_address
from orbitmq.client.consumer.pull_response import PullStatus, parse_pull_response
from orbitmq.client.consumer.received_message import pulled_messages
from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.filter import TAG
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import INT32_MAX
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.protocol.message.properties import find
from orbitmq.remoting import CallTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.lite_pull.assigned_queues import AssignedQueue, AssignedQueues
    from orbitmq.protocol.bodies import MessageQueue, SubscriptionData
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

BUSY_PAUSE = 0.02
FAILURE_PAUSE = 1.0
NO_PROGRESS_PAUSE = 0.5
NO_OFFSET_PAUSE = 3.0
"""Backoff in seconds, as in Java: after flow control, after other failures, and without a start offset."""

TAGS = b"TAGS"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Options of pulls. Times are seconds."""

    pull_batch_size: int = 10
    broker_suspend_max_time: float = 20.0
    """Long-polling time: how long a broker holds a pull without messages."""
    consumer_timeout_when_suspend: float = 30.0
    """Timeout of the response."""


class QueuePuller:
    """Pulls the queues of one consumer."""

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
        """``moved`` is called when a broker moves a queue; ``plain_topic`` removes the namespace of a topic."""
        self._instance = instance
        self._group = group
        self._queues = queues
        self._settings = settings
        self._subscription_of = subscription_of
        self._start_offset = start_offset
        self._moved = moved
        self._plain_topic = plain_topic
        self._without_lite: set[str] = set()
        """Addresses of brokers before 5.0, which lack LITE_PULL_MESSAGE."""

    async def keep_pulling(self, assigned: AssignedQueue) -> None:
        """Pull a queue until cancelled."""
        while True:
            await self._queues.until_pullable(assigned)
            try:
                if assigned.pull_offset is None:
                    assigned.pull_offset = await self._start_offset(assigned.queue)
                await self._pull(assigned)
            except Exception as error:
                await asyncio.sleep(self._pause_after(error, assigned))

    def _pause_after(self, error: Exception, assigned: AssignedQueue) -> float:
        """Log a failure and return the backoff in seconds."""
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return BUSY_PAUSE
        is_expected = isinstance(error, OrbitMQError | RemotingError | ProtocolError)
        log.warning("pull: %s failed, will retry: %s", assigned.queue, error, exc_info=not is_expected)
        # The suggested replica may be down.
        assigned.broker_id = MASTER
        return NO_OFFSET_PAUSE if assigned.pull_offset is None else FAILURE_PAUSE

    async def _pull(self, assigned: AssignedQueue) -> None:
        queue, offset = assigned.queue, assigned.pull_offset
        assert offset is not None
        subscription = self._subscription_of(queue.topic)
        address = await self._address(assigned)
        answer = await self._pull_lite_or_plain(address, self._fields(queue, offset, subscription))
        response = parse_pull_response(answer, address)
        if response.status is PullStatus.OFFSET_ILLEGAL:
            self._continue_at(assigned, response.next_offset)
        else:
            messages: list[PulledMessage] = []
            if response.status is PullStatus.FOUND:
                topic = self._plain_topic(queue.topic)
                messages = pulled_messages(response.body, queue.broker_name, topic, offset, response.offset_delta)
            self._queues.put(assigned, _matching(messages, subscription), response.next_offset)
        assigned.broker_id = response.broker_id
        makes_no_progress = response.status is PullStatus.NO_MATCHED_MSG and response.next_offset == offset
        if makes_no_progress and await self._address(assigned) == address:
            # From a slave that sends the consumer to a master which it does not reach.
            await asyncio.sleep(NO_PROGRESS_PAUSE)

    def _continue_at(self, assigned: AssignedQueue, offset: int) -> None:
        """Continue at the broker's offset: the old one no longer exists, or the group was reset."""
        log.info("pull: broker moved %s of group %s to %d", assigned.queue, self._group, offset)
        if assigned.messages and offset <= assigned.messages[-1].offset:
            # Buffered messages are pulled again from there.
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

    async def _pull_lite_or_plain(self, address: str, fields: dict[str, str]) -> Command:
        connection = await self._instance.connection(address)
        if address not in self._without_lite:
            lite = Command(RequestCode.LITE_PULL_MESSAGE, ext_fields=fields, language=LanguageCode.PYTHON)
            answer = await self._call(connection, lite)
            if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return answer
            self._without_lite.add(address)
        fields["sysFlag"] = str(PULL_SUSPEND | PULL_SUBSCRIPTION)
        plain = Command(RequestCode.PULL_MESSAGE, ext_fields=fields, language=LanguageCode.PYTHON)
        return await self._call(connection, plain)

    async def _call(self, connection: Connection, pull: Command) -> Command:
        try:
            return await connection.call(pull, self._settings.consumer_timeout_when_suspend)
        except CallTimeoutError:
            self._instance.doubt(connection)
            raise


def _matching(messages: list[PulledMessage], subscription: SubscriptionData) -> list[PulledMessage]:
    """The messages whose tags really match: brokers compare hashes of tags only."""
    if subscription.expression_type != TAG or not subscription.tags_set:
        return messages
    tags = {tag.encode() for tag in subscription.tags_set}
    return [message for message in messages if find(message.stored_properties, TAGS) in tags]
