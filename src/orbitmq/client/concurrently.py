"""Messages of all queues consumed side by side: functions in threads, coroutine functions on the loop."""

from __future__ import annotations

import asyncio
import collections
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any

from orbitmq.client import consume_hooks
from orbitmq.client.consume_hooks import outcome_of
from orbitmq.client.consume_result import ConsumeResult, result_of
from orbitmq.client.consume_threads import ConsumeThreads, Job
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.levels import ByLevel, Levels, QueueByLevel
from orbitmq.client.send_back import TIMEOUT_LEVEL
from orbitmq.client.tracing_records import ConsumeOutcome
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from orbitmq.client.consume_hooks import ConsumeContext, ConsumeHook
    from orbitmq.client.consumer_config import ConsumerConfig
    from orbitmq.client.levels import Level
    from orbitmq.client.process_queue import ProcessQueue
    from orbitmq.client.pulled_message import PulledMessage
    from orbitmq.client.send_back import SendBack
    from orbitmq.client.subscriptions import Subscription, Subscriptions

log = logging.getLogger("orbitmq.client")

TURN_SECONDS = 0.001
"""After so long with handlers that wait for nothing, the loop gets its turn."""

SETTLING_SECONDS = 0.01


class Batch(Job):
    """Messages for one call of a handler."""

    __slots__ = ("context", "is_given_up", "messages", "queue", "subscription")

    def __init__(
        self,
        queue: ProcessQueue,
        subscription: Subscription,
        messages: Sequence[PulledMessage],
        settle: Callable[[Job, object, BaseException | None], None],
    ) -> None:
        self.queue = queue
        self.subscription = subscription
        self.messages = messages
        self.context: ConsumeContext | None = None
        """What hooks were told of it, until they are told that it has ended."""
        self.is_given_up = False
        """Its time is over: what its handler says no longer counts."""
        self.handler = subscription.handler
        self.argument = messages if subscription.takes_list else messages[0]
        self.settle = settle
        self.started = 0.0


