"""Long polling: one pull after the other for each queue, and what its answers mean."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import struct
import time
from typing import TYPE_CHECKING

import orjson

from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.client.offset_store import broker_address
from orbitmq.client.pulled_message import pulled_messages
from orbitmq.client.routes import MASTER
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting import CallTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.consumer_config import ConsumerConfig
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.process_queue import ProcessQueue
    from orbitmq.client.pulled_message import PulledMessage
    from orbitmq.client.subscriptions import Subscription, Subscriptions
    from orbitmq.protocol.command import Command

log = logging.getLogger("orbitmq.client")

BUSY_SECONDS = 0.02
"""After a broker has said that it is asked for too much."""
UNLOCKED_SECONDS = 0.1
"""How often a queue is looked at that has to be locked first."""

_PREFIX = struct.Struct(">iI")
_FOUND = int(ResponseCode.SUCCESS)
_NOTHING_NOW = frozenset({int(ResponseCode.PULL_NOT_FOUND), int(ResponseCode.PULL_RETRY_IMMEDIATELY)})
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)
_UNKNOWN_HERE = frozenset(
    {int(ResponseCode.SUBSCRIPTION_NOT_EXIST), int(ResponseCode.SUBSCRIPTION_NOT_LATEST)}
    | {int(ResponseCode.FILTER_DATA_NOT_EXIST), int(ResponseCode.FILTER_DATA_NOT_LATEST)}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Pulling:
    """What the pulls of all queues of a consumer have in common."""

    instance: ClientInstance
    group: str
    config: ConsumerConfig
    subscriptions: Subscriptions
    unpaused: asyncio.Event
    """Set while the consumer is not paused."""
    deliver: Callable[[ProcessQueue, list[PulledMessage]], None]
    """Takes messages to be consumed."""
    moved: Callable[[ProcessQueue, int], None]
    """Told that a queue goes on at another offset than where it was left."""
    beat: Callable[[], None]
    """Told that a broker does not know what is subscribed."""

    async def pull(self, queue: ProcessQueue) -> None:
        """Pull a queue until it is dropped, or this is cancelled."""
        puller = _QueuePuller(self, queue)
        while not queue.is_dropped:
            try:
                await puller.once()
            except (OrbitMQError, RemotingError, ProtocolError) as error:
                await puller.wait_after(error)
            except Exception:
                # Whatever it is, a queue that is not pulled any more would be worse.
                log.exception("pulling %s fails and goes on soon", queue.queue)
                await asyncio.sleep(self.config.pull_time_delay_when_exception)


class _QueuePuller:
    """The pulls of one queue."""

    def __init__(self, pulling: Pulling, queue: ProcessQueue) -> None:
        self._pulling = pulling
        self._queue = queue
        self._broker_id = MASTER
        self._template: tuple[Subscription, bytes] | None = None
        self._is_retry = queue.queue.topic.startswith(RETRY_PREFIX)
        self._complaint = ""

    async def once(self) -> None:
        """One pull, when it is time for it, and what comes of it. Raises OrbitMQError, RemotingError."""
        pulling, queue, config = self._pulling, self._queue, self._pulling.config
        if not pulling.unpaused.is_set():
            await pulling.unpaused.wait()
        if queue.is_full:
            await queue.room()
        if config.orderly and not config.is_broadcasting and not queue.is_locked:
            await asyncio.sleep(UNLOCKED_SECONDS)
            return
        subscription = pulling.subscriptions.get(queue.queue.topic)
        if subscription is None:
            await asyncio.sleep(config.pull_time_delay_when_exception)
            return
        began = time.monotonic()
        answer = await self._asked(subscription)
        # While the pull was held something else may have been subscribed, and the broker went by that.
        subscription = pulling.subscriptions.get(queue.queue.topic)
        if queue.is_dropped or subscription is None:
            return
        counts = subscription.counts
        counts.pulls += 1
        counts.pull_time += time.monotonic() - began
        self._take(answer, subscription)
        self._complaint = ""
        if config.pull_interval:
            await asyncio.sleep(config.pull_interval)

    async def _asked(self, subscription: Subscription) -> Command:
        pulling, queue = self._pulling, self._queue
        instance, name = pulling.instance, queue.queue
        address = instance.address(name.topic, name.broker_name, self._broker_id, only_this=False)
        if address is None:
            address = await broker_address(instance, name)
        connection = await instance.connection(address)
        flag, commit = PULL_SUSPEND, 0
        if not pulling.config.is_broadcasting and self._broker_id == MASTER:
            # A slave keeps no offsets of its own.
            commit = queue.consumed_to
            if commit > 0:
                flag |= PULL_COMMIT_OFFSET
        if pulling.config.post_subscription_when_pull:
            flag |= PULL_SUBSCRIPTION
        opaque = connection.next_opaque()
        header = self._header(subscription) % (queue.next_offset, flag, commit, opaque)
        queue.last_pull_ms = round(time.time() * 1000)
        request = _PREFIX.pack(4 + len(header), len(header)) + header
        try:
            return await connection.exchange(opaque, request, pulling.config.consumer_timeout_when_suspend)
        except CallTimeoutError:
            instance.doubt(connection)
            raise

    def _take(self, answer: Command, subscription: Subscription) -> None:
        code, fields, queue = answer.code, answer.ext_fields, self._queue
        if code != _FOUND and code not in _NOTHING_NOW and code != _MOVED:
            raise BrokerError(code, answer.remark, queue.queue.broker_name)
        try:
            next_offset = int(fields["nextBeginOffset"])
            self._broker_id = int(fields.get("suggestWhichBrokerId", MASTER))
            delta = int(fields.get("offsetDelta", 0))
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"a pull answer does not say where to go on: {error!r}") from error
        if code == _MOVED and queue.has_begun:
            self._pulling.moved(queue, next_offset)
            return
        # A queue of which nothing was pulled yet simply begins where the broker says.
        messages: list[PulledMessage] = []
        if code == _FOUND and answer.body:
            messages = self._messages(answer.body, subscription, delta)
        queue.next_offset, queue.has_begun = next_offset, True
        if messages:
            subscription.counts.pulled += len(messages)
            queue.put(messages)
            self._pulling.deliver(queue, messages)

    def _messages(self, body: bytes, subscription: Subscription, delta: int) -> list[PulledMessage]:
        name = self._queue.queue
        messages = subscription.wanted(
            pulled_messages(body, name.broker_name, subscription.name, self._queue.next_offset, delta)
        )
        if self._is_retry:
            subscriptions = self._pulling.subscriptions
            for message in messages:
                message.topic = subscriptions.application_topic(subscriptions.origin(message))
        return messages

    def _header(self, subscription: Subscription) -> bytes:
        """The header of a pull with places for what changes: offset, sysFlag, commit offset and opaque."""
        if self._template is None or self._template[0] is not subscription:
            self._template = subscription, _template(self._pulling, self._queue, subscription)
        return self._template[1]

    async def wait_after(self, error: Exception) -> None:
        """Give whoever failed some time, and do what may help."""
        pulling, topic = self._pulling, self._queue.queue.topic
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(BUSY_SECONDS)
            return
        if str(error) != self._complaint:
            # The same complaint every second tells nothing new.
            self._complaint = str(error)
            log.warning("pulling %s fails and goes on soon: %s", self._queue.queue, error)
        self._broker_id = MASTER
        if isinstance(error, BrokerError):
            if error.code in _UNKNOWN_HERE:
                pulling.beat()
            await asyncio.sleep(pulling.config.pull_time_delay_when_exception)
            return
        await asyncio.sleep(pulling.config.pull_time_delay_when_exception)
        if isinstance(error, RemotingError):
            # The broker may be somewhere else by now.
            try:
                await pulling.instance.refresh(topic)
            except (OrbitMQError, RemotingError) as refused:
                log.debug("the route of %s cannot be refreshed: %s", topic, refused)


def _template(pulling: Pulling, queue: ProcessQueue, subscription: Subscription) -> bytes:
    config, name, data = pulling.config, queue.queue, subscription.data
    fields = {
        "consumerGroup": pulling.group,
        "topic": name.topic,
        "queueId": str(name.queue_id),
        "maxMsgNums": str(config.pull_batch_size),
        "maxMsgBytes": str(config.pull_batch_size_in_bytes),
        "suspendTimeoutMillis": str(round(config.broker_suspend_max_time * 1000)),
        "subVersion": str(subscription.since),
        "expressionType": data.expression_type,
        "bname": name.broker_name,
    }
    if config.post_subscription_when_pull:
        fields["subscription"] = data.sub_string
    return b"".join(
        (
            b'{"code":%d,"extFields":' % RequestCode.PULL_MESSAGE,
            orjson.dumps(fields)[:-1].replace(b"%", b"%%"),
            b',"queueOffset":"%d","sysFlag":"%d","commitOffset":"%d"},"flag":0,"language":"',
            LanguageCode.PYTHON.name.encode(),
            b'","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":',
            b"%d}" % CURRENT_VERSION,
        )
    )
