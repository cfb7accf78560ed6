"""Harness of the migration tests: the job as a process, and topics of Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.spark.pipelines.migrate.mapping import Record

PATIENCE = 240.0
ASK_SECONDS = 30.0


class KafkaTopics:
    """Topics of a Kafka, made, filled and read with its plain client."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.url = f"kafka://{address}"
        self._conf = {"bootstrap.servers": address, "log_level": "0"}

    def make(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient(dict(self._conf))
        admin.create_topics([NewTopic(topic, num_partitions=partitions)])[topic].result()

    def send(self, topic: str, records: Iterable[tuple[int, Record]]) -> None:
        """Records, each to a partition."""
        from confluent_kafka import Producer

        producer = Producer({**self._conf, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
        for partition, record in records:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                partition=partition,
                headers=list(record.headers),
                timestamp=record.timestamp_ms,
            )
        assert producer.flush(ASK_SECONDS) == 0

    def read(self, topic: str, partition: int) -> list[Record]:
        """All records of a partition."""
        from confluent_kafka import Consumer, TopicPartition

        from orbitmq.spark.pipelines.migrate.kafka_reader import read_span
        from orbitmq.spark.pipelines.migrate.mapping import Record

        consumer = Consumer({**self._conf, "group.id": "tests"})
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_SECONDS)
        consumer.close()
        spans = read_span(self._conf, topic, partition, first, end) if first < end else ()
        messages: list[Any] = [message for messages in spans for message in messages]
        return [
            Record(message.key(), message.value(), tuple(message.headers() or ()), message.timestamp()[1])
            for message in messages
        ]
