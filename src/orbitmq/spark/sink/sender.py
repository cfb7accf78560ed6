"""Delivery of a task's chunks: a window in flight, retried until stored, with look-ups against duplicates."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import time
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, NoNameServerError, NoRouteError, SendError
from orbitmq.client.message import SendStatus
from orbitmq.client.producer.message_encoder import EncodedMessage
from orbitmq.client.producer.wire import properties_json
from orbitmq.protocol.message import property_names as names
from orbitmq.spark.sink.chunker import keys_in
from orbitmq.spark.sink.connection import Wanted
from orbitmq.spark.sink.message_ids import MARK
from orbitmq.spark.sink.options import LOOK_AHEAD

if TYPE_CHECKING:
    import concurrent.futures

    from orbitmq.client.producer.topic_publish_info import Target, TopicPublishInfo
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.sink.chunker import Alone, Chunk
    from orbitmq.spark.sink.connection import SinkConnection
    from orbitmq.spark.sink.options import SinkOptions

log = logging.getLogger("orbitmq.spark")

SETTLING_SECONDS = 1.0
"""What an attempt that follows another waits before it asks what that one has written: requests of a process that
was killed may still be read by the broker, and Apache's enters messages into its index some time after storing."""


@dataclasses.dataclass(slots=True)
class Totals:
    """Counters of a task's chunks."""

    rows: int = 0
    chunks: int = 0
    skipped: int = 0
    """Chunks that an earlier attempt has written."""
    bytes: int = 0


class Delivery:
    """Delivers the chunks of one task. Everything but the constructor runs on the loop."""

    def __init__(self, connection: SinkConnection, options: SinkOptions, start: int) -> None:
        """``start`` is the queue for the first chunk of those that may go to any."""
        self._connection = connection
        self._idempotent = options.idempotent
        self._start = start
        self._turns: dict[MessageQueue, asyncio.Lock] = {}
        self.is_over = False
        """Whether the task has failed: then nothing more is sent, and nothing is tried again."""

    async def deliver(self, chunk: Chunk, *, look: bool) -> bool:
        """Write a chunk; whether it was there already. ``look`` says that it may be. Raises OrbitMQError."""
        try:
            if chunk.queue is None:
                return await self._deliver(chunk, look=look)
            # One after the other, for brokers may work on several requests of a connection at a time.
            async with self._turns.setdefault(chunk.queue, asyncio.Lock()):
                return await self._deliver(chunk, look=look)
        except BaseException:
            self.is_over = True
            raise

    async def _deliver(self, chunk: Chunk, *, look: bool) -> bool:
        if not chunk.alone:
            wanted = Wanted(chunk.unique_key, chunk.mark, lambda: keys_in(chunk.body), chunk.is_delayed)
            return await self._one(chunk, _batch(chunk), wanted, look=look)
        if chunk.queue is not None:
            found = [await self._one_alone(chunk, message, look=look) for message in chunk.alone]
        else:
            found = await asyncio.gather(*[self._one_alone(chunk, message, look=look) for message in chunk.alone])
        return all(found)

    async def _one_alone(self, chunk: Chunk, message: Alone, *, look: bool) -> bool:
        text = properties_json(message.properties.decode("utf-8", "replace"))
        outgoing = EncodedMessage((), message.unique_key, message.body, chunk.sys_flag, 0, text)
        wanted = Wanted(message.unique_key, message.mark, list, chunk.is_delayed)
        return await self._one(chunk, outgoing, wanted, look=look)

    async def _one(self, chunk: Chunk, outgoing: EncodedMessage, wanted: Wanted, *, look: bool) -> bool:
        """Send one request until it is stored; whether what it holds was stored before."""
        connection = self._connection
        if look and await connection.is_written(chunk.topic, wanted, self._is_over):
            return True
        failures = 0
        avoided: str | None = None
        while True:
            if self.is_over:
                raise SendError(f"the task has failed before this was written to {chunk.topic!r}")
            target: Target | None = None
            try:
                publish_info = await connection.publish_info(chunk.topic)
                target = self._target(chunk, publish_info, avoided)
                status = await connection.send(outgoing, publish_info, target)
                if status is SendStatus.FLUSH_DISK_TIMEOUT and self._idempotent:
                    # The broker has it, but not its disk. If that fails it is gone, and asking will tell.
                    raise SendError(f"the broker {target.broker_name!r} could not bring it to its disk in time")
            except (SendError, NoRouteError, NoNameServerError) as error:
                failures += 1
                await connection.pause(error, failures, chunk.topic, is_over=self.is_over)
                if target is None:
                    continue
                avoided = target.broker_name
                # Where no answer came, it may be stored all the same. A refusal is an answer.
                is_refusal = isinstance(error.__cause__, BrokerError)
                if not self._idempotent or is_refusal:
                    continue
                if await connection.is_written(chunk.topic, wanted, self._is_over):
                    return False
            else:
                return False

    def _is_over(self) -> bool:
        return self.is_over

    def _target(self, chunk: Chunk, publish_info: TopicPublishInfo, avoided: str | None) -> Target:
        """The queue for a chunk: its own, or the next in turn, on another broker than the one that failed."""
        if chunk.queue is not None:
            return publish_info.target_of(chunk.queue)
        # Brokers in turn too, so that chunks that follow each other are not all one broker's.
        targets = sorted(publish_info.targets, key=lambda target: (target.queue.queue_id, target.broker_name))
        elsewhere = [target for target in targets if target.broker_name != avoided] or targets
        return elsewhere[(self._start + chunk.number) % len(elsewhere)]


