"""Range reader: reads ranges of queues with high throughput, many pulls in flight and results in order.

A range is split into segments. Each segment is pulled sequentially, and many segments concurrently over one
connection. Unfiltered, a segment has the expected size of one response, so that one pull is mostly enough;
filtered, a pull may scan hundreds of messages for a few matches, and a segment covers several such pulls.

Messages are not parsed here: responses are returned as they are.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING

from orbitmq.client.consumer.offset_store import broker_address
from orbitmq.client.errors import BrokerError, InvalidMessageError, OffsetsLostError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.client.query.range_protocol import RangeProtocol, TransientPullError, max_retry_seconds
from orbitmq.filter import TAG, FilterError, compile_subscription
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP
from orbitmq.remoting import CallTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

WINDOW = 64
"""Segments in flight. 64 pulls of 32 messages each keep a broker busy over a network with a round trip of some
milliseconds, and while the caller does something else for as long; many more made both sides slower."""
BATCH = 1024
"""Maximum of messages per pull. OrbitMQ's brokers return as many as fit into 256 KiB, RocketMQ's 32 by default;
segments shrink to what a broker returns."""
RETRY_SECONDS = 60.0
ANSWER_SECONDS = 10.0
"""Timeout without any response, after which the connection is replaced."""

FIRST_SEGMENTS = 8
"""Segments in flight until the size of responses is known: a message may have megabytes."""
MAX_BUFFERED_BYTES = 16 << 20
"""Buffered responses that wait for earlier ones."""
MAX_BYTES_IN_FLIGHT = 4 << 20
"""Expected bytes in flight, by the size of recent responses. More would only wait in the broker's memory."""
FILTER_SCAN_SIZE = 800
"""Messages that a broker scans for one filtered pull: 16,000 bytes of its consume queue."""
PULLS_PER_SEGMENT = 4
"""Pulls of a filtered segment. The last one scans beyond the segment, which is wasted."""
GROW_AFTER = 64
"""Full responses in a row after which segments grow."""

FIRST_PAUSE = 0.05
MAX_PAUSE = 2.0
"""Backoff in seconds."""

