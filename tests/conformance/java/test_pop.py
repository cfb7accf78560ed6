"""Apache's unmodified Java client as a consumer that pops, switched to that by Apache's ``mqadmin``."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import SETTINGS, eventually
from conformance.servers.processes import Serving, serving
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.fastjson import loads
from peers.admin import AdminRunner
from peers.apache import available
from peers.frames import ask
from peers.java_client import NEW, JavaClient, JavaProducer, unavailable
from peers.java_consumers import JavaPushConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from peers.java_client import Message

INVISIBLE_MS = 5000
"""The shortest that the client takes."""

POPPING = {"clientRebalance": False, "popInvisibleTime": INVISIBLE_MS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if reason := available() or unavailable(NEW):
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("server"), {**SETTINGS, "flushConsumerOffsetInterval": "500"}) as running:
        yield running


@pytest.fixture(scope="module")
def java(server: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    with JavaClient(NEW, home=tmp_path_factory.mktemp("client"), nameserver=server.nameserver) as jvm:
        yield jvm


@pytest.fixture(scope="module")
def mqadmin(server: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminRunner]:
    with AdminRunner(home=tmp_path_factory.mktemp("mqadmin"), nameserver=server.nameserver) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(java: JavaClient) -> JavaProducer:
    return JavaProducer(java, "ProducersOfPops")


def prepare(server: Serving, mqadmin: AdminRunner, producer: JavaProducer, name: str) -> None:
    """A topic, and a group of that name that pops it."""
    producer.create_topic(name, queues=4)
    eventually(lambda: producer.queues(name))
    mqadmin.run("updateSubGroup", "-b", server.broker_address, "-g", name)
    output = mqadmin.run(
        "setConsumeMode", "-b", server.broker_address, "-t", name, "-g", name, "-m", "POP", "-q", "8"
    )
    assert "success" in output, output


def consumed_all(consumers: Sequence[JavaPushConsumer], texts: Sequence[str]) -> list[Message]:
    return eventually(
        lambda: [message for consumer in consumers for message in consumer.consumed()],
        is_enough=lambda found: set(texts) <= {message.text for message in found},
    )


def test_a_consumer_that_pops_gets_every_message_once(
    server: Serving, java: JavaClient, mqadmin: AdminRunner, producer: JavaProducer
) -> None:
    name = "PopsEverything"
    prepare(server, mqadmin, producer, name)
    texts = [f"message {number}" for number in range(60)]
    for text in texts[:30]:
        producer.send(name, text)
    with JavaPushConsumer(java, name, name, setters=POPPING) as consumer:
        for text in texts[30:]:
            producer.send(name, text)
        found = consumed_all([consumer], texts)
        # It pops any queue of the broker.
        assert consumer.queues() == set()
    assert Counter(message.text for message in found) == Counter(texts)
    assert {message.reconsume_times for message in found} == {0}
    modes = loads(ask(server.broker_address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body)
    assert modes["messageRequestModeMap"][name][name]["mode"] == "POP"


def test_two_consumers_share_all_queues(
    server: Serving, java: JavaClient, mqadmin: AdminRunner, producer: JavaProducer
) -> None:
    name = "PopsTogether"
    prepare(server, mqadmin, producer, name)
    with (
        JavaPushConsumer(java, name, name, setters=POPPING) as one,
        JavaPushConsumer(java, name, name, setters=POPPING) as other,
    ):
        sent: list[str] = []

        def both_got_some() -> bool:
            for _ in range(10):
                sent.append(f"message {len(sent)}")
                producer.send(name, sent[-1])
            return bool(one.consumed()) and bool(other.consumed())

        eventually(both_got_some)
        found = consumed_all([one, other], sent)
    assert Counter(message.text for message in found) == Counter(sent)


def test_a_message_that_fails_comes_again_and_is_counted(
    server: Serving, java: JavaClient, mqadmin: AdminRunner, producer: JavaProducer
) -> None:
    name = "PopsAgain"
    prepare(server, mqadmin, producer, name)
    for text in ("good", "bad"):
        producer.send(name, text)
    with JavaPushConsumer(java, name, name, setters=POPPING, failures=1, failing="bad") as consumer:
        found = eventually(consumer.consumed, is_enough=lambda some: len(some) >= 3)
    assert Counter(message.text for message in found) == {"good": 1, "bad": 2}
    assert [message.reconsume_times for message in found if message.text == "bad"] == [0, 1]
    assert {message.topic for message in found} == {name}


def test_what_a_killed_broker_handed_out_comes_again(
    server: Serving, java: JavaClient, mqadmin: AdminRunner, producer: JavaProducer
) -> None:
    name = "PopsAfterDeath"
    prepare(server, mqadmin, producer, name)
    for number in range(8):
        producer.send(name, f"first {number}")
    with JavaPushConsumer(java, name, name, setters=POPPING) as consumer:
        consumed_all([consumer], [f"first {number}" for number in range(8)])
        server.kill()
        server.start()
        texts = [f"second {number}" for number in range(8)]
        for text in texts:
            eventually(functools.partial(producer.send, name, text))
        found = consumed_all([consumer], texts)
    assert {message.text for message in found} == {
        f"{which} {n}" for which in ("first", "second") for n in range(8)
    }
