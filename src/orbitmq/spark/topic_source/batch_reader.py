"""The batch reader of topics: offset ranges, their partitions, and filters that narrow them."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from orbitmq.client.query.range_reader import QueueRange
from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.errors import OptionError
from orbitmq.spark.topic_source.offset_bounds import CLOCK_SLACK_MS, OffsetBound, PerQueue
from orbitmq.spark.topic_source.offsets import described
from orbitmq.spark.topic_source.partition_reader import QueueRangeReader
from orbitmq.spark.topic_source.partitioning import split
from orbitmq.spark.topic_source.pushdown import compile_filters
from orbitmq.spark.topic_source.single_use import new_plan_id
from orbitmq.spark.topic_source.subscribed_queues import TopicQueues

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from orbitmq.spark.schema.row_schema import RowSchema
    from orbitmq.spark.topic_source.options import SourceOptions
    from orbitmq.spark.topic_source.pushdown import RowFilter

log = logging.getLogger("orbitmq.spark")


class TopicBatchReader(DataSourceReader):
    """Reads the messages that exist when a query is planned."""

    def __init__(self, options: SourceOptions, shape: RowSchema) -> None:
        self._options = options
        self._reading = QueueRangeReader(options, shape)

    @property
    def _row_filter(self) -> RowFilter:
        return self._reading.row_filter

    def partitions(self) -> list[InputPartition]:
        """Raises OrbitMQError."""
        options = self._options
        with plain_errors:
            ranges = split(
                self._ranges(),
                min_partitions=options.min_partitions,
                max_records=options.max_records_per_partition,
            )
        log.info(
            "batch of %s: %d offsets of %d queues in %d partitions; expression %s, filters %s",
            options.subscribed,
            sum(one.end - one.start for one in ranges),
            len({one.queue for one in ranges}),
            len(ranges),
            self._reading.expression_text,
            self._row_filter,
        )
        return [InputPartition(one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises OrbitMQError."""
        # Without partitions Spark makes one with the value None.
        if isinstance(partition.value, QueueRange):
            with plain_errors:
                yield from self._reading.read(partition.value)

    def _ranges(self) -> list[QueueRange]:
        """The offset range of each queue."""
        if self._reading.wanted_tags == frozenset():
            return []
        options, wanted = self._options, self._row_filter
        queues = TopicQueues(options)
        bounds = queues.existing_bounds(lambda topic: wanted.allows("topic", topic))
        queues.check_filter(bounds)
        assert options.starting is not None
        assert options.ending is not None
        starting = OffsetBound("startingOffsets", options.starting, options.late_start, options.fail_on_data_loss)
        ending = OffsetBound("endingOffsets", options.ending, "latest", options.fail_on_data_loss)
        starts = starting.resolve(queues.cluster, bounds)
        ends = ending.resolve(queues.cluster, bounds)
        if isinstance(options.starting, PerQueue) and isinstance(options.ending, PerQueue):
            for queue, start in starts.items():
                if start > ends[queue]:
                    raise OptionError(
                        f"startingOffsets is after endingOffsets in {described([queue])}: {start} and {ends[queue]}"
                    )
        low, high = wanted.span("queue_offset")
        found = []
        for queue in bounds:
            if not wanted.allows("broker", queue.broker_name) or not wanted.allows("queue_id", queue.queue_id):
                continue
            start = starts[queue] if low is None else max(starts[queue], low)
            end = ends[queue] if high is None else min(ends[queue], high + 1)
            if start < end:
                found.append(QueueRange(queue, start, end))
        return self._narrowed_by_time(queues, found)

    def _narrowed_by_time(self, queues: TopicQueues, ranges: list[QueueRange]) -> list[QueueRange]:
        low, high = self._row_filter.span("store_timestamp")
        names = [one.queue for one in ranges]
        if low is not None and names:
            starts = queues.cluster.offsets_at(names, max(low // 1000 - CLOCK_SLACK_MS, 0))
            ranges = [dataclasses.replace(one, start=max(one.start, starts[one.queue])) for one in ranges]
        if high is not None and names:
            ends = queues.cluster.offsets_at(names, max(high // 1000 + 1 + CLOCK_SLACK_MS, 0))
            ranges = [dataclasses.replace(one, end=min(one.end, ends[one.queue])) for one in ranges]
        return [one for one in ranges if one.start < one.end]


class FilteringBatchReader(TopicBatchReader):
    """The batch reader that accepts filters of Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Accept the filters that can be applied here, and return the others."""
        row_filter, left = compile_filters(filters, self._reading.shape.columns)
        self._reading = dataclasses.replace(self._reading, row_filter=row_filter, plan_id=new_plan_id())
        log.info("filters pushed down: %s; left to Spark: %s", row_filter, left or "none")
        return left
