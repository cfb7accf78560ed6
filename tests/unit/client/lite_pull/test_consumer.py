"""A pull consumer and where its messages come from: queues that are assigned, and shares of topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.lite_pull.consumer import LitePullConsumer
from orbitmq.protocol.bodies import MessageQueue
from support.client.lite_pull_harness import GROUP, QUEUES, TOPIC, cached, silent, texts, world
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


# Assigned queues


async def test_messages_of_an_assigned_queue_are_polled_in_order() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES[:1])
        await here.send("one", "two", "three")
        assert await texts(consumer, 3) == ["one", "two", "three"]
        assert consumer.assignment() == set(QUEUES[:1])
        assert consumer.position(QUEUES[0]) == 3


async def test_a_polled_message_says_what_it_is() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send("body", queue=2, TAGS="paid", KEYS="a b", color="red", UNIQ_KEY="ID1")
        consumer.assign(QUEUES)
        (message,) = await consumer.poll()
        assert (message.topic, message.body, message.tags, message.keys) == (TOPIC, b"body", "paid", ["a", "b"])
        assert (message.queue_id, message.queue_offset, message.broker_name) == (2, 0, "broker-a")
        assert message.properties["color"] == "red"
        assert message.message_id == "ID1"


async def test_a_poll_waits_for_the_first_message() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES)
        polling = asyncio.create_task(consumer.poll(30))
        await eventually(lambda: len(here.broker.pulls.held) == 4)
        await here.send("late", queue=3)
        assert [message.text() for message in await polling] == ["late"]


async def test_a_poll_without_messages_ends_after_its_time() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES)
        assert await consumer.poll(0) == []
        assert await consumer.poll(0.01) == []


async def test_a_poll_hands_out_at_most_one_pull() -> None:
    async with world() as here, here.consumer(pull_batch_size=3) as consumer:
        await here.send(*"abcdefg")
        consumer.assign(QUEUES)
        assert [message.text() for message in await consumer.poll()] == ["a", "b", "c"]


async def test_queues_take_turns() -> None:
    async with world() as here, here.consumer(pull_batch_size=2) as consumer:
        for queue in range(3):
            await here.send(*"abcd", queue=queue)
        consumer.assign(QUEUES)
        await eventually(lambda: cached(consumer) == 12)
        queues = [(await consumer.poll())[0].queue_id for _ in range(6)]
        assert sorted(queues[:3]) == sorted(queues[3:]) == [0, 1, 2]


async def test_a_queue_that_is_no_longer_assigned_hands_nothing_out() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send("zero", queue=0)
        await here.send("one", queue=1)
        consumer.assign(QUEUES)
        await eventually(lambda: cached(consumer) == 2)
        consumer.assign(QUEUES[1:])
        assert await texts(consumer, 1) == ["one"]
        await silent(consumer)
        with pytest.raises(InvalidMessageError, match="not assigned"):
            consumer.position(QUEUES[0])


async def test_queues_can_be_assigned_before_the_start() -> None:
    async with world() as here:
        consumer = here.consumer()
        consumer.assign(QUEUES)
        assert consumer.assignment() == set(QUEUES)
        await here.send("early")
        async with consumer:
            assert await texts(consumer, 1) == ["early"]


async def test_assigned_queues_are_filtered_by_the_expression_for_their_topic() -> None:
    async with world() as here:
        consumer = here.consumer()
        consumer.set_sub_expression_for_assign(TOPIC, tags="paid || refunded")
        consumer.assign(QUEUES)
        async with consumer:
            await here.send("no", TAGS="open")
            await here.send("paid", TAGS="paid")
            await here.send("back", TAGS="refunded")
            assert await texts(consumer, 2) == ["paid", "back"]
            with pytest.raises(InvalidMessageError, match="before the consumer starts"):
                consumer.set_sub_expression_for_assign(TOPIC, tags="open")


# Filters


async def test_tags_with_the_same_hash_are_told_apart() -> None:
    async with world() as here, here.consumer() as consumer:
        # Java's hash of both is 2112.
        await here.send("wrong", TAGS="BB")
        await here.send("right", TAGS="Aa")
        consumer.subscribe(TOPIC, tags="Aa")
        assert await texts(consumer, 1) == ["right"]
        await silent(consumer)


async def test_messages_are_filtered_by_a_sql_expression() -> None:
    async with world(enablePropertyFilter=True) as here, here.consumer() as consumer:
        await here.send("cheap", amount="3")
        await here.send("dear", amount="9")
        consumer.subscribe(TOPIC, sql="amount > 5")
        assert await texts(consumer, 1) == ["dear"]
        await silent(consumer)


async def test_a_subscription_can_be_changed_while_messages_wait() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.send("a", TAGS="A")
        await here.send("b", TAGS="B")
        consumer.subscribe(TOPIC)
        await eventually(lambda: cached(consumer) == 2)
        consumer.subscribe(TOPIC, tags="B")
        assert await texts(consumer, 1) == ["b"]
        await silent(consumer)


async def test_an_expression_that_cannot_be_read_is_refused_at_once() -> None:
    consumer = LitePullConsumer(f"{HOST}:1", group=GROUP)
    with pytest.raises(InvalidMessageError, match="filter of 'orders'"):
        consumer.subscribe(TOPIC, sql="amount >")
    with pytest.raises(InvalidMessageError, match="not both"):
        consumer.subscribe(TOPIC, sql="amount > 5", tags="A")


# Subscribing


async def test_all_queues_of_a_subscribed_topic_are_read() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.subscribe(TOPIC)
        for queue in range(4):
            await here.send(f"in {queue}", queue=queue)
        assert sorted(await texts(consumer, 4)) == ["in 0", "in 1", "in 2", "in 3"]
        assert consumer.assignment() == set(QUEUES)


async def test_the_members_of_a_group_share_the_queues() -> None:
    async with world() as here, here.consumer() as first:
        first.subscribe(TOPIC)
        await eventually(lambda: first.assignment() == set(QUEUES))
        async with here.consumer() as second:
            second.subscribe(TOPIC)
            await eventually(lambda: len(second.assignment()) == len(first.assignment()) == 2)
            assert first.assignment() | second.assignment() == set(QUEUES)
        await eventually(lambda: first.assignment() == set(QUEUES))


async def test_a_member_goes_on_where_the_one_before_has_come_to() -> None:
    async with world() as here, here.consumer() as second:
        async with here.consumer() as first:
            first.subscribe(TOPIC)
            for queue in range(4):
                await here.send("seen", queue=queue)
            assert await texts(first, 4) == ["seen"] * 4
        for queue in range(4):
            await here.send("new", queue=queue)
        second.subscribe(TOPIC)
        assert await texts(second, 4) == ["new"] * 4
        await silent(second)


async def test_every_member_of_a_broadcasting_group_gets_everything(tmp_path: Path) -> None:
    def listener(number: int) -> LitePullConsumer:
        return here.consumer(
            message_model="BROADCASTING", instance_name=f"n{number}", local_offset_store_dir=str(tmp_path)
        )

    async with world() as here:
        async with listener(1) as first, listener(2) as second:
            first.subscribe(TOPIC)
            second.subscribe(TOPIC)
            await here.send("all")
            assert await texts(first, 1) == await texts(second, 1) == ["all"]
        await here.send("more")
        async with listener(1) as again:
            again.subscribe(TOPIC)
            assert await texts(again, 1) == ["more"]
        assert here.offset() == -1


async def test_a_listener_is_told_of_its_share() -> None:
    told: list[tuple[str, set[MessageQueue], set[MessageQueue]]] = []

    def listen(topic: str, everything: Iterable[MessageQueue], mine: Iterable[MessageQueue]) -> None:
        told.append((topic, set(everything), set(mine)))

    async with world() as here:
        consumer = here.consumer()
        consumer.subscribe(TOPIC, message_queue_listener=listen)
        async with consumer:
            await eventually(lambda: told == [(TOPIC, set(QUEUES), set(QUEUES))])
            async with here.consumer() as other:
                other.subscribe(TOPIC)
                await eventually(lambda: len(told) == 2)
                assert len(told[1][2]) == 2


async def test_a_topic_that_is_unsubscribed_is_left_at_once() -> None:
    async with world() as here, here.consumer() as consumer:
        await here.create("other", 1)
        consumer.subscribe(TOPIC)
        consumer.subscribe("other")
        await eventually(lambda: len(consumer.assignment()) == 5)
        consumer.unsubscribe(TOPIC)
        assert consumer.assignment() == {MessageQueue("other", "broker-a", 0)}
        await here.send("gone")
        await here.send("kept", topic="other")
        assert await texts(consumer, 1) == ["kept"]


async def test_a_topic_may_come_into_being_after_it_was_subscribed() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.subscribe("later")
        assert await consumer.poll(0.05) == []
        await here.create("later", 1)
        await here.send("first", topic="later")
        assert await texts(consumer, 1) == ["first"]


async def test_subscribing_and_assigning_exclude_each_other() -> None:
    subscribed, assigned = (LitePullConsumer(f"{HOST}:1", group=GROUP) for _ in range(2))
    subscribed.subscribe(TOPIC)
    with pytest.raises(InvalidMessageError, match="subscribes to topics"):
        subscribed.assign(QUEUES)
    assigned.assign(QUEUES)
    with pytest.raises(InvalidMessageError, match="has assigned queues"):
        assigned.subscribe(TOPIC)


async def test_names_in_a_namespace_are_plain_to_the_application() -> None:
    async with world() as here:
        await here.create("tenant%orders", 1)
        await here.send("mine", topic="tenant%orders")
        async with here.consumer(namespace="tenant") as consumer:
            queues = await consumer.fetch_message_queues(TOPIC)
            assert queues == {QUEUES[0]}
            consumer.assign(queues)
            (message,) = await consumer.poll()
            assert (message.topic, message.text()) == (TOPIC, "mine")
            await consumer.commit()
            assert await consumer.committed(QUEUES[0]) == 1
        assert here.offset(group="tenant%billing", topic="tenant%orders") == 1


# Iterating


async def test_messages_can_be_iterated_over() -> None:
    async with world() as here, here.consumer() as consumer:
        consumer.assign(QUEUES[:1])
        await here.send("one", "two", "three")
        found = []
        async for message in consumer:
            found.append(message.text())
            if len(found) == 3:
                break
        assert found == ["one", "two", "three"]


async def test_iterating_ends_when_the_consumer_is_closed() -> None:
    async with world() as here:
        consumer = await here.consumer().start()
        consumer.assign(QUEUES)

        async def all_of_them() -> list[str]:
            return [message.text() async for message in consumer]

        iterating = asyncio.create_task(all_of_them())
        await here.send("one")
        await eventually(lambda: consumer.position(QUEUES[0]) == 1)
        await consumer.close()
        assert await iterating == ["one"]


async def test_a_poll_that_waits_ends_when_the_consumer_is_closed() -> None:
    async with world() as here:
        consumer = await here.consumer().start()
        consumer.assign(QUEUES)
        polling = asyncio.create_task(consumer.poll(30))
        await eventually(lambda: len(here.broker.pulls.held) == 4)
        await consumer.close()
        assert await polling == []


# Listening for queues


async def test_a_listener_is_told_of_new_queues() -> None:
    told: list[tuple[str, frozenset[MessageQueue]]] = []
    async with world() as here:
        consumer = here.consumer(topic_metadata_check_interval=0.01)
        consumer.register_topic_message_queue_change_listener(TOPIC, lambda *change: told.append(change))
        async with consumer:
            assert await consumer.fetch_message_queues(TOPIC) == set(QUEUES)
            await eventually(lambda: consumer._changes._known)
            await here.create(TOPIC, 5)
            await eventually(lambda: told)
        assert told == [(TOPIC, frozenset([*QUEUES, MessageQueue(TOPIC, "broker-a", 4)]))]
