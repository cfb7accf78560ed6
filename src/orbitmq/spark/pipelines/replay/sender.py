"""The sender task of a replay: sends due messages in order, and returns statistics.

All senders begin at the same moment, for they are a barrier stage: each has its first rows at hand, which takes the
sorting of them all, before any of them begins. The tasks of such a stage are never run a second time on their own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.pipelines.replay.pacer import Lateness
from orbitmq.spark.pipelines.replay.properties import ReplayEncoder
from orbitmq.spark.pipelines.replay.rows import DUE
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.sessions.worker_warmup import settle
from orbitmq.spark.sink.chunker import Chunker
from orbitmq.spark.sink.connection import connected
from orbitmq.spark.sink.message_ids import Origin
from orbitmq.spark.sink.row_encoder import Rows
from orbitmq.spark.sink.sender import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from orbitmq.spark.pipelines.replay.pacer import Numbers, Pacing, Seconds
    from orbitmq.spark.sink.chunker import Chunk
    from orbitmq.spark.sink.options import SinkOptions

TICK = 0.005
"""Seconds of messages that go together. A request costs about as much as a hundred messages."""
MAX_AT_ONCE = 8192
"""Rows that are looked at together by a sender that is late."""
START_SECONDS = 1.5
"""From the moment at which the last sender is ready to the common start: to Spark's barrier it is one second until
everybody knows."""
MAX_SLEEP = 0.5
ENDING_SECONDS = 30.0
IN_FLIGHT = 32
"""Maximum number of chunks without an answer; of each queue only the oldest is in flight."""

STATISTICS = "sender int, sent bigint, bytes bigint, first_s double, last_s double, lateness array<bigint>"
"""What a task gives back, in one row. Times are seconds after the common start."""
_ARROW = pa.schema(
    [
        ("sender", pa.int32()),
        ("sent", pa.int64()),
        ("bytes", pa.int64()),
        ("first_s", pa.float64()),
        ("last_s", pa.float64()),
        ("lateness", pa.list_(pa.int64())),
    ]
)


@dataclasses.dataclass(frozen=True, slots=True)
class SendingTask:
    """The function that Spark calls in each task."""

    options: SinkOptions
    replay: str
    pacings: tuple[Pacing, ...]
    """By sender."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import BarrierTaskContext  # noqa: PLC0415 - units do without Spark

        settle()
        task = BarrierTaskContext.get()
        with plain_errors:
            if task.attemptNumber():
                # What the first attempt has written is found by the next run, and only by that.
                raise PipelineError("a sender of the replay was lost: run it again to go on")
            number = task.partitionId()
            rest = iter(batches)
            first = next(rest, None)
            with connected(self.options) as connection:
                delivery = Delivery(connection, self.options, 0)
                chunker = Chunker(Origin(self.replay, None, number), self.options, connection.queues)
                encoder = ReplayEncoder(self.options, self.replay)
                arrived = [float(text) for text in task.allGather(repr(time.time()))]
                pacing = self.pacings[number]
                sending = PacedSending(
                    lambda chunk: connection.submit(delivery.deliver(chunk, look=False)),
                    pacing,
                    common_start(arrived, pacing),
                )
                with _until_interrupted(sending):
                    try:
                        while first is not None:
                            sending.send(encoder.rows(first, sending.number), _times(first), chunker)
                            first = next(rest, None)
                        sending.finish()
                    except BaseException:
                        # Send nothing more, and wait for requests in flight.
                        delivery.is_over = True
                        sending.abandon()
                        raise
            yield sending.statistics(number)


