"""The RocketMQ client for Node.js, unmodified, sends and consumes as it does with Apache's servers."""

from __future__ import annotations

import hashlib
import re
import time
from typing import TYPE_CHECKING

import pytest

from conformance.servers.processes import against_apache, serving
from peers import apache
from peers.agent import Outgoing
from peers.frames import ask
from peers.node_client import NodeClient, available

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving

UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTEINFO_BY_TOPIC = 105
SENT = "SEND_OK"
QUEUES = 4
PATIENCE = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := available() or (against_apache() and apache.available()):
        pytest.skip(reason)
    return tmp_path_factory.mktemp("node-client")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    # The client leaves the delay of a retry to the broker, which takes the third level: 10 s, were it not for this.
    with serving(folder / "server", {"messageDelayLevel": "1s 1s 1s 1s 1s"}) as running:
        yield running


@pytest.fixture(scope="module")
def node(server: Serving, folder: Path) -> Iterator[NodeClient]:
    with NodeClient(home=folder / "client", nameserver=server.nameserver) as client:
        yield client


@pytest.fixture(scope="module")
def producer(node: NodeClient) -> str:
    return node.producer("Producer")


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


def test_what_is_sent_is_consumed_once(node: NodeClient, server: Serving, producer: str, topic: str) -> None:
    bodies = [f"plain {number}".encode() for number in range(20)]
    sent = node.send(producer, [Outgoing(topic=topic, body=body, tag="A", keys=["k"]) for body in bodies])
    assert {(told.status, told.broker) for told in sent} == {(SENT, server.broker_name)}
    assert {told.queue_id for told in sent} == set(range(QUEUES))
    name = node.consumer("PlainConsumer", topic, group="NodePlainGroup")
    received = node.take(name, len(bodies))
    assert sorted(message.body for message in received) == sorted(bodies)
    assert {(message.tag, message.keys) for message in received} == {("A", "k")}
    places = {(told.offset_id, told.queue_id, told.queue_offset) for told in sent}
    assert {(message.offset_id, message.queue_id, message.queue_offset) for message in received} == places
    node.close(name)


@pytest.mark.parametrize(
    ("what", "body"),
    [("compressed", b"again and again " * 375), ("incompressible", hashlib.shake_128(b"").digest(6000))],
)
def test_a_body_of_6000_bytes_arrives_as_it_was_sent(
    node: NodeClient, producer: str, topic: str, what: str, body: bytes
) -> None:
    node.send(producer, [Outgoing(topic=topic, body=body, properties={"ключ": "значение"})])
    name = node.consumer(f"BodyConsumer_{what}", topic, group=f"NodeBody_{what}_Group")
    (message,) = node.take(name, 1)
    assert len(body) == 6000
    assert message.body == body
    assert message.properties["ключ"] == "значение"
    node.close(name)


def test_a_delayed_message_comes_after_its_delay(node: NodeClient, producer: str, topic: str) -> None:
    node.send(producer, [Outgoing(topic=topic, body=b"later", delay=1), Outgoing(topic=topic, body=b"now")])
    name = node.consumer("DelayConsumer", topic, group="NodeDelayGroup")
    assert [message.body for message in node.take(name, 2)] == [b"now", b"later"]
    node.close(name)


def test_messages_of_a_sharding_key_stay_in_their_queue_and_order(
    node: NodeClient, producer: str, topic: str
) -> None:
    # The client spreads the messages of a key that falls on queue 0 over all queues, so no such key is used.
    keys = [key for key in ("red", "green", "blue", "white", "black") if _queue_of(key)]
    messages = [
        Outgoing(topic=topic, body=f"{key}:{step}".encode(), sharding=key) for step in range(10) for key in keys
    ]
    sent = node.send(producer, messages)
    assert [told.queue_id for told in sent] == [_queue_of(message.sharding) for message in messages]
    name = node.consumer("ShardedConsumer", topic, group="NodeShardedGroup")
    received = [message.body.decode().split(":") for message in node.take(name, len(messages))]
    for key in keys:
        assert [int(step) for of, step in received if of == key] == list(range(10))
    node.close(name)


def test_a_consumer_gets_the_tags_it_asked_for(node: NodeClient, producer: str, topic: str) -> None:
    tags = ["red", "green", "blue"] * 4
    node.send(producer, [Outgoing(topic=topic, body=b"%d" % n, tag=tag) for n, tag in enumerate(tags)])
    name = node.consumer("TagConsumer", topic, group="NodeTagGroup", expression="red || blue")
    assert sorted(message.tag for message in node.take(name, 8)) == ["blue"] * 4 + ["red"] * 4
    assert node.take(name, 1, seconds=0.5) == []
    node.close(name)


def test_a_refused_message_is_retried(node: NodeClient, producer: str, topic: str) -> None:
    sent = node.send(producer, [Outgoing(topic=topic, body=body, tag="T") for body in (b"refused", b"taken")])
    name = node.consumer("RetryConsumer", topic, group="NodeRetryGroup", failures={"refused": 1}, expression="T")
    received = node.take(name, 3)
    assert [message.reconsume_times for message in received if message.body == b"taken"] == [0]
    first, second = (message for message in received if message.body == b"refused")
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert second.properties["RETRY_TOPIC"] == topic
    assert second.properties["ORIGIN_MESSAGE_ID"] == sent[0].offset_id
    node.close(name)


# The last one: it restarts the server.


def test_offsets_survive_a_restart_of_the_broker(
    node: NodeClient, producer: str, topic: str, server: Serving, folder: Path
) -> None:
    group = "NodeRestartGroup"
    before = [f"before {number}".encode() for number in range(20)]
    node.send(producer, [Outgoing(topic=topic, body=body) for body in before])
    node.consumer("BeforeRestart", topic, group=group)
    assert sorted(message.body for message in node.take("BeforeRestart", len(before))) == sorted(before)
    node.close("BeforeRestart")
    server.stop()
    server.start()
    after = [f"after {number}".encode() for number in range(20)]
    with NodeClient(home=folder / "after", nameserver=server.nameserver) as again:
        again.send(again.producer("ProducerAgain"), [Outgoing(topic=topic, body=body) for body in after])
        again.consumer("AfterRestart", topic, group=group)
        assert sorted(message.body for message in again.take("AfterRestart", len(after))) == sorted(after)
        assert again.take("AfterRestart", 1, seconds=0.5) == []


def _queue_of(sharding_key: str) -> int:
    """Where the client puts the messages of a key."""
    return int.from_bytes(hashlib.md5(sharding_key.encode()).digest()[:4]) % QUEUES
