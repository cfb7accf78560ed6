"""Pull loop of push consumers: long polling, one pull in flight per queue."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

import orjson

from orbitmq.client.consumer.offset_store import broker_address
from orbitmq.client.consumer.pull_response import PullStatus, parse_pull_response
from orbitmq.client.consumer.received_message import pulled_messages
from orbitmq.client.errors import BrokerError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.frame import FRAME_PREFIX
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting import CallTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.consumer.process_queue import ProcessQueue
    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.consumer.subscription import Subscription, Subscriptions
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.push.config import ConsumerConfig
    from orbitmq.protocol.command.command import Command

log = logging.getLogger("orbitmq.client")

BUSY_SECONDS = 0.02
"""Backoff after a broker's flow control."""
UNLOCKED_SECONDS = 0.1
"""Interval of checks whether a queue is locked yet."""

NO_PROGRESS_SECONDS = 0.5
"""Interval of pulls from a slave that sends the consumer to a master which it does not reach."""

MAX_FAILURES = 3
"""Failures after which a pull is repeated without a pause, if another broker has the queue."""

_NOT_MASTER = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE})
"""Answers of a broker that may be a slave by now: the route may show another master."""

_UNKNOWN_HERE = frozenset(
    {int(ResponseCode.SUBSCRIPTION_NOT_EXIST), int(ResponseCode.SUBSCRIPTION_NOT_LATEST)}
    | {int(ResponseCode.FILTER_DATA_NOT_EXIST), int(ResponseCode.FILTER_DATA_NOT_LATEST)}
)


@dataclasses.dataclass(frozen=True, slots=True)
class PullLoop:
    """Pulls the queues of a consumer. Holds what their pulls share."""

    instance: ClientInstance
    group: str
    config: ConsumerConfig
    subscriptions: Subscriptions
    unpaused: asyncio.Event
    """Set while the consumer is not paused."""
    deliver: Callable[[ProcessQueue, list[PulledMessage]], None]
    """Consumes messages."""
    moved: Callable[[ProcessQueue, int], None]
    """Called when a broker moves a queue to another offset."""
    beat: Callable[[], None]
    """Called when a broker does not have the subscription: sends a heartbeat."""

    async def pull(self, queue: ProcessQueue) -> None:
        """Pull a queue until it is dropped, or this is cancelled."""
        puller = _QueuePuller(self, queue)
        while not queue.is_dropped:
            try:
                await puller.once()
            except (OrbitMQError, RemotingError, ProtocolError) as error:
                await puller.wait_after(error)
            except Exception:
                # The loop must survive any error: the queue would never be pulled again.
                log.exception("pull: %s failed, will retry", queue.queue)
                await asyncio.sleep(self.config.pull_time_delay_when_exception)


