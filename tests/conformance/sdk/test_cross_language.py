"""What Python sends Java, Go and Node consume, and the other way round; Java and Python share a consumer group."""

from __future__ import annotations

import collections
import random
from typing import TYPE_CHECKING

import pytest

from conformance.sdk.sdk_group import STOP_SECONDS, SharedGroup
from conformance.sdk.sdk_harness import (
    OURS,
    Seen,
    consumer_of,
    create_topic,
    eventually,
    own_name,
    read_all,
    servers_of,
)
from conformance.sdk.sdk_languages import Java, Spoken, digest
from orbitmq import Message, Producer
from orbitmq.protocol.message.flags import COMPRESSED, COMPRESSION_MASK
from peers import go_client, node_client
from peers.frames import ask
from peers.java_client import NEW, JavaClient, JavaProducer, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from conformance.sdk.sdk_languages import Language
    from conformance.servers.processes import Serving

BODIES = {
    "plain": b"plain",
    "unicode": "größer ✓ 日本語 😀".encode(),
    "binary": bytes(range(256)),
    "repetitive": b"again and again " * 4000,
    "random": random.Random(1).randbytes(500_000),
}
PROPERTIES = {"ключ": "значение ✓", "amount": "9"}
SHARED_QUEUES = 8
GET_MAX_OFFSET = 30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("languages")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    with servers_of(OURS, folder / "server") as running:
        yield running


@pytest.fixture(scope="module")
def producer(server: Serving) -> Iterator[Producer]:
    with Producer(server.nameserver, group="PythonProducers", send_msg_timeout=10) as running:
        yield running


@pytest.fixture(scope="module")
def jvm(server: Serving, folder: Path) -> Iterator[JavaClient]:
    if reason := unavailable(NEW):
        pytest.skip(reason)
    with JavaClient(NEW, home=folder / "java", nameserver=server.nameserver) as running:
        yield running


@pytest.fixture(scope="module", params=["java", "go", "node"])
def language(request: pytest.FixtureRequest, server: Serving, folder: Path) -> Iterator[Language]:
    if request.param == "java":
        yield Java(request.getfixturevalue("jvm"))
        return
    client = go_client if request.param == "go" else node_client
    if reason := client.available():
        pytest.skip(reason)
    home = folder / request.param
    if request.param == "go":
        with go_client.GoClient(home=home, nameserver=server.nameserver) as go:
            yield Spoken(go, has_batches=True, selector="hash")
    else:
        with node_client.NodeClient(home=home, nameserver=server.nameserver) as node:
            yield Spoken(node, has_batches=False)


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Serving) -> str:
    return create_topic(server, own_name(request))


def test_others_get_what_python_sends(producer: Producer, language: Language, topic: str) -> None:
    sent = {
        kind: producer.send(
            Message(topic, body, tags="T", keys=["k1", "k2"], properties={"kind": kind} | PROPERTIES)
        )
        for kind, body in BODIES.items()
    }
    with language.consuming(topic, topic) as take:
        given = {message.properties["kind"]: message for message in take(len(BODIES))}
    assert {kind: message.digest for kind, message in given.items()} == {
        kind: digest(body) for kind, body in BODIES.items()
    }
    for kind, message in given.items():
        receipt = sent[kind]
        assert (message.topic, message.reconsume_times) == (topic, 0)
        assert (message.queue_id, message.queue_offset) == (receipt.queue.queue_id, receipt.queue_offset)
        own = {"TAGS": "T", "KEYS": "k1 k2", "UNIQ_KEY": receipt.message_id}
        assert (PROPERTIES | own).items() <= message.properties.items()


def test_python_gets_what_others_send(server: Serving, language: Language, topic: str) -> None:
    ids = {
        kind: language.send(topic, body, tag="T", keys=["k1", "k2"], properties={"kind": kind} | PROPERTIES)
        for kind, body in BODIES.items()
    }
    seen = Seen()
    with consumer_of(server, topic, seen):
        given = {message.properties["kind"]: message for message in seen.wait_for(len(BODIES))}
    assert {kind: message.body for kind, message in given.items()} == BODIES
    assert {kind: message.offset_message_id for kind, message in given.items()} == ids
    for message in given.values():
        assert (message.topic, message.tags, message.keys) == (topic, "T", ["k1", "k2"])
        assert PROPERTIES.items() <= message.properties.items()
    assert given["repetitive"].record.sys_flag & COMPRESSED
    assert len(seen.messages) == len(BODIES)


@pytest.mark.parametrize("kind", ["LZ4", "ZSTD", "ZLIB"])
def test_java_and_python_read_each_others_compressions(
    server: Serving, jvm: JavaClient, topic: str, kind: str
) -> None:
    body = BODIES["repetitive"]
    with (
        Producer(server.nameserver, compress_type=kind) as ours,
        JavaProducer(jvm, topic, properties={"rocketmq.message.compressType": kind}) as theirs,
    ):
        ours.send(Message(topic, body))
        theirs.send(topic, body)
    mine, other = read_all(server, topic, 2)
    assert mine.body == other.body == body
    mask = COMPRESSED | COMPRESSION_MASK
    assert mine.record.sys_flag & mask == other.record.sys_flag & mask != COMPRESSED
    with Java(jvm).consuming(topic, topic) as take:
        assert [message.digest for message in take(2)] == [digest(body)] * 2


