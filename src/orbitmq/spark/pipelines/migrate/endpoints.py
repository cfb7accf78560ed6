"""The interface of the endpoints of a migration, source and target.

A queue has a name of its own in its topic: the number of a partition in Kafka, ``broker:number`` in RocketMQ. What
is read from an end has the columns of its kind, and what is written to it as well (``migrate_rows``).
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from typing import TYPE_CHECKING, Protocol

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

KAFKA = "kafka"
ROCKETMQ = "rocketmq"

_SERVER = re.compile(r"[^\s/:;,]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Queue:
    """A queue or partition, by its topic and its name there."""

    topic: str
    name: str

    @property
    def order(self) -> tuple[str, str, int]:
        """By topic, broker and number."""
        broker, _, number = self.name.rpartition(":")
        return self.topic, broker, int(number)

    def __str__(self) -> str:
        return f"{self.topic} {self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Offsets of a queue, from the first up to, and without, the second."""

    queue: Queue
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


class Endpoint(Protocol):
    """A cluster as a migration uses it. All methods raise OrbitMQError."""

    kind: str

    def bounds(self, topic: str) -> dict[Queue, tuple[int, int]] | None:
        """The bounds of the queues of a topic; None if the topic does not exist."""

    def create(self, topic: str, queues: int) -> None:
        """Make a topic with at least so many queues."""

    def writable(self, topic: str) -> list[Queue]:
        """The queues that can be written to."""

    def read(self, spark: SparkSession, spans: Sequence[Span]) -> DataFrame:
        """The messages of some spans, in order, one partition of Spark for each."""

    def write(self, frame: DataFrame, write_id: str, ends: Mapping[Queue, int]) -> None:
        """Write messages: those of a partition of Spark in order, and once, however often Spark tries.

        ``ends`` are those of the target's queues before anything of ``write_id`` was written.
        """

    def close(self) -> None:
        """Leave."""


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """The address of an endpoint."""

    kind: str
    servers: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of the Kafka client, such as ``security.protocol``. Some are secrets, so none is ever printed."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Raises OptionError."""
        kind, slashes, rest = url.partition("://")
        if not slashes or kind not in {KAFKA, ROCKETMQ}:
            raise OptionError(f"{url!r} cannot be migrated: write kafka://host:9092 or rocketmq://host:9876")
        place, _, query = rest.partition("?")
        servers = tuple(part.strip() for part in re.split("[;,]", place.rstrip("/")) if part.strip())
        if not servers or not all(map(_SERVER.fullmatch, servers)):
            raise OptionError(f"{kind}://{place} names no servers: write {kind}://host:port,host:port")
        settings = tuple(sorted(urllib.parse.parse_qsl(query, keep_blank_values=True)))
        if settings and kind != KAFKA:
            raise OptionError("only kafka:// takes settings behind a question mark")
        return cls(kind, servers, settings)

    def __str__(self) -> str:
        return f"{self.kind}://{','.join(self.servers)}"


def opened(address: Address) -> Endpoint:
    """The end at an address. Raises OrbitMQError."""
    if address.kind == KAFKA:
        from orbitmq.spark.pipelines.migrate.kafka import KafkaEndpoint  # noqa: PLC0415 - its client is an extra

        return KafkaEndpoint(address)
    from orbitmq.spark.pipelines.migrate.rocketmq import RocketEndpoint  # noqa: PLC0415

    return RocketEndpoint(address)
