"""Apache's broker and ours are one cluster, with our name server and with Apache's, for Apache's client and tools.

Both brokers register with both name servers, so that one of each is enough: a client knows only one name server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import socket
import socketserver
import sys
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Self

import pytest

from conformance.java.java_harness import PATIENCE, QUEUES, eventually
from conformance.servers.processes import CLUSTER
from peers.admin import AdminRunner
from peers.apache import ApacheBroker, ApacheNameServer, free_broker_port
from peers.frames import ask
from peers.java_client import NEW, JavaAdmin, JavaClient, JavaProducer
from peers.java_consumers import JavaPushConsumer
from peers.ports import endpoint, free_port, is_listening
from peers.process import PeerProcess
from support.cli.server_process import brokers_known_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from peers.java_client import Message

UNREGISTER_BROKER = 104
GET_ROUTEINFO_BY_TOPIC = 105
OURS, APACHES, THIRD = "broker-ours", "broker-apache", "broker-third"

SIZES = {"mappedFileSizeCommitLog": str(4 << 20), "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


class OurBroker:
    """``orbitmq broker`` with a store under ``home``, registered with these name servers when made."""

    def __init__(self, name: str, *, home: Path, nameservers: list[str]) -> None:
        self.name = name
        port = free_broker_port()
        self.address = f"127.0.0.1:{port}"
        home.mkdir()
        settings = {
            "brokerName": name,
            "brokerClusterName": CLUSTER,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": home / "store",
            **SIZES,
        }
        conf = home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        command = [sys.executable, "-m", "orbitmq", "broker", "-n", ";".join(nameservers), "-c", str(conf)]
        self._process = PeerProcess(f"OrbitMQ {name}", command, home=home, environment={})
        self._process.wait_until(
            lambda: all(brokers_known_at(address).get(name) == self.address for address in nameservers),
            what="registered",
            seconds=PATIENCE,
        )

    def stop(self) -> None:
        """Shut it down as an operator does."""
        self._process.stop(seconds=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


class Overheard:
    """Stands between a broker and a name server, and knows which of the broker's requests were answered well."""

    def __init__(self, nameserver: str) -> None:
        self.granted: list[int] = []
        overheard = self

        class Passing(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                asked: dict[int, int] = {}

                def answered(header: dict[str, Any]) -> None:
                    if header["code"] == 0:
                        overheard.granted.append(asked[header["opaque"]])

                with socket.create_connection(endpoint(nameserver), timeout=PATIENCE) as onward:
                    back = threading.Thread(target=_pass_frames, args=(onward, self.request, answered))
                    back.start()
                    _pass_frames(
                        self.request, onward, lambda header: asked.update({header["opaque"]: header["code"]})
                    )
                    back.join()

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Passing)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._accepting = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._accepting.join()
        self._server.server_close()


def _pass_frames(source: socket.socket, target: socket.socket, note: Callable[[dict[str, Any]], None]) -> None:
    """Pass frames with JSON headers on until there are no more, and then the end."""
    with contextlib.suppress(OSError), source.makefile("rb") as stream:
        while length := stream.read(4):
            frame = stream.read(int.from_bytes(length, "big"))
            # Noted first: whoever has an answer can rely on that.
            note(json.loads(frame[4 : 4 + int.from_bytes(frame[1:4], "big")]))
            target.sendall(length + frame)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@dataclasses.dataclass(slots=True)
class Cluster:
    """The servers. Apache's name server may be another one on the same port after a test."""

    home: Path
    our_nameserver: str
    apaches_nameserver: ApacheNameServer
    ours: OurBroker
    apaches: ApacheBroker

    def nameserver(self, kind: str) -> str:
        """The address of the name server, once it knows both brokers."""
        address = self.our_nameserver if kind == "ours" else self.apaches_nameserver.address
        brokers = {self.ours.name: self.ours.address, self.apaches.name: self.apaches.address}
        eventually(lambda: brokers_known_at(address), is_enough=lambda known: known == brokers)
        return address


