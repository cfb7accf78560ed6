"""The simple consumer: receive, acknowledge, hide for longer, and what comes again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq
from orbitmq import BrokerError, InvalidMessageError, Message, NoRouteError, NotRunningError
from orbitmq.aio import Producer, SimpleConsumer
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq import PoppedMessage

SOON = 1.0
"""Seconds for which messages are hidden that are to come again."""

PATIENCE = 30.0


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(settings={"reviveInterval": "100"}) as running:
        yield running


async def send(cluster: LocalCluster, *bodies: str, topic: str = "orders", **said: Any) -> None:
    async with Producer(cluster.name_server, group="shop") as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **said))


async def receive_all(consumer: SimpleConsumer, count: int, invisible: float = 30.0) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < until, f"only {len(found)} of {count} came"
        found += await consumer.receive(invisible=invisible, timeout=2)
    return found


def texts(messages: list[PoppedMessage]) -> list[str]:
    return sorted(message.text() for message in messages)


async def test_each_message_is_received_by_one_and_settled(cluster: LocalCluster) -> None:
    await send(cluster, *map(str, range(20)))
    async with (
        SimpleConsumer(cluster.name_server, group="billing") as one,
        SimpleConsumer(cluster.name_server, group="billing") as other,
    ):
        for consumer in (one, other):
            consumer.subscribe("orders")
        first = await one.receive(8)
        rest = await receive_all(other, 20 - len(first))
        assert texts(first + rest) == sorted(map(str, range(20)))
        assert {message.topic for message in first} == {"orders"}
        assert {message.reconsume_times for message in first} == {0}
        assert all(message.invisible_until > time.time() for message in first)
        await one.ack(*first)
        await other.ack(*rest)
        assert await one.receive(timeout=0) == []


async def test_what_is_not_acknowledged_comes_again(cluster: LocalCluster) -> None:
    await send(cluster, "good", "bad", keys="k")
    async with SimpleConsumer(cluster.name_server, group="billing") as consumer:
        consumer.subscribe("orders")
        messages = await receive_all(consumer, 2, SOON)
        await consumer.ack(*(message for message in messages if message.text() == "good"))
        (again,) = await receive_all(consumer, 1)
        assert (again.text(), again.reconsume_times, again.topic, again.keys) == ("bad", 1, "orders", ["k"])
        await consumer.ack(again)


async def test_a_message_is_hidden_for_longer_or_comes_at_once(cluster: LocalCluster) -> None:
    await send(cluster, "slow", "failed")
    async with SimpleConsumer(cluster.name_server, group="billing") as consumer:
        consumer.subscribe("orders")
        messages = {message.text(): message for message in await receive_all(consumer, 2, SOON)}
        slow, failed = messages["slow"], messages["failed"]
        before = slow.receipt
        await consumer.change_invisible(slow, 60)
        assert slow.receipt != before
        assert slow.invisible_until > time.time() + 30
        await consumer.change_invisible(failed, 0)
        (again,) = await receive_all(consumer, 1)
        assert again.text() == "failed"
        await consumer.ack(again, slow)


async def test_only_what_is_wanted_comes(cluster: LocalCluster) -> None:
    await send(cluster, "paid", tags="paid")
    await send(cluster, "open", tags="open")
    await send(cluster, "twenty", topic="amounts", tags="x")
    async with SimpleConsumer(cluster.name_server, group="billing") as consumer:
        consumer.subscribe("orders", tags="paid || refunded")
        consumer.subscribe("amounts", sql="TAGS = 'x'")
        assert texts(await receive_all(consumer, 2)) == ["paid", "twenty"]
        consumer.unsubscribe("amounts")
        assert await consumer.receive(timeout=0) == []


async def test_a_message_that_comes_too_often_becomes_a_dead_letter(cluster: LocalCluster) -> None:
    await send(cluster, "poison")
    async with SimpleConsumer(cluster.name_server, group="billing", max_reconsume_times=1) as consumer:
        consumer.subscribe("orders")
        for times in range(2):
            (message,) = await receive_all(consumer, 1, 0)
            assert message.reconsume_times == times
        until = time.monotonic() + PATIENCE
        while not cluster.dead_letters("billing"):
            assert time.monotonic() < until
            assert await consumer.receive(timeout=0.2) == []
        assert [message.text() for message in cluster.dead_letters("billing")] == ["poison"]


async def test_receiving_waits_for_a_message(cluster: LocalCluster) -> None:
    await send(cluster, "first")
    async with SimpleConsumer(cluster.name_server, group="billing") as consumer:
        consumer.subscribe("orders")
        await consumer.ack(*await receive_all(consumer, 1))
        waiting = asyncio.create_task(consumer.receive(timeout=PATIENCE))
        await asyncio.sleep(0.1)
        await send(cluster, "late")
        (message,) = await waiting
        assert message.text() == "late"
        await consumer.ack(message)


async def test_brokers_know_who_receives(cluster: LocalCluster) -> None:
    await send(cluster, "a")
    consumer = SimpleConsumer(cluster.name_server, group="billing")
    consumer.subscribe("orders")
    async with consumer:
        broker = cluster.broker()
        group = broker.clients.consumers["billing"]
        assert group.consume_type is not None
        assert group.consume_type.value == "CONSUME_POP"
        assert set(group.subscriptions) == {"orders"}
    assert "billing" not in broker.clients.consumers


async def test_what_cannot_be_is_refused(cluster: LocalCluster) -> None:
    consumer = SimpleConsumer(cluster.name_server, group="billing")
    consumer.subscribe("orders")
    with pytest.raises(NotRunningError):
        await consumer.receive()
    async with consumer:
        with pytest.raises(InvalidMessageError):
            await consumer.receive(33)
        with pytest.raises(InvalidMessageError):
            await consumer.receive(invisible=-1)
        with pytest.raises(NoRouteError):
            await consumer.receive(timeout=0)
        with pytest.raises(InvalidMessageError):
            consumer.subscribe("orders", tags="a", sql="b = 1")
        await send(cluster, "a")
        (message,) = await receive_all(consumer, 1)
        message.receipt = message.receipt._replace(offset=99)
        with pytest.raises(BrokerError):
            await consumer.ack(message)
    with pytest.raises(InvalidMessageError):
        SimpleConsumer(cluster.name_server, group="billing", max_messages=0)


def test_plain_code_can_do_it_too() -> None:
    with (
        LocalCluster() as cluster,
        orbitmq.Producer(cluster.name_server) as producer,
        orbitmq.SimpleConsumer(cluster.name_server, group="billing") as consumer,
    ):
        producer.send(Message("orders", "a"))
        consumer.subscribe("orders")
        (message,) = consumer.receive(timeout=PATIENCE)
        consumer.change_invisible(message, 60)
        consumer.ack(message)
        assert consumer.group == "billing"
        assert consumer.receive(timeout=0) == []
        consumer.unsubscribe("orders")
        with pytest.raises(InvalidMessageError):
            consumer.receive()
