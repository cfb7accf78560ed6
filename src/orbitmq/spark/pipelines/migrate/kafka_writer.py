"""The Kafka writer of a Spark task: in order and each message once, also when the task is retried."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from orbitmq.spark.error_boundary import plain_errors
from orbitmq.spark.pipelines.migrate.endpoints import Queue
from orbitmq.spark.pipelines.migrate.kafka import kafka_errors, reason_of
from orbitmq.spark.pipelines.migrate.kafka_reader import read_span
from orbitmq.spark.pipelines.migrate.mapping import ORIGIN
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.sessions.worker_warmup import settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from confluent_kafka import Producer

WRITING = {
    "enable.idempotence": True,
    "acks": "all",
    # What is written of a partition is then always all up to some message.
    "enable.gapless.guarantee": True,
    "linger.ms": 20,
    "delivery.timeout.ms": 120_000,
    "compression.type": "lz4",
}
END_SECONDS = 150.0
ABANDON_SECONDS = 10.0
SETTLING_SECONDS = 1.0
"""The wait of an attempt that follows another, whose requests may still be in flight."""
Origin: TypeAlias = frozenset[tuple[str, bytes | None]]
_ANSWER = pa.schema([("written", pa.int64())])


@dataclasses.dataclass(frozen=True, slots=True)
class KafkaWriting:
    """The function that Spark calls in each task."""

    conf: dict[str, str]
    ends: dict[Queue, int]
    """Of the target's partitions before the round."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Producer  # noqa: PLC0415 - an extra
        from pyspark import TaskContext  # noqa: PLC0415

        settle()
        task = TaskContext.get()
        is_again = task is not None and task.attemptNumber() > 0
        with plain_errors, kafka_errors("Kafka"):
            writing = _Writing(Producer({**WRITING, **self.conf}))
            try:
                self._write(batches, writing, is_again=is_again)
                writing.finish()
            except BaseException:
                writing.abandon()
                raise
        yield pa.RecordBatch.from_pylist([{"written": writing.written}], _ANSWER)

    def _write(self, batches: Iterable[pa.RecordBatch], writing: _Writing, *, is_again: bool) -> None:
        there: dict[Queue, set[Origin]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                queue = Queue(row["topic"], str(row["partition"]))
                headers = [(header["key"], header["value"]) for header in row["headers"]]
                if is_again:
                    if queue not in there:
                        there[queue] = self._written(queue)
                    if _origin(headers) in there[queue]:
                        continue
                writing.put(row, headers)

    def _written(self, queue: Queue) -> set[Origin]:
        """The origins of messages that an earlier attempt has written."""
        from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

        time.sleep(SETTLING_SECONDS)
        number = int(queue.name)
        consumer = Consumer({"group.id": "orbitmq-migrate", **self.conf})
        try:
            first, end = consumer.get_watermark_offsets(TopicPartition(queue.topic, number), timeout=30.0)
        finally:
            consumer.close()
        start = max(first, self.ends.get(queue, 0))
        return {
            _origin(message.headers() or [])
            for messages in read_span(self.conf, queue.topic, number, start, end)
            for message in messages
        }


class _Writing:
    """A producer with its first error."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._error: str | None = None
        self.written = 0

    def put(self, row: dict[str, Any], headers: list[tuple[str, bytes | None]]) -> None:
        """Raises PipelineError."""
        while True:
            if self._error is not None:
                raise PipelineError(f"{row['topic']!r} in Kafka takes no more messages: {self._error}")
            try:
                self._producer.produce(
                    row["topic"],
                    value=row["value"],
                    key=row["key"],
                    partition=row["partition"],
                    timestamp=max(row["timestamp_ms"], 0),
                    headers=headers,  # type: ignore[arg-type]
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Wait for everything. Raises PipelineError."""
        left = self._producer.flush(END_SECONDS)
        if self._error is not None or left:
            raise PipelineError(f"Kafka has not taken all messages: {self._error or f'{left} have no answer'}")

    def abandon(self) -> None:
        """Drop queued messages, and wait for those in flight."""
        self._producer.purge(in_flight=False)
        self._producer.flush(ABANDON_SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:  # noqa: ARG002
        if error is None:
            self.written += 1
        elif self._error is None:
            self._error = reason_of(error)


def _origin(headers: Iterable[tuple[str, bytes | None]]) -> Origin:
    return frozenset(header for header in headers if header[0] in ORIGIN)
