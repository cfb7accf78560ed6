"""The stream reader of topics: the end of each micro-batch, and queues that appear, vanish or lose messages."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from orbitmq.client.errors import OrbitMQError
from orbitmq.client.query.range_reader import QueueRange
from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.errors import DataLossError, OptionError
from orbitmq.spark.topic_source.offset_bounds import OffsetBound
from orbitmq.spark.topic_source.offsets import Position, described
from orbitmq.spark.topic_source.partition_reader import QueueRangeReader
from orbitmq.spark.topic_source.partitioning import shared, split
from orbitmq.spark.topic_source.subscribed_queues import TopicQueues

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.schema.row_schema import RowSchema
    from orbitmq.spark.topic_source.offsets import Offsets
    from orbitmq.spark.topic_source.options import SourceOptions

log = logging.getLogger("orbitmq.spark")

POLL_SECONDS = 0.5
"""The poll interval for a missing queue that a query cannot end without."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics batch by batch. One instance plans all batches of a query; others read in the tasks."""

    def __init__(self, options: SourceOptions, shape: RowSchema) -> None:
        self._options = options
        self._reading = QueueRangeReader(options, shape)
        self._queues = TopicQueues(options)
        self._first: Position | None = None
        self._latest: Offsets = {}
        """The last known ends of all queues."""
        self._ends_now = False
        self._target: Mapping[MessageQueue, int] | None = None
        """The end of a query with ``Trigger.AvailableNow``."""
        self._away_since: dict[MessageQueue, float] = {}
        self._reported: set[MessageQueue] = set()
        """Missing queues that were logged."""
        self._committed: Offsets = {}
        self._planned_at: float | None = None
        self._idle_since: float | None = None

    # Start and limits

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raises OrbitMQError."""
        if self._first is None:
            with plain_errors:
                self._first = self._start()
        return self._first.to_json()

    def _start(self) -> Position:
        options = self._options
        assert options.starting is not None
        bounds = self._queues.existing_bounds()
        self._queues.check_filter(bounds)
        side = OffsetBound("startingOffsets", options.starting, options.late_start, options.fail_on_data_loss)
        log.info("stream of %s: started with %d queues", options.subscribed, len(bounds))
        return Position(side.resolve(self._queues.cluster, bounds), is_first=True)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._ends_now = True

    # The end of the next batch

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises OrbitMQError."""
        self._rest()
        with plain_errors:
            end = self._next(self._checked(Position.of_json(start)), limit)
        self._idle_since = time.monotonic() if end is None else None
        return start if end is None else end.to_json()

    def _next(self, at: Position, limit: ReadLimit) -> Position | None:
        """The end of the next batch; None if there is none."""
        bounds = self._bounds(at)
        # Not only when Spark calls commit: after the last batch of a query it does not.
        self._commit(at, bounds)
        self._latest = {**at.next, **{queue: ends.max for queue, ends in bounds.items()}}
        begins, available = self._to_read(at, bounds)
        ends = self._limited(begins, available, limit)
        if ends is None or ends == at.next:
            return None
        self._planned_at = time.monotonic()
        began = at.next if at.is_first else {}
        moved = {queue: begin for queue, begin in begins.items() if at.next.get(queue) != begin}
        return Position(ends, {**began, **moved})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return Position(self._latest).to_json()

    def _rest(self) -> None:
        """Throttle an idle stream: Spark asks for offsets a hundred times a second."""
        if self._idle_since is not None:
            time.sleep(max(self._idle_since + self._options.poll_seconds - time.monotonic(), 0))

    def _checked(self, at: Position) -> Position:
        """The position without topics that are not subscribed. Raises OptionError with ``failOnDataLoss``."""
        foreign = sorted(topic for topic in at.topics() if not self._options.subscribed.wants_topic(topic))
        if not foreign:
            return at
        names = ", ".join(map(repr, foreign))
        what = f"the checkpoint belongs to {names}, and {self._options.subscribed} is subscribed"
        if self._options.fail_on_data_loss:
            raise OptionError(f"{what}: take the checkpointLocation of this query, or a new one")
        log.warning("stream: ignoring topics of the checkpoint: %s", what)
        return Position(
            {queue: offset for queue, offset in at.next.items() if queue.topic not in foreign},
            {queue: offset for queue, offset in at.began.items() if queue.topic not in foreign},
            at.is_first,
        )

    def _bounds(self, at: Position) -> dict[MessageQueue, Bounds]:
        """The queues that exist. Those of a position may be missing for ``retrySeconds``."""
        while True:
            bounds = self._queues.bounds()
            now = time.monotonic()
            away = {
                queue: "is not there"
                if queue not in bounds
                else f"ends at {bounds[queue].max}, before the offset {offset} that the query has reached"
                for queue, offset in at.next.items()
                if queue not in bounds or bounds[queue].max < offset
            }
            self._away_since = {queue: self._away_since.get(queue, now) for queue in away}
            self._reported &= away.keys()
            for_long = [
                queue for queue, since in self._away_since.items() if now - since >= self._options.retry_seconds
            ]
            self._give_up({queue: away[queue] for queue in for_long})
            if not self._ends_now or len(for_long) == len(away):
                return bounds
            # A query with Trigger.AvailableNow must not end without these.
            time.sleep(min(POLL_SECONDS, self._options.retry_seconds))

    def _give_up(self, away: Mapping[MessageQueue, str]) -> None:
        new = {queue: what for queue, what in away.items() if queue not in self._reported}
        if not new:
            return
        queue, what = min(new.items())
        others = f", nor are {len(new) - 1} more as they were" if len(new) > 1 else ""
        reason = f"{described([queue])} {what}{others}, and that for {self._options.retry_seconds:g} s"
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{reason}: its topic was deleted or recreated, or its broker is down; with failOnDataLoss=false a "
                "query goes on with what is left"
            )
        log.warning("stream: queue missing, continuing without it: %s", reason)
        self._reported |= new.keys()

    def _to_read(self, at: Position, bounds: Mapping[MessageQueue, Bounds]) -> tuple[Offsets, Offsets]:
        """The start and the end of each queue, without limits."""
        if self._ends_now and self._target is None:
            self._target = {queue: ends.max for queue, ends in bounds.items()}
        begins = dict(at.next)
        ends = dict(at.next)
        for queue, there in bounds.items():
            end = there.max
            if self._target is not None:
                if queue not in self._target:
                    continue  # came after everything was counted
                end = min(end, self._target[queue])
            # A new queue is read from its oldest message.
            begin = at.next.get(queue, there.min)
            if begin < there.min:
                self._lose(queue, begin, there.min)
                begin = there.min
            if there.max < begin:
                if queue not in self._reported:
                    continue
                begin = there.max
            begins[queue] = begin
            ends[queue] = max(begin, end)
        return begins, ends

    def _lose(self, queue: MessageQueue, first: int, left: int) -> None:
        reason = f"the offsets {first} to {left - 1} of {described([queue])} were deleted before they were read"
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{reason}; with failOnDataLoss=false a query goes on with what is left")
        log.warning("stream: messages expired, skipping them: %s", reason)

    def _limited(self, begins: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets | None:
        """The ends within the limit; None if there are too few messages for a batch."""
        if isinstance(limit, ReadAllAvailable):
            return ends
        sizes = {queue: ends[queue] - begins[queue] for queue in ends}
        total = sum(sizes.values())
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.min_offsets
        if least is not None and total < least and not self._ends_now and not self._has_waited():
            return None
        if isinstance(limit, ReadMaxRows):
            parts = shared(limit.max_rows, sizes)
            return {queue: begins[queue] + parts[queue] for queue in ends}
        return ends

    def _has_waited(self) -> bool:
        """True if ``maxTriggerDelay`` has passed since the last batch."""
        if self._planned_at is None:
            return True
        return time.monotonic() - self._planned_at >= self._options.max_trigger_delay

    # Partitions of a batch

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Deterministic: the same offsets have the same partitions. Raises OrbitMQError."""
        with plain_errors:
            begin, stop = self._checked(Position.of_json(start)), self._checked(Position.of_json(end))
        options = self._options
        ranges = split(
            begin.ranges_to(stop),
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        log.info(
            "batch of %s: %d offsets of %d queues in %d partitions; expression %s",
            options.subscribed,
            sum(one.end - one.start for one in ranges),
            len({one.queue for one in ranges}),
            len(ranges),
            self._reading.expression_text,
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises OrbitMQError."""
        assert isinstance(partition.value, QueueRange)
        with plain_errors:
            yield from self._reading.read(partition.value)

    # Commit

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets of the group. A failure is logged and does not end the query."""
        with plain_errors:
            at = Position.of_json(end)
        self._commit(at, at.next)

    def _commit(self, at: Position, there: Collection[MessageQueue]) -> None:
        group = self._options.group
        if group is None or at.is_first:
            return
        news = {
            queue: offset
            for queue, offset in at.next.items()
            if queue in there and self._committed.get(queue) != offset
        }
        if not news:
            return
        self._committed |= news
        try:
            self._queues.cluster.commit(group, news)
        except OrbitMQError as error:
            log.warning("stream: commit of group %s failed: %s", group, error)
