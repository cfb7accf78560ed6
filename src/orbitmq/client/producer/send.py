"""Sends with retries within a time budget, by the rules of Java's clients.

``send`` follows their synchronous sends: network failures and some refusals are retried on another broker, but not
if the caller chose the queue.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.client import namespace as namespaces
from orbitmq.client.errors import BrokerError, OrbitMQError, SendError, SendTimeoutError, TooManySendsError
from orbitmq.client.message import SendStatus
from orbitmq.client.producer.hooks import Communication, SendContext, message_type
from orbitmq.client.producer.queue_selector import RoundRobin
from orbitmq.client.producer.topic_publish_info import TopicPublishInfo
from orbitmq.client.producer.wire import receipt_of
from orbitmq.client.validation import check_topic_to_send
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.remoting import CallTimeoutError, ConnectError, RemotingError, TooManyCallsError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.message import Receipt
    from orbitmq.client.producer.config import ProducerConfig
    from orbitmq.client.producer.hooks import SendHook
    from orbitmq.client.producer.latency_fault import LatencyFaults
    from orbitmq.client.producer.message_encoder import EncodedMessage, MessageEncoder
    from orbitmq.client.producer.topic_publish_info import Target
    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.remoting import Connection

    Outcome: TypeAlias = Receipt | Exception | None
    """Result of an attempt; None if there was none."""

log = logging.getLogger("orbitmq.client")

ELECTION_SECONDS = 0.3
"""Longest pause before an attempt at the only broker of a topic."""

LOOK_SECONDS = 0.05
"""Between two look-ups of the route in it."""


@dataclasses.dataclass(frozen=True, slots=True)
class BegunSend:
    """A send that a thread hands to the loop: after a failed attempt, or without a connection of its own."""

    outgoing: EncodedMessage
    publish_info: TopicPublishInfo
    fixed: Target | None
    target: Target
    """Queue of the first attempt."""
    outcome: Outcome
    seconds_used: float
    seconds_left: float


@dataclasses.dataclass(frozen=True, slots=True)
class DirectParts:
    """The parts of a producer that threads other than its loop's use, only by methods that are made for it."""

    sender: Sender
    encoder: MessageEncoder
    instance: ClientInstance
    serializer: Serializer


