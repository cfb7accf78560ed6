"""Producers and consumers run on a clock and a random source that they are handed."""

from __future__ import annotations

import asyncio
import random

from orbitmq.aio import Consumer, Message, Producer, Receipt, SimpleConsumer
from orbitmq.protocol.message.message_id import decode_unique_id, month_start
from orbitmq.testing import LocalCluster, ManualClock

NOON = 1_700_000_000_000


async def _receipts(seed: int) -> list[Receipt]:
    async with LocalCluster() as cluster:
        producer = Producer(
            cluster.name_server,
            group="shop",
            clock=ManualClock(NOON),
            random=random.Random(seed),
            client_ip="10.0.0.1",
        )
        async with producer:
            return [await producer.send(Message("orders", b"42")) for _ in range(20)]


async def test_a_message_has_the_time_of_the_producers_clock() -> None:
    clock = ManualClock(NOON)
    async with LocalCluster() as cluster, Producer(cluster.name_server, group="shop", clock=clock) as producer:
        first = await producer.send(Message("orders", b"1"))
        clock.advance(90_000)
        await producer.send(Message("orders", b"2"))
        born = sorted(message.born_timestamp for message in cluster.messages("orders"))
    assert born == [NOON, NOON + 90_000]
    assert decode_unique_id(first.message_id).month_millis == NOON - month_start(NOON)


async def test_one_seed_gives_one_order_of_queues_and_the_same_message_ids() -> None:
    first, again, other = await _receipts(7), await _receipts(7), await _receipts(8)
    assert [receipt.queue for receipt in first] == [receipt.queue for receipt in again]
    assert [receipt.message_id for receipt in first] == [receipt.message_id for receipt in again]
    assert [receipt.message_id for receipt in first] != [receipt.message_id for receipt in other]


async def test_a_consumer_consumes_while_its_clock_stands_still() -> None:
    clock = ManualClock(NOON)
    got: list[bytes] = []
    done = asyncio.Event()
    async with LocalCluster() as cluster:
        consumer = Consumer(
            cluster.name_server, group="billing", clock=clock, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        )

        @consumer.on("orders")
        async def handle(message: object) -> None:
            got.append(message.body)  # type: ignore[attr-defined]
            if len(got) == 3:
                done.set()

        async with Producer(cluster.name_server, group="shop", clock=clock) as producer, consumer:
            for body in (b"1", b"2", b"3"):
                await producer.send(Message("orders", body))
            await done.wait()
            await cluster.wait_until_consumed("billing")
    assert sorted(got) == [b"1", b"2", b"3"]


async def test_a_simple_consumer_shares_a_standing_clock_with_its_broker() -> None:
    clock = ManualClock(NOON)
    async with LocalCluster(clock=clock) as cluster:
        async with Producer(cluster.name_server, group="shop", clock=clock) as producer:
            await producer.send(Message("orders", b"1"))
        async with SimpleConsumer(cluster.name_server, group="billing", clock=clock) as consumer:
            consumer.subscribe("orders")
            (message,) = await consumer.receive()
            await consumer.ack(message)
    assert message.receipt.pop_time == NOON