class TaskSending:
    """The send window of one task: a limit of chunks in flight after the oldest one without a response."""

    def __init__(self, connection: SinkConnection, options: SinkOptions, start: int, attempt: int = 0) -> None:
        self._connection = connection
        self._delivery = Delivery(connection, options, start)
        self._most = options.max_in_flight
        self._idempotent = options.idempotent
        self._is_settled = attempt == 0
        self._under_way: collections.deque[tuple[Chunk, concurrent.futures.Future[bool]]] = collections.deque()
        self._first_missing: int | None = None
        self.totals = Totals()

    def put(self, chunk: Chunk) -> None:
        """Send a chunk, after waiting for room in the window. Raises OrbitMQError."""
        under_way = self._under_way
        while under_way and (len(under_way) >= self._most or under_way[0][1].done()):
            self._take_oldest()
        look = self._idempotent and (self._first_missing is None or chunk.number < self._first_missing + LOOK_AHEAD)
        if look and not self._is_settled:
            time.sleep(SETTLING_SECONDS)
        self._is_settled = True
        under_way.append((chunk, self._connection.submit(self._delivery.deliver(chunk, look=look))))

    def _take_oldest(self) -> None:
        chunk, future = self._under_way[0]
        was_there = future.result()
        self._under_way.popleft()
        totals = self.totals
        totals.rows += chunk.rows
        totals.chunks += 1
        if was_there:
            totals.skipped += 1
            return
        totals.bytes += chunk.size
        if self._first_missing is None:
            # Any attempt before this one stopped here at the latest, so that none was far beyond.
            self._first_missing = chunk.number

    def finish(self) -> Totals:
        """Wait for everything. Raises OrbitMQError."""
        while self._under_way:
            self._take_oldest()
        return self.totals

    def abandon(self) -> None:
        """The task has failed: wait until nothing of it is in flight, so that the next attempt sees it all."""
        self._delivery.is_over = True
        while self._under_way:
            _, future = self._under_way.popleft()
            error = future.exception()
            if error is not None:
                log.debug("sink: a chunk of a failed task was not written: %s", error)


def _batch(chunk: Chunk) -> EncodedMessage:
    """The request of a chunk that is one batch.

    The batch itself has the id of its last message: queues made for batches keep it as one message, which then is
    found like the last one elsewhere.
    """
    text = f"{names.UNIQUE_KEY}\x01{chunk.unique_key}\x02{names.WAIT_STORE_OK}\x01true\x02"
    if chunk.mark is not None:
        text += f"{MARK}\x01{chunk.mark}\x02"
    return EncodedMessage((), chunk.unique_key, chunk.body, chunk.sys_flag, 0, properties_json(text), is_batch=True)
