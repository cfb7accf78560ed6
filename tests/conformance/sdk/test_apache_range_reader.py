"""Apache's unmodified broker, asked for what there is and read in ranges at full speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message, Producer
from orbitmq.client.errors import BrokerError, NoRouteError, OffsetsLostError
from orbitmq.client.query.queue_offsets import Bounds
from orbitmq.client.query.range_reader import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.record import iter_records
from orbitmq.spark.cluster import Cluster
from peers.apache import ApacheBroker
from support.client.range_reader_harness import meant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers.apache import ApacheNameServer

TOPIC = "ranges"
LARGE = "large"
COUNT = 5000
TAGS = "abc"
SIZES = (100, 70_000, 300_000, 1000)
SETTINGS = {"enablePropertyFilter": "true", "defaultTopicQueueNums": "1", "mappedFileSizeCommitLog": str(64 << 20)}


@pytest.fixture(scope="module")
def broker(apache_nameserver: ApacheNameServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheBroker]:
    home = tmp_path_factory.mktemp("broker")
    nameserver = apache_nameserver.address
    with ApacheBroker(home / "store", SETTINGS, home=home, nameserver=nameserver) as running:
        with Producer(nameserver, group="shop", default_topic_queue_nums=1) as producer:
            for first in range(0, COUNT, 250):
                producer.send_batch([numbered(number) for number in range(first, first + 250)])
        # Compressed they would all be small.
        with Producer(
            nameserver, group="shop", default_topic_queue_nums=1, compress_msg_body_over_howmuch=4 << 20
        ) as producer:
            for number in range(40):
                producer.send(Message(LARGE, b"%d" % number + bytes(SIZES[number % len(SIZES)])))
        yield running


@pytest.fixture
def cluster(apache_nameserver: ApacheNameServer, broker: ApacheBroker) -> Iterator[Cluster]:
    # The sends are answered before their offsets are counted.
    made = Cluster.of(apache_nameserver.address, retry_seconds=30)
    until = time.monotonic() + 30
    while made.bounds([TOPIC, LARGE]) != {TOPIC: {queue(): Bounds(0, COUNT)}, LARGE: {queue(LARGE): Bounds(0, 40)}}:
        assert time.monotonic() < until, "messages are not there"
        time.sleep(0.05)
    try:
        yield made
    finally:
        made.close()


def numbered(number: int) -> Message:
    return Message(TOPIC, b"%d" % number, tags=TAGS[number // 10 % 3], properties={"n": str(number)})


def queue(topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, "broker-a", 0)


def bodies(numbers: range | list[int]) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in numbers]


def test_topics_and_queues_are_found_without_apaches_own(cluster: Cluster) -> None:
    assert cluster.topics() == [LARGE, TOPIC]
    assert cluster.queues(TOPIC) == [queue()]
    with pytest.raises(NoRouteError):
        cluster.bounds(["nothing"])


def test_a_range_comes_complete(cluster: Cluster) -> None:
    assert meant(cluster.read(QueueRange(queue(), 0, COUNT))) == bodies(range(COUNT))
    assert meant(cluster.read(QueueRange(queue(), 77, 1234), window=4)) == bodies(range(77, 1234))


def test_a_reading_may_be_left_early(cluster: Cluster) -> None:
    reading = cluster.read(QueueRange(queue(), 0, COUNT))
    pieces = [next(reading)]
    reading.close()  # type: ignore[attr-defined]
    assert meant(pieces) == bodies(range(pieces[-1].last))


def test_messages_of_all_sizes_come_complete(cluster: Cluster) -> None:
    found = meant(cluster.read(QueueRange(queue(LARGE), 0, 40)))
    assert found == [(number, b"%d" % number + bytes(SIZES[number % len(SIZES)])) for number in range(40)]


def test_what_the_broker_counts_as_on_its_disk_comes_complete(cluster: Cluster, broker: ApacheBroker) -> None:
    for ratio in ("0", "40"):
        body = f"accessMessageInMemoryMaxRatio={ratio}\n".encode()
        change = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        cluster.run(cluster.instance.call(broker.address, change))
        pieces = list(cluster.read(QueueRange(queue(), 0, COUNT)))
        assert meant(pieces) == bodies(range(COUNT))
        most = max(sum(1 for _ in iter_records(piece.body)) for piece in pieces)
        assert most == (8 if ratio == "0" else 32)


def test_tags_are_filtered_by_the_broker(cluster: Cluster) -> None:
    wanted = [number for number in range(COUNT) if number // 10 % 3 != 1]
    pieces = list(cluster.read(QueueRange(queue(), 0, COUNT), expression="a || c"))
    assert meant(pieces) == bodies(wanted)
    assert all(record.properties for piece in pieces for record in iter_records(piece.body))
    assert meant(cluster.read(QueueRange(queue(), 0, COUNT), expression="nobody")) == []


def test_properties_are_filtered_by_the_broker(cluster: Cluster) -> None:
    found = cluster.read(QueueRange(queue(), 0, 4500), expression="n >= 4321", expression_type="SQL92")
    assert meant(found) == bodies(range(4321, 4500))


def test_offsets_are_found_by_time(cluster: Cluster) -> None:
    (piece,) = list(cluster.read(QueueRange(queue(), 2000, 2001)))
    (record,) = iter_records(piece.body)
    when = record.store_timestamp
    offset = cluster.offsets_at([queue()], when)[queue()]
    assert 0 <= offset <= 2000
    assert 2000 <= cluster.offsets_at([queue()], when, "UPPER")[queue()] < COUNT
    assert cluster.offsets_at([queue()], 0) == {queue(): 0}
    assert cluster.offsets_at([queue()], when + 10**9) == {queue(): COUNT}


def test_a_group_that_the_broker_does_not_know_can_commit(cluster: Cluster) -> None:
    assert cluster.committed("audit", [queue()]) == {}
    cluster.commit("audit", {queue(): 17})
    assert cluster.committed("audit", [queue()]) == {queue(): 17}


def test_a_range_beyond_the_end_is_said_to_be_lost(cluster: Cluster) -> None:
    with pytest.raises(OffsetsLostError) as lost:
        list(cluster.read(QueueRange(queue(), COUNT - 1, COUNT + 10), retry_seconds=0.2))
    assert (lost.value.first, lost.value.next_readable) == (COUNT, COUNT + 10)
    with pytest.raises(OffsetsLostError) as lost:
        list(cluster.read(QueueRange(queue(), COUNT + 5, COUNT + 10), retry_seconds=0.2))
    assert (lost.value.first, lost.value.next_readable) == (COUNT + 5, COUNT + 10)


def test_a_topic_that_is_not_there_is_refused_at_once(cluster: Cluster) -> None:
    with pytest.raises((BrokerError, NoRouteError), match=r"not exist|no broker serves"):
        list(cluster.read(QueueRange(MessageQueue("nothing", "broker-a", 0), 0, 10)))
