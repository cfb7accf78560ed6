"""Concurrent consumption (RocketMQ: ConsumeMessageConcurrentlyService), in threads and on the loop."""

from __future__ import annotations

import asyncio
import collections
import inspect
import logging
from typing import TYPE_CHECKING, Any

from orbitmq.client.consumer import hooks as consume_hooks
from orbitmq.client.consumer.hooks import outcome_of
from orbitmq.client.consumer.priority_buffer import MessagePriorities, PriorityBuffer, ThreadPriorityQueue
from orbitmq.client.consumer.result import ConsumeResult, result_of
from orbitmq.client.consumer.send_back import TIMEOUT_LEVEL
from orbitmq.client.consumer.thread_pool import ConsumeThreads, Job
from orbitmq.client.errors import BodyError, OrbitMQError
from orbitmq.client.push.inbox import NotTakenError
from orbitmq.client.trace.encoding import ConsumeOutcome
from orbitmq.platform.clock import SYSTEM_CLOCK
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from orbitmq.client.consumer.hooks import ConsumeContext, ConsumeHook
    from orbitmq.client.consumer.priority_buffer import PriorityKey
    from orbitmq.client.consumer.process_queue import ProcessQueue
    from orbitmq.client.consumer.received_message import PulledMessage
    from orbitmq.client.consumer.send_back import SendBack
    from orbitmq.client.consumer.subscription import Subscription, Subscriptions
    from orbitmq.client.push.config import ConsumerConfig
    from orbitmq.platform.clock import Clock

log = logging.getLogger("orbitmq.client")

YIELD_SECONDS = 0.001
"""A worker whose handlers never await yields to the loop after this time."""

CLOSE_POLL_SECONDS = 0.01


