"""How a message gets to a broker: one attempt after the other inside a time budget, by the rules of Java's clients.

``send`` has the rules of their synchronous sends: failures of the network and some refusals are tried again, on
another broker if any queue will do, and not at all if one was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client import namespaces
from orbitmq.client.errors import BrokerError, OrbitMQError, SendError, SendTimeoutError, TooManySendsError
from orbitmq.client.messages import SendStatus
from orbitmq.client.publishing import Publishing
from orbitmq.client.queue_choice import InTurn
from orbitmq.client.send_hooks import Communication, SendContext, message_type
from orbitmq.client.send_requests import receipt_of
from orbitmq.client.validation import check_topic_to_send
from orbitmq.protocol.flags import ONEWAY
from orbitmq.remoting import CallTimeoutError, ConnectError, RemotingError, TooManyCallsError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from orbitmq.client.fault_latency import FaultLatency
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.messages import Receipt
    from orbitmq.client.outgoing import Outgoing
    from orbitmq.client.producer_config import ProducerConfig
    from orbitmq.client.publishing import Target
    from orbitmq.client.send_hooks import SendHook
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")


class Sender:
    """Sends for one producer."""

    def __init__(
        self,
        instance: ClientInstance,
        config: ProducerConfig,
        hooks: Sequence[SendHook],
        faults: FaultLatency | None,
        now_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.faults = faults
        self.now_ms = now_ms
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.hooks = hooks
        self._instance = instance
        self._routes = instance.routes
        self._namespace = instance.config.namespace
        self._group = namespaces.wrap(self._namespace, config.group)
        self._retried_codes = frozenset(config.retry_response_codes)
        self._publishings: dict[str, Publishing] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def run(self, job: Coroutine[None, None, None]) -> None:
        """Let something go on by itself."""
        task = self.loop.create_task(job)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    # Topics

    def wire_topics(self) -> list[str]:
        """The topics that were sent to, as brokers call them."""
        return [publishing.wire_topic for publishing in self._publishings.values()]

    def ready(self, topic: str) -> Publishing | None:
        """A topic whose route is known."""
        publishing = self._publishings.get(topic)
        if publishing is None:
            return None
        route = self._routes.get(publishing.wire_topic)
        if route is publishing.route:
            return publishing
        if route is None or not route.publish_queues:
            return None
        return self._publish(publishing.topic, publishing.wire_topic)

    async def find(self, topic: str, deadline: float) -> Publishing:
        """A topic whose route has to be asked for. Raises NoRouteError, NoNameServerError, SendTimeoutError."""
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
                f"no name server said in time where the topic {topic!r} is; nothing was sent"
            ) from None
        return self.ready(topic) or self._publish(topic, wire_topic)

    def _publish(self, topic: str, wire_topic: str) -> Publishing:
        known = self._publishings.get(topic)
        route = self._routes[wire_topic]
        in_turn = InTurn() if known is None else known.in_turn
        made = Publishing(topic, wire_topic, self._group, self.config, route, in_turn)
        self._publishings[topic] = made
        return made

    def refresh_soon(self, wire_topic: str) -> asyncio.Task[None]:
        """Something failed: the route may have changed."""
        task = self._refreshing.get(wire_topic)
        if task is None:
            task = self._refreshing[wire_topic] = self.loop.create_task(self._refresh(wire_topic))
            task.add_done_callback(lambda _: self._refreshing.pop(wire_topic, None))
        return task

    async def _refresh(self, wire_topic: str) -> None:
        try:
            await self._instance.refresh(wire_topic)
        except OrbitMQError as error:
            log.warning("the route of %s could not be refreshed: %s", wire_topic, error)

    async def close(self) -> None:
        """Stop what goes on by itself."""
        tasks = (*self._refreshing.values(), *self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def elsewhere(
        self, publishing: Publishing, last_broker: str, deadline: float, attempts_left: int
    ) -> Publishing:
        """What to try next with: where there is no other broker, it is worth waiting for a newer route."""
        refreshing = self.refresh_soon(publishing.wire_topic)
        if not publishing.has_other_broker(last_broker):
            seconds = max(deadline - self.time(), 0) / (attempts_left + 1)
            await asyncio.wait((refreshing,), timeout=seconds)
        return self.ready(publishing.topic) or publishing

    # Sending

    async def send(
        self, outgoing: Outgoing, publishing: Publishing, fixed: Target | None, began: float, deadline: float
    ) -> Receipt:
        """Send by the synchronous rules. Raises BrokerError, SendError and its kinds."""
        attempts = 1 if fixed is not None else 1 + self.config.retry_times_when_send_failed
        per_attempt = self.config.send_msg_max_timeout_per_request
        brokers: list[str] = []
        stored: Receipt | None = None
        cause: Exception | None = None
        for attempts_left in range(attempts - 1, -1, -1):
            target = fixed or publishing.choose(brokers[-1] if brokers else None, self.faults)
            now = self.time()
            seconds = deadline - now
            if seconds <= 0:
                cause = cause if isinstance(cause, CallTimeoutError) else CallTimeoutError("the time is up")
                break
            if per_attempt is not None and attempts_left:
                seconds = min(seconds, per_attempt)
            brokers.append(target.broker_name)
            try:
                receipt = await self._attempt(outgoing, publishing, target, seconds)
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
                publishing = await self.elsewhere(publishing, target.broker_name, deadline, attempts_left)
            else:
                self.refresh_soon(publishing.wire_topic)
        if stored is not None:
            return stored
        assert cause is not None
        raise given_up(publishing.topic, brokers, self.time() - began, cause) from cause

    def _failed(self, target: Target, began: float, *, is_reachable: bool) -> None:
        if self.faults is not None:
            self.faults.update(target.broker_name, self.time() - began, failed=True, is_reachable=is_reachable)

    async def _attempt(self, outgoing: Outgoing, publishing: Publishing, target: Target, seconds: float) -> Receipt:
        connection = target.link.ready()
        if connection is None:
            deadline = self.time() + seconds
            connection = await self.connect(target, publishing, deadline)
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
        """An answer did not come in time; perhaps nothing comes through any more."""
        self._instance.doubt(connection)

    async def connect(self, target: Target, publishing: Publishing, deadline: float) -> Connection:
        """The connection to a queue's broker, ready for a message. Raises RemotingError."""
        link = target.link
        if link.address is None:
            link.address = await self._address(link.broker_name, publishing.wire_topic, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                link.connection = connection = await self._instance.connection(
                    self._instance.send_address(link.address)
                )
                if not connection.is_writable:
                    await connection.writable()
        except TimeoutError:
            raise CallTimeoutError(f"{link.address} took nothing in time") from None
        return connection

    async def _address(self, broker_name: str, wire_topic: str, deadline: float) -> str:
        found = self._instance.address(wire_topic, broker_name)
        if found is None:
            await asyncio.wait((self.refresh_soon(wire_topic),), timeout=max(deadline - self.time(), 0))
            found = self._instance.address(wire_topic, broker_name)
        if found is None:
            raise ConnectError(f"no master of the broker {broker_name!r} is known")
        return found

    async def send_oneway(self, outgoing: Outgoing, publishing: Publishing, fixed: Target | None) -> int:
        """Send without an answer: one attempt. Says how many bytes that were. Raises SendError."""
        target = fixed or publishing.choose(None, self.faults)
        connection = target.link.ready()
        try:
            if connection is None:
                connection = await self.connect(target, publishing, self.time() + self.config.send_msg_timeout)
            context = self.before(outgoing, target, Communication.ONEWAY) if self.hooks else None
            request = outgoing.request(target, connection.next_opaque(), self.now_ms(), ONEWAY)
            connection.send(request)
        except RemotingError as error:
            self.refresh_soon(publishing.wire_topic)
            raise given_up(publishing.topic, [target.broker_name], 0, error) from error
        if context is not None:
            self.after(context, None, None)
        return len(request)

    # Hooks

    def before(self, outgoing: Outgoing, target: Target, communication: Communication) -> SendContext:
        """Tell the hooks that an attempt begins."""
        context = SendContext(
            producer_group=self.config.group,
            messages=outgoing.messages,
            queue=target.queue,
            broker_address=target.link.address or "",
            communication=communication,
            message_type=message_type(outgoing.messages[0].properties),
            namespace=self._namespace,
        )
        for hook in self.hooks:
            hook.before_send(context)
        return context

    def after(self, context: SendContext, receipt: Receipt | None, error: Exception | None) -> None:
        """Tell the hooks what came of it."""
        context.receipt = receipt
        context.error = error
        for hook in self.hooks:
            try:
                hook.after_send(context)
            except Exception:
                log.exception("a hook failed after a send to %s", context.queue)


def given_up(topic: str, brokers: Sequence[str], seconds: float, cause: Exception) -> SendError:
    """What to raise when no attempt is left."""
    text = (
        f"the message to {topic!r} was not sent after {len(brokers)} attempts in {seconds:.3f} s "
        f"(to {', '.join(brokers) or 'no broker'}): {cause}"
    )
    if isinstance(cause, CallTimeoutError):
        return SendTimeoutError(text)
    if isinstance(cause, TooManyCallsError):
        return TooManySendsError(text)
    return SendError(text)
