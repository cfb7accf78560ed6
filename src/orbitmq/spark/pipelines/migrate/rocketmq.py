"""A RocketMQ cluster, OrbitMQ's or Apache's, as an endpoint of a migration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import BrokerError, NoRouteError, OrbitMQError
from orbitmq.client.instance.routes import MASTER
from orbitmq.protocol.bodies import ClusterInfo, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import AUTO_CREATE_TOPIC
from orbitmq.remoting import RemotingError
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.migrate.endpoints import ROCKETMQ, Queue
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.migrate.endpoints import Address, Span

COLUMNS = "topic,broker,queue_id,queue_offset,body,properties,born_timestamp"

_ASK_SECONDS = 10.0
_READ_AND_WRITE = "6"


class RocketEndpoint:
    """See ``endpoints.Endpoint``."""

    kind = ROCKETMQ

    def __init__(self, address: Address) -> None:
        self._nameserver = ";".join(address.servers)

    @property
    def _cluster(self) -> Cluster:
        return Cluster.of(self._nameserver)

    def close(self) -> None:
        self._cluster.close()

    def bounds(self, topic: str) -> dict[Queue, tuple[int, int]] | None:
        try:
            found = self._cluster.bounds([topic])[topic]
        except NoRouteError:
            return None
        return {_named(queue): (ends.min, ends.max) for queue, ends in found.items()}

    def writable(self, topic: str) -> list[Queue]:
        cluster = self._cluster
        route = cluster.run(cluster.instance.refresh(cluster.wrap(topic)))
        return [Queue(topic, _named(queue).name) for queue in route.publish_queues]

    def create(self, topic: str, queues: int) -> None:
        cluster = self._cluster
        try:
            cluster.run(self._create(cluster, cluster.wrap(topic), queues))
        except (OrbitMQError, RemotingError, ProtocolError) as error:
            raise PipelineError(
                f"the topic {topic!r} is not there and could not be made, so make it with {queues} queues: {error}"
            ) from error

    async def _create(self, cluster: Cluster, topic: str, queues: int) -> None:
        instance = cluster.instance
        answer = await instance.ask_name_server(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        if answer.code != ResponseCode.SUCCESS or answer.body is None:
            raise BrokerError(answer.code, answer.remark, "the name server")
        table = ClusterInfo.decode(answer.body).broker_addr_table
        masters = [table[name].broker_addrs[MASTER] for name in sorted(table) if MASTER in table[name].broker_addrs]
        if not masters:
            raise PipelineError("the name server knows no broker that takes messages")
        # As many as there are in all, in equal parts.
        each = str(-(-queues // len(masters)))
        fields = {
            "topic": topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": each,
            "writeQueueNums": each,
            "perm": _READ_AND_WRITE,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        for master in masters:
            command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=dict(fields))
            await instance.call(master, command, _ASK_SECONDS)

    def read(self, spark: SparkSession, spans: Sequence[Span]) -> DataFrame:
        queues, starts, ends = (_nested(spans, part) for part in ("queues", "start", "end"))
        options = {
            "nameserver": self._nameserver,
            "columns": COLUMNS,
            "assign": json.dumps(queues),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
        }
        return spark.read.format("orbitmq").options(**options).load()

    def write(self, frame: DataFrame, write_id: str, ends: Mapping[Queue, int]) -> None:  # noqa: ARG002
        # The sink asks brokers by itself for what an earlier attempt of a task has written.
        options = {"nameserver": self._nameserver, "keepQueue": "true", "writeId": write_id}
        frame.write.format("orbitmq").mode("append").options(**options).save()


def _named(queue: MessageQueue) -> Queue:
    return Queue(queue.topic, f"{queue.broker_name}:{queue.queue_id}")


def _nested(spans: Sequence[Span], part: str) -> dict[str, Any]:
    """By topic and broker the numbers of queues, or by those too where they start or end."""
    found: dict[str, Any] = {}
    for span in spans:
        broker, _, number = span.queue.name.rpartition(":")
        brokers = found.setdefault(span.queue.topic, {})
        if part == "queues":
            brokers.setdefault(broker, []).append(int(number))
        else:
            brokers.setdefault(broker, {})[number] = getattr(span, part)
    return found
