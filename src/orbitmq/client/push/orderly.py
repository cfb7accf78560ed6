"""Orderly consumption (RocketMQ: ConsumeMessageOrderlyService): one handler call per queue at a time, in order.

A failed message blocks its queue until it succeeds. The queue is locked at its broker, so that no other member of
the group consumes it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from orbitmq.client.consumer import hooks as consume_hooks
from orbitmq.client.consumer.result import DEAD_LETTER, ConsumeResult, result_of
from orbitmq.client.consumer.thread_pool import ConsumeThreads
from orbitmq.client.errors import BodyError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.client.trace.encoding import ConsumeOutcome
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.client.consumer.hooks import ConsumeHook
    from orbitmq.client.consumer.process_queue import ProcessQueue
    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.consumer.send_back import SendBack
    from orbitmq.client.consumer.subscription import Subscription, Subscriptions
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.push.config import ConsumerConfig
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import MessageQueue

log = logging.getLogger("orbitmq.client")

LOCK_SECONDS = 1.0
"""How long a broker has to answer for locks."""
REFUSED_SECONDS = 3.0
"""After a broker has refused a lock."""
MIN_SUSPEND, MAX_SUSPEND = 0.01, 30.0


class QueueLocks:
    """Queue locks of one group member at the brokers."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock queues or renew their locks; returns the locked ones. None are of a broker that does not respond."""
        answers = await asyncio.gather(*(self._lock_at(name, some) for name, some in _by_broker(queues).items()))
        return {queue for locked in answers for queue in locked}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock queues. Locks at an unreachable broker expire."""
        await asyncio.gather(*(self._unlock_at(name, some) for name, some in _by_broker(queues).items()))

    async def _lock_at(self, broker_name: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        body = LockBatchRequestBody(self._group, self._instance.client_id, mq_set=queues)
        try:
            answer = await self._call(RequestCode.LOCK_BATCH_MQ, broker_name, queues[0].topic, body)
            return LockBatchResponseBody.decode(answer.body or b"{}").lock_ok_mq_set
        except (OrbitMQError, RemotingError, ProtocolError) as error:
            log.warning("queue lock: %s did not lock: %s", broker_name, error)
            return []

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(self._group, self._instance.client_id, mq_set=queues)
        try:
            await self._call(RequestCode.UNLOCK_BATCH_MQ, broker_name, queues[0].topic, body)
        except (OrbitMQError, RemotingError) as error:
            log.warning("queue lock: unlock at %s failed, locks will expire: %s", broker_name, error)

    async def _call(self, code: RequestCode, broker_name: str, topic: str, body: LockBatchRequestBody) -> Command:
        address = self._instance.address(topic, broker_name, MASTER)
        if address is None:
            raise OrbitMQError(f"the broker {broker_name} has no master now")
        command = Command(code, body=body.encode(), language=LanguageCode.PYTHON)
        return await self._instance.call(address, command, LOCK_SECONDS)


class OrderlyConsumption:
    """Calls the handlers of one consumer, sequentially for each queue."""

    def __init__(
        self,
        group: str,
        config: ConsumerConfig,
        subscriptions: Subscriptions,
        send_back: SendBack,
        locks: QueueLocks | None,
        hooks: Sequence[ConsumeHook] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """``locks`` is None for broadcasting consumers, which share no queues."""
        self._clock = clock
        self._group = group
        self._hooks = hooks
        self._config = config
        self._subscriptions = subscriptions
        self._send_back = send_back
        self._locks = locks
        self._loop = asyncio.get_running_loop()
        self.threads = ConsumeThreads(group, config.consume_thread_max, clock=clock)
        self._slots = _Slots(config.consume_thread_max)
        self._tasks: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._consuming: set[ProcessQueue] = set()
        """Queues with a running call or an unprocessed result."""
        self._is_closing = False
        self._keeping = None if locks is None else self._loop.create_task(self._keep_locks(locks))

    # Interface to the consumer

    def begin(self, queue: ProcessQueue) -> None:
        """A queue was assigned, and locked."""
        self._tasks[queue] = self._loop.create_task(self._consume(queue))

    async def end(self, queue: ProcessQueue) -> None:
        """A queue was released: wait for its running call, so that the next owner does not overtake it."""
        task = self._tasks.pop(queue, None)
        if task is None:
            return
        if queue not in self._consuming:
            task.cancel()
        try:
            await asyncio.gather(task, return_exceptions=True)
        except asyncio.CancelledError:
            task.cancel()
            raise

    def deliver(self, queue: ProcessQueue, messages: list[PulledMessage]) -> None:
        """Nothing to do: the task of the queue waits for messages itself."""

    def resize(self, count: int) -> None:
        """Change the number of concurrent handler calls."""
        self.threads.resize(count)
        self._slots.resize(count)

    @property
    def thread_count(self) -> int:
        return self.threads.limit

    async def close(self, patience: float) -> None:
        """Start no more handlers and wait for running ones, at most ``patience`` seconds."""
        self._is_closing = True
        if self._keeping is not None:
            self._keeping.cancel()
        for queue, task in self._tasks.items():
            if queue not in self._consuming:
                task.cancel()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *([] if self._keeping is None else [self._keeping]), return_exceptions=True)
        self._tasks.clear()
        for name in self.threads.close():
            log.warning("consume: handler in %s has not returned, its message will be redelivered", name)

    # Locks

    async def _keep_locks(self, locks: QueueLocks) -> None:
        while True:
            await asyncio.sleep(self._config.lock_interval)
            await self._lock(locks, [queue for queue in self._tasks if not queue.is_dropped])

    async def _lock(self, locks: QueueLocks, queues: Sequence[ProcessQueue]) -> None:
        requested_at = self._clock.monotonic()
        locked = await locks.lock([queue.queue for queue in queues])
        for queue in queues:
            if queue.queue in locked:
                queue.lock(requested_at=requested_at)
            else:
                queue.unlock()

    async def _has_lock(self, queue: ProcessQueue) -> bool:
        if self._locks is None or queue.is_locked:
            return True
        await self._lock(self._locks, [queue])
        return queue.is_locked

    # Calling

    async def _consume(self, queue: ProcessQueue) -> None:
        while self._goes_on(queue):
            await queue.arrived.wait()
            if not await self._has_lock(queue):
                await asyncio.sleep(REFUSED_SECONDS)
                continue
            subscription, messages = self._next(queue)
            self._consuming.add(queue)
            try:
                result = await self._call_with_hooks(subscription, messages)
                pause = await self._apply_result(queue, subscription, messages, result)
            finally:
                self._consuming.discard(queue)
            if pause and self._goes_on(queue):
                await asyncio.sleep(pause)

    def _goes_on(self, queue: ProcessQueue) -> bool:
        return not queue.is_dropped and not self._is_closing

    def _next(self, queue: ProcessQueue) -> tuple[Subscription, list[PulledMessage]]:
        """The lowest messages of a queue that go to one handler, at most as many as it takes."""
        first = queue.first(1)[0]
        subscription = self._subscription(queue, first)
        if not subscription.takes_list:
            return subscription, [first]
        messages = queue.first(self._config.consume_message_batch_max_size)
        topic = queue.queue.topic
        if topic != self._subscriptions.retry_topic and subscription is self._subscriptions.get(topic):
            return subscription, messages
        others = (
            at
            for at, message in enumerate(messages)
            if message.topic != first.topic or self._subscription(queue, message) is not subscription
        )
        return subscription, messages[: next(others, len(messages))]

    def _subscription(self, queue: ProcessQueue, message: PulledMessage) -> Subscription:
        found = self._subscriptions.get(queue.queue.topic)
        if found is not None and queue.queue.topic == self._subscriptions.retry_topic:
            found = self._subscriptions.get(self._subscriptions.origin(message)) or found
        assert found is not None, "a pulled topic is subscribed"
        return found.route(message)

    async def _call_with_hooks(self, subscription: Subscription, messages: list[PulledMessage]) -> ConsumeResult:
        """``_call_handler`` between the hooks."""
        if not self._hooks:
            return (await self._call_handler(subscription, messages))[0]
        context = consume_hooks.begin(self._hooks, self._group, messages)
        began = self._clock.monotonic()
        result, outcome = await self._call_handler(subscription, messages)
        if self._clock.monotonic() - began >= self._config.consume_timeout:
            outcome = ConsumeOutcome.TIME_OUT
        consume_hooks.end(self._hooks, context, outcome)
        return result

    async def _call_handler(
        self, subscription: Subscription, messages: list[PulledMessage]
    ) -> tuple[ConsumeResult, ConsumeOutcome]:
        argument: Any = messages if subscription.takes_list else messages[0]
        counts = subscription.counts
        began = self._clock.monotonic()
        try:
            if subscription.runs_on_loop:
                async with self._slots:
                    returned = subscription.handler(argument)
                    if returned is not None and inspect.isawaitable(returned):
                        returned = await returned
            else:
                returned = await self.threads.call(subscription.handler, argument)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Something that the handler awaited was cancelled, not this task.
            log.warning("consume: handler of %s was cancelled at %d", subscription.name, messages[0].offset)
            return ConsumeResult.LATER, ConsumeOutcome.EXCEPTION
        except Exception as error:
            log.warning(
                "consume: handler of %s failed at %d: %r",
                subscription.name,
                messages[0].offset,
                error,
                exc_info=None if isinstance(error, BodyError) else error,
            )
            return ConsumeResult.LATER, ConsumeOutcome.EXCEPTION
        finally:
            counts.calls += 1
            counts.consume_time += self._clock.monotonic() - began
        return result_of(returned), consume_hooks.outcome_of(returned, None)

    # Results

    async def _apply_result(
        self,
        queue: ProcessQueue,
        subscription: Subscription,
        messages: list[PulledMessage],
        result: ConsumeResult,
    ) -> float:
        """Advance the queue; returns for how long it has to wait before a retry."""
        counts = subscription.counts
        done = result.done_of(len(messages))
        counts.done += done
        queue.finish(messages[:done])
        queue.last_consume_ms = self._clock.now_ms()
        failed = messages[done:]
        if not failed:
            return 0.0
        counts.failed += len(failed)
        for message in failed:
            try:
                if await self._sent_to_dead_letters(message, result):
                    queue.finish((message,))
                else:
                    message.record.reconsume_times += 1
            except ProtocolError as error:
                log.error("consume: malformed message at %d of %s, skipped: %s", message.offset, queue.queue, error)
                queue.finish((message,))
        pause = self._config.suspend_current_queue_time if result.suspend is None else result.suspend
        return min(max(pause, MIN_SUSPEND), MAX_SUSPEND) if any(map(queue.holds, failed)) else 0.0

    async def _sent_to_dead_letters(self, message: PulledMessage, result: ConsumeResult) -> bool:
        """Move a message over the retry limit to the dead letter queue. False if it has to be retried."""
        is_over = message.record.reconsume_times >= self._config.effective_max_reconsume_times
        if self._config.is_broadcasting or not (is_over or result.delay_level == DEAD_LETTER):
            return False
        try:
            await self._send_back.send_to_dead_letters(message)
        except (OrbitMQError, RemotingError) as error:
            log.warning("dead letter: message at %d not sent, will retry: %s", message.offset, error)
            return False
        return True


class _Slots:
    """Semaphore with a limit that can change, for coroutine handlers."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._free = asyncio.Condition()

    async def __aenter__(self) -> None:
        if self._taken >= self._limit:
            async with self._free:
                await self._free.wait_for(lambda: self._taken < self._limit)
                self._taken += 1
        else:
            self._taken += 1

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1
        async with self._free:
            self._free.notify()

    def resize(self, limit: int) -> None:
        self._limit = limit


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