_NO_TIME_OUT = 86400.0 * 365
"""Timeout of calls: the loop may stand still while the caller does something else."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRange:
    """Offsets of a queue from ``start``, inclusive, to ``end``, exclusive."""

    queue: MessageQueue
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class RecordChunk:
    """Records of one response. Those from ``first`` to before ``last`` belong to the range.

    There may be others around them: of a filtered pull beyond the range, or of a batch that began earlier.
    """

    body: bytes
    first: int
    last: int


class RangeReader:
    """Reads ranges of queues with one filter and one group.

    Brokers compare hashes of tags, so messages with other tags of the same hash may be included. ``retry_seconds``
    limits retries without progress, ``timeout`` the wait for one response.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str = TOOLS_CONSUMER_GROUP,
        *,
        expression: str = "*",
        expression_type: str = TAG,
        window: int = WINDOW,
        batch: int = BATCH,
        timeout: float = ANSWER_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Raises InvalidMessageError, also for an invalid filter."""
        if window < 1 or batch < 1:
            raise InvalidMessageError(f"window and batch must be 1 or more, not {window} and {batch}")
        try:
            self.is_filtered = not compile_subscription(expression_type, expression).matches_all
        except FilterError as error:
            raise InvalidMessageError(f"invalid filter {expression!r}: {error}") from error
        self.instance = instance
        self.group = group
        self.expression = expression
        self.expression_type = expression_type
        self.window = window
        self.batch = batch
        self.timeout = timeout
        self.retry_seconds = retry_seconds

    def reading(self, of: QueueRange) -> RangeRead:
        """Start a read that the caller steps through with ``some`` and closes."""
        return RangeRead(self, of)

    async def chunks(self, of: QueueRange) -> AsyncIterator[RecordChunk]:
        """The chunks of a range in the order of offsets. Raises OffsetsLostError and other OrbitMQErrors."""
        reading = self.reading(of)
        try:
            while chunks := await reading.some():
                for chunk in chunks:
                    yield chunk
        finally:
            reading.close()


class _Segment:
    """A part of a range that is pulled sequentially."""

    __slots__ = ("answer", "asked", "at", "chunks", "end", "is_deferred", "is_dropped")

    def __init__(self, at: int, end: int) -> None:
        self.at = at
        """Offset of the next pull, or of the one in flight."""
        self.end = end
        self.asked = 0
        self.chunks: list[RecordChunk] = []
        self.answer: asyncio.Future[Command] | None = None
        self.is_deferred = False
        """Whether its next pull waits until buffered responses are returned."""
        self.is_dropped = False


class RangeRead:
    """A read of one range. Callers repeat ``some`` until it returns nothing."""

    def __init__(self, reader: RangeReader, of: QueueRange) -> None:
        self._reader = reader
        self._queue = of.queue
        self._returned_to = of.start
        """All offsets before this were returned."""
        self._cut = of.start
        """Begin of the next segment."""
        self._end = of.end
        self._pulls = RangeProtocol(
            reader.group,
            of.queue,
            of.end,
            expression=reader.expression,
            expression_type=reader.expression_type,
            is_filtered=reader.is_filtered,
        )
        self._segments: collections.deque[_Segment] = collections.deque()
        self._in_flight = 0
        self._deferred = 0
        self._buffered = 0
        """Bytes of buffered responses."""
        self._answers = 0
        self._answer_bytes = 0.0
        """Average size of recent responses."""
        self._span = float(FILTER_SCAN_SIZE if reader.is_filtered else reader.batch)
        """Length of the next segment."""
        self._in_full = 0
        """Full responses in a row."""
        self._broker_id = MASTER
        """The replica to pull from, and the connected one."""
        self._connected_id = MASTER
        self._connection: Connection | None = None
        self._failure: Exception | None = None
        self._failed_at = of.start
        """The offset of the pull that failed."""
        self._alone_until = of.start
        """Up to here, one segment at a time: a gap was found there, and an earlier one must be reported first."""
        self._failing_since: float | None = None
        self._pause = 0.0
        self._woken: asyncio.Future[None] | None = None

    async def some(self) -> list[RecordChunk]:
        """The next chunks in order, waiting for at least one; empty at the end of the range.

        When it returns, further pulls are already in flight. Raises OffsetsLostError and other OrbitMQErrors.
        """
        while True:
            chunks = self._ready_chunks()
            if self._returned_to >= self._end:
                return chunks
            if self._failure is None:
                try:
                    if self._connection is None or self._connected_id != self._broker_id:
                        await self._connect()
                    self._fill()
                except (OrbitMQError, RemotingError) as error:
                    self._failure = error
            if chunks:
                if self._connection is not None:
                    # The loop may not run until the next call.
                    self._connection.flush()
                return chunks
            if self._failure is None:
                await self._wait()
            if self._failure is not None and not self._has_ready():
                await self._recover(self._failure)

    def close(self) -> None:
        """Stop. Responses in flight are discarded."""
        self._drop_segments()
        self._returned_to = self._cut = self._end

    # Segments

    def _ready_chunks(self) -> list[RecordChunk]:
        """Remove and return the chunks that are next in order."""
        chunks: list[RecordChunk] = []
        segments = self._segments
        before = self._returned_to
        while segments:
            head = segments[0]
            if head.chunks:
                chunks += head.chunks
                head.chunks = []
            # Its last pull may have scanned beyond the segment.
            self._returned_to = min(head.at, head.end)
            if head.at < head.end:
                break
            segments.popleft()
        if chunks:
            self._buffered -= sum([len(chunk.body) for chunk in chunks])
        if self._returned_to > before:
            self._failing_since, self._pause = None, 0.0
        return chunks

    def _has_ready(self) -> bool:
        return bool(self._segments) and self._segments[0].at > self._returned_to

    def _fill(self) -> None:
        """Start pulls up to the limits."""
        if self._deferred:
            for number, segment in enumerate(self._segments):
                if segment.is_deferred and (number == 0 or self._buffered < MAX_BUFFERED_BYTES // 2):
                    segment.is_deferred = False
                    self._deferred -= 1
                    self._pull(segment)
        most = min(self._reader.window, FIRST_SEGMENTS + self._answers)
        if self._answer_bytes:
            most = min(most, max(2, int(MAX_BYTES_IN_FLIGHT / self._answer_bytes)))
        if self._returned_to < self._alone_until:
            most = 1
        while self._cut < self._end and self._in_flight < most and self._buffered < MAX_BUFFERED_BYTES:
            segment = _Segment(self._cut, min(self._cut + int(self._span), self._end))
            self._cut = segment.end
            self._segments.append(segment)
            self._pull(segment)

    def _pull(self, segment: _Segment) -> None:
        connection, reader, at = self._connection, self._reader, segment.at
        assert connection is not None
        segment.asked = asked = reader.batch if reader.is_filtered else min(reader.batch, segment.end - at)
        opaque = connection.next_opaque()
        answer = connection.exchange(opaque, self._pulls.request(at, asked, opaque), _NO_TIME_OUT)
        segment.answer = answer
        self._in_flight += 1
        answer.add_done_callback(functools.partial(self._on_response, segment))

    def _drop_segments(self) -> None:
        for segment in self._segments:
            segment.is_dropped = True
            if segment.answer is not None:
                segment.answer.cancel()
        self._segments.clear()
        self._cut = self._returned_to
        self._in_flight = self._deferred = self._buffered = 0

    # Responses

    def _on_response(self, segment: _Segment, future: asyncio.Future[Command]) -> None:
        if future.cancelled():
            return
        # Retrieved in any case: the loop logs exceptions that were never retrieved.
        failure = future.exception()
        if segment.is_dropped:
            return
        self._in_flight -= 1
        segment.answer = None
        is_head = segment is self._segments[0]
        if self._failure is None:
            try:
                if failure is not None:
                    raise failure
                self._add(segment, future.result())
                if segment.at < segment.end:
                    self._continue(segment, is_head)
            except (OrbitMQError, RemotingError, ProtocolError) as error:
                self._failure, self._failed_at = error, segment.at
        woken = self._woken
        if woken is not None and not woken.done() and (is_head or self._failure is not None):
            woken.set_result(None)

    def _add(self, segment: _Segment, answer: Command) -> None:
        at = segment.at
        body, after, self._broker_id = self._pulls.read(answer, at)
        if body:
            size = len(body)
            segment.chunks.append(RecordChunk(body, at, min(after, segment.end)))
            self._buffered += size
            self._answer_bytes += (size - self._answer_bytes) / 8 if self._answer_bytes else size
        self._answers += 1
        segment.at = after
        self._adapt_segment_length(after - at, segment.asked)

    def _continue(self, segment: _Segment, is_head: bool) -> None:
        if is_head or self._buffered < MAX_BUFFERED_BYTES:
            self._pull(segment)
        else:
            segment.is_deferred = True
            self._deferred += 1

    def _adapt_segment_length(self, advanced: int, asked: int) -> None:
        """Adapt the length of the next segments to a response."""
        most = self._reader.batch
        if self._reader.is_filtered:
            wanted = min(max(PULLS_PER_SEGMENT * advanced, most), 2 * PULLS_PER_SEGMENT * FILTER_SCAN_SIZE)
            self._span += (wanted - self._span) / 8
        elif advanced < asked:
            # Large messages, or a broker that reads from disk and then returns less per pull.
            self._span, self._in_full = float(advanced), 0
        elif self._span < most:
            self._in_full += 1
            if self._in_full >= GROW_AFTER:
                self._span, self._in_full = min(self._span * 2, float(most)), 0

    # Waiting and retries

    async def _connect(self) -> None:
        queue, instance = self._queue, self._reader.instance
        self._connected_id = self._broker_id
        address = instance.address(queue.topic, queue.broker_name, self._broker_id, only_this=False)
        if address is None:
            address = await broker_address(instance, queue)
        self._connection = await instance.connection(address)

    async def _wait(self) -> None:
        """Wait for a chunk that is next in order, or a failure."""
        self._woken = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._reader.timeout):
                await self._woken
        except TimeoutError:
            connection = self._connection
            assert connection is not None
            self._reader.instance.doubt(connection)
            self._failure = CallTimeoutError(
                f"{connection.remote_address} has not responded for {self._reader.timeout:g} s"
            )
        finally:
            self._woken = None

    async def _recover(self, failure: Exception) -> None:
        """Restart behind the returned chunks; raise if the failure is final or the time is up."""
        self._drop_segments()
        self._failure, self._connection, self._broker_id, self._answers = None, None, MASTER, 0
        if isinstance(failure, OffsetsLostError | TransientPullError) and self._failed_at > self._returned_to:
            # Responses arrive in any order. The first missing offset is the one to report.
            self._alone_until = self._failed_at
            return
        if isinstance(failure, OffsetsLostError) and failure.first <= self._returned_to:
            raise failure
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + min(self._reader.retry_seconds, max_retry_seconds(failure)) - now
        if left <= 0:
            raise self._final_error(failure) from failure
        log.debug("range read: %s failed at %d, will retry: %s", self._queue, self._returned_to, failure)
        # The first retry is immediate: an idle connection may just have been closed.
        await asyncio.sleep(min(self._pause, left))
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), MAX_PAUSE)
        if isinstance(failure, OffsetsLostError | TransientPullError):
            return
        try:
            # The broker may have another address by now.
            await self._reader.instance.refresh(self._queue.topic)
        except (OrbitMQError, RemotingError) as error:
            log.debug("route: refresh of %s failed: %s", self._queue.topic, error)

    def _final_error(self, failure: Exception) -> Exception:
        if isinstance(failure, TransientPullError) and failure.lost is not None:
            return failure.lost
        if isinstance(failure, BrokerError | OffsetsLostError):
            return failure
        queue = self._queue
        return OrbitMQError(
            f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} cannot be read any further than to "
            f"{self._returned_to}: {failure}"
        )
