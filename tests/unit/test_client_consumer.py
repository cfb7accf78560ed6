"""What an application sees of a push consumer, with a real broker and name server in the same process."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from cluster_ends import nothing_left_on_loop
from consumer_ends import GROUP, SHORT, TOPIC, Inbox, consuming, shop
from orbitmq.client.consume_result import ConsumeResult
from orbitmq.client.consumer import Consumer
from orbitmq.client.errors import BrokerError, InvalidMessageError, NotRunningError, OrbitMQError
from orbitmq.client.messages import Message, ReceivedMessage
from orbitmq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.java import string_hash
from orbitmq.testing.local_cluster import LocalCluster
from remoting_ends import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


# Handlers


@pytest.mark.parametrize("kind", ["coroutine", "thread", "inline", "partial", "wrapped"])
async def test_messages_sent_after_the_start_are_consumed_once(kind: str) -> None:
    inbox = Inbox()

    def wrapped(message: ReceivedMessage) -> object:
        return inbox.take_async(message)

    async def two(_: object, message: ReceivedMessage) -> None:
        inbox.messages.append(message)

    handlers: dict[str, Any] = {
        "coroutine": inbox.take_async,
        "thread": inbox.take,
        "inline": inbox.take,
        "partial": functools.partial(two, None),
        "wrapped": wrapped,
    }
    async with shop() as place:
        async with consuming(place, handlers[kind], inline=kind == "inline", consume_thread_max=3):
            await place.send_many(100)
            await inbox.has_all(place.sent)
        assert sorted(inbox.bodies) == sorted(place.sent)
        assert place.committed() == 100


async def test_a_plain_function_runs_in_a_thread_and_an_inline_one_on_the_loop() -> None:
    seen: dict[str, str] = {}
    async with shop() as place:
        consumer = place.consumer()
        await place.add_topic("quick")

        @consumer.on(TOPIC)
        def in_thread(_: ReceivedMessage) -> None:
            seen["thread"] = threading.current_thread().name

        @consumer.on("quick", inline=True)
        def on_loop(_: ReceivedMessage) -> None:
            seen["loop"] = threading.current_thread().name

        async with consumer:
            await place.send("a")
            await place.send("b", topic="quick")
            await eventually(lambda: len(seen) == 2)
    assert seen["thread"].startswith(f"ConsumeMessageThread_{GROUP}_")
    assert seen["loop"] == threading.current_thread().name


async def test_a_message_is_what_was_sent() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async):
        body = "größer ".encode() * 2000
        await place.producer.send(
            Message(TOPIC, body, tags="paid", keys=["4", "2"], properties={"amount": "9"}, flag=7)
        )
        await inbox.has(body)
        (message,) = inbox.messages
        (stored,) = place.cluster.messages(TOPIC)
    assert (message.topic, message.body, message.tags, message.keys, message.flag) == (
        TOPIC,
        body,
        "paid",
        ["4", "2"],
        7,
    )
    assert message.properties["amount"] == "9"
    assert message.message_id == stored.message_id
    assert message.queue_offset == stored.queue_offset
    assert message.queue_id == stored.queue_id
    assert message.offset_message_id == stored.offset_message_id
    assert message.broker_name == "broker-a"
    assert message.reconsume_times == 0
    assert len(stored.record.body) < len(body)


# Filters


async def test_only_messages_with_a_wanted_tag_arrive() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, tags="paid || refunded"):
        for tags in ("paid", "open", "refunded", None, "paid"):
            await place.send(str(tags), tags=tags)
        await inbox.has(b"paid", b"refunded")
        await eventually(lambda: place.committed() == 5)
    assert sorted(inbox.bodies) == [b"paid", b"paid", b"refunded"]


async def test_of_tags_with_the_same_hash_the_right_one_arrives() -> None:
    assert string_hash("Aa") == string_hash("BB")
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, tags="Aa"):
        await place.send("wrong", tags="BB")
        await place.send("right", tags="Aa")
        await inbox.has(b"right")
        await eventually(lambda: place.committed() == 2)
    assert inbox.bodies == [b"right"]


async def test_only_messages_arrive_for_which_an_expression_is_true() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, sql="amount > 5"):
        for amount in (3, 9, 6):
            await place.send(str(amount), properties={"amount": str(amount)})
        await inbox.has(b"9", b"6")
        await eventually(lambda: place.committed() == 3)
    assert sorted(inbox.bodies) == [b"6", b"9"]


async def test_an_expression_that_no_broker_understands_fails_the_start_and_leaves_nothing() -> None:
    async with shop() as place:
        consumer = place.consumer()
        consumer.on(TOPIC, sql="amount >")(print)
        async with nothing_left_on_loop():
            with pytest.raises(BrokerError):
                await consumer.start()


async def test_a_filter_can_be_changed_while_the_consumer_runs() -> None:
    inbox, other = Inbox(), Inbox()
    async with shop() as place, consuming(place, inbox.take_async, tags="a") as consumer:
        await place.send("1", tags="a")
        await inbox.has(b"1")
        await consumer.subscribe(TOPIC, other.take_async, tags="b")
        await place.send("2", tags="a")
        await place.send("3", tags="b")
        await other.has(b"3")
    assert inbox.bodies == [b"1"]
    assert other.bodies == [b"3"]


async def test_topics_come_and_go_while_the_consumer_runs() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async) as consumer:
        await place.add_topic("more", 2)
        await consumer.subscribe("more", inbox.take_async)
        await place.send("a", topic="more")
        await inbox.has(b"a")
        await consumer.unsubscribe("more")
        await eventually(lambda: not [queue for queue in consumer.queues if queue.topic == "more"])
        await place.send("b", topic="more")
        await place.send("c")
        await inbox.has(b"c")
        with pytest.raises(NotRunningError):
            consumer.on("third")
    assert inbox.bodies == [b"a", b"c"]


# Where a group begins


async def test_a_new_group_begins_with_the_first_message_or_the_last_or_at_a_time() -> None:
    async with shop(queues=1) as place:
        await place.send("old")
        # Of a queue whose beginning is still in memory brokers hand out all of it, however a group is configured.
        place.cluster.broker().store.reader.memory_window = -1
        await place.cluster.advance(100)
        await place.send("young")
        before = place.cluster.messages(TOPIC)[1].store_timestamp
        inboxes = {name: Inbox() for name in ("first", "last", "time")}
        for name, where, when in (
            ("first", "CONSUME_FROM_FIRST_OFFSET", None),
            ("last", "CONSUME_FROM_LAST_OFFSET", None),
            ("time", "CONSUME_FROM_TIMESTAMP", (before - 1) / 1000),
        ):
            options: dict[str, Any] = {"consume_from_where": where, "consume_timestamp": when}
            consumer = place.consumer(f"group-{name}", **options)
            consumer.on(TOPIC)(inboxes[name].take_async)
            async with consumer:
                await place.send(name)
                await inboxes[name].has(name.encode())
    assert inboxes["first"].bodies == [b"old", b"young", b"first"]
    assert inboxes["last"].bodies == [b"last"]
    assert inboxes["time"].bodies == [b"young", b"first", b"last", b"time"]


async def test_a_group_goes_on_where_it_was_when_its_consumer_comes_back() -> None:
    inbox = Inbox()
    async with shop() as place:
        async with consuming(place, inbox.take):
            await place.send_many(50)
            await inbox.has_all(place.sent)
        await place.send_many(50)
        async with consuming(place, inbox.take):
            await inbox.has_all(place.sent)
    assert inbox.repeats == 0


async def test_a_group_that_was_there_once_misses_nothing_afterwards() -> None:
    inbox = Inbox()
    async with shop() as place:
        place.cluster.broker().store.reader.memory_window = -1
        await place.send("before the group")
        async with consuming(place, inbox.take_async, consume_from_where="CONSUME_FROM_LAST_OFFSET"):
            pass
        await place.send("while it is away")
        async with consuming(place, inbox.take_async, consume_from_where="CONSUME_FROM_LAST_OFFSET"):
            await inbox.has(b"while it is away")
    assert inbox.bodies == [b"while it is away"]


async def test_what_was_not_consumed_when_a_consumer_is_killed_comes_again() -> None:
    inbox, stuck = Inbox(), asyncio.Event()

    async def hang_at_some(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        if int(message.body) % 10 == 3:
            await stuck.wait()

    again = Inbox()
    async with shop() as place:
        consumer = place.consumer()
        consumer.on(TOPIC)(hang_at_some)
        await consumer.start()
        await place.send_many(40)
        await inbox.has_all(place.sent)
        await eventually(lambda: place.committed() > 0)
        await consumer.abort()
        async with consuming(place, again.take_async):
            await again.has(b"3", b"13", b"23", b"33")
    assert place.committed() == 40


# Retries


async def test_a_message_whose_handler_raises_comes_again_later() -> None:
    inbox = Inbox()

    def fail_first(message: ReceivedMessage) -> None:
        inbox.take(message)
        if message.reconsume_times == 0:
            raise ValueError("not today")

    async with shop() as place, consuming(place, fail_first):
        await place.send("a", tags="red", keys="k")
        await inbox.has(b"a")
        await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
        await place.cluster.advance(10)
        await eventually(lambda: len(inbox.messages) == 2)
        await place.cluster.wait_until_consumed(GROUP)
    first, second = inbox.messages
    assert (second.topic, second.body, second.tags, second.keys) == (TOPIC, b"a", "red", ["k"])
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    assert second.message_id == first.message_id


async def test_a_message_that_always_fails_becomes_a_dead_letter() -> None:
    inbox = Inbox()

    async def fail(message: ReceivedMessage) -> None:
        inbox.messages.append(message)
        raise ValueError("never")

    async with shop(messageDelayLevel="1s 1s 1s 1s 1s") as place:
        async with consuming(place, fail, max_reconsume_times=2):
            await place.send("a")
            for times in range(1, 4):
                await eventually(lambda times=times: len(inbox.messages) == times)
                await place.cluster.advance(1)
            await eventually(lambda: place.cluster.dead_letters(GROUP))
        (dead,) = place.cluster.dead_letters(GROUP)
    assert [message.reconsume_times for message in inbox.messages] == [0, 1, 2]
    assert (dead.body, dead.topic) == (b"a", TOPIC)


async def test_a_handler_may_say_how_long_its_message_waits_or_that_it_is_dead() -> None:
    inbox = Inbox()

    async def choose(message: ReceivedMessage) -> ConsumeResult:
        inbox.messages.append(message)
        if message.body == b"dead":
            return ConsumeResult.later(-1)
        return ConsumeResult.later(5) if message.reconsume_times == 0 else ConsumeResult.SUCCESS

    async with shop() as place, consuming(place, choose):
        await place.send("dead", "later")
        await eventually(lambda: place.cluster.dead_letters(GROUP))
        (parked,) = place.cluster.messages("SCHEDULE_TOPIC_XXXX")
        assert parked.queue_id == 4
        await place.cluster.advance(60)
        await eventually(lambda: len(inbox.messages) == 3)
        assert [letter.body for letter in place.cluster.dead_letters(GROUP)] == [b"dead"]


async def test_handlers_of_batches_get_lists_and_may_take_only_the_first_of_them() -> None:
    lists: list[list[bytes]] = []

    def take(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        lists.append([message.body for message in messages])
        return ConsumeResult.success(len(messages) - 2 if messages[0].reconsume_times == 0 else None)

    async with shop(queues=1) as place:
        await place.send_many(10)
        async with consuming(place, take, consume_message_batch_max_size=4):
            await eventually(lambda: len(lists) == 3)
            await eventually(lambda: len(place.cluster.messages("SCHEDULE_TOPIC_XXXX")) == 3)
            await place.cluster.advance(10)
            await eventually(lambda: sum(map(len, lists)) == 13)
            await place.cluster.wait_until_consumed(GROUP)
    assert sorted(map(len, lists[:3])) == [2, 4, 4]
    assert {body for some in lists[3:] for body in some} == {b"3", b"7", b"9"}


# Every member for itself


async def test_each_of_two_broadcasting_members_gets_everything_and_remembers_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"message_model": "BROADCASTING", "local_offset_store_dir": str(tmp_path)}
    left, right = Inbox(), Inbox()
    async with shop() as place:
        async with (
            consuming(place, left.take, instance_name="left", **options),
            consuming(place, right.take_async, instance_name="right", **options),
        ):
            await place.send_many(20)
            await left.has_all(place.sent)
            await right.has_all(place.sent)
        await place.send("more")
        async with consuming(place, left.take_async, instance_name="left", **options):
            await left.has(b"more")
        assert place.cluster.consumer_offsets(GROUP) == {}
    assert (left.repeats, right.repeats) == (0, 0)
    assert [path.name for path in tmp_path.rglob("offsets.json*")].count("offsets.json") == 2


async def test_a_broadcast_message_that_fails_is_not_retried(tmp_path: Path) -> None:
    inbox = Inbox()

    def fail(message: ReceivedMessage) -> None:
        inbox.take(message)
        raise ValueError("no")

    async with shop() as place:
        async with consuming(
            place, fail, message_model="BROADCASTING", local_offset_store_dir=str(tmp_path)
        ) as consumer:
            await place.send("a", "b")
            await inbox.has(b"a", b"b")
            await consumer.persist_offsets()
        assert not place.cluster.messages("SCHEDULE_TOPIC_XXXX")


# While it runs


async def test_a_paused_consumer_gets_nothing_until_it_is_resumed() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async) as consumer:
        await place.send("a")
        await inbox.has(b"a")
        consumer.pause()
        assert consumer.is_paused
        held = len(consumer.queues) - 1
        # Pulls that a broker holds already are answered all the same.
        await place.send_many(held)
        await place.send_many(2 * held)
        await inbox.has_all([])
        consumer.resume()
        assert not consumer.is_paused
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
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
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
        for options in ({}, {"inline": True}, {"orderly": True}):
            inbox = Inbox()

            def slow(message: ReceivedMessage, inbox: Inbox = inbox) -> None:
                inbox.take(message)
                time.sleep(0.001)

            async with (
                nothing_left_on_loop(),
                consuming(place, slow, f"group{len(options)}{'orderly' in options}", **options),
            ):
                await eventually(lambda inbox=inbox: len(inbox.messages) > 20)


async def test_the_example_of_the_docstring_shape_works_with_a_plain_cluster() -> None:
    async with LocalCluster() as cluster:
        consumer = Consumer(cluster.name_server, group=GROUP, **SHORT)
        got = asyncio.Event()

        @consumer.on(TOPIC, tags="paid || refunded")
        async def handle(_: ReceivedMessage) -> None:
            got.set()

        assert asyncio.iscoroutinefunction(handle)
        async with consumer:
            from orbitmq.client.producer import Producer

            async with Producer(cluster.name_server, group="p") as producer:
                await producer.send(Message(TOPIC, b"x", tags="paid"))
                await asyncio.wait_for(got.wait(), 30)
