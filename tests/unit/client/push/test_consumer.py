"""What an application sees of a push consumer, with a real broker and name server in the same process."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.client.errors import BrokerError, NotRunningError
from orbitmq.client.message import Message, ReceivedMessage
from orbitmq.protocol.java import string_hash
from support.client.consumer_harness import GROUP, TOPIC, Inbox, consuming, shop
from support.remoting_harness import eventually

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
                await inbox.has_count(times)
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
        await eventually(lambda: place.cluster.messages("SCHEDULE_TOPIC_XXXX"))
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
    files = [name for _, _, names in os.walk(tmp_path) for name in names]
    assert files.count("offsets.json") == 2


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
