"""Conversion of rows between the endpoints of a migration, and to rows for their comparison, in Spark's tasks."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.record import MAX_PROPERTIES_SIZE
from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.pipelines.migrate.endpoints import KAFKA, ROCKETMQ, Queue
from orbitmq.spark.pipelines.migrate.mapping import (
    MIGRATION_ID,
    MIGRATION_OFFSET,
    MIGRATION_QUEUE,
    MIGRATION_TOPIC,
    ORIGIN,
    Content,
    Record,
    carried,
    digest_of,
    origin_of,
    to_message,
    to_record,
)
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.sessions.worker_warmup import settle
from orbitmq.spark.sink.row_encoder import MARK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


Message: TypeAlias = Record | Content

HEADERS = "array<struct<key: string, value: binary>>"
_ARROW_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

WRITTEN = {
    KAFKA: f"topic string, partition int, key binary, value binary, headers {HEADERS}, timestamp_ms bigint",
    ROCKETMQ: (
        "topic string, broker string, queue_id int, body binary, properties map<string,string>, unique_id string"
    ),
}
"""Rows to write, by kind of the end."""
_ARROW = {
    KAFKA: pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", _ARROW_HEADERS),
            ("timestamp_ms", pa.int64()),
        ]
    ),
    ROCKETMQ: pa.schema(
        [
            ("topic", pa.string()),
            ("broker", pa.string()),
            ("queue_id", pa.int32()),
            ("body", pa.binary()),
            ("properties", pa.map_(pa.string(), pa.string())),
            ("unique_id", pa.string()),
        ]
    ),
}

COMPARED = "topic string, queue string, offset bigint, digest binary, id string"
"""What is compared. ``id`` is an id or a time, null where an end does not keep it."""
FOUND = f"{COMPARED}, at_topic string, at_queue string, at_offset bigint"
_ARROW_COMPARED = pa.schema(
    [
        ("topic", pa.string()),
        ("queue", pa.string()),
        ("offset", pa.int64()),
        ("digest", pa.binary()),
        ("id", pa.string()),
    ]
)
_ARROW_FOUND = pa.schema(
    [*_ARROW_COMPARED, ("at_topic", pa.string()), ("at_queue", pa.string()), ("at_offset", pa.int64())]
)

ROWS_AT_ONCE = 1024
"""Rows are looked at as Python's own values, of which there should not be too many at a time."""
_CREATE_TIME = 0
"""Kafka's kind of timestamp that is the producer's, not the broker's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One message as it was read."""

    queue: Queue
    offset: int
    message: Message
    origin: dict[str, str]
    id: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Copying:
    """Converts rows of the source to rows of the target."""

    source: str
    target: str
    name: str
    routes: Mapping[Queue, Queue]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        with plain_errors:
            for batch in batches:
                for rows in _some(self.source, batch):
                    made = [self._row(row) for row in rows]
                    yield pa.RecordBatch.from_pylist(made, _ARROW[self.target])

    def _row(self, row: Row) -> dict[str, Any]:
        to = self.routes[row.queue]
        message = converted(row.message, self.target)
        origin = origin_of(self.name, row.queue.topic, row.queue.name, row.offset)
        if isinstance(message, Record):
            headers = [*message.headers, *((name, value.encode()) for name, value in origin.items())]
            return {
                "topic": to.topic,
                "partition": int(to.name),
                "key": message.key,
                "value": message.value,
                "headers": [{"key": name, "value": value} for name, value in headers],
                "timestamp_ms": message.timestamp_ms,
            }
        properties = {**message.properties, **origin}
        size = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
        if size > MAX_PROPERTIES_SIZE - 2 * MARK_SIZE:
            raise PipelineError(
                f"the message at {row.queue} offset {row.offset} has {size} bytes of headers or properties, and a "
                f"message here can have {MAX_PROPERTIES_SIZE - 2 * MARK_SIZE}"
            )
        broker, _, number = to.name.rpartition(":")
        return {
            "topic": to.topic,
            "broker": broker,
            "queue_id": int(number),
            "body": message.body,
            "properties": list(properties.items()),
            "unique_id": properties.get(names.UNIQUE_KEY),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Expecting:
    """Computes the rows that the target should have."""

    source: str
    target: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        with plain_errors:
            for batch in batches:
                for rows in _some(self.source, batch):
                    made = [self._row(row) for row in rows]
                    yield pa.RecordBatch.from_pylist(made, _ARROW_COMPARED)

    def _row(self, row: Row) -> dict[str, Any]:
        message = converted(row.message, self.target)
        if isinstance(message, Record):
            known = str(message.timestamp_ms) if message.timestamp_ms > 0 else None
        else:
            known = message.properties.get(names.UNIQUE_KEY)
        return {
            "topic": row.queue.topic,
            "queue": row.queue.name,
            "offset": row.offset,
            "digest": digest_of(message),
            "id": known,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Finds the rows of the target that the migration has written."""

    target: str
    name: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        with plain_errors:
            for batch in batches:
                for rows in _some(self.target, batch):
                    made = [found for row in rows if (found := self._row(row)) is not None]
                    yield pa.RecordBatch.from_pylist(made, _ARROW_FOUND)

    def _row(self, row: Row) -> dict[str, Any] | None:
        origin = row.origin
        offset = origin.get(MIGRATION_OFFSET, "")
        if origin.get(MIGRATION_ID) != self.name or not offset.isdecimal():
            return None
        return {
            "topic": origin.get(MIGRATION_TOPIC, ""),
            "queue": origin.get(MIGRATION_QUEUE, ""),
            "offset": int(offset),
            "digest": digest_of(row.message),
            "id": row.id,
            "at_topic": row.queue.topic,
            "at_queue": row.queue.name,
            "at_offset": row.offset,
        }


def converted(message: Message, target: str) -> Message:
    """A message as the target has it."""
    if isinstance(message, Record):
        return message if target == KAFKA else to_message(message)
    return message if target == ROCKETMQ else to_record(message)


def _some(kind: str, batch: pa.RecordBatch) -> Iterator[list[Row]]:
    for start in range(0, len(batch), ROWS_AT_ONCE):
        rows = batch.slice(start, ROWS_AT_ONCE)
        yield _of_kafka(rows) if kind == KAFKA else _of_rocketmq(rows)


def _of_kafka(batch: pa.RecordBatch) -> list[Row]:
    found = []
    for row in _listed(
        batch, "topic", "partition", "offset", "key", "value", "headers", "timestamp", "timestampType"
    ):
        topic, partition, offset, key, value, headers, timestamp, kind = row
        listed = tuple((header["key"], header["value"]) for header in headers or ())
        record = Record(key, value, listed, timestamp)
        known = str(timestamp) if kind == _CREATE_TIME and timestamp > 0 else None
        found.append(Row(Queue(topic, str(partition)), offset, record.without_origin(), record.origin(), known))
    return found


def _of_rocketmq(batch: pa.RecordBatch) -> list[Row]:
    found = []
    for row in _listed(
        batch, "topic", "broker", "queue_id", "queue_offset", "body", "properties", "born_timestamp"
    ):
        topic, broker, queue_id, offset, body, properties, born = row
        kept = carried(properties or ())
        origin = {name: value for name, value in properties or () if name in ORIGIN}
        message = Content(body or b"", kept, born)
        found.append(Row(Queue(topic, f"{broker}:{queue_id}"), offset, message, origin, kept.get(names.UNIQUE_KEY)))
    return found


def _listed(batch: pa.RecordBatch, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(_values(batch.column(name)) for name in columns), strict=True)


def _values(column: Any) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [-1 if us is None else us // 1000 for us in column.cast(pa.int64()).to_pylist()]
    found: list[Any] = column.to_pylist()
    return found