class ConsumeRequest(Job):
    """Messages of one handler call."""

    __slots__ = ("context", "is_timed_out", "messages", "queue", "subscription")

    def __init__(
        self,
        queue: ProcessQueue,
        subscription: Subscription,
        messages: Sequence[PulledMessage],
        on_done: Callable[[Job, object, BaseException | None], None],
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.messages = messages
        self.context: ConsumeContext | None = None
        """The context that hooks have, until the call ends."""
        self.is_timed_out = False
        """The result of its handler no longer counts."""
        self.handler = subscription.handler
        self.argument = messages if subscription.takes_list else messages[0]
        self.on_done = on_done
        self.started = 0.0


class _Worker:
    """A task that calls handlers, one after the other."""

    __slots__ = ("batch", "idle", "is_timed_out", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[None] | None = None
        self.batch: ConsumeRequest | None = None
        self.idle: asyncio.Future[None] = loop.create_future()
        self.is_timed_out = False


class ConcurrentConsumption:
    """Calls the handlers of one consumer and returns failed messages to the broker."""

    def __init__(
        self,
        group: str,
        config: ConsumerConfig,
        subscriptions: Subscriptions,
        send_back: SendBack,
        hooks: Sequence[ConsumeHook] = (),
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._group = group
        self._hooks = hooks
        self._config = config
        self._subscriptions = subscriptions
        self._send_back = send_back
        self._loop = asyncio.get_running_loop()
        self._priorities = MessagePriorities(config.topic_levels or {}) if config.uses_priority else None
        waiting_jobs = None if self._priorities is None else ThreadPriorityQueue(self._priority_of)
        self.threads = ConsumeThreads(group, config.consume_thread_max, jobs=waiting_jobs, clock=clock)
        self._limit = config.consume_thread_max
        self._ready: collections.deque[ConsumeRequest] | PriorityBuffer[ConsumeRequest] = (
            collections.deque() if self._priorities is None else PriorityBuffer(self._priority_of)
        )
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sleeping: set[asyncio.Task[None]] = set()
        """Tasks that wait before a retry."""
        self._is_waking = False
        """Whether a woken worker has not run yet: one at a time is enough."""
        self._is_closing = False
        self._spawn(self._check_timeouts())

    # Interface to the consumer

    def begin(self, queue: ProcessQueue) -> None:
        """A queue was assigned."""

    async def end(self, queue: ProcessQueue) -> None:
        """A queue was released. Running handlers are not waited for: their results are discarded."""

    def deliver(self, queue: ProcessQueue, messages: list[PulledMessage]) -> None:
        """Submit messages, in batches of one topic each."""
        if self._is_closing:
            return
        subscription = self._subscriptions.get(queue.queue.topic)
        assert subscription is not None, "a pulled topic is subscribed"
        if subscription.topic != self._subscriptions.retry_topic:
            self._route(queue, subscription, messages)
            return
        by_topic: dict[str, list[PulledMessage]] = {}
        for message in messages:
            by_topic.setdefault(self._subscriptions.origin(message), []).append(message)
        for topic, some in by_topic.items():
            self._route(queue, self._subscriptions.get(topic) or subscription, some)

    def resize(self, count: int) -> None:
        """Change the number of concurrent handler calls."""
        self._limit = count
        self.threads.resize(count)
        for worker in self._idle:
            # Workers over the limit end.
            worker.idle.set_result(None)
        self._idle.clear()
        if self._ready:
            self._wake_one()

    @property
    def thread_count(self) -> int:
        return self._limit

    async def close(self, patience: float) -> None:
        """Start no more handlers and wait for running ones, at most ``patience`` seconds."""
        self._is_closing = True
        self._ready.clear()
        self.threads.discard()
        for task in self._sleeping:
            task.cancel()
        deadline = self._clock.monotonic() + patience
        while self._is_busy() and self._clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(CLOSE_POLL_SECONDS)  # handlers end in threads, workers and tasks alike
        tasks = [*self._tasks, *(worker.task for worker in self._workers if worker.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in self.threads.close():
            log.warning("consume: handler in %s has not returned, its message will be redelivered", name)

    def _is_busy(self) -> bool:
        working = any(worker.batch is not None for worker in self._workers)
        return working or self.threads.unfinished > 0 or len(self._tasks - self._sleeping) > 1

    # Handler calls

    def _route(self, queue: ProcessQueue, subscription: Subscription, messages: list[PulledMessage]) -> None:
        for target, some in subscription.routed(messages):
            self._submit(queue, target, some)

    def _submit(self, queue: ProcessQueue, subscription: Subscription, messages: list[PulledMessage]) -> None:
        most = self._config.consume_message_batch_max_size if subscription.takes_list else 1
        if self._priorities is not None and most > 1:
            # A batch contains messages of similar priority.
            messages = sorted(messages, key=self._priorities.of, reverse=True)
        on_done = self._on_done
        batches = [
            ConsumeRequest(queue, subscription, messages[start : start + most], on_done)
            for start in range(0, len(messages), most)
        ]
        if self._hooks:
            for batch in batches:
                batch.handler = self._with_hooks(batch)
        if not subscription.runs_on_loop:
            for batch in batches:
                self.threads.submit(batch)
            return
        self._ready.extend(batches)
        # A worker with plain functions never awaits and takes the next batch itself.
        if subscription.is_async or len(self._idle) == len(self._workers):
            self._wake_one()

    def _priority_of(self, job: Job) -> PriorityKey:
        """The priority of a batch is that of its first message."""
        assert self._priorities is not None
        assert isinstance(job, ConsumeRequest)
        return self._priorities.of(job.messages[0])

    def _with_hooks(self, batch: ConsumeRequest) -> Callable[[Any], Any]:
        """The handler of a batch, wrapped to call the hooks first."""
        handler = batch.handler

        def call(argument: Any) -> Any:
            batch.context = consume_hooks.begin(self._hooks, self._group, batch.messages)
            return handler(argument)

        return call

    def _end_hooks(self, batch: ConsumeRequest, outcome: ConsumeOutcome) -> None:
        context, batch.context = batch.context, None
        if context is not None:
            consume_hooks.end(self._hooks, context, outcome)

    def _wake_one(self) -> None:
        if self._is_waking:
            return
        if self._idle:
            self._idle.pop().idle.set_result(None)
        elif len(self._workers) < self._limit:
            worker = _Worker(self._loop)
            self._workers.append(worker)
            worker.task = self._loop.create_task(self._work(worker))
        else:
            return
        self._is_waking = True

    async def _work(self, worker: _Worker) -> None:
        ready = self._ready
        now = self._clock.monotonic
        yield_at = now() + YIELD_SECONDS
        self._is_waking = False
        while len(self._workers) <= self._limit:
            if not ready:
                worker.idle = self._loop.create_future()
                self._idle.append(worker)
                await worker.idle
                self._is_waking = False
                yield_at = now() + YIELD_SECONDS
                continue
            batch = ready.popleft()
            if batch.queue.is_dropped:
                continue
            if ready and batch.subscription.is_async:
                # If this handler awaits, another worker continues meanwhile.
                self._wake_one()
            batch.started = now()
            worker.batch = batch
            returned: Any = None
            raised: BaseException | None = None
            try:
                returned = batch.handler(batch.argument)
                if batch.subscription.is_async or (returned is not None and inspect.isawaitable(returned)):
                    returned = await returned
            except asyncio.CancelledError as error:
                # Without a cancel request for this task, something that the handler awaited was cancelled.
                if worker.task is not None and worker.task.cancelling():
                    if not worker.is_timed_out:
                        raise
                    worker.task.uncancel()
                worker.is_timed_out = False
                raised = error
            except Exception as error:
                raised = error
            worker.batch = None
            if not batch.is_timed_out:
                self._on_done(batch, returned, raised)
            if now() > yield_at:
                await asyncio.sleep(0)
                yield_at = now() + YIELD_SECONDS
        self._workers.remove(worker)
        if ready:
            self._wake_one()

    # Results

    def _on_done(self, job: Job, returned: object, raised: BaseException | None) -> None:
        assert isinstance(job, ConsumeRequest)
        batch, queue, messages = job, job.queue, job.messages
        counts = batch.subscription.counts
        counts.calls += 1
        counts.consume_time += self._clock.monotonic() - batch.started
        if batch.context is not None and not inspect.isawaitable(returned):
            self._end_hooks(batch, outcome_of(returned, raised))
        if batch.is_timed_out or queue.is_dropped:
            return
        if raised is None and returned is None:
            counts.done += len(messages)
            queue.finish(messages)
            return
        if raised is None and inspect.isawaitable(returned):
            # A plain function that returns a coroutine, as decorators do.
            self._spawn(self._await_result(batch, returned))
            return
        if isinstance(raised, NotTakenError):
            return
        if raised is not None:
            log.warning(
                "consume: handler of %s failed, %s will be retried: %r",
                *(batch.subscription.name, _named(messages), raised),
                exc_info=None if isinstance(raised, BodyError) else raised,
            )
        self._apply_result(batch, ConsumeResult.LATER if raised is not None else result_of(returned))

    async def _await_result(self, batch: ConsumeRequest, returned: Any) -> None:
        try:
            result = await returned
        except Exception as error:
            self._on_done(batch, None, error)
        else:
            self._on_done(batch, result, None)

    def _apply_result(self, batch: ConsumeRequest, result: ConsumeResult) -> None:
        queue, messages, counts = batch.queue, batch.messages, batch.subscription.counts
        done = result.done_of(len(messages))
        counts.done += done
        counts.failed += len(messages) - done
        queue.last_consume_ms = self._clock.now_ms()
        queue.finish(messages[:done])
        self._retry(queue, messages[done:], result.delay_level)

    def _retry(self, queue: ProcessQueue, messages: Sequence[PulledMessage], delay_level: int) -> None:
        if not messages:
            return
        if self._config.is_broadcasting:
            log.warning("consume: broadcast messages are not retried, dropped %s", _named(messages))
            queue.finish(messages)
        else:
            self._spawn(self._send_back_or_resubmit(queue, messages, delay_level))

    async def _send_back_or_resubmit(
        self, queue: ProcessQueue, messages: Sequence[PulledMessage], delay_level: int
    ) -> None:
        failed = []
        for message in messages:
            if queue.is_dropped or not queue.holds(message):
                continue
            try:
                await self._send_back.send_back(message, queue.queue.topic, delay_level)
            except (OrbitMQError, RemotingError) as error:
                log.warning("retry: no broker accepts %s, will retry here: %s", _named((message,)), error)
                message.record.reconsume_times += 1
                failed.append(message)
            except ProtocolError as error:
                log.error("consume: malformed message at %d of %s, skipped: %s", message.offset, queue.queue, error)
                queue.finish((message,))
            else:
                queue.finish((message,))
        if failed and not self._is_closing:
            task = asyncio.current_task()
            assert task is not None
            self._sleeping.add(task)
            await asyncio.sleep(self._config.resubmit_delay)
            if not queue.is_dropped:
                self.deliver(queue, failed)

    # Timeouts

    async def _check_timeouts(self) -> None:
        timeout = self._config.consume_timeout
        while True:
            await asyncio.sleep(min(timeout / 4, 15.0))
            late = self._clock.monotonic() - timeout
            for worker in self._workers:
                batch = worker.batch
                if batch is not None and batch.started < late and worker.task is not None:
                    worker.is_timed_out = True
                    self._time_out(batch)
                    worker.task.cancel()
            for job in list(self.threads.running.values()):
                if isinstance(job, ConsumeRequest) and job.started < late and not job.is_timed_out:
                    self._time_out(job)

    def _time_out(self, batch: ConsumeRequest) -> None:
        log.warning(
            "consume: handler of %s timed out after %g s, %s will be retried",
            *(batch.subscription.name, self._config.consume_timeout, _named(batch.messages)),
        )
        batch.is_timed_out = True
        self._end_hooks(batch, ConsumeOutcome.TIME_OUT)
        batch.subscription.counts.failed += len(batch.messages)
        self._retry(batch.queue, batch.messages, TIMEOUT_LEVEL)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._sleeping.discard)


def _named(messages: Sequence[PulledMessage]) -> str:
    first = f"the message at {messages[0].offset}"
    return first if len(messages) == 1 else f"{first} and {len(messages) - 1} more"