class _QueuePuller:
    """The pulls of one queue."""

    def __init__(self, pulling: PullLoop, queue: ProcessQueue) -> None:
        self._pulling = pulling
        self._queue = queue
        self._broker_id = MASTER
        self._address = ""
        """The broker of the last pull."""
        self._failures = 0
        """Connections that failed since the last answer."""
        self._template: tuple[Subscription, bytes] | None = None
        self._makes_no_progress = False
        """The last answer was to ask again at once, at the same offset."""
        self._is_retry = queue.queue.topic.startswith(RETRY_PREFIX)
        self._last_error = ""

    async def once(self) -> None:
        """One pull, when limits and locks allow it, and its response. Raises OrbitMQError, RemotingError."""
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
        clock = pulling.instance.clock
        began = clock.monotonic()
        answer = await self._exchange(subscription)
        # The subscription may have changed during the long poll, and the broker used the new one.
        subscription = pulling.subscriptions.get(queue.queue.topic)
        if queue.is_dropped or subscription is None:
            return
        counts = subscription.counts
        counts.pulls += 1
        counts.pull_time += clock.monotonic() - began
        self._process(answer, subscription)
        self._last_error = ""
        self._failures = 0
        if self._makes_no_progress and self._next_address() == self._address:
            await asyncio.sleep(NO_PROGRESS_SECONDS)
        if config.pull_interval:
            await asyncio.sleep(config.pull_interval)

    async def _exchange(self, subscription: Subscription) -> Command:
        pulling, queue = self._pulling, self._queue
        instance = pulling.instance
        self._address = address = self._next_address() or await broker_address(instance, queue.queue)
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
        queue.last_pull_ms = instance.clock.now_ms()
        request = FRAME_PREFIX.pack(4 + len(header), len(header)) + header
        try:
            return await connection.exchange(opaque, request, pulling.config.consumer_timeout_when_suspend)
        except CallTimeoutError:
            instance.doubt(connection)
            raise

    def _next_address(self) -> str | None:
        """Address of the suggested broker, or of another replica if that is missing or unreachable."""
        name = self._queue.queue
        return self._pulling.instance.address(name.topic, name.broker_name, self._broker_id, only_this=False)

    def _process(self, answer: Command, subscription: Subscription) -> None:
        queue = self._queue
        response = parse_pull_response(answer, queue.queue.broker_name)
        self._broker_id = response.broker_id
        if response.status is PullStatus.OFFSET_ILLEGAL and queue.has_begun:
            self._pulling.moved(queue, response.next_offset)
            return
        # A queue without a successful pull begins where the broker says.
        messages: list[PulledMessage] = []
        if response.status is PullStatus.FOUND and response.body:
            messages = self._messages(response.body, subscription, response.offset_delta)
        self._makes_no_progress = (
            response.status is PullStatus.NO_MATCHED_MSG and queue.next_offset == response.next_offset
        )
        queue.next_offset, queue.has_begun = response.next_offset, True
        if messages:
            subscription.counts.pulled += len(messages)
            queue.put(messages)
            self._pulling.deliver(queue, messages)

    def _messages(self, body: bytes, subscription: Subscription, delta: int) -> list[PulledMessage]:
        name = self._queue.queue
        messages = subscription.matching(
            pulled_messages(body, name.broker_name, subscription.name, self._queue.next_offset, delta)
        )
        if self._is_retry:
            subscriptions = self._pulling.subscriptions
            for message in messages:
                message.topic = subscriptions.application_topic(subscriptions.origin(message))
        return messages

    def _header(self, subscription: Subscription) -> bytes:
        """Header template of a pull. Placeholders: offset, sysFlag, commit offset, opaque."""
        if self._template is None or self._template[0] is not subscription:
            self._template = subscription, _template(self._pulling, self._queue, subscription)
        return self._template[1]

    async def wait_after(self, error: Exception) -> None:
        """Back off after a failure, and refresh what may have caused it."""
        pulling = self._pulling
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(BUSY_SECONDS)
            return
        if str(error) != self._last_error:
            # The same error is logged once.
            self._last_error = str(error)
            log.warning("pull: %s failed, will retry: %s", self._queue.queue, error)
        self._broker_id = MASTER
        if isinstance(error, BrokerError):
            if error.code in _UNKNOWN_HERE:
                pulling.beat()
            elif error.code in _NOT_MASTER and await self._has_other_replica():
                return
            await asyncio.sleep(pulling.config.pull_time_delay_when_exception)
            return
        if isinstance(error, RemotingError) and await self._has_other_replica():
            return
        await asyncio.sleep(pulling.config.pull_time_delay_when_exception)

    async def _has_other_replica(self) -> bool:
        """Refresh the route after a failure; True if a reachable broker other than the failed one has the queue."""
        name, instance = self._queue.queue, self._pulling.instance
        self._failures += 1
        try:
            # The broker may have another address by now, or be gone.
            await instance.refresh(name.topic)
        except (OrbitMQError, RemotingError) as refused:
            log.debug("route: refresh of %s failed: %s", name.topic, refused)
            return False
        address = self._next_address()
        is_other = address is not None and address != self._address and address not in instance.unreachable
        return is_other and self._failures <= MAX_FAILURES


def _template(pulling: PullLoop, queue: ProcessQueue, subscription: Subscription) -> bytes:
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