@contextlib.contextmanager
def _until_interrupted(sending: PacedSending) -> Iterator[None]:
    """Ctrl-C may come to this process too, by a terminal. It stops to send, and Spark ends it by its own rules."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: sending.stop(_InterruptedError()))
    try:
        yield
    except _InterruptedError:
        # The driver cancels this task; an exception raised before that would be reported as a failure.
        time.sleep(ENDING_SECONDS)
        raise PipelineError("the replay was interrupted: run it again to go on") from None
    finally:
        signal.signal(signal.SIGINT, before)


class _InterruptedError(Exception):
    """The task was cancelled."""


def common_start(arrived: Sequence[float], pacing: Pacing) -> float:
    """The common start time by this process's clock; ``arrived`` has the ready times by each machine's clock."""
    begins = max(arrived) + (START_SECONDS if pacing.is_timed else 0.0)
    return time.monotonic() + begins - time.time()


class PacedSending:
    """Passes rows on when they are due. ``begin`` starts a write; the writes of a queue are in order."""

    def __init__(
        self, begin: Callable[[Chunk], concurrent.futures.Future[bool]], pacing: Pacing, start: float
    ) -> None:
        """``start`` is the moment from which on times count, by the clock that only goes forward."""
        self._begin = begin
        self._pacing = pacing
        self._start = start
        self._answers = threading.Condition()
        """They come in the thread of the connection, and change what follows."""
        self._under_way = 0
        self._error: BaseException | None = None
        self._lateness = Lateness()
        self._first: float | None = None
        self._last = 0.0
        self._sent = self._bytes = 0
        self.number = 0
        """How many rows were handed on."""

    def send(self, rows: Rows, times_us: Numbers, chunker: Chunker) -> None:
        """Hand on all of these, each when it is due. Raises OrbitMQError if something cannot be written."""
        due = self._pacing.due(self.number, times_us)
        at = 0
        while at < len(due):
            now = self._now()
            end = min(int(np.searchsorted(due, now, side="right")), at + MAX_AT_ONCE)
            if end <= at:
                # Then some that are due soon after it go with it.
                time.sleep(min(max(float(due[at]) - now, TICK), MAX_SLEEP))
                self._check()
                continue
            together = _Together(due[at:end])
            for chunk in chunker.chunks(part_of(rows, at, end)):
                self._put(chunk, together)
            self.number += end - at
            at = end

    def stop(self, error: BaseException) -> None:
        """Have whatever goes on raise this. May be called by a signal, wherever the thread is."""
        self._error = self._error or error

    def finish(self) -> None:
        """Wait until all is written. Raises OrbitMQError."""
        with self._answers:
            while self._under_way and self._error is None:
                self._answers.wait(MAX_SLEEP)
        self._check()

    def abandon(self) -> None:
        """Wait until nothing is in flight."""
        with self._answers:
            self._answers.wait_for(lambda: not self._under_way, ENDING_SECONDS)

    def statistics(self, sender: int) -> pa.RecordBatch:
        row = {
            "sender": sender,
            "sent": self._sent,
            "bytes": self._bytes,
            "first_s": self._first,
            "last_s": self._last,
            "lateness": self._lateness.counts.tolist(),
        }
        return pa.RecordBatch.from_pylist([row], _ARROW)

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _put(self, chunk: Chunk, together: _Together) -> None:
        rows, size = chunk.rows, chunk.size
        with self._answers:
            while self._under_way >= IN_FLIGHT and self._error is None:
                self._answers.wait(MAX_SLEEP)
            self._check()
            self._under_way += 1
            if self._first is None:
                self._first = self._now()
        self._begin(chunk).add_done_callback(lambda done: self._take(done, rows, size, together))

    def _take(self, done: concurrent.futures.Future[bool], rows: int, size: int, together: _Together) -> None:
        error = concurrent.futures.CancelledError() if done.cancelled() else done.exception()
        with self._answers:
            self._under_way -= 1
            self._answers.notify()
            if error is not None:
                self._error = self._error or error
            else:
                self._sent += rows
                self._bytes += size
                self._last = self._now()
                together.written += rows
                if self._pacing.is_timed and together.written == len(together.due):
                    self._lateness.add(self._last - together.due)


@dataclasses.dataclass(slots=True)
class _Together:
    """Rows with nearly the same due time, for several queues."""

    due: Seconds
    written: int = 0


def part_of(rows: Rows, begin: int, end: int) -> Rows:
    """Some rows of a batch."""
    if begin == 0 and end == len(rows):
        return rows
    count = end - begin

    def cut(column: Any) -> Any:
        return None if column is None else column.slice(begin, count)

    def numbers(column: Any) -> Any:
        return None if column is None else column[begin:end]

    return Rows(
        rows.first + begin,
        rows.topics,
        numbers(rows.topic_codes),
        cut(rows.bodies),
        cut(rows.properties),
        numbers(rows.has_own_id),
        numbers(rows.is_delayed),
        cut(rows.sharding_keys),
        numbers(rows.queue_ids),
        cut(rows.brokers),
    )


def _times(batch: pa.RecordBatch) -> Numbers:
    return np.asarray(batch.column(DUE)).astype(np.int64)
