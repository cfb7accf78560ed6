"""The work of a task: pull a range of a queue, filter it, and pass it to Spark as Arrow batches."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import In

from orbitmq.client.errors import OffsetsLostError
from orbitmq.client.query.range_reader import QueueRange, RecordChunk
from orbitmq.filter import TAG
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.record import MIN_RECORD_SIZE
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import DataLossError, SparkSourceError
from orbitmq.spark.records.records import Records
from orbitmq.spark.records.to_arrow import BATCH_BYTES, BATCH_ROWS, has_key
from orbitmq.spark.schema.row_schema import RowBuilder
from orbitmq.spark.sessions.worker_warmup import settle
from orbitmq.spark.topic_source.offsets import described
from orbitmq.spark.topic_source.pushdown import RowFilter, Test
from orbitmq.spark.topic_source.single_use import check_single_use

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.schema.row_schema import RowSchema
    from orbitmq.spark.topic_source.options import SourceOptions

log = logging.getLogger("orbitmq.spark")
if log.level == logging.NOTSET:
    # Logging is not set up in Spark's processes. If Spark collects it (spark.sql.pyspark.worker.logging.enabled),
    # the requests to the cluster are in it; otherwise only warnings are printed, whatever this level is.
    log.setLevel(logging.INFO)

MAX_TAGS = 64
"""The maximum number of tags in a subscription, which is sent with every pull."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRangeReader:
    """Reads ranges of queues. It is pickled at the driver and used in the tasks."""

    options: SourceOptions
    shape: RowSchema
    row_filter: RowFilter = dataclasses.field(default_factory=RowFilter)
    plan_id: str | None = None
    """Set with a filter, for the guard of ``pushFilters=once``."""

    @property
    def wanted_tags(self) -> frozenset[str] | None:
        """The tags that messages must have; None for any."""
        subscribed, chosen = self.options.tags, self.row_filter.choice("tags")
        if subscribed is None or chosen is None:
            return chosen if subscribed is None else subscribed
        return subscribed & chosen

    @property
    def expression(self) -> str:
        """The filter expression of the pulls."""
        tags = self.wanted_tags
        if self.options.expression_type != TAG or not tags or len(tags) > MAX_TAGS:
            return self.options.expression
        if not all(tag == tag.strip() and tag not in {"", "*"} and "||" not in tag for tag in tags):
            return self.options.expression
        return " || ".join(sorted(tags))

    @property
    def expression_text(self) -> str:
        """The expression for log lines."""
        expression = self.expression
        return "everything" if expression == "*" else f"{self.options.expression_type} {expression}"

    def read(self, of: QueueRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range. Raises OrbitMQError."""
        settle()
        if self.plan_id is not None:
            check_single_use(self.plan_id)
        rows = RowBuilder(self.shape)
        checks = self._checks()
        messages = size = given = 0
        queue = of.queue
        with contextlib.closing(self._chunks(of)) as chunks:
            for chunk in _gathered(chunks):
                size += len(chunk.body)
                records = self._cut(chunk, queue, checks)
                messages += len(records)
                for batch in rows.batches(records, queue):
                    given += batch.num_rows
                    yield batch
        log.info(
            "%s: %d messages of the offsets %d to %d, %d bytes for %s; %d rows of them",
            described([queue]), messages, of.start, of.end - 1, size, self.expression_text, given,
        )  # fmt: skip

    def _checks(self) -> RowFilter:
        """The filters for each message. Those on topic, broker and queue hold for the whole range."""
        checks = self.row_filter.without("topic", "broker", "queue_id")
        tags = self.options.tags
        # Brokers compare only hashes of tags.
        named = () if tags is None else (Test("tags", In(("tags",), tuple(sorted(tags)))),)
        return RowFilter((*checks.tests, *named))

    def _chunks(self, of: QueueRange) -> Generator[RecordChunk]:
        """The pulled chunks of a range. Expired messages are skipped unless ``failOnDataLoss`` is set."""
        cluster = Cluster.of(self.options.nameserver, retry_seconds=self.options.retry_seconds)
        start = of.start
        while start < of.end:
            try:
                yield from cluster.read(
                    QueueRange(of.queue, start, of.end),
                    group=self.options.pull_group,
                    expression=self.expression,
                    expression_type=self.options.expression_type,
                )
                return
            except OffsetsLostError as lost:
                if self.options.fail_on_data_loss:
                    raise DataLossError(
                        f"{lost}; with failOnDataLoss=false a query goes on with what is left"
                    ) from None
                log.warning("reader: messages expired, skipping them: %s", lost)
                start = lost.next_readable

    def _cut(self, chunk: RecordChunk, queue: MessageQueue, checks: RowFilter) -> Records:
        """The records of a chunk that are in its range and match the filters."""
        try:
            records = Records.of(chunk.body)
        except ProtocolError as error:
            raise SparkSourceError(f"{described([queue])} contains a damaged message: {error}") from None
        offsets = records.queue_offset
        # Responses overlap: a record that was in the previous one is dropped.
        new = np.ones(len(offsets), np.bool_)
        np.greater(offsets[1:], np.maximum.accumulate(offsets)[:-1], out=new[1:])
        records = _taken(records, new & (offsets >= chunk.first) & (offsets < chunk.last))
        if checks and len(records):
            mask = checks.mask(records, broker=queue.broker_name, topic=queue.topic)
            if mask is not None:
                records = _taken(records, mask)
        if self.options.keys is not None and len(records):
            records = _taken(records, has_key(records, self.options.keys))
        return records


def _taken(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    return records if bool(mask.all()) else records.take(mask)


def _gathered(chunks: Iterator[RecordChunk]) -> Iterator[RecordChunk]:
    """Joins responses until they fill a batch."""
    some: list[RecordChunk] = []
    size = rows = 0
    for chunk in chunks:
        some.append(chunk)
        size += len(chunk.body)
        rows += min(chunk.last - chunk.first, len(chunk.body) // MIN_RECORD_SIZE)
        if size >= BATCH_BYTES or rows >= BATCH_ROWS:
            yield _joined(some)
            some, size, rows = [], 0, 0
    if size:
        yield _joined(some)


def _joined(some: list[RecordChunk]) -> RecordChunk:
    return RecordChunk(b"".join([chunk.body for chunk in some]), some[0].first, some[-1].last)
