"""Clients that trace write down what they do with each message, and nothing else changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq as omq
from orbitmq import Message
from orbitmq.aio import Consumer, ConsumeResult, LitePullConsumer, Producer, TransactionProducer, TransactionState
from orbitmq.client.trace import dispatcher as tracing
from orbitmq.client.trace.encoding import ConsumeOutcome, MessageKind, Published, TransactionEnded
from orbitmq.client.trace.query import MessageTrace, trace_message
from orbitmq.protocol.names import TRACE_TOPIC
from orbitmq.testing import LocalCluster
from support.client.cluster_harness import nothing_left, nothing_left_on_loop
from support.client.producer_harness import peer_brokers
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.aio import ReceivedMessage
    from orbitmq.client.consumer.hooks import ConsumeContext

TOPIC = "orders"
FROM_FIRST: Any = {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}
TRACED: Any = {"enable_trace": True}


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(settings={"traceTopicEnable": "true", "messageDelayLevel": "1s 1s 1s 1s"}) as running:
        yield running


async def traced(cluster: LocalCluster, message_id: str, topic: str = "") -> MessageTrace:
    return await trace_message(cluster.name_server, message_id, topic=topic)


async def test_the_trace_topic_is_there_if_brokers_are_told_so(cluster: LocalCluster) -> None:
    config = cluster.broker().topics.configs[TRACE_TOPIC]
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    async with LocalCluster() as plain:
        assert TRACE_TOPIC not in plain.broker().topics.configs


async def test_a_message_is_followed_from_its_producer_to_its_consumer(cluster: LocalCluster) -> None:
    consumed = asyncio.Event()
    consumer = Consumer(cluster.name_server, group="billing", **FROM_FIRST, **TRACED)

    @consumer.on(TOPIC)
    async def handle(_: ReceivedMessage) -> None:
        consumed.set()

    async with Producer(cluster.name_server, group="shop", **TRACED) as producer:
        receipt = await producer.send(Message(TOPIC, b"six by", tags="paid", keys=["k1", "k2"]))
    async with consumer:
        await consumed.wait()
        address = cluster.address("broker-a")
    found = await traced(cluster, receipt.message_id)
    (sent,) = found.published
    (attempt,) = found.attempts
    record = sent.record
    assert isinstance(record, Published)
    assert (record.group, record.topic, record.tags, record.keys) == ("shop", TOPIC, "paid", "k1 k2")
    assert (record.store_host, record.body_length, record.kind) == (address, 6, MessageKind.NORMAL)
    assert (record.offset_message_id, record.succeeded) == (receipt.offset_message_id, True)
    assert record.region == "DefaultRegion"
    assert (attempt.group, attempt.retry_times) == ("billing", 0)
    assert attempt.begun is not None
    assert attempt.ended is not None
    assert (attempt.ended.outcome, attempt.ended.succeeded) == (ConsumeOutcome.SUCCESS, True)
    assert attempt.begun.timestamp <= attempt.ended.timestamp
    # By its keys, too.
    (by_key,) = [
        message for message in cluster.messages(TRACE_TOPIC) if "k2" in message.keys and b"Pub" in message.body
    ]
    assert receipt.message_id in by_key.keys


async def test_failures_and_retries_are_told(cluster: LocalCluster) -> None:
    calls = []
    consumer = Consumer(cluster.name_server, group="billing", **FROM_FIRST, **TRACED)

    @consumer.on(TOPIC)
    def handle(message: ReceivedMessage) -> ConsumeResult | None:
        calls.append(message.reconsume_times)
        if len(calls) == 1:
            raise ValueError("once")
        return ConsumeResult.LATER if len(calls) == 2 else None

    async with Producer(cluster.name_server, group="shop") as producer:
        receipt = await producer.send(Message(TOPIC, b"x"))
    async with consumer:
        await eventually(lambda: len(calls) == 1)
        await cluster.advance(2)
        await eventually(lambda: len(calls) == 2)
        await cluster.advance(2)
        await eventually(lambda: len(calls) == 3)
    found = await traced(cluster, receipt.message_id)
    assert found.published == [], "its producer does not trace"
    outcomes = [(one.retry_times, None if one.ended is None else one.ended.outcome) for one in found.attempts]
    assert outcomes == [
        (0, ConsumeOutcome.EXCEPTION),
        (1, ConsumeOutcome.FAILED),
        (2, ConsumeOutcome.SUCCESS),
    ]


async def test_a_handler_that_is_given_up_is_told_of(cluster: LocalCluster) -> None:
    began = asyncio.Event()
    consumer = Consumer(cluster.name_server, group="billing", consume_timeout=0.1, **FROM_FIRST, **TRACED)

    @consumer.on(TOPIC)
    async def handle(_: ReceivedMessage) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with Producer(cluster.name_server, group="shop") as producer:
        receipt = await producer.send(Message(TOPIC, b"x"))
    async with consumer:
        await began.wait()
        await eventually(lambda: consumer._running().consumption._tasks)  # type: ignore[attr-defined]
        await eventually(lambda: cluster.messages("%RETRY%billing") or cluster.messages("SCHEDULE_TOPIC_XXXX"))
    (attempt, *_) = (await traced(cluster, receipt.message_id)).attempts
    assert attempt.ended is not None
    assert attempt.ended.outcome is ConsumeOutcome.TIME_OUT


async def test_orderly_consumers_and_batches_are_traced_as_well(cluster: LocalCluster) -> None:
    seen: list[int] = []
    consumer = Consumer(
        cluster.name_server,
        group="billing",
        orderly=True,
        consume_message_batch_max_size=10,
        **FROM_FIRST,
        **TRACED,
    )

    @consumer.on(TOPIC)
    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.append(len(messages))

    async with Producer(cluster.name_server, group="shop", **TRACED) as producer:
        receipts = await producer.send_batch(
            [Message(TOPIC, f"{number}", keys=f"k{number}") for number in range(5)]
        )
    async with consumer:
        await eventually(lambda: sum(seen) == 5)
    for number, receipt in enumerate(receipts):
        found = await traced(cluster, receipt.message_id)
        (sent,) = found.published
        (attempt,) = found.attempts
        record = sent.record
        assert isinstance(record, Published)
        assert (record.keys, record.offset_message_id) == (f"k{number}", receipt.offset_message_id)
        assert attempt.ended is not None
        assert attempt.ended.succeeded


async def test_a_lite_pull_consumer_traces_what_it_hands_out(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="shop") as producer:
        receipt = await producer.send(Message(TOPIC, b"x"))
    async with LitePullConsumer(cluster.name_server, group="pulling", **FROM_FIRST, **TRACED) as consumer:
        consumer.subscribe(TOPIC)
        messages: list[ReceivedMessage] = []
        while not messages:
            messages = await consumer.poll(1)
    (attempt,) = (await traced(cluster, receipt.message_id)).attempts
    assert (attempt.group, attempt.ended is not None and attempt.ended.succeeded) == ("pulling", True)


async def test_delays_and_transactions_are_told_by_their_kinds(cluster: LocalCluster) -> None:
    def check(_: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer(cluster.name_server, group="shop", check=check, **TRACED) as producer:
        late = await producer.send(Message(TOPIC, b"x", delay_level=1))
        async with producer.transaction(Message(TOPIC, b"y", tags="T", keys="k")) as kept:
            pass
        async with producer.transaction(Message(TOPIC, b"z")) as dropped:
            dropped.rollback()
        async with producer.transaction(Message(TOPIC, b"?")) as unknown:
            unknown.unknown()
        await cluster.advance(120)
        await eventually(lambda: len(cluster.messages(TOPIC)) == 3)
    (sent,) = (await traced(cluster, late.message_id)).published
    assert isinstance(sent.record, Published)
    assert sent.record.kind is MessageKind.DELAY

    found = await traced(cluster, kept.transaction_id)
    (sent,), (end,) = found.published, found.ended
    record = end.record
    assert isinstance(sent.record, Published)
    assert isinstance(record, TransactionEnded)
    assert sent.record.kind is MessageKind.TRANSACTION_HALF
    assert (record.kind, record.state, record.from_check) == (MessageKind.TRANSACTION_END, "COMMIT_MESSAGE", False)
    assert (record.topic, record.tags, record.keys) == (TOPIC, "T", "k")
    assert (record.store_host, record.transaction_id) == (cluster.address("broker-a"), kept.transaction_id)
    (end,) = (await traced(cluster, dropped.transaction_id)).ended
    assert isinstance(end.record, TransactionEnded)
    assert end.record.state == "ROLLBACK_MESSAGE"
    ends = [one.record for one in (await traced(cluster, unknown.transaction_id)).ended]
    assert [(end.state, end.from_check) for end in ends if isinstance(end, TransactionEnded)] == [
        ("UNKNOW", False),
        ("COMMIT_MESSAGE", True),
    ]


async def test_the_topic_may_be_another(cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server, group="shop", enable_trace=True, trace_topic="my_traces") as producer:
        receipt = await producer.send(Message(TOPIC, b"x"))
        await producer.send(Message("my_traces", b"a message to it is not traced"))
    assert (await traced(cluster, receipt.message_id, "my_traces")).published
    assert cluster.messages(TRACE_TOPIC) == []
    assert len(cluster.messages("my_traces")) == 2


async def test_what_is_not_to_be_traced_is_not() -> None:
    async with LocalCluster(settings={"traceOn": "false", "traceTopicEnable": "true"}) as cluster:
        seen = asyncio.Event()
        consumer = Consumer(cluster.name_server, group="billing", **FROM_FIRST, **TRACED)

        @consumer.on(TOPIC)
        async def handle(_: ReceivedMessage) -> None:
            seen.set()

        async with Producer(cluster.name_server, group="shop", **TRACED) as producer, consumer:
            await producer.send(Message(TOPIC, b"x"))
            await seen.wait()
        assert cluster.messages(TRACE_TOPIC) == []


async def test_enough_traces_leave_at_once_and_few_after_a_while(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 3600)
    async with Producer(cluster.name_server, group="shop", trace_msg_batch_num=3, **TRACED) as producer:
        for number in range(2):
            await producer.send(Message(TOPIC, f"{number}"))
        assert cluster.messages(TRACE_TOPIC) == []
        await producer.send(Message(TOPIC, "3"))
        await eventually(lambda: len(cluster.messages(TRACE_TOPIC)) == 1)
    monkeypatch.setattr(tracing, "FLUSH_SECONDS", 0.01)
    async with Producer(cluster.name_server, group="shop", **TRACED) as producer:
        await producer.send(Message(TOPIC, "one"))
        await eventually(lambda: len(cluster.messages(TRACE_TOPIC)) == 2)


async def test_traces_are_lost_and_not_messages_if_nobody_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_WAITING", 3)
    monkeypatch.setattr(tracing, "SEND_SECONDS", 0.1)
    # Those brokers have the one topic, and no trace topic can be made.
    async with peer_brokers("broker-a") as peers:
        producer = Producer(peers.name_server, group="shop", trace_msg_batch_num=20, **TRACED)
        await producer.start()
        for number in range(10):
            await producer.send(Message(TOPIC, f"{number}"))
        assert producer._tracing is not None
        assert producer._tracing.dispatcher.lost == 7
        await producer.close()


async def test_hooks_of_applications_watch_handlers(cluster: LocalCluster) -> None:
    told: list[tuple[str, ConsumeOutcome | None]] = []

    class Watching:
        def before_consume(self, context: ConsumeContext) -> None:
            told.append(("before", context.outcome))
            raise RuntimeError("what a hook raises changes nothing")

        def after_consume(self, context: ConsumeContext) -> None:
            told.append((context.messages[0].text(), context.outcome))

    consumer = Consumer(cluster.name_server, group="billing", hooks=[Watching()], **FROM_FIRST)

    @consumer.on(TOPIC, inline=True)
    def handle(_: ReceivedMessage) -> None: ...

    async with Producer(cluster.name_server, group="shop") as producer, consumer:
        await producer.send(Message(TOPIC, b"x"))
        await eventually(lambda: len(told) == 2)
    assert told == [("before", None), ("x", ConsumeOutcome.SUCCESS)]


async def test_nothing_is_left_of_clients_that_trace() -> None:
    async with (
        nothing_left_on_loop(),
        LocalCluster() as cluster,
        Producer(cluster.name_server, group="shop", **TRACED) as producer,
    ):
        await producer.send(Message(TOPIC, b"x"))


def test_plain_code_traces_as_well() -> None:
    with nothing_left(), LocalCluster() as cluster:
        consumer = omq.Consumer(cluster.name_server, group="billing", **FROM_FIRST, **TRACED)
        seen: list[object] = []
        consumer.on(TOPIC)(seen.append)
        with omq.Producer(cluster.name_server, group="shop", **TRACED) as producer, consumer:
            receipt = producer.send(Message(TOPIC, b"x"))
            cluster.wait_until_consumed("billing")
        found = asyncio.run(trace_message(cluster.name_server, receipt.message_id))
        assert len(found.published) == len(found.attempts) == 1