@pytest.fixture(scope="module")
def our_nameserver(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("our-nameserver")
    port = free_port()
    command = [sys.executable, "-m", "orbitmq", "nameserver", "--host", "127.0.0.1", "--port", str(port)]
    process = PeerProcess("OrbitMQ name server", command, home=home, environment={"HOME": str(home)})
    try:
        address = f"127.0.0.1:{port}"
        process.wait_until(lambda: is_listening(address), what="listening", seconds=PATIENCE)
        yield address
    finally:
        process.kill()


@pytest.fixture(scope="module")
def cluster(our_nameserver: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    # The shortest period that there is: Apache's broker notices a name server's return by it.
    settings = {"brokerName": APACHES, "brokerClusterName": CLUSTER, "registerNameServerPeriod": "10000", **SIZES}
    apaches_nameserver = ApacheNameServer(home / "nameserver")
    nameservers = [our_nameserver, apaches_nameserver.address]
    try:
        with (
            OurBroker(OURS, home=home / "ours", nameservers=nameservers) as ours,
            ApacheBroker(
                home / "store", settings, home=home / "apaches", nameserver=";".join(nameservers)
            ) as apaches,
        ):
            made = Cluster(home, our_nameserver, apaches_nameserver, ours, apaches)
            yield made
            apaches_nameserver = made.apaches_nameserver
    finally:
        apaches_nameserver.kill()


@pytest.fixture(params=["ours", "apaches"])
def nameserver(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The address of the name server that clients and tools of a test are given."""
    return cluster.nameserver(request.param)


@pytest.fixture(scope="module")
def mqadmin(cluster: Cluster) -> Iterator[Callable[..., str]]:
    with AdminRunner(home=cluster.home / "mqadmin", nameserver=cluster.our_nameserver) as runner:
        yield runner.run


@pytest.fixture(scope="module")
def java(cluster: Cluster) -> Iterator[JavaClient]:
    with JavaClient(NEW, home=cluster.home / "client", nameserver=cluster.our_nameserver) as jvm:
        yield jvm


@pytest.fixture
def producer(java: JavaClient, nameserver: str) -> Iterator[JavaProducer]:
    with JavaProducer(java, "ProducersOfBoth", nameserver=nameserver) as started:
        yield started


@pytest.fixture
def topic(
    request: pytest.FixtureRequest, mqadmin: Callable[..., str], nameserver: str, producer: JavaProducer
) -> str:
    """A new topic of the whole cluster; the name server knows the queues of both brokers."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", request.node.name).strip("_")
    queues = ("-r", str(QUEUES), "-w", str(QUEUES))
    said = mqadmin("updateTopic", "-n", nameserver, "-c", CLUSTER, "-t", name, *queues)
    assert said.count("success") == 2, said
    every_queue = {(broker, id_) for broker in (OURS, APACHES) for id_ in range(QUEUES)}
    eventually(lambda: {(queue.broker, queue.id) for queue in producer.queues(name)} == every_queue)
    return name


def test_the_tools_list_both_brokers(cluster: Cluster, mqadmin: Callable[..., str], nameserver: str) -> None:
    said = mqadmin("clusterList", "-n", nameserver)
    if "NoSuchElementException" in said:
        # Apache's broker fails this request while it has no sample of its statistics, for a moment after its start.
        said = mqadmin("clusterList", "-n", nameserver)
    rows = [line.split()[:5] for line in said.splitlines() if line.startswith(CLUSTER)]
    assert rows == [
        [CLUSTER, broker.name, "0", broker.address, "V5_5_0"] for broker in (cluster.apaches, cluster.ours)
    ], said


def test_a_group_is_given_what_was_sent_to_both_brokers(
    cluster: Cluster, java: JavaClient, nameserver: str, producer: JavaProducer, topic: str
) -> None:
    with (
        JavaPushConsumer(java, topic, topic, nameserver=nameserver) as one,
        JavaPushConsumer(java, topic, topic, nameserver=nameserver) as two,
    ):
        eventually(lambda: one.queues() and two.queues())
        told = {f"message {number}": producer.send(topic, f"message {number}") for number in range(4 * QUEUES)}
        assert {sent.status for sent in told.values()} == {"SEND_OK"}
        assert Counter(sent.queue.broker for sent in told.values()) == {OURS: 2 * QUEUES, APACHES: 2 * QUEUES}
        found = eventually(
            lambda: (one.consumed(), two.consumed()), is_enough=lambda both: told.keys() <= _texts(*both)
        )
    assert all(found), "one of them was given nothing"
    hosts = {OURS: cluster.ours.address, APACHES: cluster.apaches.address}
    for message in (*found[0], *found[1]):
        sent = told[str(message.text)]
        assert message.message_id == sent.message_id
        assert (message.queue_id, message.queue_offset) == (sent.queue.id, sent.queue_offset)
        assert message.store_host == hosts[sent.queue.broker]


def test_an_orderly_consumer_keeps_the_order_on_both_brokers(
    java: JavaClient, nameserver: str, producer: JavaProducer, topic: str
) -> None:
    steps = range(5)
    orders = [f"order {number}" for number in range(4 * QUEUES)]
    used = {producer.send(topic, f"{order}:{step}", shard=order).queue.broker for step in steps for order in orders}
    assert used == {OURS, APACHES}
    with JavaPushConsumer(
        java, topic, topic, nameserver=nameserver, orderly=True, failures=1, failing="order 3:2"
    ) as consumer:
        count = len(orders) * len(steps) + 1
        found = eventually(consumer.consumed, is_enough=lambda found: len(found) >= count)
    assert len(found) == count
    seen = defaultdict(list)
    for message in found:
        order, _, step = str(message.text).partition(":")
        seen[order].append(int(step))
    assert seen.pop("order 3") == [0, 1, 2, 2, 3, 4]
    assert seen == {order: list(steps) for order in orders if order != "order 3"}


def test_our_broker_says_goodbye_when_it_stops(
    cluster: Cluster, java: JavaClient, nameserver: str, producer: JavaProducer, topic: str, tmp_path: Path
) -> None:
    with (
        Overheard(nameserver) as between,
        OurBroker(THIRD, home=tmp_path / "third", nameservers=[between.address]) as third,
    ):
        admin = JavaAdmin(java, broker=third.address, cluster=CLUSTER, nameserver=nameserver)
        admin.update_topic(topic, read_queues=1, write_queues=1)
        route = eventually(lambda: {entry.broker for entry in admin.route(topic)}, is_enough=lambda r: len(r) == 3)
        assert route == {OURS, APACHES, THIRD}
        assert UNREGISTER_BROKER not in between.granted

        third.stop()

        assert between.granted[-1] == UNREGISTER_BROKER
        assert between.granted.count(UNREGISTER_BROKER) == 1
        eventually(lambda: {entry.broker for entry in admin.route(topic)} == {OURS, APACHES})
        assert brokers_known_at(nameserver).keys() == {OURS, APACHES}
        assert producer.send(topic, "to those that stay").queue.broker != THIRD


def test_our_broker_comes_back_to_apaches_name_server_that_was_started_again(cluster: Cluster) -> None:
    address = cluster.nameserver("apaches")
    cluster.apaches_nameserver.kill()
    assert not is_listening(address)
    cluster.apaches_nameserver = ApacheNameServer(cluster.home / "nameserver", endpoint(address)[1])
    eventually(lambda: brokers_known_at(address).get(OURS) == cluster.ours.address)
    # Topics too: one of them is named after the broker.
    assert ask(address, GET_ROUTEINFO_BY_TOPIC, {"topic": OURS}).code == 0
    assert brokers_known_at(cluster.our_nameserver)[OURS] == cluster.ours.address


def _texts(*deliveries: list[Message]) -> set[str]:
    return {str(message.text) for messages in deliveries for message in messages}
