"""What a producer does with messages: any way to send, bodies, ids, names, hooks."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from orbitmq.client import namespace as namespaces
from orbitmq.client.errors import (
    InvalidMessageError,
    SendError,
)
from orbitmq.client.message import Message, Receipt
from orbitmq.client.producer.hooks import Communication, MessageType, SendContext
from orbitmq.client.producer.producer import Producer
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.compression import Compression, compression_of, decompress
from orbitmq.protocol.message.flags import COMPRESSED, ONEWAY
from orbitmq.protocol.message.message_id import decode_unique_id
from orbitmq.testing.local_cluster import LocalCluster
from support.client.producer_harness import TOPIC, peer_brokers
from support.remoting_harness import eventually, on_each_loop

NOBODY = "127.0.0.1:1"
"""Where nobody listens."""


def producing(name_server: str, **options: Any) -> Producer:
    return Producer(name_server, group="g", **options)


def message(body: bytes = b"x", **more: Any) -> Message:
    return Message(TOPIC, body, **more)


# Sending


@on_each_loop
async def test_what_is_sent_is_stored_as_it_is() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server) as producer:
        text = 'ü "quoted" \\ %d 订单 \U0001f600'
        receipt = await producer.send(
            Message(TOPIC, text, tags="paid", keys=["k1", "k2"], properties={"p": text}, flag=7)
        )
        (stored,) = cluster.messages(TOPIC)
        assert stored.text() == text
        assert (stored.tags, stored.keys, stored.properties["p"], stored.flag) == ("paid", ["k1", "k2"], text, 7)
        assert stored.message_id == receipt.message_id == receipt.transaction_id
        assert stored.offset_message_id == receipt.offset_message_id
        assert receipt.queue == MessageQueue(TOPIC, "broker-a", stored.queue_id)
        assert receipt.queue_offset == stored.queue_offset == 0


@on_each_loop
async def test_the_queues_of_all_brokers_take_turns() -> None:
    async with LocalCluster(brokers=2) as cluster, producing(cluster.name_server) as producer:
        receipts = [await producer.send(message()) for _ in range(8)]
        receipts += await asyncio.gather(*(producer.send_nowait(message()) for _ in range(8)))
        queues = [receipt.queue for receipt in receipts]
        assert len(set(queues)) == 8
        assert queues[:8] == queues[8:]


@on_each_loop
async def test_a_thousand_may_be_on_their_way_at_a_time() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server) as producer:
        receipts = await asyncio.gather(*(producer.send_nowait(message(b"%d" % n)) for n in range(1000)))
        stored = {m.message_id: m.body for m in cluster.messages(TOPIC)}
        assert [stored[receipt.message_id] for receipt in receipts] == [b"%d" % n for n in range(1000)]


async def test_a_callback_gets_the_receipt_or_the_error() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        heard: list[tuple[Receipt | None, BaseException | None]] = []
        good = await producer.send_nowait(message(), callback=lambda *what: heard.append(what))
        for broker in peers.brokers:
            broker.always = 13
        bad = producer.send_nowait(message(), callback=lambda *what: heard.append(what))
        await eventually(lambda: len(heard) == 2)
        assert heard == [(good, None), (None, bad.exception())]


async def test_without_an_answer_a_message_is_stored_all_the_same() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server) as producer:
        for number in range(3):
            await producer.send_oneway(message(b"%d" % number))
        await eventually(lambda: len(cluster.messages(TOPIC)) == 3)


async def test_a_oneway_request_is_marked_and_sent_once() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        for broker in peers.brokers:
            broker.always = 2
        await producer.send_oneway(message(), queue=MessageQueue(TOPIC, "broker-b", 1))
        await eventually(lambda: peers.sends)
        (send,) = peers.brokers[1].sends
        assert send.flag & ONEWAY
        assert send.ext_fields["e"] == "1"


async def test_whoever_sends_oneway_without_end_lets_others_run() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server) as producer:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(300):
            await producer.send_oneway(message(b"x" * 1000))
        counting.cancel()
        assert turns > 3
        await eventually(lambda: len(cluster.messages(TOPIC)) == 300)


async def test_oneway_to_nobody_is_an_error() -> None:
    async with peer_brokers("broker-a") as peers, producing(peers.name_server) as producer:
        await producer.send(message())
        await peers.brokers[0].server.stop(0)
        with pytest.raises(SendError):
            await producer.send_oneway(message())


# Bodies


@pytest.mark.parametrize("kind", ["ZLIB", "LZ4", "zstd"])
@pytest.mark.parametrize("size", [4096, 200_000])
async def test_a_large_body_is_compressed(kind: str, size: int) -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server, compress_type=kind) as producer:
        body = b"compress me " * (size // 12) + b"!" * (size % 12)
        sent = message(body)
        await producer.send(sent)
        await producer.send_nowait(message(body))
        for stored in cluster.messages(TOPIC):
            record = stored.record
            assert record.sys_flag & COMPRESSED
            assert compression_of(record.sys_flag) is Compression[kind.upper()]
            assert len(record.body) < size
            assert decompress(record.body, record.sys_flag) == stored.body == body
        assert sent.body == body


async def test_a_small_body_is_not() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server) as producer:
        await producer.send(message(b"a" * 4095))
        (stored,) = cluster.messages(TOPIC)
        assert not stored.record.sys_flag & COMPRESSED


async def test_the_threshold_is_an_option() -> None:
    option = {"compress_msg_body_over_howmuch": 10, "compress_level": 9}
    async with LocalCluster() as cluster, producing(cluster.name_server, **option) as producer:
        await producer.send(message(b"a" * 10))
        (stored,) = cluster.messages(TOPIC)
        assert stored.record.sys_flag & COMPRESSED
        assert stored.body == b"a" * 10


# Ids


async def test_ids_are_made_as_java_makes_them() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server, client_ip="10.1.2.3") as producer:
        ids = [(await producer.send(message())).message_id for _ in range(3)]
        parts = [decode_unique_id(text) for text in ids]
        assert {part.address for part in parts} == {bytes((10, 1, 2, 3))}
        assert {part.pid for part in parts} == {os.getpid() & 0xFFFF}
        assert [part.counter for part in parts] == [0, 1, 2]
        assert len({part.class_loader_hash for part in parts}) == 1


async def test_ids_of_a_client_with_an_ipv6_address_are_longer() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server, client_ip="fd00::7") as producer:
        assert len((await producer.send(message())).message_id) == 56


async def test_a_message_that_is_sent_again_keeps_its_id() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server) as producer:
        again = message()
        assert (await producer.send(again)).message_id == (await producer.send_nowait(again)).message_id


# What cannot be sent


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (Message("", b"x"), "blank"),
        (Message("  ", b"x"), "blank"),
        (Message("a" * 128, b"x"), "128 characters"),
        (Message("a b", b"x"), "illegal characters"),
        (Message("日", b"x"), "illegal characters"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "forbidden"),
        (Message("RMQ_SYS_TRANS_HALF_TOPIC", b"x"), "forbidden"),
        (Message("a", b""), "empty"),
        (Message("a", b"x" * 101), "101 bytes: at most 100"),
        (None, "NoneType"),
        ("text", "str"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_what_no_broker_takes_is_refused_with_a_reason(wrong: Any, complaint: str) -> None:
    async with peer_brokers() as peers, producing(peers.name_server, max_message_size=100) as producer:
        with pytest.raises(InvalidMessageError, match=complaint):
            await producer.send(wrong)
        with pytest.raises(InvalidMessageError, match=complaint):
            await producer.send_nowait(wrong)
        with pytest.raises(InvalidMessageError, match=complaint):
            await producer.send_oneway(wrong)
        assert peers.sends == 0
        assert producer._in_flight.count == 0


async def test_a_queue_of_another_topic_is_refused() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        queue = MessageQueue("other", "broker-a", 0)
        with pytest.raises(InvalidMessageError, match="'other'"):
            await producer.send(message(), queue=queue)
        with pytest.raises(InvalidMessageError, match="'other'"):
            await producer.send_nowait(message(), queue=queue)


async def test_a_selector_has_to_choose() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        with pytest.raises(InvalidMessageError, match="returned None"):
            await producer.send(message(), selector=lambda *_: None)


async def test_a_path_in_a_multi_dispatch_is_refused() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        with pytest.raises(InvalidMessageError, match="INNER_MULTI_DISPATCH"):
            await producer.send(message(properties={names.INNER_MULTI_DISPATCH: "../up"}))


async def test_too_many_properties_are_refused() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        await producer.send(message())
        with pytest.raises(InvalidMessageError, match="at most 32767"):
            producer.send_nowait(message(properties={"p": "x" * 40_000}))
        assert producer._in_flight.count == 0


# Namespaces


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("ns%orders", "ns%orders"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("%RETRY%ns%g", "%RETRY%ns%g"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_x", "CID_RMQ_SYS_x"),
        ("", ""),
    ],
)
def test_names_are_wrapped_once(name: str, wrapped: str) -> None:
    assert namespaces.wrap("ns", name) == wrapped
    assert namespaces.wrap("", name) == name
    assert namespaces.unwrap("ns", wrapped) == name.replace("ns%", "")
    assert namespaces.unwrap("", wrapped) == wrapped


async def test_in_a_namespace_the_brokers_see_other_names_than_the_application() -> None:
    async with LocalCluster() as cluster, producing(cluster.name_server, namespace="ns") as producer:
        seen: list[MessageQueue] = []

        def first(queues: Any, *_: object) -> MessageQueue:
            seen.extend(queues)
            return seen[0]

        receipt = await producer.send(message())
        assert receipt.queue.topic == TOPIC
        await producer.send(message(), queue=receipt.queue)
        await producer.send(message(), selector=first)
        await producer.send_batch([message(), message()])
        assert {queue.topic for queue in seen} == {TOPIC}
        stored = cluster.messages(f"ns%{TOPIC}")
        assert len(stored) == 5
        assert {m.properties[names.INSTANCE_ID] for m in stored} == {"ns"}
        assert cluster.messages(TOPIC) == []
        assert producer.group == "ns%g"


# Hooks


class Watching:
    def __init__(self) -> None:
        self.before: list[SendContext] = []
        self.after: list[SendContext] = []

    def before_send(self, context: SendContext) -> None:
        context.notes["number"] = len(self.before)
        self.before.append(context)

    def after_send(self, context: SendContext) -> None:
        self.after.append(context)


async def test_hooks_see_every_send() -> None:
    async with peer_brokers() as peers:
        hook = Watching()
        async with Producer(peers.name_server, group="g", hooks=[hook]) as producer:
            receipt = await producer.send(message())
            await producer.send_nowait(message(delay_level=3))
            await producer.send_oneway(message())
            await producer.send_batch([message(), message()])
        assert [context.communication for context in hook.after] == [
            Communication.SYNC,
            Communication.ASYNC,
            Communication.ONEWAY,
            Communication.SYNC,
        ]
        first = hook.after[0]
        assert (first.receipt, first.queue, first.producer_group) == (receipt, receipt.queue, "g")
        assert first.broker_address in {broker.address for broker in peers.brokers}
        assert hook.after[1].message_type is MessageType.DELAY
        assert len(hook.after[3].messages) == 2
        assert [context.notes["number"] for context in hook.after] == [0, 1, 2, 3]


async def test_hooks_see_failures() -> None:
    async with peer_brokers() as peers, producing(peers.name_server) as producer:
        hook = Watching()
        producer.add_hook(hook)
        for broker in peers.brokers:
            broker.codes = [2]
        await producer.send(message())
        assert [context.error is None for context in hook.after] == [False, False, True]
        for broker in peers.brokers:
            broker.always = 13
        with pytest.raises(Exception, match="13"):
            await producer.send_nowait(message())
        assert hook.after[-1].error is not None


async def test_a_hook_can_forbid_a_send() -> None:
    class Forbidding(Watching):
        def before_send(self, context: SendContext) -> None:
            raise PermissionError("not today")

    async with peer_brokers() as peers, Producer(peers.name_server, group="g", hooks=[Forbidding()]) as producer:
        for send in (producer.send, producer.send_nowait, producer.send_oneway):
            with pytest.raises(PermissionError, match="not today"):
                await send(message())
        assert peers.sends == 0
        assert producer._in_flight.count == 0


async def test_a_hook_that_fails_afterwards_spoils_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Watching):
        def after_send(self, context: SendContext) -> None:
            raise RuntimeError("oh")

    async with peer_brokers() as peers, Producer(peers.name_server, group="g", hooks=[Failing()]) as producer:
        await producer.send(message())
        assert "send hook: after_send failed" in caplog.text
