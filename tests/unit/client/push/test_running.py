"""A push consumer while it runs: what can be changed, what brokers ask of it, what fails around it, how it ends."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from typing import Any

import pytest

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.client.errors import InvalidMessageError, NotRunningError, OrbitMQError
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.client.push.concurrent import ConcurrentConsumption
from orbitmq.client.push.consumer import Consumer
from orbitmq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
)
from orbitmq.protocol.codes import RequestCode
from support.client.consumer_harness import GROUP, TOPIC, Inbox, consuming, shop
from support.remoting_harness import eventually

# While it runs


async def test_a_paused_consumer_gets_nothing_until_it_is_resumed() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async) as consumer:
        await place.send("a")
        await inbox.has(b"a")
        consumer.pause()
        held = len(consumer.queues) - 1
        # Pulls that a broker holds already are answered all the same.
        await place.send_many(held)
        await place.send_many(2 * held)
        was_paused = consumer.is_paused
        consumer.resume()
        assert (was_paused, consumer.is_paused) == (True, False)
        await inbox.has_all(place.sent)
    assert inbox.repeats == 0


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_the_number_of_calls_at_a_time_can_be_changed(kind: str) -> None:
    most = running = 0
    lock = threading.Lock()
    release = threading.Event()

    def count(change: int) -> None:
        nonlocal most, running
        with lock:
            running += change
            most = max(most, running)

    def in_thread(_: ReceivedMessage) -> None:
        count(1)
        release.wait(30)
        count(-1)

    async def coroutine(_: ReceivedMessage) -> None:
        count(1)
        await eventually(release.is_set)
        count(-1)

    async with shop() as place:
        handler: Any = in_thread if kind == "thread" else coroutine
        async with consuming(place, handler, consume_thread_max=2) as consumer:
            await place.send_many(30)
            await eventually(lambda: running == 2)
            consumer.consume_threads = 7
            await eventually(lambda: running == 7)
            assert consumer.consume_threads == 7
            release.set()
            await eventually(lambda: running == 0)
            release.clear()
            consumer.consume_threads = 1
            most = 0
            await place.send_many(5)
            await eventually(lambda: running == 1)
            release.set()
            await place.cluster.wait_until_consumed(GROUP)
            assert most == 1


async def test_what_runs_is_finished_and_counted_when_a_consumer_is_closed() -> None:
    started, release = threading.Event(), threading.Event()

    def slow(_: ReceivedMessage) -> None:
        started.set()
        release.wait(30)

    async with shop(queues=1) as place:
        consumer = place.consumer(consume_thread_max=1)
        consumer.on(TOPIC)(slow)
        await consumer.start()
        await place.send_many(3)
        await eventually(started.is_set)
        consumption = consumer._running().consumption
        assert isinstance(consumption, ConcurrentConsumption)
        closing = asyncio.create_task(consumer.close())
        await eventually(lambda: consumption._is_closing)
        release.set()
        await closing
        assert place.committed() == 1


async def test_run_consumes_until_it_is_cancelled_or_the_consumer_closed() -> None:
    inbox = Inbox()
    async with shop() as place:
        for end in ("cancel", "close"):
            consumer = place.consumer()
            consumer.on(TOPIC)(inbox.take_async)
            running = asyncio.create_task(consumer.run())
            await place.send(end)
            await inbox.has(end.encode())
            if end == "cancel":
                running.cancel()
            else:
                await consumer.close()
            await asyncio.gather(running, return_exceptions=True)
            assert place.cluster.broker().clients.consumers.get(GROUP) is None


# What brokers ask


async def test_tools_are_told_how_a_consumer_is_doing() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take, tags="a || b") as consumer:
        await place.send("x", tags="a")
        await inbox.has(b"x")
        answer = await place.ask(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            consumerGroup=GROUP,
            clientId=consumer.client_id,
            jstackEnable="true",
        )
        queues = consumer.queues
    assert answer.body is not None
    info = ConsumerRunningInfo.decode(answer.body)
    assert set(info.mq_table) == set(queues)
    assert {one.topic for one in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_CONSUMEORDERLY"] == "false"
    assert info.status_table[TOPIC].consume_ok_tps > 0
    assert info.jstack is not None
    assert "ConsumeMessageThread_" in info.jstack


@pytest.mark.parametrize(
    ("body", "result"),
    [(b"good", CMResult.CR_SUCCESS), (b"later", CMResult.CR_LATER), (b"bad", CMResult.CR_THROW_EXCEPTION)],
)
async def test_a_tool_can_have_one_message_consumed(body: bytes, result: CMResult) -> None:
    inbox = Inbox()

    def handle(message: ReceivedMessage) -> object:
        inbox.take(message)
        if message.body == b"bad":
            raise ValueError("bad")
        return ConsumeResult.LATER if message.body == b"later" else None

    async with shop() as place:
        receipt = await place.producer.send(Message(TOPIC, body))
        async with consuming(place, handle, "other") as consumer:
            await inbox.has(body)
            answer = await place.ask(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                consumerGroup="other",
                clientId=consumer.client_id,
                msgId=receipt.offset_message_id,
                topic=TOPIC,
            )
    assert answer.body is not None
    assert ConsumeMessageDirectlyResult.decode(answer.body).consume_result is result
    assert inbox.bodies == [body, body]


@pytest.mark.parametrize("at_broker", [True, False])
async def test_a_tool_can_send_a_group_back_in_time(at_broker: bool) -> None:
    inbox = Inbox()
    async with shop(queues=2, useServerSideResetOffset=at_broker) as place, consuming(place, inbox.take_async):
        await place.send_many(10)
        await inbox.has_all(place.sent)
        await eventually(lambda: place.committed() == 10)
        await place.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic=TOPIC, group=GROUP, timestamp=0, isForce=True
        )
        # The broker tells of a reset of its own with the next pull, so one has to be due.
        await place.send_many(4)
        await eventually(lambda: len(inbox.messages) >= 24)
        await place.cluster.wait_until_consumed(GROUP)
    assert set(inbox.bodies) == set(place.sent)
    assert all(inbox.bodies.count(body) >= 2 for body in place.sent[:10])


async def test_tools_are_told_how_far_a_consumer_is() -> None:
    inbox = Inbox()
    async with shop(queues=1) as place, consuming(place, inbox.take_async) as consumer:
        await place.send_many(7)
        await inbox.has_all(place.sent)
        answer = await place.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic=TOPIC, group=GROUP)
        client_id = consumer.client_id
    assert answer.body is not None
    table = GetConsumerStatusBody.decode(answer.body).consumer_table
    assert table == {client_id: {MessageQueue(TOPIC, "broker-a", 0): 7}}


# Faults


async def test_a_consumer_waits_for_name_servers_and_brokers_that_are_not_there_yet() -> None:
    inbox = Inbox()
    async with shop() as place:
        await place.cluster.stop("name-server-a")
        await place.cluster.stop("broker-a")
        async with consuming(place, inbox.take_async):
            await place.cluster.start("name-server-a")
            await place.cluster.start("broker-a")
            await place.send("a")
            await inbox.has(b"a")


async def test_a_topic_may_be_made_after_the_consumer_started() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, topic="future"):
        await place.send("a", topic="future")
        await inbox.has(b"a")


@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_no_message_is_lost_when_the_broker_goes_and_comes_back_under_load(end: str) -> None:
    inbox, stop = Inbox(), asyncio.Event()
    async with shop(flushDiskType="SYNC_FLUSH") as place, consuming(place, inbox.take):
        await place.send_many(50)

        async def load() -> None:
            while not stop.is_set():
                try:
                    await place.send_many(1)
                except OrbitMQError:
                    await asyncio.sleep(0.01)

        sending = asyncio.create_task(load())
        await eventually(lambda: len(inbox.messages) > 80)
        await (place.cluster.restart("broker-a") if end == "restart" else place.cluster.kill("broker-a"))
        if end == "kill":
            await place.cluster.start("broker-a")
        seen = len(inbox.messages)
        await eventually(lambda: len(inbox.messages) > seen + 80)
        stop.set()
        await sending
        await inbox.has_all(place.sent)


async def test_messages_whose_broker_does_not_take_them_back_are_tried_again_here() -> None:
    inbox = Inbox()

    async def fail_twice(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        if len(inbox.messages) == 1:
            await place.cluster.stop("broker-a")
        if len(inbox.messages) < 3:
            raise ValueError("no")

    async with shop() as place, consuming(place, fail_twice, api_timeout=0.2):
        await place.send("a")
        await eventually(lambda: len(inbox.messages) == 3)
        await place.cluster.start("broker-a")
        await place.cluster.wait_until_consumed(GROUP)
        assert not place.cluster.messages("SCHEDULE_TOPIC_XXXX")


# What cannot be


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": "DEFAULT_CONSUMER"}, "DEFAULT_CONSUMER"),
        ({"group": "a b"}, "illegal"),
        ({"pull_batch_size": 0}, "pull_batch_size"),
        ({"consume_thread_min": 9, "consume_thread_max": 8}, "consume_thread_min"),
        ({"message_model": "SHOUTING"}, "BROADCASTING"),
        ({"consume_timestamp": "yesterday"}, "yyyyMMddHHmmss"),
        ({"pull_batch_sise": 3}, "pull_batch_size"),
        ({"consumer_timeout_when_suspend": 1.0}, "broker_suspend_max_time"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidMessageError, match=said):
        Consumer("127.0.0.1:1", **{"group": GROUP, **options})


async def test_a_consumer_needs_a_handler_and_is_started_once() -> None:
    async with shop() as place:
        consumer = place.consumer()
        with pytest.raises(InvalidMessageError, match="handler"):
            await consumer.start()
        with pytest.raises(InvalidMessageError, match="not both"):
            consumer.on(TOPIC, tags="a", sql="b = 1")(print)
        consumer.on(TOPIC)(print)
        with pytest.raises(NotRunningError):
            consumer.pause()
        async with consumer:
            with pytest.raises(NotRunningError):
                await consumer.start()
        with pytest.raises(NotRunningError):
            await consumer.start()


async def test_one_client_has_one_consumer_of_a_group() -> None:
    async with shop() as place, consuming(place, print, instance_name="one"):
        consumer = place.consumer(instance_name="one")
        consumer.on(TOPIC)(print)
        with pytest.raises(InvalidMessageError, match="already"):
            await consumer.start()


async def test_names_are_inside_a_namespace_for_brokers_and_outside_for_handlers() -> None:
    inbox = Inbox()

    async def fail_first(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        if message.reconsume_times == 0:
            raise ValueError("again")

    async with shop() as place:
        await place.add_topic("tenant%orders")
        async with consuming(place, fail_first, namespace="tenant"):
            await place.send("a", topic="tenant%orders")
            await inbox.has(b"a")
            await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
            await place.cluster.advance(10)
            await eventually(lambda: len(inbox.messages) == 2)
            assert "tenant%billing" in place.cluster.broker().clients.consumers
    assert [message.topic for message in inbox.messages] == [TOPIC, TOPIC]


async def test_nothing_is_left_when_a_consumer_is_closed_while_it_is_busy() -> None:
    async with shop() as place:
        await place.send_many(200)
        kinds: list[dict[str, Any]] = [{}, {"inline": True}, {"orderly": True}]
        for options in kinds:
            inbox = Inbox()

            def slow(message: ReceivedMessage, inbox: Inbox = inbox) -> None:
                inbox.take(message)
                time.sleep(0.001)

            async with consuming(place, slow, f"group{len(options)}{'orderly' in options}", **options):
                await inbox.has_count(20)


async def test_a_group_is_sent_back_to_a_moment_from_code() -> None:
    async with shop(brokers=2) as place:
        inbox = Inbox()
        consumer = place.consumer()
        consumer.on(TOPIC)(inbox.take)
        async with consumer:
            await place.send_many(10)
            await inbox.has_all(place.sent)
            await eventually(lambda: place.committed() == 10)
            first = [message.body for message in inbox.messages]
            moment = max(message.store_timestamp for message in inbox.messages) + 1
            await eventually(lambda: place.cluster.broker("broker-a").clock.now_ms() >= moment)
            await place.send_many(10)
            await inbox.has_all(place.sent)
            await eventually(lambda: place.committed() == 20)
            seen = len(inbox.messages)
            moved = await consumer.reset_to_time(TOPIC, moment / 1000)
            # A broker tells of the reset with the next pull, so there has to be one.
            await place.send_many(10)
            await eventually(lambda: len(inbox.messages) >= seen + 20)
        again = collections.Counter(inbox.bodies)
        assert sum(moved.values()) == 10
        assert {again[body] for body in first} == {1}
        assert {again[body] for body in place.sent[10:20]} == {2}
