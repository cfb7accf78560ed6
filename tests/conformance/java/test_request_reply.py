"""Requests and replies between Apache's Java clients and broker and ours, in all combinations."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import pytest

from conformance.java.java_harness import eventually
from conformance.sdk.sdk_harness import APACHE, OURS, create_topic, own_name, servers_of
from orbitmq import Consumer, Message, Producer, RequestTimeoutError
from peers.java_client import VERSIONS, JavaClient, JavaClientError, unavailable
from peers.java_replies import JavaReplier, JavaRequester

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.servers.processes import Serving
    from orbitmq import ReceivedMessage

NO_REPLY = 10006
"""What Java's clients call a request without a reply."""


@pytest.fixture(scope="module", params=[OURS, APACHE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with servers_of(request.param, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module", params=VERSIONS)
def java(
    request: pytest.FixtureRequest, server: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    version: str = request.param
    if reason := unavailable(version):
        pytest.skip(reason)
    with JavaClient(version, home=tmp_path_factory.mktemp(version), nameserver=server.nameserver) as jvm:
        yield jvm


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: Serving) -> str:
    return create_topic(server, own_name(request), queues=2)


class PythonReplier:
    """A consumer of the Python client that replies to everything."""

    def __init__(self, server: Serving, topic: str, *, times: int = 1) -> None:
        self._producer = Producer(server.nameserver, group=f"{topic}_replies")
        self._consumer = Consumer(
            server.nameserver, group=f"{topic}_repliers", consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        )
        self._guard = threading.Lock()
        self._requests: list[ReceivedMessage] = []

        @self._consumer.on(topic)
        def reply(message: ReceivedMessage) -> None:
            with self._guard:
                self._requests.append(message)
            self._producer.reply_to(message, f"reply to {message.text()}" * times)

    @property
    def requests(self) -> list[ReceivedMessage]:
        with self._guard:
            return list(self._requests)

    def __enter__(self) -> Self:
        self._producer.start()
        self._consumer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
        self._producer.close()


def test_java_asks_and_java_replies(java: JavaClient, topic: str) -> None:
    with JavaReplier(java, f"{topic}_repliers", topic), JavaRequester(java, f"{topic}_askers") as asker:
        reply = asker.ask(topic, "ping", keys="k1")
        assert reply.text == "reply to ping"
        assert reply.topic == "DefaultCluster_REPLY_TOPIC"
        assert reply.properties["MSG_TYPE"] == "reply"
        assert int(reply.properties["PUSH_REPLY_TIME"]) <= int(reply.properties["ARRIVE_TIME"])
        assert [asker.ask(topic, f"{number}").text for number in range(20)] == [
            f"reply to {number}" for number in range(20)
        ]


def test_java_asks_and_python_replies(java: JavaClient, server: Serving, topic: str) -> None:
    with PythonReplier(server, topic) as replier, JavaRequester(java, f"{topic}_askers") as asker:
        reply = asker.ask(topic, "ping", tags="T", keys="k1")
        assert (reply.text, reply.topic) == ("reply to ping", "DefaultCluster_REPLY_TOPIC")
        (request,) = replier.requests
        assert (request.tags, request.keys, request.properties["TTL"]) == ("T", ["k1"], "30000")
        assert reply.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]


def test_python_asks_and_java_replies(java: JavaClient, server: Serving, topic: str) -> None:
    with (
        JavaReplier(java, f"{topic}_repliers", topic) as replier,
        Producer(server.nameserver, group=f"{topic}_askers") as asker,
    ):
        reply = asker.request(Message(topic, "ping", keys="k1"), timeout=30)
        assert (reply.text(), reply.topic) == ("reply to ping", "DefaultCluster_REPLY_TOPIC")
        (request,) = eventually(replier.asked)
        assert request.properties["TTL"] == "30000"
        assert request.properties["REPLY_TO_CLIENT"] == reply.properties["REPLY_TO_CLIENT"]
        futures = [asker.request_async(Message(topic, f"{number}"), timeout=30) for number in range(50)]
        assert [future.result().text() for future in futures] == [f"reply to {number}" for number in range(50)]


def test_long_replies_are_compressed_and_read_on_the_other_side(
    java: JavaClient, server: Serving, topic: str
) -> None:
    of_java, of_python = f"{topic}_1", create_topic(server, f"{topic}_2", queues=1)
    create_topic(server, of_java, queues=1)
    with (
        JavaReplier(java, f"{of_java}_repliers", of_java, times=1000),
        PythonReplier(server, of_python, times=1000),
        JavaRequester(java, f"{topic}_askers") as java_asker,
        Producer(server.nameserver, group=f"{topic}_python_askers") as python_asker,
    ):
        reply = python_asker.request(Message(of_java, "long"), timeout=30)
        assert reply.record.sys_flag & 1
        assert reply.text() == "reply to long" * 1000
        assert java_asker.ask(of_python, "long").body_size == len("reply to long" * 1000)


def test_a_request_without_a_reply_ends_with_the_same_code(java: JavaClient, server: Serving, topic: str) -> None:
    with JavaRequester(java, f"{topic}_askers") as asker, pytest.raises(JavaClientError) as raised:
        asker.ask(topic, "nobody", seconds=1)
    assert (raised.value.kind, raised.value.code) == ("RequestTimeoutException", NO_REPLY)
    with Producer(server.nameserver, group=f"{topic}_python") as asking, pytest.raises(RequestTimeoutError) as ours:
        asking.request(Message(topic, "nobody"), timeout=0.5)
    assert ours.value.code == NO_REPLY
