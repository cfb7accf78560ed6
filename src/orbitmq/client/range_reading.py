"""Reading ranges of queues at full speed: many pulls on their way at a time, their answers handed out in order.

A range is cut in lanes. Every lane pulls from its begin to its end, one pull after the other, and many lanes do so
at the same time over one connection. Unfiltered, a lane is what one pull is expected to bring, so that it mostly
takes one; filtered, a pull may look at hundreds of messages for a few, and a lane is some such pulls long.

Nothing here looks into messages: answers are handed on as they come.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import BrokerError, InvalidMessageError, OffsetsLostError, OrbitMQError
from orbitmq.client.offset_store import broker_address
from orbitmq.client.range_answers import PassingError, RangePulls, seconds_of_hope
from orbitmq.client.routes import MASTER
from orbitmq.filter import TAG, FilterError, compile_subscription
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP
from orbitmq.remoting import CallTimeoutError, RemotingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

WINDOW = 64
"""Lanes at a time. 64 pulls of 32 messages each keep a broker busy over a network with a round trip of some
milliseconds, and while the reader does something else for as long; many more made both sides slower."""
BATCH = 1024
"""Messages asked for by one pull. OrbitMQ's brokers give as many as fit into 256 KiB; RocketMQ's give 32, unless
they are configured to give more, and are then asked for no more."""
RETRY_SECONDS = 60.0
ANSWER_SECONDS = 10.0
"""Without any answer for so long, a connection is given up."""

FIRST_LANES = 8
"""Until answers say how large they are: a message may have megabytes."""
HELD_BYTES = 16 << 20
"""Of answers that wait for their turn."""
FLYING_BYTES = 4 << 20
"""Of answers on their way, if they are as large as those before: more of them only wait in the broker's memory."""
SCANNED = 800
"""Messages that a broker looks at for one filtered pull: 16,000 bytes of its queue."""
LANE_PULLS = 4
"""Pulls of a filtered lane: the last one looks further than the lane goes, and that is for nothing."""
SURE_AFTER = 64
"""So many pulls in a row that bring all they ask for make the next ones ask for more."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
"""Seconds between attempts."""

_NO_TIME_OUT = 86400.0 * 365
"""For the connection, which cannot know that its loop stood still while the reader did something else."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRange:
    """Messages of a queue: from ``start`` up to, but without, ``end``."""

    queue: MessageQueue
    start: int
    end: int


@dataclasses.dataclass(slots=True)
class Piece:
    """One answer: stored records one after the other, of which those from ``first`` to before ``last`` are meant.

    There may be others around them: of a filtered pull that looked further, or of a batch that began earlier.
    """

    body: bytes
    first: int
    last: int


