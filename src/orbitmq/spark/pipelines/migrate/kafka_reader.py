"""Spans of Kafka's partitions as a DataFrame, read in Spark's tasks with the client from PyPI.

The columns are those of Spark's own connector for Kafka, so the rest of the job works with either reader.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.pipelines.migrate.kafka import SCHEMA, reason_of
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.schema.columns import TIMESTAMP
from orbitmq.spark.sessions.worker_warmup import settle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    Message = Any
    """Of the client."""

AT_ONCE = 4096
WAIT_SECONDS = 1.0
STILL_SECONDS = 60.0
"""After so long without a message the brokers are taken for gone."""

_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class KafkaSpans(DataSource):
    """Options are ``conf``, of the client, and ``spans``: topic, partition, first offset, end of each."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-kafka-spans"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> SpansReader:  # noqa: ARG002 - it is always the same
        return SpansReader(json.loads(self.options["conf"]), json.loads(self.options["spans"]))


class SpansReader(DataSourceReader):
    """One partition of Spark for each span."""

    def __init__(self, conf: dict[str, str], spans: list[tuple[str, int, int, int]]) -> None:
        self._conf = conf
        self._spans = spans

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(tuple(span)) for span in self._spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises PipelineError."""
        settle()
        if partition.value is None:
            return
        with plain_errors:
            for messages in read_span(self._conf, *partition.value):
                yield _batch(messages)


def read_span(conf: dict[str, str], topic: str, partition: int, start: int, end: int) -> Iterator[list[Message]]:
    """The messages of some offsets, in order. Raises PipelineError if they cannot be read.

    Not every offset has one: topics are compacted, and transactions leave marks.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition  # noqa: PLC0415 - an extra

    where = f"partition {partition} of {topic!r}"
    consumer = Consumer(
        {
            "group.id": "orbitmq-migrate",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            **conf,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        at, last_message_at = start, time.monotonic()
        while at < end:
            some: list[Message] = []
            # What is there already is taken with the first: to wait for so many would be to wait in vain.
            first = consumer.poll(WAIT_SECONDS)
            for message in [] if first is None else [first, *consumer.consume(AT_ONCE, timeout=0)]:
                error = message.error()
                # Errors have one as well: where the end is.
                offset = message.offset() or 0
                if error is None:
                    if offset < end:
                        some.append(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise PipelineError(f"{where} cannot be read from {at} on: {reason_of(error)}")
                at = max(at, offset if error is not None else offset + 1)
                last_message_at = time.monotonic()
            if some:
                yield some
            elif time.monotonic() - last_message_at > STILL_SECONDS:
                raise PipelineError(f"{where} cannot be read from {at} on: no broker has answered for a minute")
    except KafkaException as error:
        raise PipelineError(f"{where} cannot be read: {reason_of(error)}") from error
    finally:
        consumer.close()


def _batch(messages: list[Message]) -> pa.RecordBatch:
    times = [message.timestamp() for message in messages]
    # The client counts the kinds of times from 1 on, 0 being none.
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [1000 * ms if kind else None for kind, ms in times],
        [kind - 1 for kind, _ in times],
        [[{"key": name, "value": value} for name, value in message.headers() or ()] for message in messages],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )
