"""``orbitmq trace`` draws the way of one message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq import Consumer, Message, Producer
from orbitmq.testing import LocalCluster
from support.cli.command import Ran, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq import ReceivedMessage
    from orbitmq.testing import ThreadCluster

NOBODY = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster(settings={"traceTopicEnable": "true"}) as cluster:
        yield cluster


def traces(cluster: ThreadCluster, message_id: str, *arguments: object) -> Ran:
    return run("trace", message_id, "-n", cluster.name_server, *arguments)


def travelled(cluster: ThreadCluster, body: bytes = b"hello", *, trace_topic: str = "") -> str:
    """The id of a message that was sent and consumed, both traced."""
    consumer = Consumer(
        cluster.name_server,
        group="billing",
        enable_trace=True,
        trace_topic=trace_topic,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )

    @consumer.on("orders")
    def handle(_: ReceivedMessage) -> None: ...

    with (
        Producer(cluster.name_server, group="shop", enable_trace=True, trace_topic=trace_topic) as producer,
        consumer,
    ):
        receipt = producer.send(Message("orders", body, tags="paid", keys="k[1]"))
        cluster.wait_until_consumed("billing")
    return receipt.message_id


def test_people_see_who_sent_and_who_consumed_it(cluster: ThreadCluster) -> None:
    message_id = travelled(cluster)
    ran = traces(cluster, message_id)
    assert (ran.code, ran.err) == (0, "")
    first, *rest = ran.out.splitlines()
    assert first == message_id
    text = "\n".join(rest)
    assert "sent to orders by group shop  ✓ stored  in " in text
    assert "5 B, normal, tag paid, keys k[1]" in text
    assert "group billing" in text
    assert "attempt 1  ✓ consumed  in " in text


def test_machines_get_one_object(cluster: ThreadCluster) -> None:
    message_id = travelled(cluster)
    told = traces(cluster, message_id, "--json").json
    (sent,) = told["published"]
    (attempt,) = told["attempts"]
    assert (told["messageId"], told["transactions"], told["recalled"]) == (message_id, [], [])
    assert (sent["group"], sent["topic"], sent["bodyLength"], sent["kind"]) == ("shop", "orders", 5, "NORMAL")
    assert (sent["messageId"], sent["succeeded"], sent["keys"]) == (message_id, True, "k[1]")
    assert sent["clientHost"].startswith("127.0.0.1:")
    assert (attempt["group"], attempt["retryTimes"], attempt["outcome"]) == ("billing", 0, "SUCCESS")
    assert attempt["beganAt"] >= sent["timestamp"]


def test_a_message_without_a_consumer_is_reported(cluster: ThreadCluster) -> None:
    with Producer(cluster.name_server, group="shop", enable_trace=True) as producer:
        message_id = producer.send(Message("orders", b"x")).message_id
    assert "no traced consumer has received it" in traces(cluster, message_id).out


def test_traces_may_be_in_another_topic(cluster: ThreadCluster) -> None:
    message_id = travelled(cluster, trace_topic="my_traces")
    assert traces(cluster, message_id).code == 1
    assert "attempt 1" in traces(cluster, message_id, "--topic", "my_traces").out


def test_a_message_without_traces_is_one_sentence(cluster: ThreadCluster) -> None:
    ran = traces(cluster, "7F000001")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(
        "orbitmq: no trace of 7F000001 in topic RMQ_SYS_TRACE_TOPIC; traces need enable_trace"
    )
    assert traces(cluster, "7F000001", "--json").json["published"] == []


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    ran = run("trace", "7F000001", "-n", NOBODY)
    assert ran.code == 1
    assert "no name server responds" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_no_trace_topic_is_one_sentence() -> None:
    with LocalCluster(settings={"autoCreateTopicEnable": "false"}) as cluster:
        ran = traces(cluster, "7F000001")
        assert (ran.code, len(ran.err.splitlines())) == (1, 1)
        assert "RMQ_SYS_TRACE_TOPIC" in ran.err
