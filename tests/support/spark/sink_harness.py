"""Writing rows to topics without Spark: batches as Spark hands them over, writers, and what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.message.batch import iter_batch
from orbitmq.protocol.message.properties import parse
from orbitmq.spark.sink.chunker import Chunker
from orbitmq.spark.sink.columns import SinkColumns
from orbitmq.spark.sink.message_ids import Origin
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.sink.row_encoder import RowEncoder
from orbitmq.spark.sink.writer import batch_writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.spark.sink.chunker import Chunk
    from orbitmq.spark.sink.writer import BatchTopicWriter

TOPIC = "Orders"

TYPES: dict[str, pa.DataType] = {
    "body": pa.binary(),
    "value": pa.string(),
    "topic": pa.string(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "sharding_key": pa.string(),
    "queue_id": pa.int32(),
    "broker": pa.string(),
    "delay_level": pa.int32(),
    "delay_seconds": pa.int64(),
    "deliver_at": pa.timestamp("us", tz="UTC"),
    "unique_id": pa.string(),
    "queue_offset": pa.int64(),
    "extra": pa.string(),
}


def batch_of(**columns: Sequence[Any]) -> pa.RecordBatch:
    """Rows with these columns, each of the type that Spark gives it."""
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(_pairs(values), TYPES[name])
        for name, values in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _pairs(values: Sequence[Any]) -> list[Any]:
    return [list(value.items()) if isinstance(value, dict) else value for value in values]


def bodies(count: int, start: int = 0) -> list[bytes]:
    """That many bodies, all different."""
    return [b"row %d" % number for number in range(start, start + count)]


def sink_options(**options: object) -> SinkOptions:
    """Options of a write, to one topic unless the rows say where they go."""
    given = {"nameserver": "127.0.0.1:9", "topic": TOPIC} | options
    return SinkOptions.of({name: str(value) for name, value in given.items() if value is not None})


def columns_of(batch: pa.RecordBatch, options: SinkOptions) -> SinkColumns:
    return SinkColumns.of(from_arrow_schema(batch.schema), options)


def queues_of(topic: str, brokers: Sequence[str] = ("broker-a",), count: int = 4) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker in brokers for number in range(count)]


def chunks_of(
    batches: pa.RecordBatch | Iterable[pa.RecordBatch], origin: Origin | None = None, /, **options: object
) -> list[Chunk]:
    """The chunks of a task with these batches."""
    given = [batches] if isinstance(batches, pa.RecordBatch) else list(batches)
    read = sink_options(**options)
    encoder = RowEncoder(columns_of(given[0], read), read)
    chunker = Chunker(origin or Origin("write"), read, queues_of)
    chunks: list[Chunk] = []
    first = 0
    for batch in given:
        chunks += chunker.chunks(encoder.rows(batch, first))
        first += len(batch)
    return chunks


def messages_in(chunk: Chunk) -> list[tuple[bytes, dict[str, str]]]:
    """The bodies and properties that a chunk sends."""
    if chunk.alone:
        return [(message.body, parse(message.properties)) for message in chunk.alone]
    items = iter_batch(memoryview(chunk.body))
    return [(bytes(body), parse(bytes(properties))) for _, body, properties in items]


def sent(chunks: Iterable[Chunk]) -> list[tuple[bytes, dict[str, str]]]:
    return [message for chunk in chunks for message in messages_in(chunk)]


def writer_for(name_server: str, batch: pa.RecordBatch, **options: object) -> BatchTopicWriter:
    """The writer of a job whose rows are like these."""
    given = {"nameserver": name_server, "topic": TOPIC} | options
    texts = {name: str(value) for name, value in given.items() if value is not None}
    return batch_writer(texts, from_arrow_schema(batch.schema), False)
