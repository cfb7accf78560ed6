"""Topics for tests of Spark's readers: made with so many queues, filled, deleted; and what readers make of them."""

from __future__ import annotations

import contextlib
import json
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from orbitmq import Message
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting.errors import ConnectionLostError
from orbitmq.spark.cluster import Cluster, _clusters
from orbitmq.spark.schema.columns import COLUMNS
from orbitmq.spark.schema.row_schema import RowSchema
from orbitmq.spark.topic_source.batch_reader import TopicBatchReader
from orbitmq.spark.topic_source.options import SourceOptions
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orbitmq.spark.topic_source.stream_reader import TopicStreamReader
    from orbitmq.testing.cluster_thread import ThreadCluster

TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
}

QUEUES = 2
SMALL_FILES = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "2000", "fileReservedTime": "72"}
"""Settings of brokers that forget messages when a test says so."""
KEPT_SECONDS = 80 * 3600


class Topics:
    """The topics of a cluster in this process."""

    def __init__(self, cluster: ThreadCluster) -> None:
        self._cluster = cluster
        self.producer = cluster.producer()
        self.nameserver = cluster.name_server

    def make(self, topic: str, queues: int = QUEUES, broker: str = "broker-a") -> None:
        """Make a topic, or change the number of its queues."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        self._ask(self._cluster.address(broker), RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    def delete(self, topic: str, broker: str = "broker-a") -> None:
        self._ask(self._cluster.address(broker), RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        self._ask(self.nameserver, RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": topic})

    def send(
        self, topic: str, bodies: Iterable[str | bytes], queue: int = 0, broker: str = "broker-a", **more: Any
    ) -> None:
        """Send to one queue, in order."""
        to = MessageQueue(topic, broker, queue)
        messages = [Message(topic, body, **more) for body in bodies]
        # Files of these logs may be small, and a batch has to fit one.
        for start in range(0, len(messages), 10):
            self.producer.send_batch(messages[start : start + 10], queue=to)

    def forget_oldest(self, broker: str = "broker-a") -> None:
        """Let the files of a log that are full grow too old."""
        node = self._cluster._cluster.broker(broker)
        self._cluster._look(node.service.store.flush)
        self._cluster.advance(KEPT_SECONDS)
        self._cluster._look(node.service.retention.request)
        while self._cluster._look(node.service.retention.run).log_files:
            pass

    def given_out(self, broker: str = "broker-a") -> int:
        """The number of messages that a broker has delivered."""
        return self._cluster._look(lambda: self._cluster._cluster.broker(broker).stats.gets.nums)

    def committed(self, group: str) -> dict[int, int]:
        """The offsets of a group by queue."""
        return {queue.queue_id: offset for queue, offset in self._cluster.consumer_offsets(group).items()}

    def _ask(self, address: str, code: RequestCode, fields: dict[str, str]) -> None:
        cluster = Cluster.of(self.nameserver)
        # A server that was restarted has closed the connection.
        with contextlib.suppress(ConnectionLostError):
            cluster.run(cluster.instance.call(address, Command(code, ext_fields=fields), 10.0))
            return
        cluster.run(cluster.instance.call(address, Command(code, ext_fields=fields), 10.0))


@contextlib.contextmanager
def running_cluster(brokers: int = 1) -> Iterator[ThreadCluster]:
    """A cluster whose brokers forget messages when a test says so."""
    with LocalCluster(brokers=brokers, settings=SMALL_FILES) as running:
        try:
            yield running
        finally:
            close_clusters()


def close_clusters() -> None:
    """Leave the clusters that readers of this process have joined."""
    for cluster in list(_clusters.values()):
        cluster.close()


def schema(*names: str) -> StructType:
    return StructType([StructField(name, TYPES[COLUMNS[name].ddl]) for name in names])


BODIES = schema("queue_id", "queue_offset", "body")
FILTERED = schema("queue_id", "queue_offset", "body", "topic", "broker", "tags", "store_timestamp")


def options(topics: Topics, **given: str) -> SourceOptions:
    what = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": "orders"}
    return SourceOptions.of(
        {"nameserver": topics.nameserver, "retrySeconds": "2", "pollMillis": "1", **what, **given}
    )


def batch(topics: Topics, of: StructType | None = None, **given: str) -> TopicBatchReader:
    read = options(topics, **given).for_batch()
    return TopicBatchReader(read, RowSchema.of(read, BODIES if of is None else of))


def rows(reader: TopicBatchReader | TopicStreamReader, partitions: Any = None) -> list[tuple[Any, ...]]:
    """The rows of the tasks, each with a pickled copy of the reader, as in Spark."""
    found: list[tuple[Any, ...]] = []
    for partition in reader.partitions() if partitions is None else partitions:  # type: ignore[call-arg]
        task, part = pickle.loads(pickle.dumps((reader, partition)))
        for made in task.read(part):
            assert isinstance(made, pa.RecordBatch)
            assert made.num_rows
            found += zip(*(column.to_pylist() for column in made.columns), strict=True)
    return found


def bodies(reader: TopicBatchReader | TopicStreamReader, partitions: Any = None) -> list[str]:
    return [row[2].decode() for row in rows(reader, partitions)]


def numbered(start: int, end: int) -> list[str]:
    return [f"{number}" for number in range(start, end)]


class Query:
    """A stream as Spark runs it: batch after batch, offsets as text, and all of it again after a crash."""

    def __init__(self, reader: TopicStreamReader, log: list[str] | None = None) -> None:
        self.reader = reader
        self.log = [] if log is None else log
        """Where batches ended, as a checkpoint has it."""

    def start(self) -> str:
        return self.log[-1] if self.log else json.dumps(self.reader.initialOffset())

    def plan(self, limit: Any = None) -> bool:
        """True if there is another batch."""
        start = self.start()
        limit = limit or self.reader.getDefaultReadLimit()
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if self.log and end == start:
            return False
        self.log.append(end)
        return True

    def run(self) -> list[str]:
        """The rows of the batch that was planned last."""
        start = self.log[-2] if len(self.log) > 1 else json.dumps(self.reader.initialOffset())
        partitions = self.reader.partitions(json.loads(start), json.loads(self.log[-1]))
        return bodies(self.reader, partitions)

    def next(self, limit: Any = None) -> list[str]:
        return self.run() if self.plan(limit) else []
