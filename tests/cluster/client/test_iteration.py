"""Loops over consumers: a message counts as consumed when the loop asks for the next one."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING

import pytest

import orbitmq as omq
from orbitmq import InvalidMessageError, Message
from orbitmq.aio import Consumer, LitePullConsumer, SimpleConsumer

if TYPE_CHECKING:
    from orbitmq import ReceivedMessage
    from orbitmq.testing import ThreadCluster

WAIT = 60.0


@pytest.fixture
def topic(orbitmq: ThreadCluster) -> str:
    """A topic with twelve messages."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with omq.Producer(orbitmq.name_server) as producer:
        for number in range(12):
            producer.send(Message(name, str(number)))
    return name


async def test_a_loop_over_a_consumer_consumes_each_message_once(orbitmq: ThreadCluster, topic: str) -> None:
    texts: list[str] = []
    consumer = Consumer(orbitmq.name_server, group=f"g-{topic}", start_from="earliest")
    await consumer.subscribe(topic)
    async with asyncio.timeout(WAIT), consumer:
        async for message in consumer:
            texts.append(message.text())
            if len(texts) == 12:
                break
        assert sorted(texts, key=int) == [str(number) for number in range(12)]


@pytest.mark.orbitmq(settings={"messageDelayLevel": "1s 1s 1s 1s"})
async def test_a_message_that_the_loop_is_left_with_is_retried_and_no_other(
    orbitmq: ThreadCluster, topic: str
) -> None:
    group = f"g-{topic}"
    async with asyncio.timeout(WAIT):
        consumer = Consumer(orbitmq.name_server, group=group, start_from="earliest")
        await consumer.subscribe(topic)
        seen: list[ReceivedMessage] = []
        with pytest.raises(ZeroDivisionError):
            await fails_at_third(consumer, seen)
        again = Consumer(orbitmq.name_server, group=group, start_from="earliest")
        await again.subscribe(topic)
        left = {}
        async with again:
            async for message in again:
                left[message.text()] = message.reconsume_times
                if len(left) == 10:
                    break
    assert seen[2].text() in left
    assert {text: times for text, times in left.items() if times} in ({}, {seen[2].text(): 1})
    assert set(left) == {str(number) for number in range(12)} - {message.text() for message in seen[:2]}


async def fails_at_third(consumer: Consumer, seen: list[ReceivedMessage]) -> None:
    async with consumer:
        async for message in consumer:
            seen.append(message)
            if len(seen) == 3:
                raise ZeroDivisionError


async def test_several_tasks_loop_side_by_side_and_end_with_the_consumer(
    orbitmq: ThreadCluster, topic: str
) -> None:
    texts: list[str] = []
    has_all = asyncio.Event()
    consumer = Consumer(orbitmq.name_server, group=f"g-{topic}", start_from="earliest")
    await consumer.subscribe(topic)

    async def work() -> None:
        async for message in consumer:
            texts.append(message.text())
            if len(texts) == 12:
                has_all.set()

    async with asyncio.timeout(WAIT):
        await consumer.start()
        tasks = [asyncio.create_task(work()) for _ in range(3)]
        await has_all.wait()
        await consumer.close()
        await asyncio.gather(*tasks)
    assert len(set(texts)) == 12


def test_plain_code_loops_too(orbitmq: ThreadCluster, topic: str) -> None:
    with_loop = omq.Consumer(orbitmq.name_server, group=f"g-{topic}", start_from="earliest")
    with_loop.subscribe(topic)
    texts: list[str] = []
    with with_loop:
        for message in with_loop:
            texts.append(message.text())
            if len(texts) == 12:
                break
    assert len(set(texts)) == 12


async def test_a_loop_needs_a_topic_without_a_handler(orbitmq: ThreadCluster) -> None:
    consumer = Consumer(orbitmq.name_server, group="g")
    with pytest.raises(InvalidMessageError, match="no topic to loop over"):
        aiter(consumer)
    with pytest.raises(InvalidMessageError, match="single messages"):
        await consumer.subscribe("t", batch=True)


async def test_a_loop_over_a_simple_consumer_acknowledges_itself(orbitmq: ThreadCluster, topic: str) -> None:
    seen: set[str] = set()
    async with asyncio.timeout(WAIT), SimpleConsumer(orbitmq.name_server, group=f"s-{topic}") as consumer:
        consumer.subscribe(topic)
        async for message in consumer:
            await consumer.ack(message)
            seen.add(message.text())
            if len(seen) == 12:
                break
        assert sum((await consumer.lag()).values()) == 0


def test_plain_code_loops_over_a_simple_consumer(orbitmq: ThreadCluster, topic: str) -> None:
    sync = omq.SimpleConsumer(orbitmq.name_server, group=f"s-{topic}", start_from="earliest")
    seen: set[str] = set()
    with sync as consumer:
        consumer.subscribe(topic)
        for message in consumer:
            consumer.ack(message)
            seen.add(message.text())
            if len(seen) == 12:
                break
    assert len(seen) == 12


async def test_lag_and_connection_are_what_a_probe_asks_for(orbitmq: ThreadCluster, topic: str) -> None:
    consumer = LitePullConsumer(orbitmq.name_server, group=f"l-{topic}", start_from="earliest", pull_batch_size=1)
    assert repr(consumer) == f"<LitePullConsumer 'l-{topic}' at {orbitmq.name_server}, not started>"
    consumer.subscribe(topic)
    async with asyncio.timeout(WAIT), consumer:
        seen = 0
        while seen < 5:
            seen += len(await consumer.poll())
        assert consumer.is_connected
        assert sum((await consumer.lag()).values()) == 12 - seen
        assert repr(consumer).endswith(", running>")
    assert repr(consumer).endswith(", closed>")


def test_a_push_consumer_has_no_lag_when_its_handlers_have_returned(orbitmq: ThreadCluster, topic: str) -> None:
    consumer = omq.Consumer(orbitmq.name_server, group=f"p-{topic}", start_from="earliest")
    consumer.on(topic)(lambda _: None)
    with consumer:
        assert consumer.is_connected
        assert set(consumer.lag()) == {queue for queue in consumer.queues if queue.topic == topic}
        until = time.monotonic() + WAIT
        while sum(consumer.lag().values()):
            assert time.monotonic() < until
    assert repr(consumer).endswith(", closed>")
