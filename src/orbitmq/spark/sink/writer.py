"""Writers of DataFrames to topics: for a batch, for a streaming batch, and for one task.

Every row is a message (see ``sink_columns`` for the columns). A task sends its rows in chunks, and a task that runs
again does not write a second time what an earlier attempt has written:

* The rows of a task are cut into chunks, always in the same way, and each chunk and message has an id that follows
  from the write, the partition, the place of the chunk in its task and from what is in it (``sink_ids``).
* No attempt is ever further than a few chunks ahead of the oldest one without an answer (``LOOK_AHEAD``).
* An attempt asks the topic's brokers for the last message of each of its first chunks, and reads the others of it
  where it is found, for a broker that lost its power may come back with a part of a chunk. What is there as a whole
  was written before and is skipped. It asks on while chunks could be there: so many after the first missing one.
* A request without an answer is looked up in the same way before it is sent again.

A streaming query is known by its id and its batch by its number, both of which a restart keeps; a batch write by
an id made for it, or by the option ``writeId``, with which a whole job may be run again. What is in a chunk is part
of its id, so rows that come in another order, as they may after a shuffle, are written again rather than lost:
then, as with ``idempotent=false``, each row is written at least once.

What may still be written twice: rows of two attempts that run at the same time (speculative execution, a task that
was given up and still runs); a request that is stored only after it was looked up; the rest of a chunk that a
broker lost in part in a power failure; and messages on a broker that has left the route and cannot be queried.
Such messages have the same ids, by which ``orbitmq.spark.deduplicated`` or any reader can drop duplicates.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.errors import OptionError
from orbitmq.spark.sessions.worker_warmup import settle
from orbitmq.spark.sink.chunker import Chunker
from orbitmq.spark.sink.columns import SinkColumns
from orbitmq.spark.sink.connection import connected
from orbitmq.spark.sink.message_ids import Origin
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.row_encoder import RowEncoder
from orbitmq.spark.sink.sender import TaskSending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("orbitmq.spark")

MAX_AT_ONCE = 256 << 20
"""A batch of more bytes is worked on in parts: Arrow counts the bytes of an array in 31 bits."""


@dataclasses.dataclass(slots=True)
class Written(WriterCommitMessage):
    """The commit message of one task."""

    rows: int
    chunks: int
    skipped: int
    """Chunks that an earlier attempt of the task had written."""
    bytes: int
    """Of chunks that were not skipped."""


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchTopicWriter:
    """The writer of ``df.write.format("orbitmq")``. Raises OptionError."""
    settle()
    if overwrite:
        raise OptionError('a topic cannot be overwritten, only appended to: say mode("append")')
    checked = SinkOptions.of(options)
    return BatchTopicWriter(checked, SinkColumns.of(schema, checked))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamTopicWriter:  # noqa: ARG001
    """The writer of one batch of ``df.writeStream.format("orbitmq")``. Raises OptionError.

    In output mode ``complete`` every batch holds the whole result, and all of it is appended, as by Spark's writer
    for Kafka.
    """
    settle()
    checked = SinkOptions.of(options)
    return StreamTopicWriter(checked, SinkColumns.of(schema, checked))


class BatchTopicWriter(DataSourceArrowWriter):
    """One batch write. Its tasks work on copies of it."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        origin = Origin(
            self._write_id,
            None,
            0 if task is None else task.partitionId(),
            0 if task is None else task.attemptNumber(),
        )
        with plain_errors:
            return self.write_as(origin, iterator)

    def write_as(self, origin: Origin, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of the task that this origin names. Raises OrbitMQError."""
        return write_task(self._options, self._columns, origin, batches)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _tell(messages, "a write")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _tell_of_failure(messages, "a write")


class StreamTopicWriter(DataSourceStreamArrowWriter):
    """The writes of one batch of a streaming query. Its tasks work on copies of it."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        assert task is not None, "a batch of a stream is written by Spark only"
        query = task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        with plain_errors:
            if query is None or batch is None:
                raise OptionError("Spark does not say which query and batch this is: it could not be known again")
            return self.write_as(Origin(query, batch, task.partitionId(), task.attemptNumber()), iterator)

    def write_as(self, origin: Origin, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write the rows of the task that this origin names. Raises OrbitMQError."""
        return write_task(self._options, self._columns, origin, batches)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _tell(messages, f"batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        _tell_of_failure(messages, f"batch {batchId}")


def write_task(
    options: SinkOptions, columns: SinkColumns, origin: Origin, batches: Iterable[pa.RecordBatch]
) -> Written:
    """Write the rows of one task. Raises OrbitMQError; then nothing of it is in flight."""
    settle()
    encoder = RowEncoder(columns, options)
    with connected(options) as connection:
        chunker = Chunker(origin, options, connection.queues)
        sending = TaskSending(connection, options, origin.start, origin.attempt)
        first = 0
        try:
            for batch in batches:
                for part in _parts(batch):
                    for chunk in chunker.chunks(encoder.rows(part, first)):
                        sending.put(chunk)
                    first += len(part)
            totals = sending.finish()
        except BaseException:
            sending.abandon()
            raise
    return Written(totals.rows, totals.chunks, totals.skipped, totals.bytes)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= MAX_AT_ONCE or len(batch) < 2:
        yield batch
        return
    half = len(batch) // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))


def _tell(messages: list[WriterCommitMessage | None], what: str) -> None:
    settle()  # the worker that ends writes does nothing else
    written = [message for message in messages if isinstance(message, Written)]
    log.info(
        "sink: %s is written: %d rows in %d chunks, %d of which were there already",
        what,
        sum(message.rows for message in written),
        sum(message.chunks for message in written),
        sum(message.skipped for message in written),
    )


def _tell_of_failure(messages: list[WriterCommitMessage | None], what: str) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, Written))
    log.warning(
        "sink: %s failed: %d rows of its finished tasks stay in their topics and are found when it runs again",
        what,
        rows,
    )