def test_others_keep_the_order_in_which_python_sends(producer: Producer, language: Language, topic: str) -> None:
    sent = _steps(lambda key, body: producer.send(Message(topic, body, sharding_key=key)))
    with language.consuming(topic, topic, orderly=True) as take:
        given = take(len(sent))
    by_digest = {digest(f"{key}:{step}".encode()): (key, step) for key, step in sent}
    assert _in_order([by_digest[message.digest] for message in given]) == _in_order(sent)


def test_python_keeps_the_order_in_which_others_send(server: Serving, language: Language, topic: str) -> None:
    # Node's client spreads the messages of a key that falls on its first queue, which none of these does.
    sent = _steps(lambda key, body: language.send(topic, body, sharding=key))
    seen = Seen({b"green:3": 2})
    with consumer_of(server, topic, seen, orderly=True, suspend_current_queue_time=0.05):
        seen.wait_for(len(sent) + 2)
    given = [(key, int(step)) for key, _, step in (body.decode().partition(":") for body in seen.bodies)]
    expected = _in_order(sent)
    expected["green"] = [0, 1, 2, 3, 3, *expected["green"][3:]]
    assert _in_order(given) == expected


def test_a_batch_of_pythons_is_single_messages_for_others(
    producer: Producer, language: Language, topic: str
) -> None:
    bodies = [b"message %d" % number for number in range(20)]
    receipts = producer.send_batch(Message(topic, body, tags="B") for body in bodies)
    with language.consuming(topic, topic) as take:
        given = sorted(take(len(bodies)), key=lambda message: message.queue_offset)
    assert [message.digest for message in given] == [digest(body) for body in bodies]
    assert [message.queue_offset for message in given] == [receipt.queue_offset for receipt in receipts]
    assert {message.properties["TAGS"] for message in given} == {"B"}


def test_a_batch_of_others_is_single_messages_for_python(server: Serving, language: Language, topic: str) -> None:
    if not language.has_batches:
        pytest.skip("this client cannot send batches")
    bodies = [b"message %d" % number for number in range(20)]
    language.send_batch(topic, bodies)
    assert [message.body for message in read_all(server, topic, len(bodies))] == bodies


def test_retries_are_counted_on_when_python_hands_over(
    server: Serving, producer: Producer, language: Language, topic: str
) -> None:
    seen = Seen({b"difficult": 99})
    before = _sent_back(server)
    producer.send(Message(topic, b"difficult", tags="T"))
    with consumer_of(server, topic, seen):
        eventually(lambda: _sent_back(server) > before)
    with language.consuming(topic, topic) as take:
        (given,) = take(1)
    assert (given.reconsume_times, given.digest) == (len(seen.messages), digest(b"difficult"))
    assert (given.topic, given.properties["TAGS"], given.properties["RETRY_TOPIC"]) == (topic, "T", topic)


def test_retries_are_counted_on_when_others_hand_over(server: Serving, language: Language, topic: str) -> None:
    before = _sent_back(server)
    offset_id = language.send(topic, b"difficult", tag="T")
    with language.consuming(topic, topic, failing=b"difficult") as take:
        take(1)
        eventually(lambda: _sent_back(server) > before)
        failed = len(take(1))
    seen = Seen()
    with consumer_of(server, topic, seen):
        (given,) = seen.wait_for(1)
    assert (given.topic, given.body, given.tags) == (topic, b"difficult", "T")
    assert given.reconsume_times == failed
    assert given.properties["ORIGIN_MESSAGE_ID"] == offset_id


def test_java_and_python_share_a_group_while_members_join_leave_and_are_killed(
    server: Serving, jvm: JavaClient, topic: str, tmp_path: Path
) -> None:
    create_topic(server, topic, queues=SHARED_QUEUES)
    with SharedGroup(server, topic, queues=SHARED_QUEUES, home=tmp_path) as group, group.python_here("here"):
        group.consumes_once_while_it_stays_as_it_is()

        java = group.java("java", jvm)
        group.consumes_once_while_it_stays_as_it_is()

        killed = group.python("killed")
        group.consumes_once_while_it_stays_as_it_is()
        killed.kill()
        group.gone("killed")
        group.consumes_once_while_it_stays_as_it_is()

        with JavaClient(NEW, home=tmp_path / "other", nameserver=server.nameserver) as other:
            group.java("killed java", other)
            group.consumes_once_while_it_stays_as_it_is()
        group.gone("killed java")
        group.consumes_once_while_it_stays_as_it_is()

        leaving = group.python("leaving")
        group.consumes_once_while_it_stays_as_it_is()
        leaving.stop(seconds=STOP_SECONDS)
        group.gone("leaving")
        java.stop()
        group.gone("java")
        group.consumes_once_while_it_stays_as_it_is()

        group.finish_sending()
        deliveries = group.consumed_all()
    assert deliveries.keys() == set(range(group.sent))


def _steps(send: Callable[[str, bytes], object]) -> list[tuple[str, int]]:
    """Send ten steps of each of some sharding keys, and tell their order."""
    sent = [(key, step) for step in range(10) for key in ("green", "blue", "white")]
    for key, step in sent:
        send(key, f"{key}:{step}".encode())
    return sent


def _in_order(steps: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_key = collections.defaultdict(list)
    for key, step in steps:
        by_key[key].append(step)
    return dict(by_key)


def _sent_back(server: Serving) -> int:
    """How many messages were ever parked, to be consumed again later."""
    fields = {"topic": "SCHEDULE_TOPIC_XXXX"}
    answers = [ask(server.broker_address, GET_MAX_OFFSET, fields | {"queueId": str(level)}) for level in range(5)]
    return sum(int(answer.fields["offset"]) for answer in answers)
