"""Batches: what may travel together, where they are cut, and what came of each message."""

from __future__ import annotations

import pytest

from orbitmq.client.errors import BrokerError, InvalidMessageError, NotRunningError
from orbitmq.client.message import Message
from orbitmq.client.producer.batch import PartlySentError, check_batch, cut, properties_text
from orbitmq.client.producer.producer import Producer
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import ITEM_SIZE, iter_batch
from orbitmq.protocol.message.properties import parse
from orbitmq.testing.local_cluster import LocalCluster
from support.client.producer_harness import TOPIC, peer_brokers

MIB = 1 << 20


def batch(count: int, size: int = 1, **more: object) -> list[Message]:
    return [Message(TOPIC, f"{number:0{size}}", **more) for number in range(count)]  # type: ignore[arg-type]


# Which may travel together


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "at least one"),
        ([Message("a", b"x"), Message("b", b"x")], "'a' and 'b' are two"),
        ([Message("a", b"x"), Message("a", b"x", wait_store_ok=False)], "same wait_store_ok"),
        ([Message("a", b"x", delay_level=1)], "delay"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("a", b"x"), Message("a", b"")], "empty"),
        ([Message("a", b"x" * 101)], "101 bytes"),
    ],
)
def test_these_cannot_travel_together(messages: list[Message], complaint: str) -> None:
    with pytest.raises(InvalidMessageError, match=complaint):
        check_batch(messages, 100)


def test_a_timed_message_travels_alone() -> None:
    message = Message("a", b"x")
    message.properties[names.TIMER_DELAY_SEC] = "5"
    with pytest.raises(InvalidMessageError, match=names.TIMER_DELAY_SEC):
        check_batch([message], 100)


def test_messages_of_one_topic_with_other_tags_and_keys_are_a_batch() -> None:
    messages = [Message("a", b"x", tags="one"), Message("a", b"y", tags="two", keys="k")]
    check_batch(messages, 100)
    assert [(message.topic, message.body, message.tags) for message in messages] == [
        ("a", b"x", "one"),
        ("a", b"y", "two"),
    ], "a check changes nothing"


# Where a batch is cut


def test_a_batch_is_cut_where_the_next_item_does_not_fit() -> None:
    items = [(0, b"x" * size, b"") for size in (10, 10, 30, 5, 40)]
    room = 2 * ITEM_SIZE + 40
    assert list(cut(items, room)) == [(0, 2), (2, 4), (4, 5)]
    assert list(cut(items[:1], ITEM_SIZE + 10)) == [(0, 1)]


def test_an_item_that_fits_no_batch_is_refused() -> None:
    with pytest.raises(InvalidMessageError, match="send it alone"):
        list(cut([(0, b"x", b""), (0, b"x" * 100, b"")], 100))


def test_properties_that_no_record_has_room_for_are_refused() -> None:
    with pytest.raises(InvalidMessageError, match="at most 32767"):
        properties_text(Message("a", b"x", properties={"p": "ü" * 16_400}))
    assert len(properties_text(Message("a", b"x", properties={"p": "p" * 32_700}))) > 32_700


# On the wire


async def test_a_batch_is_one_request_and_each_message_gets_its_receipt() -> None:
    async with LocalCluster() as cluster, Producer(cluster.name_server, group="g") as producer:
        messages = [Message(TOPIC, f"{n}", tags=f"t{n}", keys=[f"k{n}"]) for n in range(5)]
        receipts = await producer.send_batch(messages)
        stored = cluster.messages(TOPIC)
        assert [message.body for message in stored] == [b"0", b"1", b"2", b"3", b"4"]
        assert [message.tags for message in stored] == ["t0", "t1", "t2", "t3", "t4"]
        assert [receipt.message_id for receipt in receipts] == [message.message_id for message in stored]
        assert [receipt.offset_message_id for receipt in receipts] == [m.offset_message_id for m in stored]
        assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2, 3, 4]
        assert len({receipt.queue for receipt in receipts}) == 1


