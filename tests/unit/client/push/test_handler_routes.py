"""Several handlers of one topic: each message goes to one of them, and none is lost."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, cast

import pytest

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.message import Message, ReceivedMessage
from support.client.consumer_harness import GROUP, TOPIC, consuming, shop
from support.remoting_harness import eventually


@dataclasses.dataclass
class Order:
    id: int


class Seen(collections.defaultdict[str, list[bytes]]):
    def __init__(self) -> None:
        super().__init__(list)

    def by(self, name: str) -> Any:
        def take(message: ReceivedMessage) -> None:
            self[name].append(message.body)

        return take

    @property
    def count(self) -> int:
        return sum(map(len, self.values()))


@pytest.mark.parametrize("orderly", [False, True])
async def test_each_handler_gets_the_messages_of_its_tags(orderly: bool) -> None:
    seen = Seen()
    async with shop() as place:
        consumer = place.consumer(orderly=orderly)
        consumer.on(TOPIC, tags="paid")(seen.by("paid"))
        consumer.on(TOPIC, tags="refunded || cancelled", inline=True)(seen.by("back"))
        async with consumer:
            for tag in ("paid", "refunded", "cancelled", "other", "paid"):
                await place.send(tag, tags=tag)
            await eventually(lambda: seen.count == 4)
            assert sorted(seen["paid"]) == [b"paid", b"paid"]
            assert sorted(seen["back"]) == [b"cancelled", b"refunded"]


async def test_sql_tags_and_the_rest_are_combined() -> None:
    seen = Seen()
    async with shop() as place:
        consumer = place.consumer()
        consumer.on(TOPIC)(seen.by("rest"))
        consumer.on(TOPIC, sql="amount > 10")(seen.by("large"))
        consumer.on(TOPIC, tags="paid")(seen.by("paid"))
        async with consumer:
            await place.send("1", tags="paid", properties={"amount": "50"})
            await place.send("2", properties={"amount": "50"})
            await place.send("3", properties={"amount": "5"})
            await place.send("4")
            await eventually(lambda: seen.count == 4)
    assert seen == {"paid": [b"1"], "large": [b"2"], "rest": [b"3", b"4"]} or seen["rest"] == [b"4", b"3"]


async def test_without_a_handler_for_the_rest_the_broker_filters() -> None:
    seen = Seen()
    async with shop() as place:
        consumer = place.consumer()
        consumer.on(TOPIC, sql="amount > 10")(seen.by("large"))
        consumer.on(TOPIC, tags="paid")(seen.by("paid"))
        async with consumer:
            await place.send("1", properties={"amount": "5"})
            await place.send("2", tags="paid")
            await place.send("3", tags="other", properties={"amount": "50"})
            await eventually(lambda: seen.count == 2)
            group = place.cluster.broker("broker-a").clients.consumers[GROUP]
            assert group.subscriptions[TOPIC].expression_type == "SQL92"
    assert seen == {"paid": [b"2"], "large": [b"3"]}


async def test_a_retried_message_goes_to_its_handler_again() -> None:
    attempts: list[str] = []

    async with shop(messageDelayLevel="0s 0s 0s 0s 0s") as place:
        consumer = place.consumer()

        @consumer.on(TOPIC, tags="a")
        def fails_once(_: ReceivedMessage) -> None:
            attempts.append("a")
            if len(attempts) == 1:
                raise RuntimeError("not yet")

        @consumer.on(TOPIC, tags="b")
        def other(_: ReceivedMessage) -> None:
            attempts.append("b")

        async with consumer:
            await place.send("x", tags="a")
            await eventually(lambda: attempts == ["a", "a"])


async def test_batches_are_split_by_handler() -> None:
    lists: dict[str, list[list[bytes]]] = {"a": [], "b": []}
    async with shop(queues=1) as place:
        for number in range(8):
            await place.send(str(number), tags="ab"[number % 2])
        consumer = place.consumer(consume_message_batch_max_size=4)
        for tag in "ab":

            def take(messages: list[ReceivedMessage], tag: str = tag) -> None:
                lists[tag].append([message.body for message in messages])

            consumer.on(TOPIC, tags=tag)(take)
        async with consumer:
            await eventually(lambda: sum(len(some) for found in lists.values() for some in found) == 8)
    assert sorted(body for some in lists["a"] for body in some) == [b"0", b"2", b"4", b"6"]
    assert sorted(body for some in lists["b"] for body in some) == [b"1", b"3", b"5", b"7"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"tags": "a"}, {"tags": "a"}),
        ({"tags": "a || b"}, {"tags": "b || c"}),
        ({"sql": "x > 1"}, {"sql": "x > 1"}),
        ({"tags": "it's"}, {"sql": "x > 1"}),
        ({"tags": "a"}, {"sql": "x >"}),
    ],
)
async def test_what_cannot_be_combined_is_refused_at_registration(first: Any, second: Any) -> None:
    async with shop() as place:
        consumer = place.consumer()
        consumer.on(TOPIC, **first)(print)
        with pytest.raises(InvalidMessageError):
            consumer.on(TOPIC, **second)(print)


async def test_subscribe_replaces_all_handlers_of_a_topic() -> None:
    seen = Seen()
    async with shop() as place:
        consumer = place.consumer()
        consumer.on(TOPIC, tags="a")(seen.by("old"))
        consumer.on(TOPIC, tags="b")(seen.by("old"))
        await consumer.subscribe(TOPIC, seen.by("new"), tags="a")
        async with consumer:
            await place.send("1", tags="a")
            await eventually(lambda: seen.count == 1)
    assert seen == {"new": [b"1"]}


async def test_typed_handlers_and_values_of_producers() -> None:
    seen: list[Any] = []

    async def handle(order: Order, message: Message) -> None:
        seen.append((order, message.tags))

    async with shop() as place, consuming(place, cast("Any", handle)):
        await place.producer.send(Message(TOPIC, value=Order(7), tags="paid"))
        await place.producer.send(Message(TOPIC, json={"id": 8}))
        await eventually(lambda: len(seen) == 2)
    assert sorted(seen, key=repr) == [(Order(7), "paid"), (Order(8), None)]
