"""Messages for a time between Apache's Java client and broker and ours: sent, delivered, taken back, inherited."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import PATIENCE, eventually, everything_in
from conformance.sdk.sdk_harness import APACHE, OURS, create_topic, own_name, read_all
from conformance.servers.processes import CLUSTER, Serving, against_apache, serving
from orbitmq import BrokerError, Message, Producer
from orbitmq.broker import Broker, load_settings
from orbitmq.protocol.message.recall_handle import decode_recall_handle
from orbitmq.store import LocalDisk
from peers.apache import ApacheBroker, available
from peers.java_client import BINARY_HEADERS, JSON_HEADERS, NEW, JavaClient, JavaClientError, unavailable
from peers.java_consumers import JavaPullConsumer, JavaPushConsumer
from peers.java_timers import JavaTimedProducer
from support.store.stores import read_all as records_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.protocol.message.record import Record
    from peers.apache import ApacheNameServer

SETTINGS = {
    "recallMessageEnable": "true",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeTimerLog": "4096",
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}
QUEUES = 2
SECOND = 1000
OF_TIMERS = {"REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
"""What a message has more when it comes out."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if against_apache() and (reason := available()):
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("server"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=[JSON_HEADERS, BINARY_HEADERS])
def java(
    request: pytest.FixtureRequest, server: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    """The newer version, with one kind of header after the other; the older one knows no times."""
    if reason := unavailable(NEW):
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("java")
    with JavaClient(NEW, home=home, nameserver=server.nameserver, headers=request.param) as jvm:
        yield jvm


@pytest.fixture
def name(request: pytest.FixtureRequest, server: Serving) -> str:
    """A topic and a group that no other test has."""
    return create_topic(server, own_name(request), queues=QUEUES)


# Java's client


def test_java_sends_for_a_time_in_all_its_ways_and_takes_back(java: JavaClient, server: Serving, name: str) -> None:
    with (
        JavaTimedProducer(java, name) as producer,
        JavaPullConsumer(java, f"{name}_readers") as puller,
        JavaPushConsumer(java, f"{name}_listeners", name) as consumer,
    ):
        began = now_ms()
        ways = {
            "seconds": {"delayTimeSec": 2},
            "milliseconds": {"delayTimeMs": 2500},
            "time": {"deliverTimeMs": began + 3000},
        }
        due = {"seconds": began + 2000, "milliseconds": began + 2500, "time": began + 3000}
        sends = {way: producer.send(name, way, times, keys=way) for way, times in ways.items()}
        for way, (sent, handle) in sends.items():
            assert sent.status == "SEND_OK"
            decoded = decode_recall_handle(handle or "")
            assert (decoded.topic, decoded.broker_name) == (name, server.broker_name)
            assert decoded.unique_key == sent.message_id
            assert int(decoded.timestamp) % SECOND == 1
            assert due[way] - SECOND <= int(decoded.timestamp) <= due[way] + 60 * SECOND
        past, handle = producer.send(name, "past", {"deliverTimeMs": began - 5000})
        assert (past.status, handle) == ("SEND_OK", None)
        regretted, handle = producer.send(name, "regretted", {"delayTimeSec": 3})
        assert producer.recall(name, handle or "") == regretted.message_id
        with pytest.raises(JavaClientError, match="max delay 259200000ms") as refused:
            producer.send(name, "too far", {"delayTimeSec": 4 * 86_400})
        assert refused.value.code == 13

        queues = eventually(lambda: puller.queues(name), is_enough=lambda found: len(found) == QUEUES)
        found = {message.text: message for message in everything_in(puller, queues, 4)}
        assert found.keys() == {"past", "seconds", "milliseconds", "time"}
        for way, (sent, _) in sends.items():
            message = found[way]
            assert message.store_timestamp >= due[way], "early"
            assert (message.message_id, message.queue_id) == (sent.message_id, sent.queue.id)
            assert message.properties.keys() >= OF_TIMERS
            assert message.properties["REAL_TOPIC"] == name
        with pytest.raises(JavaClientError) as refused:
            producer.recall(name, sends["seconds"][1] or "")
        assert refused.value.code == 604
        consumed = eventually(consumer.texts, is_enough=lambda texts: len(texts) >= 4)
        assert sorted(text or "" for text in consumed) == ["milliseconds", "past", "seconds", "time"]


def test_python_takes_back_what_java_sent_and_the_other_way_round(
    java: JavaClient, server: Serving, name: str
) -> None:
    with (
        JavaTimedProducer(java, name) as theirs,
        Producer(server.nameserver, group=f"{name}_python") as ours,
    ):
        sent, handle = theirs.send(name, "of Java", {"delayTimeSec": 4})
        receipt = ours.send(Message(name, b"of Python", delay=4))
        ours.send(Message(name, b"kept", delay=4))
        assert ours.recall(name, handle or "") == sent.message_id
        assert theirs.recall(name, receipt.recall_handle or "") == receipt.message_id
        assert [message.body for message in read_all(server, name, 1)] == [b"kept"]


# Python with both brokers


@pytest.mark.parametrize("whose", [OURS, APACHE])
def test_python_sends_for_a_time_and_takes_back(whose: str, tmp_path: Path) -> None:
    if whose == APACHE and (reason := available()):
        pytest.skip(reason)
    topic = "TimesOfPython"
    with (
        serving(tmp_path / "server", SETTINGS, apache=whose == APACHE) as running,
        Producer(running.nameserver, group="clock") as producer,
    ):
        create_topic(running, topic, queues=QUEUES)
        began = now_ms()
        producer.send(Message(topic, b"seconds", delay=2))
        producer.send(Message(topic, b"part of one", delay=2.25))
        producer.send(Message(topic, b"moment", deliver_at=(began + 2500) / 1000))
        regretted = producer.send(Message(topic, b"regretted", delay=3))
        assert producer.recall(topic, regretted.recall_handle or "") == regretted.message_id
        with pytest.raises(BrokerError, match="max delay") as refused:
            producer.send(Message(topic, b"too far", delay=4 * 86_400))
        assert refused.value.code == 13
        found = {message.body: message for message in read_all(running, topic, 3)}
        assert found.keys() == {b"seconds", b"part of one", b"moment"}
        for body, wait in ((b"seconds", 2000), (b"part of one", 2250), (b"moment", 2500)):
            assert found[body].store_timestamp >= began + wait
            assert found[body].properties.keys() >= OF_TIMERS
        with pytest.raises(BrokerError) as refused:
            producer.recall(topic, regretted.recall_handle or "")
        assert refused.value.code == 604


# A store that changes hands

FAR = 40
"""Seconds: far enough for a broker to stop and another one to start."""


def send_some(running: Serving, topic: str) -> int:
    """Messages for soon, later and much later, some of them taken back; returns when the later ones are due."""
    with Producer(running.nameserver, group="clock") as producer:
        due = now_ms() + FAR * SECOND
        producer.send(Message(topic, b"soon", delay=1))
        for number in range(100):
            receipt = producer.send(Message(topic, b"%d" % number, deliver_at=due / 1000 + number % 3))
            if number % 10 == 0:
                producer.recall(topic, receipt.recall_handle or "")
        producer.send(Message(topic, b"much later", delay=2 * 86_400 + 80_000))
    read_all(running, topic, 1)
    return due


LONG = pytest.mark.skipif(
    not os.environ.get("ORBITMQ_LONG"), reason="a minute of waiting for timers: make conformance runs it"
)

EXPECTED = {b"soon"} | {b"%d" % number for number in range(100) if number % 10}


@LONG
def test_apaches_broker_delivers_what_ours_left_waiting(
    apache_nameserver: ApacheNameServer, tmp_path: Path
) -> None:
    topic = "ChangesHands"
    with serving(tmp_path / "ours", SETTINGS, apache=False) as ours:
        create_topic(ours, topic, queues=QUEUES)
        due = send_some(ours, topic)
        port = ours.broker_address.rpartition(":")[2]
        ours.stop()
    (log,) = (tmp_path / "ours").rglob("commitlog")
    settings = {**SETTINGS, "brokerClusterName": CLUSTER, "listenPort": port}
    nameserver = apache_nameserver.address
    with ApacheBroker(log.parent, settings, home=tmp_path / "apache", nameserver=nameserver) as apache:

        class Apaches:
            nameserver = apache_nameserver.address
            broker_address = apache.address
            broker_name = "broker-a"

        assert now_ms() < due, "this machine is too slow for the test"
        found = read_all(Apaches, topic, len(EXPECTED))  # type: ignore[arg-type]
        assert {message.body for message in found} == EXPECTED
        for message in found:
            if message.body != b"soon":
                assert message.store_timestamp >= due + int(message.body) % 3 * SECOND


@LONG
async def test_our_broker_delivers_what_apaches_left_waiting(tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    topic = "ChangesHands"
    with serving(tmp_path / "apache", SETTINGS, apache=True) as apaches:
        create_topic(apaches, topic, queues=QUEUES)
        due = send_some(apaches, topic)
        apaches.stop()
    (log,) = (tmp_path / "apache").rglob("commitlog")
    texts = {**SETTINGS, "storePathRootDir": str(log.parent), "listenPort": "0", "bindAddress": "127.0.0.1"}
    settings, _ = load_settings(LocalDisk(), None, texts)
    broker = Broker(settings)
    await broker.start()
    try:
        assert broker.timer is not None
        assert broker.timer.waiting == len(EXPECTED)  # one of them has come, and one is much later
        assert broker.timer.counts.of(topic) == len(EXPECTED)
        assert now_ms() < due, "this machine is too slow for the test"

        def found() -> list[Record]:
            return [record for queue_id in range(QUEUES) for record in records_of(broker.store, topic, queue_id)]

        async with asyncio.timeout(FAR + PATIENCE):
            while len(found()) < len(EXPECTED):  # noqa: ASYNC110 - the broker knows no events of tests
                await asyncio.sleep(0.05)
        assert {record.body for record in found()} == EXPECTED
        assert len(found()) == len(EXPECTED)
        for record in found():
            if record.body != b"soon":
                assert record.store_timestamp >= due + int(record.body) % 3 * SECOND
        assert broker.timer.counts.of(topic) == broker.timer.waiting == 1
    finally:
        await broker.stop()
