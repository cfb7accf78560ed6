"""The RocketMQ C++ client, unmodified, sends and consumes as it does with Apache's servers.

A consumer gets its queues with the second rebalance, ten seconds after its start: one wait serves several of them.
"""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING

import pytest

from conformance.servers.processes import against_apache, serving
from peers import apache
from peers.agent import Outgoing
from peers.cpp_client import CppClient, available
from peers.frames import ask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving

UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTEINFO_BY_TOPIC = 105
SENT = 0
QUEUES = 4
PATIENCE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := available() or (against_apache() and apache.available()):
        pytest.skip(reason)
    return tmp_path_factory.mktemp("cpp-client")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    # The client leaves the delay of a retry to the broker, which takes the third level: 10 s without this.
    with serving(folder / "server", {"messageDelayLevel": "1s 1s 1s 1s 1s"}) as running:
        yield running


@pytest.fixture(scope="module")
def cpp(server: Serving, folder: Path) -> Iterator[CppClient]:
    with CppClient(home=folder / "client", nameserver=server.nameserver) as client:
        yield client


@pytest.fixture(scope="module")
def producer(cpp: CppClient) -> str:
    return cpp.producer("Producer")


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Serving) -> str:
    """A topic of the test's own that has a route: this client gives up on a topic without one."""
    name = re.sub(r"\W", "_", f"Of_{request.node.name}")
    wanted = {"topic": name, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
    wanted |= {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES), "perm": "6", "order": "false"}
    assert ask(server.broker_address, UPDATE_AND_CREATE_TOPIC, wanted).code == 0
    deadline = time.monotonic() + PATIENCE
    while ask(server.nameserver, GET_ROUTEINFO_BY_TOPIC, {"topic": name}).code != 0:
        assert time.monotonic() < deadline, f"{name} has no route"
        time.sleep(0.05)
    return name


def test_each_message_is_consumed_once(cpp: CppClient, producer: str, topic: str) -> None:
    bodies = [f"plain {number}".encode() for number in range(20)]
    receipts = cpp.send(producer, [Outgoing(topic=topic, body=body, tag="A", keys=["k"]) for body in bodies])
    assert {receipt.status for receipt in receipts} == {SENT}
    name = cpp.consumer("PlainConsumer", topic, group="CppPlainGroup")
    received = cpp.take(name, len(bodies))
    assert sorted(message.body for message in received) == sorted(bodies)
    assert {(message.tag, message.keys) for message in received} == {("A", "k")}
    ids = {receipt.message_id for receipt in receipts}
    assert {message.properties["UNIQ_KEY"] for message in received} == ids
    cpp.close(name)


def test_bodies_delays_filters_and_retries(cpp: CppClient, producer: str, topic: str) -> None:
    # The binding takes bodies as C strings, which end at a zero.
    large = hashlib.shake_128(b"").digest(6000).replace(b"\0", b"1")
    colors = ["red", "green", "blue"] * 4
    messages = [Outgoing(topic=topic, body=large, tag="größe"), Outgoing(topic=topic, body=b"later", delay=1)]
    messages += [Outgoing(topic=topic, body=b"%d" % number, tag=color) for number, color in enumerate(colors)]
    messages += [Outgoing(topic=topic, body=body, tag="retry") for body in (b"refused", b"consumed")]
    cpp.send(producer, messages)
    everything = cpp.consumer("Everything", topic, group="CppEverythingGroup")
    filtered = cpp.consumer("Filtered", topic, group="CppFilteredGroup", expression="red || blue")
    refusing = cpp.consumer(
        "Refusing", topic, group="CppRefusingGroup", expression="retry", failures={"refused": 1}
    )

    received = cpp.take(everything, len(messages))
    assert sorted(message.body for message in received) == sorted(message.body for message in messages)
    assert [message.tag for message in received if message.body == large] == ["größe"]
    assert sorted(message.tag for message in cpp.take(filtered, 8)) == ["blue"] * 4 + ["red"] * 4
    assert cpp.take(filtered, 1, seconds=0.5) == []
    attempts = cpp.take(refusing, 3)
    assert [message.reconsume_times for message in attempts if message.body == b"consumed"] == [0]
    assert [message.reconsume_times for message in attempts if message.body == b"refused"] == [0, 1]
    for name in (everything, filtered, refusing):
        cpp.close(name)
