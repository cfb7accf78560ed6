"""Pairs of Apache's brokers and ours: tables, consumer offsets, and consumers that go on at the slaves."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

import orbitmq
from conformance.java.java_harness import eventually
from conformance.slave_sync.mixed_pairs import (
    COUNT,
    FAIL_OVER_GROUPS,
    FAIL_OVER_TOPIC,
    GROUP,
    TOPIC,
    Pairs,
    running_pairs,
    send,
    stored,
)
from orbitmq.protocol.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from peers import cpp_client, go_client
from peers.cpp_client import CppClient
from peers.frames import ask
from peers.go_client import GoClient
from peers.java_client import NEW, JavaClient
from peers.java_consumers import BROADCASTING, JavaPushConsumer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TOPICS, OFFSETS, GROUPS = 21, 43, 201

SLOW = 150
"""Seconds: Apache's slave copies tables a minute after its start, and once in a minute from then on."""


@pytest.fixture(scope="module")
def pairs(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with running_pairs(tmp_path_factory.mktemp("pairs")) as running:
        yield running


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


def is_ready(slave: str) -> bool:
    """Whether a slave has the topic and the groups of the consumers."""
    groups = groups_of(slave).subscription_group_table
    return FAIL_OVER_TOPIC in topics_of(slave).topic_config_table and groups.keys() >= set(
        FAIL_OVER_GROUPS.values()
    )


class Consumers:
    """Running consumers of all clients, by name, and the bodies that each was given so far."""

    def __init__(self, ends: contextlib.ExitStack, nameserver: str, home: Path) -> None:
        self.received: dict[str, set[str]] = {}
        self._probes: dict[str, Callable[[], set[str]]] = {}
        self._halts: list[Callable[[bool], None]] = []
        jvm = ends.enter_context(JavaClient(NEW, home=home / "java", nameserver=nameserver))
        self._halts.append(jvm.halt)
        for name, model in (("java", "CLUSTERING"), ("broadcast", BROADCASTING)):
            consumer = JavaPushConsumer(jvm, FAIL_OVER_GROUPS[name], FAIL_OVER_TOPIC, model=model)
            self._probes[name] = lambda consumer=consumer: {str(text) for text in consumer.texts()}  # type: ignore[misc]
        for name, client, reason in (
            ("go", GoClient, go_client.available()),
            ("python", CppClient, cpp_client.available()),
        ):
            if reason is None:
                agent = ends.enter_context(client(home=home / name, nameserver=nameserver))
                agent.consumer(name, FAIL_OVER_TOPIC, group=FAIL_OVER_GROUPS[name])
                self._halts.append(agent.halt)
                self._probes[name] = lambda agent=agent, name=name: {  # type: ignore[misc]
                    message.body.decode() for message in agent.take(name, 1000, seconds=0.1)
                }
        self._add_ours(ends, nameserver)

    def _add_ours(self, ends: contextlib.ExitStack, nameserver: str) -> None:
        received: set[str] = set()
        lock = threading.Lock()
        consumer = orbitmq.Consumer(
            nameserver,
            group=FAIL_OVER_GROUPS["sdk"],
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            poll_name_server_interval=5.0,
        )

        @consumer.on(FAIL_OVER_TOPIC)
        def handle(message: orbitmq.ReceivedMessage) -> None:
            with lock:
                received.add(message.body.decode())

        def seen() -> set[str]:
            with lock:
                return set(received)

        ends.enter_context(consumer)
        self._probes["sdk"] = seen
        self._halts.append(lambda is_halted: consumer.pause() if is_halted else consumer.resume())

    def halt(self, is_halted: bool) -> None:
        for halt in self._halts:
            halt(is_halted)

    def missing(self, wanted: set[str]) -> dict[str, set[str]]:
        """What each of them has not got yet."""
        for name, probe in self._probes.items():
            self.received.setdefault(name, set()).update(probe())
        return {name: wanted - seen for name, seen in self.received.items() if wanted - seen}


def test_running_consumers_of_every_client_go_on_at_the_slaves_of_both_kinds(pairs: Pairs, tmp_path: Path) -> None:
    """Both masters are killed while the consumers stand still with most of the messages before them."""
    ways = {
        "apache": (pairs.apache_master.address, pairs.our_slave.address),
        "ours": (pairs.our_master.address, pairs.apache_slave.address),
    }
    eventually(lambda: all(is_ready(slave) for _, slave in ways.values()), seconds=SLOW)
    early = {name: [f"{name} early {number}" for number in range(COUNT)] for name in ways}
    late = {name: [f"{name} late {number}" for number in range(5 * COUNT)] for name in ways}
    with contextlib.ExitStack() as ends:
        consumers = Consumers(ends, pairs.nameserver, tmp_path)
        for name, (master, _) in ways.items():
            send(master, FAIL_OVER_TOPIC, map(str.encode, early[name]))
        wanted = {text for texts in early.values() for text in texts}
        eventually(lambda: not consumers.missing(wanted))
        # A pull that is held brings the first of these at most: the others are still to be pulled.
        consumers.halt(True)
        for name, (master, slave) in ways.items():
            send(master, FAIL_OVER_TOPIC, map(str.encode, late[name]))
            eventually(lambda slave=slave: stored(slave, FAIL_OVER_TOPIC) == 6 * COUNT)  # type: ignore[misc]
        pairs.apache_master.kill()
        pairs.our_master.kill()
        consumers.halt(False)
        wanted |= {text for texts in late.values() for text in texts}
        eventually(lambda: consumers.missing(wanted), is_enough=lambda missing: not missing, seconds=120)
