"""A cluster in plain code without a thread: queried, read, left early, forked, and found again after a pause."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message, Producer
from orbitmq.client.errors import (
    InvalidMessageError,
    NoNameServerError,
    NoRouteError,
    NotRunningError,
    OrbitMQError,
)
from orbitmq.client.query import queue_offsets as queue_bounds
from orbitmq.client.query.queue_offsets import Bounds
from orbitmq.client.query.range_reader import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.remoting import ClientTls
from orbitmq.spark.cluster import Cluster
from orbitmq.testing import LocalCluster
from support.client.cluster_harness import nothing_left
from support.client.range_reader_harness import meant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.testing.cluster_thread import ThreadCluster

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
COUNT = 3000


@pytest.fixture
def servers() -> Iterator[ThreadCluster]:
    with nothing_left(), LocalCluster(settings={"defaultTopicQueueNums": "1"}) as running:
        with Producer(running.name_server, group="shop", default_topic_queue_nums=1) as producer:
            for first in range(0, COUNT, 500):
                messages = [Message(TOPIC, b"%d" % number) for number in range(first, first + 500)]
                producer.send_batch(messages)
        yield running


@pytest.fixture
def cluster(servers: ThreadCluster) -> Iterator[Cluster]:
    made = Cluster.of(servers.name_server, retry_seconds=20)
    try:
        yield made
    finally:
        made.close()


def bodies(start: int = 0, end: int = COUNT) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(start, end)]


def test_queues_and_messages_are_read(cluster: Cluster) -> None:
    assert cluster.topics() == [TOPIC]
    assert cluster.queues(TOPIC) == [QUEUE]
    assert cluster.bounds([TOPIC]) == {TOPIC: {QUEUE: Bounds(0, COUNT)}}
    assert cluster.bounds([]) == {}
    assert cluster.offsets_at([QUEUE], 0) == {QUEUE: 0}
    assert cluster.offsets_at([QUEUE], 1 << 50) == {QUEUE: COUNT}
    assert meant(cluster.read(QueueRange(QUEUE, 0, COUNT))) == bodies()
    assert meant(cluster.read(QueueRange(QUEUE, 17, 1234), window=3, batch=5)) == bodies(17, 1234)
    assert meant(cluster.read(QueueRange(QUEUE, 0, COUNT), expression="paid")) == []


def test_groups_commit(cluster: Cluster, servers: ThreadCluster) -> None:
    assert cluster.committed("audit", [QUEUE]) == {}
    cluster.commit("audit", {QUEUE: 42})
    assert cluster.committed("audit", [QUEUE]) == {QUEUE: 42}
    assert servers.consumer_offsets("audit") == {QUEUE: 42}


def test_there_is_one_for_each_thread_and_choice_of_options(cluster: Cluster, servers: ThreadCluster) -> None:
    assert Cluster.of(servers.name_server, retry_seconds=20) is cluster
    assert Cluster.of([servers.name_server], retry_seconds=20) is cluster
    found = []

    def elsewhere() -> None:
        other = Cluster.of(servers.name_server, retry_seconds=20)
        found.append(other is not cluster and other.topics() == [TOPIC])
        other.close()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [True]
    cluster.close()
    with pytest.raises(NotRunningError, match=r"Cluster\.of"):
        cluster.topics()
    again = Cluster.of(servers.name_server, retry_seconds=20)
    assert again is not cluster
    assert again.topics() == [TOPIC]
    again.close()


def test_several_ranges_are_read_in_turns(cluster: Cluster) -> None:
    first = cluster.read(QueueRange(QUEUE, 0, COUNT))
    second = cluster.read(QueueRange(QUEUE, 500, COUNT))
    chunks = [next(first), next(second), next(first)]
    assert cluster.topics() == [TOPIC]
    assert meant([chunks[0], chunks[2], *first]) == bodies()
    assert meant([chunks[1], *second]) == bodies(500)


def test_a_reading_may_be_left_early(cluster: Cluster) -> None:
    for count in (1, 3):
        reading = cluster.read(QueueRange(QUEUE, 0, COUNT))
        chunks = [next(reading) for _ in range(count)]
        reading.close()  # type: ignore[attr-defined]
        assert meant(chunks) == bodies(0, chunks[-1].last)
    assert meant(cluster.read(QueueRange(QUEUE, 0, COUNT))) == bodies()


def test_a_reading_that_was_not_closed_does_not_keep_its_cluster_open(servers: ThreadCluster) -> None:
    cluster = Cluster.of(servers.name_server)
    reading = cluster.read(QueueRange(QUEUE, 0, COUNT))
    next(reading)
    cluster.close()
    with pytest.raises(NotRunningError):
        list(reading)


def test_what_is_run_may_use_the_instance(cluster: Cluster) -> None:
    async def both() -> list[MessageQueue]:
        return await queue_bounds.queues(cluster.instance, TOPIC)

    assert cluster.run(both()) == [QUEUE]


def test_an_interruption_ends_what_is_run(cluster: Cluster) -> None:
    ended = []

    async def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        cluster.run(interrupted())
    assert ended == [True]
    assert cluster.topics() == [TOPIC]


def test_connections_that_were_closed_meanwhile_are_made_again(cluster: Cluster, servers: ThreadCluster) -> None:
    reading = cluster.read(QueueRange(QUEUE, 0, COUNT))
    chunks = [next(reading)]
    assert cluster.committed("audit", [QUEUE]) == {}
    servers.restart("name-server-a")
    servers.restart("broker-a")
    assert cluster.bounds([TOPIC]) == {TOPIC: {QUEUE: Bounds(0, COUNT)}}
    assert meant([*chunks, *reading]) == bodies()
    servers.restart("broker-a")
    cluster.commit("audit", {QUEUE: 1})
    assert cluster.committed("audit", [QUEUE]) == {QUEUE: 1}


def test_a_broker_that_is_away_is_waited_for(cluster: Cluster, servers: ThreadCluster) -> None:
    assert cluster.queues(TOPIC) == [QUEUE]
    servers.kill("broker-a")
    starting = threading.Timer(0.3, servers.start, ["broker-a"])
    starting.start()
    try:
        assert cluster.committed("audit", [QUEUE]) == {}
    finally:
        starting.join()


def test_a_missing_topic_is_reported_at_once_or_within_the_retry_time(servers: ThreadCluster) -> None:
    with pytest.raises(InvalidMessageError, match="no name server is given"):
        Cluster.of("")
    nowhere = Cluster.of("127.0.0.1:1")
    with pytest.raises(NoNameServerError, match=r"is one running at 127\.0\.0\.1:1"):
        nowhere.topics()
    nowhere.close()
    cluster = Cluster.of(servers.name_server, retry_seconds=0.3, api_timeout=0.2)
    try:
        with pytest.raises(NoRouteError, match="'nothing'"):
            cluster.bounds([TOPIC, "nothing"])
        assert cluster.queues(TOPIC) == [QUEUE]
        servers.kill("broker-a")
        with pytest.raises(OrbitMQError, match="is it running"):
            cluster.offsets_at([QUEUE], 0)
        servers.kill("name-server-a")
        with pytest.raises(NoNameServerError, match="is one running"):
            cluster.topics()
    finally:
        cluster.close()


def test_topics_of_a_namespace_have_their_plain_names(servers: ThreadCluster) -> None:
    with Producer(servers.name_server, group="shop", namespace="tenant") as producer:
        producer.send(Message("bills", b"x"), queue=None)
    cluster = Cluster.of(servers.name_server, namespace="tenant")
    try:
        assert cluster.topics() == ["bills"]
        assert cluster.wrap("bills") == "tenant%bills"
        found = cluster.bounds(["bills"])["bills"]
        assert {queue.topic for queue in found} == {"bills"}
        (queue,) = [queue for queue, ends in found.items() if ends.max]
        assert meant(cluster.read(QueueRange(queue, 0, 1))) == [(0, b"x")]
        cluster.commit("audit", {queue: 1})
        assert cluster.committed("audit", [queue]) == {queue: 1}
        assert list(servers.consumer_offsets("tenant%audit").values()) == [1]
    finally:
        cluster.close()


def test_certificates_that_cannot_be_used_are_reported(servers: ThreadCluster) -> None:
    with pytest.raises(OrbitMQError, match="cannot use certificate"):
        Cluster.of(servers.name_server, tls=ClientTls(certificate_path="/nowhere.pem"))


def test_a_forked_process_has_its_own(cluster: Cluster, servers: ThreadCluster) -> None:
    reading = cluster.read(QueueRange(QUEUE, 0, COUNT))
    chunks = [next(reading)]
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        message = b"failed"
        try:
            own = Cluster.of(servers.name_server, retry_seconds=20)
            if own is not cluster and meant(own.read(QueueRange(QUEUE, 0, COUNT))) == bodies():
                try:
                    cluster.topics()
                except NotRunningError:
                    message = b"read"
        finally:
            os.write(sender, message)
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receiver, 100) == b"read"
    os.close(receiver)
    os.close(sender)
    assert meant([*chunks, *reading]) == bodies()