class RangeReader:
    """Reads ranges of queues, each with the same filter and in the name of the same group.

    Brokers compare hashes of tags, so that now and then a message comes with another tag of the same hash.
    ``retry_seconds`` is for how long it is tried to get any further before it is given up; ``timeout`` for how long
    one answer is waited for.
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
        """Raises InvalidMessageError, also for a filter that cannot be read."""
        if window < 1 or batch < 1:
            raise InvalidMessageError(f"window and batch must be 1 or more, not {window} and {batch}")
        try:
            self.is_filtered = not compile_subscription(expression_type, expression).matches_all
        except FilterError as error:
            raise InvalidMessageError(f"the filter {expression!r} cannot be read: {error}") from error
        self.instance = instance
        self.group = group
        self.expression = expression
        self.expression_type = expression_type
        self.window = window
        self.batch = batch
        self.timeout = timeout
        self.retry_seconds = retry_seconds

    def reading(self, of: QueueRange) -> RangeReading:
        """A reading that is stepped through by hand, and has to be closed."""
        return RangeReading(self, of)

    async def pieces(self, of: QueueRange) -> AsyncIterator[Piece]:
        """All of a range, in the order of offsets. Raises OffsetsLostError and other OrbitMQErrors."""
        reading = self.reading(of)
        try:
            while pieces := await reading.some():
                for piece in pieces:
                    yield piece
        finally:
            reading.close()


class _Lane:
    """A part of a range that is pulled on its own."""

    __slots__ = ("answer", "asked", "at", "end", "is_dropped", "is_parked", "pieces")

    def __init__(self, at: int, end: int) -> None:
        self.at = at
        """The offset of the next pull, or of the one that is on its way."""
        self.end = end
        self.asked = 0
        self.pieces: list[Piece] = []
        self.answer: asyncio.Future[Command] | None = None
        self.is_parked = False
        """Whether its next pull waits until something is handed out."""
        self.is_dropped = False


class RangeReading:
    """One range that is being read. ``some`` is called again and again until it gives nothing."""

    def __init__(self, reader: RangeReader, of: QueueRange) -> None:
        self._reader = reader
        self._queue = of.queue
        self._given = of.start
        """All before this was handed out."""
        self._cut = of.start
        """Where the next lane begins."""
        self._end = of.end
        self._pulls = RangePulls(
            reader.group,
            of.queue,
            of.end,
            expression=reader.expression,
            expression_type=reader.expression_type,
            is_filtered=reader.is_filtered,
        )
        self._lanes: collections.deque[_Lane] = collections.deque()
        self._flying = 0
        self._parked = 0
        self._held = 0
        """Bytes that came and wait for their turn."""
        self._answers = 0
        self._answer_bytes = 0.0
        """What an answer has, on the average of the last ones."""
        self._span = float(SCANNED if reader.is_filtered else reader.batch)
        """The length of the next lane."""
        self._in_full = 0
        """Pulls in a row that brought all they asked for."""
        self._broker_id = MASTER
        """The replica that is to be asked, and the one that is."""
        self._connected_id = MASTER
        self._connection: Connection | None = None
        self._failure: Exception | None = None
        self._failed_at = of.start
        """The offset of the pull that failed."""
        self._alone_until = of.start
        """Up to here one lane at a time: something was missing there, and what comes before it decides first."""
        self._failing_since: float | None = None
        self._pause = 0.0
        self._woken: asyncio.Future[None] | None = None

    async def some(self) -> list[Piece]:
        """What has come, in order; waits until something has. Nothing is the end of the range.

        When it returns, further pulls are on their way already. Raises OffsetsLostError and other OrbitMQErrors.
        """
        while True:
            pieces = self._take()
            if self._given >= self._end:
                return pieces
            if self._failure is None:
                try:
                    if self._connection is None or self._connected_id != self._broker_id:
                        await self._connect()
                    self._fill()
                except (OrbitMQError, RemotingError) as error:
                    self._failure = error
            if pieces:
                if self._connection is not None:
                    # Nothing may run on this loop until the next call.
                    self._connection.flush()
                return pieces
            if self._failure is None:
                await self._wait()
            if self._failure is not None and not self._has_ready():
                await self._recover(self._failure)

    def close(self) -> None:
        """Wait for nothing any more. What is on its way will be thrown away."""
        self._drop_lanes()
        self._given = self._cut = self._end

    # Lanes

    def _take(self) -> list[Piece]:
        """Hand out what is ready."""
        pieces: list[Piece] = []
        lanes = self._lanes
        before = self._given
        while lanes:
            head = lanes[0]
            if head.pieces:
                pieces += head.pieces
                head.pieces = []
            # Its last pull may have looked further, for nothing.
            self._given = min(head.at, head.end)
            if head.at < head.end:
                break
            lanes.popleft()
        if pieces:
            self._held -= sum([len(piece.body) for piece in pieces])
        if self._given > before:
            self._failing_since, self._pause = None, 0.0
        return pieces

    def _has_ready(self) -> bool:
        return bool(self._lanes) and self._lanes[0].at > self._given

    def _fill(self) -> None:
        """Let as many lanes pull as there may be."""
        if self._parked:
            for number, lane in enumerate(self._lanes):
                if lane.is_parked and (number == 0 or self._held < HELD_BYTES // 2):
                    lane.is_parked = False
                    self._parked -= 1
                    self._pull(lane)
        most = min(self._reader.window, FIRST_LANES + self._answers)
        if self._answer_bytes:
            most = min(most, max(2, int(FLYING_BYTES / self._answer_bytes)))
        if self._given < self._alone_until:
            most = 1
        while self._cut < self._end and self._flying < most and self._held < HELD_BYTES:
            lane = _Lane(self._cut, min(self._cut + int(self._span), self._end))
            self._cut = lane.end
            self._lanes.append(lane)
            self._pull(lane)

    def _pull(self, lane: _Lane) -> None:
        connection, reader, at = self._connection, self._reader, lane.at
        assert connection is not None
        lane.asked = asked = reader.batch if reader.is_filtered else min(reader.batch, lane.end - at)
        opaque = connection.next_opaque()
        answer = connection.exchange(opaque, self._pulls.request(at, asked, opaque), _NO_TIME_OUT)
        lane.answer = answer
        self._flying += 1
        answer.add_done_callback(functools.partial(self._came, lane))

    def _drop_lanes(self) -> None:
        for lane in self._lanes:
            lane.is_dropped = True
            if lane.answer is not None:
                lane.answer.cancel()
        self._lanes.clear()
        self._cut = self._given
        self._flying = self._parked = self._held = 0

    # Answers

    def _came(self, lane: _Lane, future: asyncio.Future[Command]) -> None:
        if future.cancelled():
            return
        # Asked for even if nobody needs it any more: the loop complains of errors that nobody has seen.
        failure = future.exception()
        if lane.is_dropped:
            return
        self._flying -= 1
        lane.answer = None
        is_head = lane is self._lanes[0]
        if self._failure is None:
            try:
                if failure is not None:
                    raise failure
                self._enter(lane, future.result())
                if lane.at < lane.end:
                    self._go_on(lane, is_head)
            except (OrbitMQError, RemotingError, ProtocolError) as error:
                self._failure, self._failed_at = error, lane.at
        woken = self._woken
        if woken is not None and not woken.done() and (is_head or self._failure is not None):
            woken.set_result(None)

    def _enter(self, lane: _Lane, answer: Command) -> None:
        at = lane.at
        body, after, self._broker_id = self._pulls.read(answer, at)
        if body:
            size = len(body)
            lane.pieces.append(Piece(body, at, min(after, lane.end)))
            self._held += size
            self._answer_bytes += (size - self._answer_bytes) / 8 if self._answer_bytes else size
        self._answers += 1
        lane.at = after
        self._learn(after - at, lane.asked)

    def _go_on(self, lane: _Lane, is_head: bool) -> None:
        if is_head or self._held < HELD_BYTES:
            self._pull(lane)
        else:
            lane.is_parked = True
            self._parked += 1

    def _learn(self, advanced: int, asked: int) -> None:
        """How long the next lanes should be."""
        most = self._reader.batch
        if self._reader.is_filtered:
            wanted = min(max(LANE_PULLS * advanced, most), 2 * LANE_PULLS * SCANNED)
            self._span += (wanted - self._span) / 8
        elif advanced < asked:
            # Large messages, or a broker that reads them from its disk and then gives less at a time.
            self._span, self._in_full = float(advanced), 0
        elif self._span < most:
            self._in_full += 1
            if self._in_full >= SURE_AFTER:
                self._span, self._in_full = min(self._span * 2, float(most)), 0

    # Waiting and trying again

    async def _connect(self) -> None:
        queue, instance = self._queue, self._reader.instance
        self._connected_id = self._broker_id
        address = instance.address(queue.topic, queue.broker_name, self._broker_id, only_this=False)
        if address is None:
            address = await broker_address(instance, queue)
        self._connection = await instance.connection(address)

    async def _wait(self) -> None:
        """Until something has come that can be handed out, or has failed."""
        self._woken = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._reader.timeout):
                await self._woken
        except TimeoutError:
            connection = self._connection
            assert connection is not None
            self._reader.instance.doubt(connection)
            self._failure = CallTimeoutError(
                f"{connection.remote_address} has not answered for {self._reader.timeout:g} s"
            )
        finally:
            self._woken = None

    async def _recover(self, failure: Exception) -> None:
        """Begin again behind what was handed out; raise if there is no hope for that, or no more time."""
        self._drop_lanes()
        self._failure, self._connection, self._broker_id, self._answers = None, None, MASTER, 0
        if isinstance(failure, OffsetsLostError | PassingError) and self._failed_at > self._given:
            # Brokers answer in any order. The first offset that is missing is the one to tell of.
            self._alone_until = self._failed_at
            return
        if isinstance(failure, OffsetsLostError) and failure.first <= self._given:
            raise failure
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        left = self._failing_since + min(self._reader.retry_seconds, seconds_of_hope(failure)) - now
        if left <= 0:
            raise self._given_up(failure) from failure
        log.debug("reading %s goes on soon at %d: %s", self._queue, self._given, failure)
        # The first time at once: a connection that was not used for a while may just have been closed.
        await asyncio.sleep(min(self._pause, left))
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        if isinstance(failure, OffsetsLostError | PassingError):
            return
        try:
            # The broker may be somewhere else by now.
            await self._reader.instance.refresh(self._queue.topic)
        except (OrbitMQError, RemotingError) as error:
            log.debug("the route of %s cannot be refreshed: %s", self._queue.topic, error)

    def _given_up(self, failure: Exception) -> Exception:
        if isinstance(failure, PassingError) and failure.lost is not None:
            return failure.lost
        if isinstance(failure, BrokerError | OffsetsLostError):
            return failure
        queue = self._queue
        return OrbitMQError(
            f"queue {queue.queue_id} of {queue.topic!r} on {queue.broker_name} cannot be read any further than to "
            f"{self._given}: {failure}"
        )
