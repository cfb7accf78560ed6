"""Pairs of Apache's brokers and ours: tables, consumer offsets, and a Java consumer that goes on at our slave.

``broker-a`` has Apache's master and our slave, ``broker-o`` our master and Apache's slave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Self

import pytest

from conformance.java.java_harness import PATIENCE, eventually
from conformance.servers.processes import CLUSTER
from orbitmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from peers.apache import ApacheBroker, free_broker_port
from peers.frames import ask
from peers.java_client import NEW, JavaClient
from peers.java_consumers import JavaPushConsumer
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET = 10, 11, 14, 15
CREATE_TOPIC, TOPICS, MAX_OFFSET, OFFSETS, CREATE_GROUP, GROUPS = 17, 21, 30, 43, 200, 201

TOPIC, GROUP, COUNT, QUEUES = "orders", "readers", 20, 4
SLOW = 150
"""Seconds: Apache's slave copies tables a minute after its start, and once in a minute from then on."""

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
        self._process.kill()


@dataclasses.dataclass(slots=True)
class Pairs:
    nameserver: str
    apache_master: ApacheBroker
    our_slave: OurBroker
    our_master: OurBroker
    apache_slave: ApacheBroker
    restart_master: Callable[[], ApacheBroker]


@pytest.fixture(scope="module")
def pairs(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    home = tmp_path_factory.mktemp("pairs")
    port = free_port()
    nameserver = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "orbitmq", "nameserver", "--host", "127.0.0.1", "--port", str(port)]
    servers = PeerProcess("OrbitMQ name server", command, home=home, environment={"HOME": str(home)})
    with contextlib.ExitStack() as ends:
        ends.callback(servers.kill)
        servers.wait_until(lambda: is_listening(nameserver), what="listening", seconds=PATIENCE)
        our_master = ends.enter_context(OurBroker("broker-o", home=home / "our-master", nameserver=nameserver))
        prepare(our_master.address)
        slave = {"brokerName": "broker-o", "brokerRole": "SLAVE", "brokerId": "1", **SIZES}
        apache_slave = ends.enter_context(
            ApacheBroker(home / "apache-slave", slave, home=home / "apache-slave-home", nameserver=nameserver)
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
    """A topic with messages and a group that has consumed some of them."""
    topic = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert ask(master, CREATE_TOPIC, texts(topic)).code == 0
    group = json.dumps({"groupName": GROUP, "retryMaxTimes": 3}).encode()
    assert ask(master, CREATE_GROUP, body=group).code == 0
    for number in range(COUNT):
        message = {
            "producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": QUEUES,
            "queueId": number % QUEUES, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "",
        }  # fmt: skip
        assert ask(master, SEND, texts(message), b"%d" % number).code == 0
    pull = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    assert ask(master, PULL, texts(pull)).code == 0
    offset = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": 1}
    assert ask(master, UPDATE_OFFSET, texts(offset)).code == 0


def texts(fields: dict[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in fields.items()}


def follows(slave: str, master: str) -> bool:
    """Whether a broker has the tables of another one, with the same versions."""
    topics, groups = topics_of(slave), groups_of(slave)
    return (
        topics.topic_config_table.get(TOPIC) == topics_of(master).topic_config_table[TOPIC]
        and topics.data_version == topics_of(master).data_version
        and groups.subscription_group_table.get(GROUP) == groups_of(master).subscription_group_table[GROUP]
        and groups.data_version == groups_of(master).data_version
        and offsets_of(slave).get(0, 0) >= 1
    )


def topics_of(broker: str) -> TopicConfigAndMappingSerializeWrapper:
    return TopicConfigAndMappingSerializeWrapper.decode(ask(broker, TOPICS).body)


def groups_of(broker: str) -> SubscriptionGroupWrapper:
    return SubscriptionGroupWrapper.decode(ask(broker, GROUPS).body)


def offsets_of(broker: str) -> dict[int, int]:
    table = ConsumerOffsetSerializeWrapper.decode(ask(broker, OFFSETS).body).offset_table
    return table.get(f"{TOPIC}@{GROUP}", {})


def stored(broker: str) -> int:
    return sum(
        int(ask(broker, MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue)}).fields["offset"])
        for queue in range(QUEUES)
    )


def test_our_slave_follows_the_tables_of_apaches_master(pairs: Pairs) -> None:
    eventually(lambda: follows(pairs.our_slave.address, pairs.apache_master.address))
    eventually(lambda: stored(pairs.our_slave.address) == COUNT)


def test_apaches_slave_follows_the_tables_of_our_master(pairs: Pairs) -> None:
    slave, master = pairs.apache_slave.address, pairs.our_master.address
    eventually(lambda: follows(slave, master), seconds=SLOW)
    eventually(lambda: stored(slave) == COUNT)


def test_a_java_consumer_goes_on_at_our_slave_and_apaches_master_gets_its_offsets(
    pairs: Pairs, tmp_path: Path
) -> None:
    slave = pairs.our_slave.address
    eventually(lambda: stored(slave) == COUNT and follows(slave, pairs.apache_master.address))
    pairs.apache_master.kill()
    with (
        JavaClient(NEW, home=tmp_path / "client", nameserver=pairs.nameserver) as jvm,
        JavaPushConsumer(jvm, GROUP, TOPIC) as consumer,
    ):
        mine = {str(number) for number in range(COUNT)} - {"0"}
        # Those of the other pair are in the same topic.
        eventually(lambda: {str(text) for text in consumer.texts()} >= mine)
        eventually(lambda: sum(offsets_of(slave).values()) == COUNT)
    pairs.apache_master = pairs.restart_master()
    eventually(lambda: sum(offsets_of(pairs.apache_master.address).values()) == COUNT)
    assert sum(offsets_of(slave).values()) == COUNT