class Sender:
    """Sends messages for one producer."""

    def __init__(
        self,
        instance: ClientInstance,
        config: ProducerConfig,
        hooks: Sequence[SendHook],
        faults: LatencyFaults | None,
        now_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.faults = faults
        self.now_ms = now_ms
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.hooks = hooks
        self.encoder: MessageEncoder | None = None
        """Encodes messages again whose properties a hook has changed."""
        self._instance = instance
        self._routes = instance.routes
        self._namespace = instance.config.namespace
        self._group = namespaces.wrap(self._namespace, config.group)
        self._retried_codes = frozenset(config.retry_response_codes)
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def run(self, job: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background."""
        task = self.loop.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # Topics

    def wire_topics(self) -> list[str]:
        """Topics that were sent to, with namespace."""
        return [publish_info.wire_topic for publish_info in self._publish_infos.values()]

    def ready(self, topic: str) -> TopicPublishInfo | None:
        """Publish info of a topic with a cached route, else None."""
        publish_info = self._publish_infos.get(topic)
        if publish_info is None:
            return None
        route = self._routes.get(publish_info.wire_topic)
        if route is publish_info.route:
            return publish_info
        if route is None or not route.publish_queues:
            return None
        return self._publish(publish_info.topic, publish_info.wire_topic)

    def known(self, topic: str) -> TopicPublishInfo | None:
        """``ready`` for other threads, which must not build publish info: None if the route has changed."""
        publish_info = self._publish_infos.get(topic)
        if publish_info is None or self._routes.get(publish_info.wire_topic) is not publish_info.route:
            return None
        return publish_info

    async def find(self, topic: str, deadline: float) -> TopicPublishInfo:
        """Look up the route of a topic. Raises NoRouteError, NoNameServerError, SendTimeoutError."""
        check_topic_to_send(topic)
        wire_topic = namespaces.wrap(self._namespace, topic)
        config = self.config
        try:
            async with asyncio.timeout_at(deadline):
                await self._instance.route_to_publish(
                    wire_topic, config.create_topic_key, config.default_topic_queue_nums
                )
        except TimeoutError:
            raise SendTimeoutError(
                f"no name server returned the route of {topic!r} in time; nothing was sent"
            ) from None
        return self.ready(topic) or self._publish(topic, wire_topic)

    def _publish(self, topic: str, wire_topic: str) -> TopicPublishInfo:
        known = self._publish_infos.get(topic)
        route = self._routes[wire_topic]
        round_robin = RoundRobin(self._instance.random) if known is None else known.round_robin
        made = TopicPublishInfo(topic, wire_topic, self._group, self.config, route, round_robin)
        self._publish_infos[topic] = made
        return made

    def refresh_soon(self, wire_topic: str) -> asyncio.Task[None]:
        """Refresh a route in the background: after a failure it may have changed."""
        task = self._refreshing.get(wire_topic)
        if task is None:
            task = self._refreshing[wire_topic] = self.loop.create_task(self._refresh(wire_topic))
            task.add_done_callback(lambda _: self._refreshing.pop(wire_topic, None))
        return task

    async def _refresh(self, wire_topic: str) -> None:
        try:
            await self._instance.refresh(wire_topic)
        except OrbitMQError as error:
            log.warning("route: refresh of %s failed: %s", wire_topic, error)

    async def close(self) -> None:
        """Cancel background work."""
        tasks = (*self._refreshing.values(), *self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def elsewhere(
        self,
        publish_info: TopicPublishInfo,
        last_broker: str,
        deadline: float,
        attempts_left: int,
        *,
        is_refused: bool = False,
    ) -> TopicPublishInfo:
        """Publish info for the next attempt. Without another broker, wait for a refreshed route first.

        Another master may be elected in a moment, or the one that refused may take messages again: wait for that,
        but not for long.
        """
        refreshing = self.refresh_soon(publish_info.wire_topic)
        if not publish_info.has_other_broker(last_broker):
            now = self.time()
            seconds = max(deadline - now, 0) / (attempts_left + 1)
            await asyncio.wait((refreshing,), timeout=seconds)
            until = now + min(seconds, LOOK_SECONDS if is_refused else ELECTION_SECONDS)
            while not self._has_moved(publish_info, last_broker) and self.time() < until:
                await asyncio.sleep(min(LOOK_SECONDS, until - self.time()))
                await asyncio.wait((self.refresh_soon(publish_info.wire_topic),), timeout=LOOK_SECONDS)
        return self.ready(publish_info.topic) or publish_info

    def _has_moved(self, publish_info: TopicPublishInfo, broker_name: str) -> bool:
        """True if another broker of this name is the master now."""
        route = self._routes.get(publish_info.wire_topic)
        found = None if route is None else route.address(broker_name)
        return found is not None and found != publish_info.route.address(broker_name)

    # Sending

    async def send(
        self,
        outgoing: EncodedMessage,
        publish_info: TopicPublishInfo,
        fixed: Target | None,
        began: float,
        deadline: float,
        first: tuple[Target | None, Outcome] = (None, None),
    ) -> Receipt:
        """Send by the rules of synchronous sends. Raises BrokerError, SendError and its subclasses.

        ``first`` is the queue of the first attempt, if it is chosen already, and the outcome, if it was made.
        """
        attempts = self.attempts(fixed)
        brokers: list[str] = []
        stored: Receipt | None = None
        cause: Exception | None = None
        for attempts_left in range(attempts - 1, -1, -1):
            chosen, outcome = first
            first = None, None
            target = chosen or fixed or publish_info.choose(brokers[-1] if brokers else None, self.faults)
            now = self.time()
            seconds = self.attempt_seconds(deadline - now, attempts_left)
            if seconds <= 0 and outcome is None:
                cause = cause if isinstance(cause, CallTimeoutError) else CallTimeoutError("timeout")
                break
            brokers.append(target.broker_name)
            try:
                if outcome is None:
                    receipt = await self._attempt(outgoing, publish_info, target, seconds)
                else:
                    receipt = self._attempted(target, outcome)
            except BrokerError as error:
                self._failed(target, now, is_reachable=False)
                if error.code not in self._retried_codes:
                    if stored is not None:
                        return stored
                    raise
                cause = error
            except RemotingError as error:
                self._failed(target, now, is_reachable=not self.config.start_detector_enable)
                cause = error
            else:
                if self.faults is not None:
                    self.faults.update(target.broker_name, self.time() - now)
                if receipt.status is SendStatus.SEND_OK or not self.config.retry_another_broker_when_not_store_ok:
                    return receipt
                stored = receipt
                continue
            if attempts_left:
                publish_info = await self.elsewhere(
                    *(publish_info, target.broker_name, deadline, attempts_left),
                    is_refused=isinstance(cause, BrokerError),
                )
            else:
                self.refresh_soon(publish_info.wire_topic)
        if stored is not None:
            return stored
        assert cause is not None
        raise send_failure(publish_info.topic, brokers, self.time() - began, cause) from cause

    def attempts(self, fixed: Target | None) -> int:
        """The most attempts at a message: only one if the caller chose the queue."""
        return 1 if fixed is not None else 1 + self.config.retry_times_when_send_failed

    def attempt_seconds(self, seconds: float, attempts_left: int) -> float:
        """Time for an attempt, of what is left for all. ``attempts_left`` follow it."""
        per_attempt = self.config.send_msg_max_timeout_per_request
        return min(seconds, per_attempt) if per_attempt is not None and attempts_left else seconds

    def _attempted(self, target: Target, outcome: Receipt | Exception) -> Receipt:
        """The outcome of an attempt that another thread made."""
        if isinstance(outcome, Exception):
            if isinstance(outcome, CallTimeoutError) and target.link.connection is not None:
                self.doubt(target.link.connection)
            raise outcome
        return outcome

    def _failed(self, target: Target, began: float, *, is_reachable: bool) -> None:
        if self.faults is not None:
            self.faults.update(target.broker_name, self.time() - began, failed=True, is_reachable=is_reachable)

    async def _attempt(
        self, outgoing: EncodedMessage, publish_info: TopicPublishInfo, target: Target, seconds: float
    ) -> Receipt:
        connection = target.link.ready()
        if connection is None:
            deadline = self.time() + seconds
            connection = await self.connect(target, publish_info, deadline)
            seconds = deadline - self.time()
        context = self.before(outgoing, target, Communication.SYNC) if self.hooks else None
        try:
            opaque = connection.next_opaque()
            request = outgoing.request(target, opaque, self.now_ms())
            answer = await connection.exchange(opaque, request, seconds)
            receipt = receipt_of(answer, target.queue, target.link.address or "", outgoing.message_id)
        except Exception as error:
            if isinstance(error, CallTimeoutError):
                self.doubt(connection)
            if context is not None:
                self.after(context, None, error)
            raise
        if context is not None:
            self.after(context, receipt, None)
        return receipt

    def doubt(self, connection: Connection) -> None:
        """Probe a connection after a timeout."""
        self._instance.doubt(connection)

    async def connect(self, target: Target, publish_info: TopicPublishInfo, deadline: float) -> Connection:
        """The writable connection to a queue's broker. Raises RemotingError."""
        link = target.link
        if link.address is None:
            link.address = await self._address(link.broker_name, publish_info.wire_topic, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                link.connection = connection = await self._instance.connection(
                    self._instance.send_address(link.address)
                )
                if not connection.is_writable:
                    await connection.writable()
        except TimeoutError:
            raise CallTimeoutError(f"{link.address} accepted no data in time") from None
        return connection

    async def _address(self, broker_name: str, wire_topic: str, deadline: float) -> str:
        found = self._instance.address(wire_topic, broker_name)
        if found is None:
            await asyncio.wait((self.refresh_soon(wire_topic),), timeout=max(deadline - self.time(), 0))
            found = self._instance.address(wire_topic, broker_name)
        if found is None:
            raise ConnectError(f"the broker {broker_name!r} has no known master")
        return found

    async def send_oneway(
        self, outgoing: EncodedMessage, publish_info: TopicPublishInfo, fixed: Target | None
    ) -> int:
        """Send without a response, in one attempt; returns the number of bytes. Raises SendError."""
        target = fixed or publish_info.choose(None, self.faults)
        connection = target.link.ready()
        try:
            if connection is None:
                connection = await self.connect(target, publish_info, self.time() + self.config.send_msg_timeout)
            context = self.before(outgoing, target, Communication.ONEWAY) if self.hooks else None
            request = outgoing.request(target, connection.next_opaque(), self.now_ms(), ONEWAY)
            connection.send(self._instance.signed(request))
        except RemotingError as error:
            self.refresh_soon(publish_info.wire_topic)
            raise send_failure(publish_info.topic, [target.broker_name], 0, error) from error
        if context is not None:
            self.after(context, None, None)
        return len(request)

    # Hooks

    def before(self, outgoing: EncodedMessage, target: Target, communication: Communication) -> SendContext:
        """Call the hooks before an attempt. Properties that they set are sent."""
        context = SendContext(
            producer_group=self.config.group,
            messages=outgoing.messages,
            queue=target.queue,
            broker_address=target.link.address or "",
            communication=communication,
            message_type=message_type(outgoing.messages[0].properties),
            namespace=self._namespace,
        )
        before = [dict(message.properties) for message in outgoing.messages]
        for hook in self.hooks:
            hook.before_send(context)
        if self.encoder is not None and before != [message.properties for message in outgoing.messages]:
            self.encoder.encode_properties(outgoing)
        return context

    def after(self, context: SendContext, receipt: Receipt | None, error: Exception | None) -> None:
        """Call the hooks with the result of an attempt."""
        context.receipt = receipt
        context.error = error
        for hook in self.hooks:
            try:
                hook.after_send(context)
            except Exception:
                log.exception("send hook: after_send failed for %s", context.queue)


def send_failure(topic: str, brokers: Sequence[str], seconds: float, cause: Exception) -> SendError:
    """The exception when no attempt is left."""
    text = (
        f"the message to {topic!r} was not sent after {len(brokers)} attempts in {seconds:.3f} s "
        f"(to {', '.join(brokers) or 'no broker'}): {cause}"
    )
    if isinstance(cause, CallTimeoutError):
        return SendTimeoutError(text)
    if isinstance(cause, TooManyCallsError):
        return TooManySendsError(text)
    return SendError(text)
