"""Messages for a time with the client: they come when they should, not before, and not at all if taken back."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq as omq
from orbitmq import Message
from orbitmq.aio import (
    BrokerError,
    Consumer,
    InvalidMessageError,
    NoRouteError,
    NotRunningError,
    Producer,
    SendError,
)
from orbitmq.protocol.message.recall_handle import RecallHandle, decode_recall_handle
from orbitmq.testing import LocalCluster
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.aio import ReceivedMessage
    from orbitmq.testing import ThreadCluster

TOPIC = "reminders"
FIRST = "CONSUME_FROM_FIRST_OFFSET"
RECALL = {"recallMessageEnable": "true"}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(settings=RECALL) as running:
        yield running


@pytest.fixture
async def producer(cluster: LocalCluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.name_server, group="clock") as running:
        yield running


def bodies(cluster: LocalCluster) -> list[bytes]:
    return [message.body for message in cluster.messages(TOPIC)]


# Sending


async def test_a_delay_is_kept_to_the_second(cluster: LocalCluster, producer: Producer) -> None:
    await producer.send(Message(TOPIC, b"tea", delay=90))
    await cluster.advance(89)
    assert bodies(cluster) == []
    await cluster.advance(2)
    assert bodies(cluster) == [b"tea"]


@pytest.mark.parametrize("kind", ["datetime", "local", "number"])
async def test_a_moment_is_a_datetime_or_seconds_since_the_epoch(
    cluster: LocalCluster, producer: Producer, kind: str
) -> None:
    moment = cluster.clock.now_ms() / 1000 + 3600
    times: dict[str, Any] = {
        "datetime": datetime.datetime.fromtimestamp(moment, datetime.UTC),
        "local": datetime.datetime.fromtimestamp(moment),
        "number": moment,
    }
    await producer.send(Message(TOPIC, b"tea", deliver_at=times[kind]))
    await cluster.advance(3598)
    assert bodies(cluster) == []
    await cluster.advance(4)
    assert bodies(cluster) == [b"tea"]


async def test_a_moment_that_has_passed_is_now(cluster: LocalCluster, producer: Producer) -> None:
    receipt = await producer.send(Message(TOPIC, b"tea", deliver_at=1.0))
    assert receipt.recall_handle is None
    assert bodies(cluster) == [b"tea"]


async def test_a_consumer_gets_the_message_as_it_was_sent(cluster: LocalCluster, producer: Producer) -> None:
    got: list[ReceivedMessage] = []
    receipt = await producer.send(Message(TOPIC, b"tea", tags="hot", keys="k", properties={"cup": "2"}, delay=30))
    consumer = Consumer(cluster.name_server, group="guests", consume_from_where=FIRST)
    consumer.on(TOPIC)(got.append)
    async with consumer:
        await cluster.advance(31)
        await eventually(lambda: got)
    (message,) = got
    assert (message.body, message.tags, message.keys, message.topic) == (b"tea", "hot", ["k"], TOPIC)
    assert message.properties["cup"] == "2"
    assert message.message_id == receipt.message_id
    assert message.queue_id == receipt.queue.queue_id


async def test_a_time_too_far_away_is_refused(producer: Producer) -> None:
    with pytest.raises(BrokerError, match="max delay 259200000ms") as refused:
        await producer.send(Message(TOPIC, b"tea", delay=3 * 86_400 + 5))
    assert refused.value.code == 13


@pytest.mark.parametrize(
    "times",
    [{"delay": -1}, {"delay": float("nan")}, {"deliver_at": float("inf")}, {"deliver_at": -5.0}, {"delay": 1e30}],
)
def test_what_is_no_time_is_refused_where_it_is_written(times: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError, match="number of seconds"):
        Message(TOPIC, b"tea", **times)


@pytest.mark.parametrize(
    "times",
    [{"delay": 1, "deliver_at": 1.0}, {"delay": 1, "delay_level": 3}, {"deliver_at": 1.0, "delay_level": 3}],
)
def test_a_message_has_one_time(times: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessageError, match="give one of"):
        Message(TOPIC, b"tea", **times)


@pytest.mark.parametrize(
    ("times", "name", "value"),
    [
        ({"delay": 5}, "TIMER_DELAY_SEC", "5"),
        ({"delay": 5.0}, "TIMER_DELAY_SEC", "5"),
        ({"delay": 0.25}, "TIMER_DELAY_MS", "250"),
        ({"delay": 1.0005}, "TIMER_DELAY_MS", "1001"),
        ({"deliver_at": 1_700_000_000.25}, "TIMER_DELIVER_MS", "1700000000250"),
        ({"delay_level": 3}, "DELAY", "3"),
    ],
)
def test_times_are_written_as_javas_client_writes_them(times: dict[str, Any], name: str, value: str) -> None:
    assert Message(TOPIC, b"tea", **times).properties[name] == value


async def test_messages_for_a_time_are_not_batched(cluster: LocalCluster, producer: Producer) -> None:
    with pytest.raises(InvalidMessageError):
        await producer.send_batch([Message(TOPIC, b"tea", delay=5), Message(TOPIC, b"milk")])
    async with Producer(cluster.name_server, group="gathering", auto_batch=True) as gathering:
        receipt = await gathering.send(Message(TOPIC, b"tea", delay=5))
        assert receipt.recall_handle is not None


async def test_what_waits_survives_a_restart_and_a_kill(cluster: LocalCluster, producer: Producer) -> None:
    for seconds in (20, 40, 60):
        await producer.send(Message(TOPIC, b"%d" % seconds, delay=seconds))
    await cluster.restart("broker-a")
    await cluster.advance(21)
    assert bodies(cluster) == [b"20"]
    await cluster.kill("broker-a")
    await cluster.start("broker-a")
    await cluster.advance(40)
    assert sorted(set(bodies(cluster))) == [b"20", b"40", b"60"]


# Taking back


async def test_a_message_that_is_taken_back_never_comes(cluster: LocalCluster, producer: Producer) -> None:
    receipts = [await producer.send(Message(TOPIC, body, delay=60)) for body in (b"one", b"two", b"three")]
    handle = receipts[1].recall_handle
    assert handle is not None
    assert await producer.recall(TOPIC, handle) == receipts[1].message_id
    await cluster.advance(61)
    assert sorted(bodies(cluster)) == [b"one", b"three"]


async def test_a_handle_says_what_apaches_says(cluster: LocalCluster, producer: Producer) -> None:
    deliver_at = cluster.clock.now_ms() // 1000 + 60.5
    receipt = await producer.send(Message(TOPIC, b"tea", deliver_at=deliver_at))
    assert receipt.recall_handle is not None
    assert decode_recall_handle(receipt.recall_handle) == RecallHandle(
        TOPIC, "broker-a", str(int(deliver_at) * 1000 + 1), receipt.message_id
    )


async def test_what_has_come_cannot_be_taken_back(cluster: LocalCluster, producer: Producer) -> None:
    receipt = await producer.send(Message(TOPIC, b"tea", delay=5))
    await cluster.advance(10)
    with pytest.raises(BrokerError, match="timestamp invalid") as refused:
        await producer.recall(TOPIC, receipt.recall_handle or "")
    assert refused.value.code == 604
    assert bodies(cluster) == [b"tea"]


async def test_messages_that_are_tried_again_have_no_handle(cluster: LocalCluster, producer: Producer) -> None:
    for delay in ({}, {"delay_level": 3}):
        receipt = await producer.send(Message(TOPIC, b"tea", **delay))  # type: ignore[arg-type]
        assert receipt.recall_handle is None


@pytest.mark.parametrize("handle", ["", "???", "djI=", "djEgdA=="])
async def test_what_is_no_handle_is_refused_here(producer: Producer, handle: str) -> None:
    with pytest.raises(InvalidMessageError, match="recall handle is invalid"):
        await producer.recall(TOPIC, handle)


async def test_an_unknown_broker_is_said(producer: Producer) -> None:
    await producer.send(Message(TOPIC, b"tea"))
    with pytest.raises(NoRouteError, match="broker-z"):
        await producer.recall(TOPIC, RecallHandle(TOPIC, "broker-z", "1", "k").encode())


async def test_a_broker_that_does_not_answer_is_said(cluster: LocalCluster, producer: Producer) -> None:
    receipt = await producer.send(Message(TOPIC, b"tea", delay=60))
    await cluster.stop("broker-a")
    with pytest.raises(SendError, match=r"recall request to .* failed"):
        await producer.recall(TOPIC, receipt.recall_handle or "", timeout=2)


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", ""])
async def test_topics_that_cannot_be_are_refused_here(producer: Producer, topic: str) -> None:
    with pytest.raises(InvalidMessageError):
        await producer.recall(topic, RecallHandle("t", "b", "1", "k").encode())


async def test_a_closed_producer_takes_nothing_back(cluster: LocalCluster) -> None:
    with pytest.raises(NotRunningError):
        await Producer(cluster.name_server).recall(TOPIC, "h")


async def test_a_broker_may_not_allow_it() -> None:
    settings = {"recallMessageEnable": "false"}
    async with LocalCluster(settings=settings) as cluster, Producer(cluster.name_server, group="clock") as producer:
        receipt = await producer.send(Message(TOPIC, b"tea", delay=60))
        with pytest.raises(BrokerError, match="operation is forbidden") as refused:
            await producer.recall(TOPIC, receipt.recall_handle or "")
        assert refused.value.code == 16


@pytest.mark.orbitmq(settings={"recallMessageEnable": "false"})
def test_plain_code_does_the_same(orbitmq: ThreadCluster) -> None:
    with omq.Producer(orbitmq.name_server, group="clock") as producer:
        receipt = producer.send(Message(TOPIC, b"tea", delay=60))
        assert receipt.recall_handle is not None
        with pytest.raises(BrokerError, match="operation is forbidden"):
            producer.recall(TOPIC, receipt.recall_handle)
        orbitmq.advance(61)
        assert [message.body for message in orbitmq.messages(TOPIC)] == [b"tea"]