class _Worker:
    """A task that calls handlers one after the other."""

    __slots__ = ("batch", "idle", "is_timed_out", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[None] | None = None
        self.batch: Batch | None = None
        self.idle: asyncio.Future[None] = loop.create_future()
        self.is_timed_out = False


class ConcurrentConsumption:
    """Calls the handlers of one consumer, and gives back what they do not consume."""

    def __init__(
        self,
        group: str,
        config: ConsumerConfig,
        subscriptions: Subscriptions,
        send_back: SendBack,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        self._group = group
        self._hooks = hooks
        self._config = config
        self._subscriptions = subscriptions
        self._send_back = send_back
        self._loop = asyncio.get_running_loop()
        self._levels = Levels(config.topic_levels or {}) if config.goes_by_level else None
        by_level = None if self._levels is None else QueueByLevel(self._level_of)
        self.threads = ConsumeThreads(group, config.consume_thread_max, jobs=by_level)
        self._limit = config.consume_thread_max
        self._ready: collections.deque[Batch] | ByLevel[Batch] = (
            collections.deque() if self._levels is None else ByLevel(self._level_of)
        )
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sleeping: set[asyncio.Task[None]] = set()
        """Those of the tasks that wait to try again."""
        self._is_waking = False
        """Whether a worker was woken that has not had its turn yet: one at a time is enough."""
        self._is_closing = False
        self._spawn(self._look_for_late())

    # What the consumer asks

    def begin(self, queue: ProcessQueue) -> None:
        """A queue was assigned."""

    async def end(self, queue: ProcessQueue) -> None:
        """A queue was dropped. What runs of it is not waited for: it does not count any more."""

    def deliver(self, queue: ProcessQueue, messages: list[PulledMessage]) -> None:
        """Have messages consumed, in batches that are each of one topic."""
        if self._is_closing:
            return
        subscription = self._subscriptions.get(queue.queue.topic)
        assert subscription is not None, "who pulls a topic has subscribed it"
        if subscription.topic != self._subscriptions.retry_topic:
            self._submit(queue, subscription, messages)
            return
        by_topic: dict[str, list[PulledMessage]] = {}
        for message in messages:
            by_topic.setdefault(self._subscriptions.origin(message), []).append(message)
        for topic, some in by_topic.items():
            self._submit(queue, self._subscriptions.get(topic) or subscription, some)

    def resize(self, count: int) -> None:
        """Call so many handlers at the same time."""
        self._limit = count
        self.threads.resize(count)
        for worker in self._idle:
            # Those that are too many leave.
            worker.idle.set_result(None)
        self._idle.clear()
        if self._ready:
            self._wake_one()

    @property
    def thread_count(self) -> int:
        return self._limit

    async def close(self, patience: float) -> None:
        """Begin nothing more, wait for what runs, but not for ever."""
        self._is_closing = True
        self._ready.clear()
        self.threads.discard()
        for task in self._sleeping:
            task.cancel()
        deadline = time.monotonic() + patience
        while self._is_busy() and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(SETTLING_SECONDS)  # handlers end in threads, workers and tasks alike
        tasks = [*self._tasks, *(worker.task for worker in self._workers if worker.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for name in self.threads.close():
            log.warning("the handler in %s has not returned; its message will be consumed again", name)

    def _is_busy(self) -> bool:
        working = any(worker.batch is not None for worker in self._workers)
        return working or self.threads.unsettled > 0 or len(self._tasks - self._sleeping) > 1

    # Calling

    def _submit(self, queue: ProcessQueue, subscription: Subscription, messages: list[PulledMessage]) -> None:
        most = self._config.consume_message_batch_max_size if subscription.takes_list else 1
        if self._levels is not None and most > 1:
            # So that no batch has more and less important ones.
            messages = sorted(messages, key=self._levels.of, reverse=True)
        settle = self._settle
        batches = [
            Batch(queue, subscription, messages[start : start + most], settle)
            for start in range(0, len(messages), most)
        ]
        if self._hooks:
            for batch in batches:
                batch.handler = self._watched(batch)
        if not subscription.runs_on_loop:
            for batch in batches:
                self.threads.submit(batch)
            return
        self._ready.extend(batches)
        # One that calls functions has not stopped to wait for anything, and goes on by itself.
        if subscription.is_async or len(self._idle) == len(self._workers):
            self._wake_one()

    def _level_of(self, job: Job) -> Level:
        """The level of a batch is that of its first message."""
        assert self._levels is not None
        assert isinstance(job, Batch)
        return self._levels.of(job.messages[0])

    def _watched(self, batch: Batch) -> Callable[[Any], Any]:
        """The handler of a batch, of whose call hooks are told first."""
        handler = batch.handler

        def call(argument: Any) -> Any:
            batch.context = consume_hooks.begin(self._hooks, self._group, batch.messages)
            return handler(argument)

        return call

    def _tell_hooks(self, batch: Batch, outcome: ConsumeOutcome) -> None:
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
        now = time.monotonic
        turn_ends = now() + TURN_SECONDS
        self._is_waking = False
        while len(self._workers) <= self._limit:
            if not ready:
                worker.idle = self._loop.create_future()
                self._idle.append(worker)
                await worker.idle
                self._is_waking = False
                turn_ends = now() + TURN_SECONDS
                continue
            batch = ready.popleft()
            if batch.queue.is_dropped:
                continue
            if ready and batch.subscription.is_async:
                # Should this handler wait for something, another worker goes on meanwhile.
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
                # Without that somebody wanted this task to end, it is something that the handler waited for.
                if worker.task is not None and worker.task.cancelling():
                    if not worker.is_timed_out:
                        raise
                    worker.task.uncancel()
                worker.is_timed_out = False
                raised = error
            except Exception as error:
                raised = error
            worker.batch = None
            if not batch.is_given_up:
                self._settle(batch, returned, raised)
            if now() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = now() + TURN_SECONDS
        self._workers.remove(worker)
        if ready:
            self._wake_one()

    # What came of it

    def _settle(self, job: Job, returned: object, raised: BaseException | None) -> None:
        assert isinstance(job, Batch)
        batch, queue, messages = job, job.queue, job.messages
        counts = batch.subscription.counts
        counts.calls += 1
        counts.consume_time += time.monotonic() - batch.started
        if batch.context is not None and not inspect.isawaitable(returned):
            self._tell_hooks(batch, outcome_of(returned, raised))
        if batch.is_given_up or queue.is_dropped:
            return
        if raised is None and returned is None:
            counts.done += len(messages)
            queue.finish(messages)
            return
        if raised is None and inspect.isawaitable(returned):
            # A plain function that makes a coroutine, as decorators do.
            self._spawn(self._settle_later(batch, returned))
            return
        if raised is not None:
            log.warning(
                "the handler of %s failed and gets %s again: %r",
                *(batch.subscription.name, _named(messages), raised),
                exc_info=raised,
            )
        self._sort_out(batch, ConsumeResult.LATER if raised is not None else result_of(returned))

    async def _settle_later(self, batch: Batch, returned: Any) -> None:
        try:
            result = await returned
        except Exception as error:
            self._settle(batch, None, error)
        else:
            self._settle(batch, result, None)

    def _sort_out(self, batch: Batch, result: ConsumeResult) -> None:
        queue, messages, counts = batch.queue, batch.messages, batch.subscription.counts
        done = result.done_of(len(messages))
        counts.done += done
        counts.failed += len(messages) - done
        queue.last_consume_ms = round(time.time() * 1000)
        queue.finish(messages[:done])
        self._give_back(queue, messages[done:], result.delay_level)

    def _give_back(self, queue: ProcessQueue, messages: Sequence[PulledMessage], delay_level: int) -> None:
        if not messages:
            return
        if self._config.is_broadcasting:
            log.warning("broadcast messages are consumed once, %s are lost", _named(messages))
            queue.finish(messages)
        else:
            self._spawn(self._given_back(queue, messages, delay_level))

    async def _given_back(self, queue: ProcessQueue, messages: Sequence[PulledMessage], delay_level: int) -> None:
        kept = []
        for message in messages:
            if queue.is_dropped or not queue.holds(message):
                continue
            try:
                await self._send_back.give_back(message, queue.queue.topic, delay_level)
            except (OrbitMQError, RemotingError) as error:
                log.warning("no broker takes %s back, so it is tried again here: %s", _named((message,)), error)
                message.record.reconsume_times += 1
                kept.append(message)
            except ProtocolError as error:
                log.error(
                    "a message at %d of %s cannot be read and is left out: %s", message.offset, queue.queue, error
                )
                queue.finish((message,))
            else:
                queue.finish((message,))
        if kept and not self._is_closing:
            task = asyncio.current_task()
            assert task is not None
            self._sleeping.add(task)
            await asyncio.sleep(self._config.resubmit_delay)
            if not queue.is_dropped:
                self.deliver(queue, kept)

    # Handlers that do not return

    async def _look_for_late(self) -> None:
        timeout = self._config.consume_timeout
        while True:
            await asyncio.sleep(min(timeout / 4, 15.0))
            late = time.monotonic() - timeout
            for worker in self._workers:
                batch = worker.batch
                if batch is not None and batch.started < late and worker.task is not None:
                    worker.is_timed_out = True
                    self._give_up(batch)
                    worker.task.cancel()
            for job in list(self.threads.running.values()):
                if isinstance(job, Batch) and job.started < late and not job.is_given_up:
                    self._give_up(job)

    def _give_up(self, batch: Batch) -> None:
        log.warning(
            "the handler of %s has not returned for %g s; %s is retried",
            *(batch.subscription.name, self._config.consume_timeout, _named(batch.messages)),
        )
        batch.is_given_up = True
        self._tell_hooks(batch, ConsumeOutcome.TIME_OUT)
        batch.subscription.counts.failed += len(batch.messages)
        self._give_back(batch.queue, batch.messages, TIMEOUT_LEVEL)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._sleeping.discard)


def _named(messages: Sequence[PulledMessage]) -> str:
    first = f"the message at {messages[0].offset}"
    return first if len(messages) == 1 else f"{first} and {len(messages) - 1} more"
