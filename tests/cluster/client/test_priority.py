"""Priorities with the client: more important messages overtake what waits, and nothing is lost over it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq as omq
from orbitmq import Message
from orbitmq.aio import Consumer, InvalidMessageError, Producer
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.testing import LocalCluster
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.aio import ReceivedMessage

TOPIC = "orders"
FROM_FIRST: Any = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster() as running:
        yield running


async def test_a_consumer_takes_the_most_important_of_what_waits(cluster: LocalCluster) -> None:
    cluster.broker().topics.update(TopicConfig(TOPIC, 2, 2))
    seen: list[int | None] = []
    gate, is_waiting = asyncio.Event(), asyncio.Event()
    consumer = Consumer(cluster.name_server, group="g", by_priority=True, consume_thread_max=1, **FROM_FIRST)

    @consumer.on(TOPIC)
    async def handle(message: ReceivedMessage) -> None:
        is_waiting.set()
        await gate.wait()
        seen.append(message.priority)

    async with Producer(cluster.name_server) as producer, consumer:
        await producer.send(Message(TOPIC, b"first"))
        await is_waiting.wait()
        levels = [7, 65535, 0, 300, 7, 299, 1]
        for level in levels:
            await producer.send(Message(TOPIC, b"x", priority=level))
        await producer.send(Message(TOPIC, b"none"))
        await eventually(lambda: len(consumer._running().consumption._ready) == 8)  # type: ignore[attr-defined]
        gate.set()
        await eventually(lambda: len(seen) == 9)
    assert seen == [None, 65535, 300, 299, 7, 7, 1, 0, None]


def test_also_with_handlers_in_threads() -> None:
    seen: list[int | None] = []
    gate, is_waiting = threading.Event(), threading.Event()
    with LocalCluster() as cluster:
        consumer = omq.Consumer(
            cluster.name_server, group="g", by_priority=True, consume_thread_max=1, **FROM_FIRST
        )

        @consumer.on(TOPIC)
        def handle(message: omq.ReceivedMessage) -> None:
            is_waiting.set()
            gate.wait(30)
            seen.append(message.priority)

        with omq.Producer(cluster.name_server) as producer, consumer:
            producer.send(Message(TOPIC, b"first"))
            is_waiting.wait(30)
            for level in (1, 9, 5):
                producer.send(Message(TOPIC, b"x", priority=level))
            while consumer._client._running().consumption.threads.unfinished < 4:
                is_waiting.wait(0.01)
            gate.set()
            cluster.wait_until_consumed("g")
    assert seen == [None, 9, 5, 1]


async def test_topics_may_be_levels(cluster: LocalCluster) -> None:
    seen: list[str] = []
    gate, is_waiting = asyncio.Event(), asyncio.Event()
    levels = {"urgent": 2, "usual": 1}
    consumer = Consumer(cluster.name_server, group="g", topic_levels=levels, consume_thread_max=1, **FROM_FIRST)

    async def handle(message: ReceivedMessage) -> None:
        is_waiting.set()
        await gate.wait()
        seen.append(message.text())

    for topic in ("urgent", "usual", "sometime"):
        consumer.on(topic)(handle)
    async with Producer(cluster.name_server) as producer:
        for topic in ("urgent", "usual", "sometime"):
            await producer.send(Message(topic, f"{topic} 0"))
        async with consumer:
            await is_waiting.wait()
            for topic in ("sometime", "usual", "urgent"):
                await producer.send(Message(topic, f"{topic} 1"))
            await producer.send(Message("urgent", "urgent 2", priority=1))
            consumption = consumer._running().consumption
            await eventually(lambda: len(consumption._ready) == 6)  # type: ignore[attr-defined]
            gate.set()
            await eventually(lambda: len(seen) == 7)
    # The first was taken before the others were there.
    ranked = ["urgent 2", "urgent 0", "urgent 1", "usual 0", "usual 1", "sometime 0", "sometime 1"]
    assert [text for text in ranked if text != seen[0]] == seen[1:]


async def test_the_levels_of_a_topic_are_consumed_from_the_highest_down(cluster: LocalCluster) -> None:
    """With a consumer that knows nothing of priorities: the broker gives it one level after the other."""
    cluster.broker().topics.update(TopicConfig(TOPIC, 4, 4, attributes={"message.type": "PRIORITY"}))
    seen: list[int | None] = []
    consumer = Consumer(cluster.name_server, group="g", consume_thread_max=1, pull_batch_size=4, **FROM_FIRST)

    @consumer.on(TOPIC, inline=True)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.priority)

    async with Producer(cluster.name_server) as producer:
        for number in range(80):
            await producer.send(Message(TOPIC, b"x", priority=number % 4))
        async with consumer:
            await eventually(lambda: len(seen) == 80)
    assert seen == sorted(seen, key=lambda level: -(level or 0))


async def test_batches_have_one_level_after_the_other(cluster: LocalCluster) -> None:
    cluster.broker().topics.update(TopicConfig(TOPIC, 1, 1))
    seen: list[list[int | None]] = []
    consumer = Consumer(
        cluster.name_server, group="g", by_priority=True, consume_message_batch_max_size=3, **FROM_FIRST
    )

    @consumer.on(TOPIC)
    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.append([message.priority for message in messages])

    async with Producer(cluster.name_server) as producer:
        await producer.send_batch([Message(TOPIC, b"x", priority=level) for level in (1, 5, 2, 4, 3, 6)])
        async with consumer:
            await eventually(lambda: sum(map(len, seen)) == 6)
    assert seen == [[6, 5, 4], [3, 2, 1]]


def test_what_cannot_be_is_refused() -> None:
    for priority in (-1, 65536):
        with pytest.raises(InvalidMessageError, match="0 to 65535"):
            Message(TOPIC, b"x", priority=priority)
    for other in ({"sharding_key": "s"}, {"delay_level": 1}):
        with pytest.raises(InvalidMessageError, match="as well"):
            Message(TOPIC, b"x", priority=1, **other)
    with pytest.raises(InvalidMessageError, match="orderly"):
        Consumer("127.0.0.1:9876", group="g", orderly=True, by_priority=True)
