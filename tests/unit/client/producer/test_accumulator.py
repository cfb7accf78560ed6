"""Messages that wait for each other to travel in one batch."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.errors import BrokerError, NotRunningError
from orbitmq.client.message import Message
from orbitmq.client.producer.accumulator import MAX_BATCHES_IN_FLIGHT
from orbitmq.client.producer.batch import PartlySentError
from orbitmq.client.producer.producer import Producer
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import iter_batch
from orbitmq.testing.local_cluster import LocalCluster
from support.client.producer_harness import TOPIC, Peers, peer_brokers
from support.remoting_harness import eventually


def producer_of(peers: Peers, **options: object) -> Producer:
    return Producer(peers.name_server, group="g", **{"auto_batch": True, **options})  # type: ignore[arg-type]


def batches(peers: Peers) -> list[list[bytes]]:
    """The bodies of each batch that was sent; one of a single message is one too."""
    return [
        [bytes(item[1]) for item in iter_batch(memoryview(send.body or b""))]
        for broker in peers.brokers
        for send in broker.sends
        if send.code == RequestCode.SEND_BATCH_MESSAGE
    ]


async def test_messages_that_come_together_travel_together() -> None:
    async with LocalCluster() as cluster:
        async with Producer(cluster.name_server, group="g", auto_batch=True) as producer:
            receipts = await asyncio.gather(*(producer.send(Message(TOPIC, f"{n}")) for n in range(50)))
        stored = cluster.messages(TOPIC)
        assert [message.body for message in stored] == [b"%d" % n for n in range(50)]
        assert [receipt.message_id for receipt in receipts] == [message.message_id for message in stored]
        assert [receipt.queue_offset for receipt in receipts] == list(range(50))


async def test_one_alone_leaves_at_once() -> None:
    # A timer of half a minute would fail the send.
    async with peer_brokers() as peers, producer_of(peers, batch_max_delay=30.0, send_msg_timeout=10.0) as producer:
        receipt = await producer.send(Message(TOPIC, b"alone"))
        assert receipt.queue.topic == TOPIC
        assert batches(peers) == [[b"alone"]]


async def test_sends_one_after_the_other_do_not_wait_and_concurrent_ones_share_batches() -> None:
    async with peer_brokers() as peers, producer_of(peers, batch_max_delay=30.0) as producer:
        for number in range(3):
            await producer.send(Message(TOPIC, b"%d" % number))
        assert sorted(batches(peers)) == [[b"0"], [b"1"], [b"2"]]
        first = producer.send_nowait(Message(TOPIC, b"a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [producer.send_nowait(Message(TOPIC, b"b")) for _ in range(4)]
        await asyncio.gather(first, *others)
        assert sorted(batches(peers))[3:] == [[b"a"], [b"b"] * 4]


async def test_enough_bytes_do_not_wait_at_all() -> None:
    async with peer_brokers() as peers, producer_of(peers, batch_max_delay=30.0, batch_max_bytes=1000) as producer:
        sends = [producer.send_nowait(Message(TOPIC, b"%0100d" % n)) for n in range(9)]
        await asyncio.gather(*sends)
        assert len(batches(peers)) == 1


async def test_different_tags_queues_and_wishes_travel_apart() -> None:
    async with peer_brokers() as peers, producer_of(peers) as producer:
        queue = MessageQueue(TOPIC, "broker-a", 1)
        await asyncio.gather(
            *(producer.send_nowait(Message(TOPIC, b"a", tags="a")) for _ in range(2)),
            *(producer.send_nowait(Message(TOPIC, b"b", tags="b")) for _ in range(2)),
            *(producer.send_nowait(Message(TOPIC, b"w", wait_store_ok=False)) for _ in range(2)),
            *(producer.send_nowait(Message(TOPIC, b"q"), queue=queue) for _ in range(2)),
        )
        assert sorted(batches(peers)) == [[b"a", b"a"], [b"b", b"b"], [b"q", b"q"], [b"w", b"w"]]


async def test_what_must_not_wait_is_sent_alone() -> None:
    async with peer_brokers() as peers, producer_of(peers, batch_max_delay=30.0) as producer:
        of_transaction = Message(TOPIC, b"x")
        of_transaction.properties[names.PRODUCER_GROUP] = "g"
        for message in (
            Message(TOPIC, b"x", delay_level=2),
            Message(TOPIC, b"x", sharding_key="k"),
            Message(TOPIC, b"x" * (33 << 10)),
            of_transaction,
        ):
            await producer.send(message)
        await producer.send(Message(TOPIC, b"x"), timeout=3)
        await producer.send(Message(TOPIC, b"x"), selector=lambda queues, *_: queues[0])
        assert peers.sends == 6
        assert batches(peers) == []


async def test_when_too_much_waits_the_next_one_does_not() -> None:
    options = {"batch_max_delay": 30.0, "total_batch_max_bytes": 100, "batch_max_bytes": 1000}
    async with peer_brokers() as peers:
        producer = await producer_of(peers, **options).start()
        waiting = producer.send_nowait(Message(TOPIC, b"x" * 90))
        await producer.send(Message(TOPIC, b"y"))
        await producer.close()
        assert waiting.done()
        assert batches(peers) == [[b"x" * 90]]
        assert b"y" in [body for broker in peers.brokers for body in broker.bodies]


async def test_closing_sends_what_waits() -> None:
    async with peer_brokers() as peers:
        async with producer_of(peers, batch_max_delay=30.0) as producer:
            waiting = [producer.send_nowait(Message(TOPIC, b"%d" % n)) for n in range(3)]
        assert all(future.done() for future in waiting)
        assert batches(peers) == [[b"0", b"1", b"2"]]
        with pytest.raises(NotRunningError):
            producer.send_nowait(Message(TOPIC, b"x"))


async def test_a_batch_that_fails_fails_for_each() -> None:
    async with peer_brokers() as peers, producer_of(peers) as producer:
        for broker in peers.brokers:
            broker.always = 13
        results = await asyncio.gather(
            *(producer.send_nowait(Message(TOPIC, b"x")) for _ in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [BrokerError] * 3


async def test_one_that_stops_waiting_does_not_stop_the_others() -> None:
    async with peer_brokers() as peers, producer_of(peers) as producer:
        first, second = (asyncio.create_task(producer.send(Message(TOPIC, b"x"))) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        await eventually(first.done)
        assert first.cancelled()
        assert batches(peers) == [[b"x", b"x"]]


async def test_if_a_part_was_sent_those_in_it_were() -> None:
    async with (
        peer_brokers("broker-a") as peers,
        producer_of(peers, max_message_size=1000, batch_max_bytes=5000) as producer,
    ):
        peers.brokers[0].codes = [0, 13]
        results = await asyncio.gather(
            *(producer.send_nowait(Message(TOPIC, b"%0500d" % n)) for n in range(3)), return_exceptions=True
        )
        assert [isinstance(result, PartlySentError) for result in results] == [False, True, True]


async def test_whoever_waits_for_room_does_not_run_ahead_of_the_batches() -> None:
    async with LocalCluster() as cluster:
        async with Producer(cluster.name_server, group="g", auto_batch=True, batch_max_bytes=200) as producer:
            futures = []
            most = 0
            for number in range(2000):
                await producer.room()
                futures.append(producer.send_nowait(Message(TOPIC, b"%0100d" % number)))
                most = max(most, sum(not future.done() for future in futures))
            await asyncio.gather(*futures)
        assert len(cluster.messages(TOPIC)) == 2000
        # Two in each batch that is on its way, and those that still gather.
        assert most <= 2 * MAX_BATCHES_IN_FLIGHT + 2
