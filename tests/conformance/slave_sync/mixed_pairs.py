"""Pairs of Apache's brokers and ours: ``broker-a`` has Apache's master and our slave, ``broker-o`` our master and
Apache's slave. A name server of ours knows all four.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Self

from conformance.java.java_harness import PATIENCE
from conformance.servers.processes import CLUSTER
from peers.apache import ApacheBroker, free_broker_port
from peers.frames import ask
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

SEND, PULL, UPDATE_OFFSET, CREATE_TOPIC, MAX_OFFSET, CREATE_GROUP = 10, 11, 15, 17, 30, 200

TOPIC, GROUP, COUNT, QUEUES = "orders", "readers", 20, 4

FAIL_OVER_TOPIC = "payments"
FAIL_OVER_GROUPS = {name: f"{name}-readers" for name in ("java", "go", "python", "sdk", "broadcast")}
"""The groups of consumers that run while the masters die."""

SIZES = {"mappedFileSizeCommitLog": str(4 << 20), "maxHashSlotNum": "1000", "maxIndexNum": "4000"}


class OurBroker:
    """``orbitmq broker``, listening when made."""

    def __init__(self, name: str, *, home: Path, nameserver: str, **settings: object) -> None:
        port = free_broker_port()
        self.address = f"127.0.0.1:{port}"
        home.mkdir()
        texts = {
            "brokerName": name,
            "brokerClusterName": CLUSTER,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": home / "store",
            **SIZES,
            **settings,
        }
        conf = home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in texts.items()), "utf-8")
        command = [sys.executable, "-m", "orbitmq", "broker", "-n", nameserver, "-c", str(conf)]
        self._process = PeerProcess(f"OrbitMQ {name}", command, home=home, environment={})
        self._process.wait_until(lambda: is_listening(self.address), what="listening", seconds=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()


@dataclasses.dataclass(slots=True)
class Pairs:
    nameserver: str
    apache_master: ApacheBroker
    our_slave: OurBroker
    our_master: OurBroker
    apache_slave: ApacheBroker
    restart_master: Callable[[], ApacheBroker]


@contextlib.contextmanager
def running_pairs(home: Path) -> Iterator[Pairs]:
    """The name server and the four brokers, with the topics, messages and groups of ``prepare``."""
    port = free_port()
    nameserver = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "orbitmq", "nameserver", "--host", "127.0.0.1", "--port", str(port)]
    servers = PeerProcess("OrbitMQ name server", command, home=home, environment={"HOME": str(home)})
    with contextlib.ExitStack() as ends:
        ends.callback(servers.kill)
        servers.wait_until(lambda: is_listening(nameserver), what="listening", seconds=PATIENCE)
        our_master = ends.enter_context(OurBroker("broker-o", home=home / "our-master", nameserver=nameserver))
        prepare(our_master.address)
        slave = {
            "brokerName": "broker-o",
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "slaveReadEnable": "true",
            **SIZES,
        }
        apache_slave = ends.enter_context(
            ApacheBroker(
                home / "apache-slave", slave | SIZES, home=home / "apache-slave-home", nameserver=nameserver
            )
        )
        master = {"brokerName": "broker-a", "listenPort": str(free_broker_port()), **SIZES}

        def start_master() -> ApacheBroker:
            return ends.enter_context(
                ApacheBroker(
                    home / "apache-master", master, home=home / "apache-master-home", nameserver=nameserver
                )
            )

        apache_master = start_master()
        our_slave = ends.enter_context(
            OurBroker(
                "broker-a",
                home=home / "our-slave",
                nameserver=nameserver,
                brokerRole="SLAVE",
                brokerId=1,
                slaveReadEnable="true",
            )
        )
        prepare(apache_master.address)
        yield Pairs(nameserver, apache_master, our_slave, our_master, apache_slave, start_master)


def prepare(master: str) -> None:
    """Topics, one with messages, and groups, one of which has consumed some of them."""
    for name in (TOPIC, FAIL_OVER_TOPIC):
        topic = {
            "topic": name, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        }  # fmt: skip
        assert ask(master, CREATE_TOPIC, texts(topic)).code == 0
    for name in (GROUP, *FAIL_OVER_GROUPS.values()):
        group = json.dumps({"groupName": name, "retryMaxTimes": 3}).encode()
        assert ask(master, CREATE_GROUP, body=group).code == 0
    send(master, TOPIC, [b"%d" % number for number in range(COUNT)])
    pull = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    assert ask(master, PULL, texts(pull)).code == 0
    offset = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    assert ask(master, UPDATE_OFFSET, texts(offset)).code == 0


def send(master: str, topic: str, bodies: Iterable[bytes]) -> None:
    """Send messages to the queues of a topic in turns."""
    for number, body in enumerate(bodies):
        message = {
            "producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
            "queueId": number % QUEUES, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "",
        }  # fmt: skip
        assert ask(master, SEND, texts(message), body).code == 0


def stored(broker: str, topic: str = TOPIC) -> int:
    """Messages of a topic that a broker has."""
    return sum(
        int(ask(broker, MAX_OFFSET, {"topic": topic, "queueId": str(queue)}).fields["offset"])
        for queue in range(QUEUES)
    )


def texts(fields: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items()}
