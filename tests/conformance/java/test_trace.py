"""Traces between Apache's Java clients, tools and broker and ours, in every combination of writer and reader."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import eventually as eventually_java
from conformance.sdk.sdk_harness import APACHE, OURS, create_topic, eventually, own_name
from conformance.servers.processes import Serving, serving
from orbitmq import Consumer, Message, Producer, TransactionProducer, TransactionState
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.trace.encoding import ConsumeOutcome, MessageKind, Published, TransactionEnded
from orbitmq.client.trace.query import MessageTrace, trace_message
from peers.admin import AdminRunner
from peers.apache import available
from peers.java_client import VERSIONS, JavaClient, JavaProducer, unavailable
from peers.java_consumers import JavaPushConsumer
from peers.java_transactions import COMMIT, JavaTransactionProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orbitmq import ReceivedMessage

SETTINGS = {
    "traceTopicEnable": "true",
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "mappedFileSizeCommitLog": str(16 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}


@pytest.fixture(scope="module", params=[OURS, APACHE])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if request.param == APACHE and (reason := available()):
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("server"), SETTINGS, apache=request.param == APACHE) as running:
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
    return create_topic(server, own_name(request), queues=1)


def traced(server: Serving, message_id: str, is_enough: Callable[[MessageTrace], object]) -> MessageTrace:
    """The trace of a message, as soon as it is complete: clients send their traces in intervals."""

    def look() -> MessageTrace | None:
        try:
            found = asyncio.run(trace_message(server.nameserver, message_id))
        except OrbitMQError:
            # The trace topic of a broker that has just started may not be known yet.
            return None
        return found if is_enough(found) else None

    found = eventually(look)
    assert found is not None
    return found


def test_what_java_writes_is_read_here(java: JavaClient, server: Serving, topic: str) -> None:
    with (
        JavaProducer(java, f"{topic}_producers", trace=True) as producer,
        JavaPushConsumer(java, f"{topic}_consumers", topic, trace=True, failures=1) as consumer,
    ):
        sent = producer.send(topic, "hello", tags="T", keys="k1 k2")
        eventually_java(consumer.consumed, is_enough=lambda found: len(found) >= 2)
        found = traced(
            server,
            sent.message_id,
            lambda trace: trace.published and len([one for one in trace.attempts if one.ended]) == 2,
        )
    (published,) = found.published
    record = published.record
    assert isinstance(record, Published)
    assert (record.group, record.topic, record.tags, record.keys) == (f"{topic}_producers", topic, "T", "k1 k2")
    assert (record.offset_message_id, record.body_length) == (sent.offset_id, 5)
    assert (record.store_host, record.kind) == (server.broker_address, MessageKind.NORMAL)
    assert [(one.group, one.retry_times, one.ended.outcome if one.ended else None) for one in found.attempts] == [
        (f"{topic}_consumers", 0, ConsumeOutcome.FAILED),
        (f"{topic}_consumers", 1, ConsumeOutcome.SUCCESS),
    ]


def test_transactions_of_java_are_read_here(java: JavaClient, server: Serving, topic: str) -> None:
    with JavaTransactionProducer(java, f"{topic}_producers", trace=True) as producer:
        sent = producer.send(topic, "hello", COMMIT, keys="k1")
        found = traced(server, sent.message_id, lambda trace: trace.published and trace.ended)
    (half,), (end,) = found.published, found.ended
    assert isinstance(half.record, Published)
    assert isinstance(end.record, TransactionEnded)
    assert half.record.kind is MessageKind.TRANSACTION_HALF
    assert (end.record.state, end.record.from_check) == ("COMMIT_MESSAGE", False)
    assert end.record.transaction_id == sent.transaction_id


def test_what_is_written_here_is_what_java_writes(java: JavaClient, server: Serving, topic: str) -> None:
    """Field by field, but for times, ids and names."""
    with JavaProducer(java, f"{topic}_java", trace=True) as theirs:
        of_java = theirs.send(topic, "hello", tags="T", keys="k1").message_id
        found = traced(server, of_java, lambda trace: trace.published)
    with Producer(server.nameserver, group=f"{topic}_python", enable_trace=True) as ours:
        of_python = ours.send(Message(topic, "hello", tags="T", keys="k1")).message_id
    mine = traced(server, of_python, lambda trace: trace.published)
    shapes = []
    for trace in (found, mine):
        record = trace.published[0].record
        assert isinstance(record, Published)
        shapes.append(
            dataclasses.replace(
                record, timestamp=0, group="", message_id="", cost_ms=0, offset_message_id=""
            ).encode()
        )
    assert shapes[0] == shapes[1]


def test_mqadmin_reads_what_is_written_here(server: Serving, topic: str, tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)

    def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    consumer = Consumer(
        server.nameserver,
        group=f"{topic}_c"[-20:],
        enable_trace=True,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    seen: list[str] = []

    @consumer.on(topic)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.message_id)

    producers = f"{topic}_p"[-20:]
    with (
        TransactionProducer(server.nameserver, group=producers, check=check, enable_trace=True) as producer,
        consumer,
    ):
        plain = producer.send(Message(topic, "plain", keys="k1")).message_id
        with producer.transaction(Message(topic, "in a transaction")) as transaction:
            pass
        eventually(functools.partial({plain, transaction.transaction_id}.issubset, seen))
    with AdminRunner(home=tmp_path, nameserver=server.nameserver) as admin:
        for message_id in (plain, transaction.transaction_id):
            traced(server, message_id, lambda trace: trace.published and trace.attempts)
            ran = admin.run("queryMsgTraceById", "-i", message_id, "-n", server.nameserver)
            rows = [line.split() for line in ran.splitlines() if line.startswith(("Pub", "Sub"))]
            assert [(row[0], row[1], row[-1]) for row in rows] == [
                ("Pub", producers, "success"),
                ("Sub", consumer.group, "success"),
            ], ran