async def test_the_request_has_an_id_of_its_own_and_so_has_every_item() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        messages = batch(3, wait_store_ok=False)
        await producer.send_batch(messages)
        (send,) = [send for broker in peers.brokers for send in broker.sends]
        assert send.code == RequestCode.SEND_BATCH_MESSAGE
        assert send.ext_fields["m"] == "true"
        outer = parse(send.ext_fields["i"])
        assert outer.keys() == {names.UNIQUE_KEY, names.WAIT_STORE_OK}
        assert outer[names.WAIT_STORE_OK] == "false"
        items = [parse(bytes(item[2])) for item in iter_batch(memoryview(send.body or b""))]
        ids = [outer[names.UNIQUE_KEY], *(item[names.UNIQUE_KEY] for item in items)]
        assert len(set(ids)) == 4
        assert [item[names.UNIQUE_KEY] for item in items] == [m.properties[names.UNIQUE_KEY] for m in messages]


async def test_a_batch_over_the_limit_goes_in_several_requests_in_order() -> None:
    async with LocalCluster() as cluster, Producer(cluster.name_server, group="g") as producer:
        messages = batch(9, size=MIB)
        receipts = await producer.send_batch(messages, queue=MessageQueue(TOPIC, "broker-a", 0))
        assert [receipt.queue_offset for receipt in receipts] == list(range(9))
        assert [message.body for message in cluster.messages(TOPIC)] == [message.body for message in messages]


async def test_no_part_is_larger_than_the_limit() -> None:
    async with (
        peer_brokers() as peers,
        Producer(peers.name_server, group="g", max_message_size=1000) as producer,
    ):
        receipts = await producer.send_batch(batch(50, size=100))
        assert len(receipts) == 50
        bodies = [body for broker in peers.brokers for body in broker.bodies]
        assert len(bodies) > 5
        assert max(map(len, bodies)) <= 1000


async def test_a_large_batch_of_small_messages_is_stored_once() -> None:
    """The ids of all messages of a request are in the header of its response, which has a limit."""
    async with LocalCluster() as cluster, Producer(cluster.name_server, group="g") as producer:
        receipts = await producer.send_batch([Message(TOPIC, b"%d" % number) for number in range(10_000)])
        assert len({receipt.message_id for receipt in receipts}) == 10_000
        assert len({receipt.offset_message_id for receipt in receipts}) == 10_000
        assert sorted(int(message.body) for message in cluster.messages(TOPIC)) == list(range(10_000))


async def test_nothing_is_sent_if_one_message_cannot_be() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        with pytest.raises(InvalidMessageError):
            await producer.send_batch([*batch(3), Message(TOPIC, b"")])
        with pytest.raises(InvalidMessageError, match="at least one"):
            await producer.send_batch([])
        with pytest.raises(InvalidMessageError, match="forbidden"):
            await producer.send_batch([Message("SCHEDULE_TOPIC_XXXX", b"x")])
        assert peers.sends == 0


async def test_a_part_that_fails_leaves_the_receipts_of_those_before() -> None:
    option = {"max_message_size": 1000, "retry_times_when_send_failed": 0}
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g", **option) as producer:  # type: ignore[arg-type]
        peers.brokers[0].codes = [0, 0, 13]
        messages = batch(40, size=100)
        with pytest.raises(PartlySentError, match="and the other") as failed:
            await producer.send_batch(messages)
        assert isinstance(failed.value.__cause__, BrokerError)
        sent = len(failed.value.receipts)
        assert 0 < sent < 40
        assert list(failed.value.unsent) == messages[sent:]


async def test_a_first_part_that_fails_is_told_as_it_is() -> None:
    async with peer_brokers("broker-a") as peers, Producer(peers.name_server, group="g") as producer:
        peers.brokers[0].always = 13
        with pytest.raises(BrokerError):
            await producer.send_batch(batch(3))


async def test_a_batch_is_tried_on_another_broker() -> None:
    async with peer_brokers() as peers, Producer(peers.name_server, group="g") as producer:
        peers.brokers[0].always = 2
        for _ in range(3):
            receipts = await producer.send_batch(batch(2))
            assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}


async def test_a_closed_producer_sends_no_batches() -> None:
    async with peer_brokers() as peers:
        async with Producer(peers.name_server, group="g") as producer:
            pass
        with pytest.raises(NotRunningError, match="closed"):
            await producer.send_batch(batch(2))
