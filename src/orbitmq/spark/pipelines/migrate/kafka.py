"""A Kafka cluster as an endpoint of a migration.

Kafka's client from PyPI lists and creates topics, and writes: Spark's own connector cannot set the time of a
record. Where that connector is on Spark's class path it reads the records; otherwise tasks read them with the same
client (``kafka_reader``).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import time
from typing import TYPE_CHECKING, Any

from orbitmq.spark.errors import SparkSourceError
from orbitmq.spark.pipelines.migrate.endpoints import KAFKA, Queue
from orbitmq.spark.pipelines.migrate.rows import HEADERS
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.migrate.endpoints import Address, Span

NEEDS_CLIENT = "a migration from or to Kafka needs its client: run 'pip install \"orbitmq[kafka]\"'"
ASK_SECONDS = 15.0
PAUSE_SECONDS = 0.2
_PASSING = frozenset({3, 5, 6, 7})
"""Answers of brokers: the topic or its leader is not known, not there, not the leader, and no answer in time."""

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    f"headers {HEADERS}"
)
"""The columns of Spark's connector."""
_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


class KafkaEndpoint:
    """See ``endpoints.Endpoint``."""

    kind = KAFKA

    def __init__(self, address: Address) -> None:
        """Raises SparkSourceError if there is no client."""
        if importlib.util.find_spec("confluent_kafka") is None:
            raise SparkSourceError(NEEDS_CLIENT)
        self._address = address
        self._client: AdminClient | None = None

    @property
    def conf(self) -> dict[str, str]:
        """The settings of any client of this cluster."""
        return conf_of(self._address)

    @property
    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - an extra

        if self._client is None:
            self._client = AdminClient(dict(self.conf))
        return self._client

    def close(self) -> None:
        self._client = None

    def bounds(self, topic: str) -> dict[Queue, tuple[int, int]] | None:
        numbers = self._partitions(topic)
        if not numbers:
            return None
        with kafka_errors(self._address):
            first, last = (self._offsets(topic, numbers, which) for which in ("earliest", "latest"))
        return {Queue(topic, str(number)): (first[number], last[number]) for number in numbers}

    def _offsets(self, topic: str, numbers: Sequence[int], which: str) -> dict[int, int]:
        """Raises KafkaException."""
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition  # noqa: PLC0415

        requests = {TopicPartition(topic, number): getattr(_admin().OffsetSpec, which)() for number in numbers}
        until = time.monotonic() + ASK_SECONDS
        while True:
            answers = self._admin.list_offsets(
                requests,
                # Messages of transactions that are still open are not there yet.
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=ASK_SECONDS,
            )
            try:
                return {of.partition: answer.result().offset for of, answer in answers.items()}
            except KafkaException as error:
                # A topic that was just made has no leaders yet, and one whose leader was lost will have another.
                if error.args[0].code() not in _PASSING or time.monotonic() > until:
                    raise
            time.sleep(PAUSE_SECONDS)

    def writable(self, topic: str) -> list[Queue]:
        return [Queue(topic, str(number)) for number in self._partitions(topic)]

    def _partitions(self, topic: str) -> list[int]:
        with kafka_errors(self._address):
            # The metadata of all topics: a request for one by name may create it.
            known = self._admin.list_topics(timeout=ASK_SECONDS).topics.get(topic)
        return [] if known is None or known.error is not None else sorted(known.partitions)

    def create(self, topic: str, queues: int) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        made = self._admin.create_topics(
            [_admin().NewTopic(topic, num_partitions=queues)], request_timeout=ASK_SECONDS
        )
        try:
            made[topic].result()
        except KafkaException as error:
            raise PipelineError(
                f"the topic {topic!r} is not in {self._address} and could not be made, so make it with {queues} "
                f"partitions: {reason_of(error)}"
            ) from error

    def read(self, spark: SparkSession, spans: Sequence[Span]) -> DataFrame:
        from orbitmq.spark.pipelines.migrate.kafka_reader import KafkaSpans  # noqa: PLC0415

        if not self._address.settings and has_connector(spark):
            return self._connected(spark, spans)
        spark.dataSource.register(KafkaSpans)
        given = [[span.queue.topic, int(span.queue.name), span.start, span.end] for span in spans]
        options = {"conf": json.dumps(self.conf), "spans": json.dumps(given)}
        return spark.read.format(KafkaSpans.name()).options(**options).load()

    def _connected(self, spark: SparkSession, spans: Sequence[Span]) -> DataFrame:
        assigned: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for span in spans:
            topic = span.queue.topic
            assigned.setdefault(topic, []).append(int(span.queue.name))
            starts.setdefault(topic, {})[span.queue.name] = span.start
            ends.setdefault(topic, {})[span.queue.name] = span.end
        options = {
            "kafka.bootstrap.servers": ",".join(self._address.servers),
            "kafka.isolation.level": "read_committed",
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "includeHeaders": "true",
        }
        return spark.read.format("kafka").options(**options).load()

    def write(self, frame: DataFrame, write_id: str, ends: Mapping[Queue, int]) -> None:  # noqa: ARG002
        from orbitmq.spark.pipelines.migrate.kafka_writer import KafkaWriting  # noqa: PLC0415

        frame.mapInArrow(KafkaWriting(self.conf, dict(ends)), "written bigint").collect()


def _admin() -> Any:
    # Its types are only half there.
    return importlib.import_module("confluent_kafka.admin")


def conf_of(address: Address) -> dict[str, str]:
    # The library would log to standard error; its errors also come back as results.
    return {"bootstrap.servers": ",".join(address.servers), "log_level": "0", **dict(address.settings)}


def has_connector(spark: SparkSession) -> bool:
    """True if Spark's own Kafka connector is on its class path. For Spark Connect it is unknown, so False."""
    try:
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
        loader.loadClass(_CONNECTOR)
    except Exception:
        return False
    return True


class kafka_errors:  # noqa: N801 - read as a statement
    """Raise errors of the Kafka client as one sentence."""

    def __init__(self, address: Address | str) -> None:
        self._where = address

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        if isinstance(error, KafkaException):
            raise PipelineError(f"{self._where} could not be requests: {reason_of(error)}") from error


def reason_of(error: Any) -> str:
    """The words of an error of the client."""
    inner = error.args[0] if isinstance(error, BaseException) and error.args else error
    words = inner.str() if hasattr(inner, "str") else str(inner)
    return str(words)
