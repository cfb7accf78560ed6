"""The Python client's simple consumer does the same with OrbitMQ's servers and with Apache's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from conformance.sdk.sdk_harness import APACHE, OURS, SETTINGS, create_topic, own_name, read_all, servers_of
from conformance.servers.processes import BROKER_NAME, CLUSTER
from orbitmq import Message, Producer, SimpleConsumer
from orbitmq.testing import LocalCluster
from orbitmq.testing.cluster_nodes import SETTINGS as SIZES
from peers.apache import ApacheBroker, ApacheNameServer, available, free_broker_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving
    from orbitmq import PoppedMessage

PATIENCE = 60.0


@pytest.fixture(scope="module", params=[OURS, APACHE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with servers_of(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def producer(server: Serving) -> Iterator[Producer]:
    with Producer(server.nameserver, group="ProducersOfTests", send_msg_timeout=10) as running:
        yield running


def receive_all(consumer: SimpleConsumer, count: int, invisible: float = 60.0) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < until, f"only {len(found)} of {count} came"
        found += consumer.receive(invisible=invisible, timeout=5)
    return found


def texts(messages: list[PoppedMessage]) -> list[str]:
    return sorted(message.text() for message in messages)


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Serving) -> str:
    return create_topic(server, own_name(request))


def consumer_of(server: Serving, topic: str, **options: int) -> SimpleConsumer:
    consumer = SimpleConsumer(server.nameserver, group=topic, max_reconsume_times=options.get("most", 16))
    consumer.subscribe(topic)
    return consumer


def test_messages_are_received_once_and_settled(server: Serving, producer: Producer, topic: str) -> None:
    bodies = [f"message {number}" for number in range(40)]
    for body in bodies:
        producer.send(Message(topic, body, keys="k", tags="t"))
    with consumer_of(server, topic) as one, consumer_of(server, topic) as other:
        first = one.receive(10, invisible=60, timeout=10)
        rest = receive_all(other, len(bodies) - len(first))
        assert texts(first + rest) == sorted(bodies)
        assert {(message.topic, message.tags, message.reconsume_times) for message in first} == {(topic, "t", 0)}
        one.ack(*first)
        other.ack(*rest)
        assert one.receive(timeout=0) == []


def test_what_is_not_acknowledged_or_given_back_comes_again(
    server: Serving, producer: Producer, topic: str
) -> None:
    for body in ("done", "forgotten", "given back", "kept"):
        producer.send(Message(topic, body))
    with consumer_of(server, topic) as consumer:
        messages = {message.text(): message for message in receive_all(consumer, 4, 3.0)}
        consumer.ack(messages["done"])
        consumer.change_invisible(messages["kept"], 300)
        consumer.change_invisible(messages["given back"], 1)
        again = receive_all(consumer, 2)
        assert texts(again) == ["forgotten", "given back"]
        assert {message.reconsume_times for message in again} == {1}
        assert {message.topic for message in again} == {topic}
        consumer.ack(*again, messages["kept"])
        assert consumer.receive(timeout=5) == []


def test_a_message_that_comes_too_often_becomes_a_dead_letter(
    server: Serving, producer: Producer, topic: str
) -> None:
    producer.send(Message(topic, "poison"))
    with consumer_of(server, topic, most=1) as consumer:
        for times in range(2):
            (message,) = receive_all(consumer, 1, 1.0)
            assert message.reconsume_times == times
        # It is given up when it would be received the third time.
        assert consumer.receive(timeout=15) == []
    (dead,) = read_all(server, f"%DLQ%{topic}", 1)
    assert dead.body == b"poison"


def test_filters_are_applied(server: Serving, producer: Producer, topic: str) -> None:
    for number in range(6):
        producer.send(
            Message(topic, str(number), tags="even" if number % 2 == 0 else "odd", properties={"n": str(number)})
        )
    with SimpleConsumer(server.nameserver, group=f"{topic}_tags") as consumer:
        consumer.subscribe(topic, tags="even")
        assert texts(receive_all(consumer, 3)) == ["0", "2", "4"]
    with SimpleConsumer(server.nameserver, group=f"{topic}_sql") as consumer:
        consumer.subscribe(topic, sql="n > 3")
        assert texts(receive_all(consumer, 2)) == ["4", "5"]


def test_apaches_broker_brings_back_what_ours_handed_out(tmp_path: Path) -> None:
    """The store of a stopped broker of ours, with messages in flight, is opened by Apache's."""
    if reason := available():
        pytest.skip(reason)
    with LocalCluster(directory=tmp_path / "cluster", settings={"brokerClusterName": CLUSTER}) as cluster:
        with Producer(cluster.name_server) as sender:
            for number in range(6):
                sender.send(Message("Handed", str(number)))
        with SimpleConsumer(cluster.name_server, group="Hands") as consumer:
            consumer.subscribe("Handed")
            messages = receive_all(consumer, 6, 12.0)
            done = [message for message in messages if int(message.text()) % 2 == 0]
            consumer.ack(*done)
    store = tmp_path / "cluster" / BROKER_NAME
    assert (store / "commitlog").is_dir()
    nameserver = ApacheNameServer(tmp_path / "nameserver")
    settings = {**SETTINGS, **SIZES, "brokerName": BROKER_NAME, "listenPort": str(free_broker_port())}
    try:
        broker = ApacheBroker(store, settings, home=tmp_path / "broker", nameserver=nameserver.address)
        try:
            with SimpleConsumer(nameserver.address, group="Hands") as consumer:
                consumer.subscribe("Handed")
                again = receive_all(consumer, 3)
                assert texts(again) == ["1", "3", "5"]
                assert {message.reconsume_times for message in again} == {1}
                consumer.ack(*again)
                assert consumer.receive(timeout=5) == []
        finally:
            broker.kill()
    finally:
        nameserver.kill()
