"""The loads of ``orbitmq bench``: messages sent or consumed for a time, counted and timed."""

import asyncio
import dataclasses
import functools
import os
import secrets
import time
from typing import TYPE_CHECKING

from orbitmq.cli.bench.latencies import Latencies
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.message import Message
from orbitmq.client.producer.config import MAX_BYTES_IN_FLIGHT
from orbitmq.client.producer.producer import Producer
from orbitmq.client.push.consumer import Consumer
from orbitmq.protocol.bodies import ConsumeFromWhere

if TYPE_CHECKING:
    from orbitmq.cli.messages.live_counters import Counter
    from orbitmq.client.message import Receipt, ReceivedMessage

NOTHING_CAME_SECONDS = 20.0
"""A consumer that waits for a number of messages gives up when none has come for so long."""

LOOK_SECONDS = 0.02
UNCOMPRESSED = 1 << 31
"""Bodies of that many bytes are compressed: none. What is measured is not how fast this machine compresses."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """When a load ends, whichever comes first; one of them is given."""

    messages: int | None
    seconds: float | None


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """The load to generate."""

    topic: str
    size: int
    batch: int
    limit: Limit
    in_flight: int = 1024
    group: str | None = None
    from_first: bool = True


@dataclasses.dataclass(slots=True)
class Outcome:
    """The result of a load."""

    messages: int = 0
    bytes: int = 0
    failures: int = 0
    failure: str = ""
    """The error of the first failed message."""
    seconds: float = 0.0
    latencies: Latencies = dataclasses.field(default_factory=Latencies)

    @property
    def rate(self) -> float:
        return self.messages / max(self.seconds, 1e-9)


# Sending


async def send_load(nameserver: str, task: Task, counter: "Counter", stop: asyncio.Event) -> Outcome:
    """Send. Raises OrbitMQError if not even the first message can be sent."""
    async with Producer(nameserver, compress_msg_body_over_howmuch=UNCOMPRESSED) as producer:
        sending = _Sending(producer, task, counter, stop)
        await sending.run()
    return sending.outcome


class _Sending:
    """Keeps messages in flight until the limit."""

    def __init__(self, producer: Producer, task: Task, counter: "Counter", stop: asyncio.Event) -> None:
        self.outcome = Outcome()
        self._producer = producer
        self._task = task
        self._counter = counter
        self._stop = stop
        self._body = os.urandom(task.size)
        self._most = max(min(task.in_flight, MAX_BYTES_IN_FLIGHT // task.size), 1)
        self._begun = 0
        self._in_flight = 0
        self._changed = asyncio.Event()
        self._end = float("inf")

    async def run(self) -> None:
        began = time.perf_counter()
        self._counter.start()
        if self._task.limit.seconds is not None:
            self._end = began + self._task.limit.seconds
        # The first message goes alone: it creates the topic, and an error that affects all is raised once.
        await self._send_batch(1)
        if self._task.batch == 1:
            await self._send_singly()
        else:
            senders = max(self._most // self._task.batch, 1)
            await asyncio.gather(*(self._send_batches() for _ in range(senders)))
        self.outcome.seconds = time.perf_counter() - began

    def _more(self) -> int:
        """The number of messages for the next request; 0 at the limit."""
        if self._stop.is_set() or time.perf_counter() >= self._end:
            return 0
        if self._task.limit.messages is None:
            return self._task.batch
        return min(self._task.batch, self._task.limit.messages - self._begun)

    async def _send_singly(self) -> None:
        send, topic, body = self._producer.send_nowait, self._task.topic, self._body
        while self._more():
            if self._in_flight >= self._most:
                await self._wait()
                continue
            self._begun += 1
            self._in_flight += 1
            future = send(Message(topic, body))
            future.add_done_callback(functools.partial(self._answered, time.perf_counter_ns()))
        while self._in_flight:
            await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _answered(self, began: int, future: "asyncio.Future[Receipt]") -> None:
        self._in_flight -= 1
        self._changed.set()
        error = future.exception()
        if error is None:
            self._count(began, 1)
        else:
            self._fail(error, 1)

    async def _send_batches(self) -> None:
        while count := self._more():
            try:
                await self._send_batch(count)
            except OrbitMQError as error:
                self._fail(error, count)

    async def _send_batch(self, count: int) -> None:
        self._begun += count
        messages = [Message(self._task.topic, self._body) for _ in range(count)]
        began = time.perf_counter_ns()
        if count == 1:
            await self._producer.send(messages[0])
        else:
            await self._producer.send_batch(messages)
        self._count(began, count)

    def _count(self, began: int, messages: int) -> None:
        outcome = self.outcome
        outcome.latencies.add((time.perf_counter_ns() - began) // 1000, messages)
        outcome.messages += messages
        outcome.bytes += messages * self._task.size
        self._counter.add(messages)

    def _fail(self, error: BaseException, messages: int) -> None:
        self.outcome.failures += messages
        self.outcome.failure = self.outcome.failure or str(error) or type(error).__name__


# Consuming


async def consume_load(nameserver: str, task: Task, counter: "Counter", stop: asyncio.Event) -> Outcome:
    """Consume. With a requested number of messages, those that did not arrive count as failed."""
    consuming = _Consuming(task, counter)
    begins = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    if not task.from_first:
        begins = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consumer = Consumer(
        nameserver,
        group=task.group or f"orbitmq-bench-{secrets.token_hex(4)}",
        consume_from_where=begins,
        pull_batch_size=task.batch,
        consume_message_batch_max_size=task.batch,
        # What is here and not handled yet at the end need not be waited for.
        await_termination_when_shutdown=0,
    )
    consumer.on(task.topic, inline=True, batch=True)(consuming.take)
    async with consumer:
        await consuming.until_over(stop)
        outcome = consuming.outcome
        if not outcome.messages and not any(queue.topic == task.topic for queue in consumer.queues):
            outcome.failures = 1
            outcome.failure = f"no queue of {task.topic} was found at {nameserver}: is the cluster up?"
    return outcome


class _Consuming:
    """Takes messages until the limit."""

    def __init__(self, task: Task, counter: "Counter") -> None:
        self.outcome = Outcome()
        self._limit = task.limit
        self._counter = counter
        self._first = self._last = 0.0
        self._is_over = False

    def take(self, messages: "list[ReceivedMessage]") -> None:
        if self._is_over:
            return
        now = time.perf_counter()
        if not self._first:
            self._first = now
            self._counter.start()
        self._last = now
        outcome, now_ms = self.outcome, time.time_ns() // 1_000_000
        for message in messages:
            outcome.latencies.add((now_ms - message.born_timestamp) * 1000)
            outcome.bytes += len(message.body)
        outcome.messages += len(messages)
        self._counter.add(len(messages))
        self._is_over = self._limit.messages is not None and outcome.messages >= self._limit.messages

    async def until_over(self, stop: asyncio.Event) -> None:
        began = time.perf_counter()
        while not self._is_over and not stop.is_set():
            now = time.perf_counter()
            if self._limit.seconds is not None:
                self._is_over = now - (self._first or began) >= self._limit.seconds
            else:
                self._is_over = now - (self._last or began) >= NOTHING_CAME_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
        self._is_over = True
        outcome = self.outcome
        # Until the last message: what came in a moment and then nothing was as fast as that moment.
        outcome.seconds = max(self._last - self._first, 0.0)
        missing = (self._limit.messages or 0) - outcome.messages
        if missing > 0 and self._limit.seconds is None and not stop.is_set():
            outcome.failures = missing
            outcome.failure = f"no message came for {NOTHING_CAME_SECONDS:g} s"
