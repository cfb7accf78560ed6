"""What a task does: a range of a queue is pulled, cut to what is wanted, and given to Spark as Arrow batches."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import In

from orbitmq.client.errors import OffsetsLostError
from orbitmq.client.range_reading import Piece, QueueRange
from orbitmq.filter import TAG
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.record import MIN_RECORD_SIZE
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.errors import DataLossError, SparkSourceError
from orbitmq.spark.offsets import described
from orbitmq.spark.pushdown import RowFilter, Test
from orbitmq.spark.record_arrow import BATCH_BYTES, BATCH_ROWS, has_key
from orbitmq.spark.records import Records
from orbitmq.spark.row_shape import RowMaking
from orbitmq.spark.worker_memory import settle

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.options import SourceOptions
    from orbitmq.spark.row_shape import RowShape

log = logging.getLogger("orbitmq.spark")
if log.level == logging.NOTSET:
    # Nobody sets up logging in Spark's processes. Where it is collected (spark.sql.pyspark.worker.logging.enabled)
    # what was asked of the cluster is to be found; elsewhere only warnings are shown, whatever this says.
    log.setLevel(logging.INFO)

MOST_TAGS = 64
"""More than these are not asked for by name: a subscription travels with every pull."""


@dataclasses.dataclass(frozen=True, slots=True)
class SliceReading:
    """How ranges are read. Goes from the driver to the tasks."""

    options: SourceOptions
    shape: RowShape
    row_filter: RowFilter = dataclasses.field(default_factory=RowFilter)

    @property
    def wanted_tags(self) -> frozenset[str] | None:
        """The only tags that wanted messages have; None if these are not known."""
        asked, chosen = self.options.tags, self.row_filter.choice("tags")
        if asked is None or chosen is None:
            return chosen if asked is None else asked
        return asked & chosen

    @property
    def expression(self) -> str:
        """What brokers are asked for."""
        tags = self.wanted_tags
        if self.options.expression_type != TAG or not tags or len(tags) > MOST_TAGS:
            return self.options.expression
        if not all(tag == tag.strip() and tag not in {"", "*"} and "||" not in tag for tag in tags):
            return self.options.expression
        return " || ".join(sorted(tags))

    @property
    def asked(self) -> str:
        """The same in words."""
        expression = self.expression
        return "everything" if expression == "*" else f"{self.options.expression_type} {expression}"

    def read(self, of: QueueRange) -> Iterator[pa.RecordBatch]:
        """The rows of a range. Raises OrbitMQError."""
        settle()
        rows = RowMaking(self.shape)
        checks = self._checks()
        messages = size = given = 0
        queue = of.queue
        with contextlib.closing(self._pieces(of)) as pieces:
            for piece in _gathered(pieces):
                size += len(piece.body)
                records = self._cut(piece, queue, checks)
                messages += len(records)
                for batch in rows.batches(records, queue):
                    given += batch.num_rows
                    yield batch
        log.info(
            "%s: %d messages of the offsets %d to %d, %d bytes for %s; %d rows of them",
            described([queue]), messages, of.start, of.end - 1, size, self.asked, given,
        )  # fmt: skip

    def _checks(self) -> RowFilter:
        """What every message is compared with. A task has one queue, so that its names are known to fit."""
        checks = self.row_filter.without("topic", "broker", "queue_id")
        tags = self.options.tags
        # Brokers compare hashes of tags.
        named = () if tags is None else (Test("tags", In(("tags",), tuple(sorted(tags)))),)
        return RowFilter((*checks.tests, *named))

    def _pieces(self, of: QueueRange) -> Generator[Piece]:
        """A range, without what is not there any more if that may be lost."""
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
                log.warning("%s; they are left out", lost)
                start = lost.next_readable

    def _cut(self, piece: Piece, queue: MessageQueue, checks: RowFilter) -> Records:
        """Those records that are wanted."""
        try:
            records = Records.of(piece.body)
        except ProtocolError as error:
            raise SparkSourceError(f"{described([queue])} holds what is no message: {error}") from None
        offsets = records.queue_offset
        # Answers overlap at their ends: what was there already does not count again.
        new = np.ones(len(offsets), np.bool_)
        np.greater(offsets[1:], np.maximum.accumulate(offsets)[:-1], out=new[1:])
        records = _taken(records, new & (offsets >= piece.first) & (offsets < piece.last))
        if checks and len(records):
            mask = checks.mask(records, broker=queue.broker_name, topic=queue.topic)
            if mask is not None:
                records = _taken(records, mask)
        if self.options.keys is not None and len(records):
            records = _taken(records, has_key(records, self.options.keys))
        return records


def _taken(records: Records, mask: npt.NDArray[np.bool_]) -> Records:
    return records if bool(mask.all()) else records.take(mask)


def _gathered(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Answers joined until they make a batch."""
    some: list[Piece] = []
    size = rows = 0
    for piece in pieces:
        some.append(piece)
        size += len(piece.body)
        rows += min(piece.last - piece.first, len(piece.body) // MIN_RECORD_SIZE)
        if size >= BATCH_BYTES or rows >= BATCH_ROWS:
            yield _joined(some)
            some, size, rows = [], 0, 0
    if size:
        yield _joined(some)


def _joined(some: list[Piece]) -> Piece:
    return Piece(b"".join([piece.body for piece in some]), some[0].first, some[-1].last)
