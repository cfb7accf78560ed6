"""FastStream on a cluster, and its test broker."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from faststream import AckPolicy
from faststream.exceptions import SetupError
from faststream.specification import AsyncAPI

from orbitmq import Message
from orbitmq.faststream import (
    OrbitMQBroker,
    OrbitMQResponse,
    OrbitMQRouter,
    TestOrbitMQBroker,
)
from orbitmq.faststream.annotations import OrbitMQMessage, ReceivedMessage  # noqa: TC001 - read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.testing import ThreadCluster

WAIT = 60.0


class Order(pydantic.BaseModel):
    id: int
    amount: float = 0.0


@dataclasses.dataclass
class Inbox:
    """What handlers got, and how many of them there must be."""

    expected: int
    got: list[Any] = dataclasses.field(default_factory=list)
    full: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def add(self, item: Any) -> None:
        self.got.append(item)
        if len(self.got) == self.expected:
            self.full.set()

    async def all(self) -> list[Any]:
        async with asyncio.timeout(WAIT):
            await self.full.wait()
        return sorted(self.got, key=str)


def broker_of(cluster: ThreadCluster, **options: Any) -> OrbitMQBroker:
    return OrbitMQBroker(cluster.name_server, group="shop", **options)


async def test_a_handler_gets_models_and_publishes_what_it_returns(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq)
    bills, inbox = Inbox(2), Inbox(1)

    @broker.subscriber("orders", tags="paid", start_from="earliest")
    @broker.publisher("bills", tags="new")
    async def bill(order: Order) -> dict[str, float]:
        return {"order": order.id, "total": order.amount * 2}

    @broker.subscriber("orders", tags="cancelled", start_from="earliest")
    async def cancel(order: Order, message: OrbitMQMessage, received: ReceivedMessage) -> None:
        inbox.add((order.id, message.headers["region"], received.keys))

    @broker.subscriber("bills", start_from="earliest")
    async def book(body: dict[str, float]) -> None:
        bills.add(body)

    async with broker:
        await broker.start()
        assert await broker.ping()
        for number in (1, 2):
            receipt = await broker.publish(Order(id=number, amount=5), "orders", tags="paid")
            assert receipt.message_id
        await broker.publish({"id": 3}, "orders", tags="cancelled", keys="k", headers={"region": "eu"})
        assert await bills.all() == [{"order": 1, "total": 10.0}, {"order": 2, "total": 10.0}]
        assert await inbox.all() == [(3, "eu", ["k"])]
    assert {message.tags for message in orbitmq.messages("bills")} == {"new"}


async def test_what_fails_is_retried_and_what_is_rejected_is_a_dead_letter(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq)
    inbox = Inbox(3)

    @broker.subscriber("orders", start_from="earliest")
    async def handle(body: str, message: OrbitMQMessage) -> None:
        inbox.add((body, message.raw_message.message.reconsume_times))
        if body == "bad":
            await message.reject()
        elif message.raw_message.message.reconsume_times == 0:
            raise ZeroDivisionError

    async with broker:
        await broker.start()
        await broker.publish("good", "orders")
        await broker.publish("bad", "orders")
        async with asyncio.timeout(WAIT):
            await asyncio.to_thread(wait_for, lambda: len(inbox.got) == 2 and orbitmq.dead_letters("shop"))
        await asyncio.to_thread(advance_until, orbitmq, inbox)
    assert sorted(inbox.got) == [("bad", 0), ("good", 0), ("good", 1)]
    assert [message.text() for message in orbitmq.dead_letters("shop")] == ["bad"]


def wait_for(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def advance_until(cluster: ThreadCluster, inbox: Inbox) -> None:
    """Advance the clock until the retry has come."""
    until = time.monotonic() + WAIT
    while not inbox.full.is_set():
        assert time.monotonic() < until
        cluster.advance(1)
        time.sleep(0.01)


async def test_a_request_gets_the_return_value_of_its_handler(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq)

    @broker.subscriber("quotes", start_from="earliest")
    async def quote(order: Order) -> Order:
        return Order(id=order.id, amount=9.5)

    async with broker:
        await broker.start()
        async with asyncio.timeout(WAIT):
            while True:
                try:
                    reply = await broker.request({"id": 7}, "quotes", timeout=5)
                except TimeoutError:
                    continue
                break
        assert await reply.decode() == {"id": 7, "amount": 9.5}


async def test_a_publisher_has_defaults_that_a_call_overrides(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq)
    publisher = broker.publisher("orders", tags="new", headers={"region": "eu"})
    async with broker:
        await broker.start()
        await publisher.publish("a")
        await publisher.publish("b", tags="paid", headers={"region": "us"})
    found = {message.text(): (message.tags, message.properties["region"]) for message in orbitmq.messages("orders")}
    assert found == {"a": ("new", "eu"), "b": ("paid", "us")}


async def test_subscribers_of_one_group_share_a_consumer(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq)
    seen = Inbox(4)
    for topic in ("one", "two"):
        broker.subscriber(topic, start_from="earliest")(seen.add)
    async with broker:
        await broker.start()
        dynamic = broker.subscriber("three", start_from="earliest")
        dynamic(seen.add)
        await dynamic.start()
        for topic in ("one", "two", "three", "one"):
            await broker.publish(topic, topic)
        assert await seen.all() == ["one", "one", "three", "two"]
        again = broker.subscriber("one", start_from="earliest")
        again(seen.add)
        with pytest.raises(SetupError, match="is being consumed already"):
            await again.start()
        other = broker.subscriber("four", max_workers=1)
        other(seen.add)
        with pytest.raises(SetupError, match="share a consumer"):
            await other.start()


async def test_a_router_publishes_and_replies_through_its_broker(orbitmq: ThreadCluster) -> None:
    router = OrbitMQRouter(prefix="eu-")
    bills = Inbox(1)

    @router.subscriber("orders", start_from="earliest")
    @router.publisher("bills")
    async def bill(order: Order) -> dict[str, int]:
        return {"order": order.id}

    @router.subscriber("bills", start_from="earliest")
    async def book(body: dict[str, int]) -> None:
        bills.add(body)

    broker = broker_of(orbitmq)
    broker.include_router(router)
    async with broker:
        await broker.start()
        await broker.publish({"id": 7}, "eu-orders")
        assert await bills.all() == [{"order": 7}]
        async with asyncio.timeout(WAIT):
            reply = await broker.request({"id": 8}, "eu-orders", timeout=WAIT)
        assert await reply.decode() == {"order": 8}


async def test_messages_are_read_one_by_one(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq)
    subscriber = broker.subscriber("orders", start_from="earliest", persistent=False)
    async with broker:
        await broker.start()
        await broker.publish({"id": 1}, "orders")
        message = await subscriber.get_one(timeout=WAIT)
        assert message is not None
        assert await message.decode() == {"id": 1}
        assert await subscriber.get_one(timeout=0.01) is None


async def test_with_a_manual_policy_the_handler_decides(orbitmq: ThreadCluster) -> None:
    broker = broker_of(orbitmq, ack_policy=AckPolicy.MANUAL)
    seen = Inbox(3)

    @broker.subscriber("orders", start_from="earliest")
    async def handle(body: int, message: OrbitMQMessage) -> None:
        if body:
            await message.ack()
        seen.add((body, message.raw_message.message.reconsume_times))

    async with broker:
        await broker.start()
        await broker.publish(0, "orders")
        await broker.publish(1, "orders")
        async with asyncio.timeout(WAIT):
            await asyncio.to_thread(wait_for, lambda: len(seen.got) == 2)
        await asyncio.to_thread(advance_until, orbitmq, seen)
    assert sorted(seen.got) == [(0, 0), (0, 1), (1, 0)]


# The test broker


async def test_handlers_are_tested_in_memory() -> None:
    broker = OrbitMQBroker("127.0.0.1:1", group="shop")
    router = OrbitMQRouter(prefix="eu-")

    @router.subscriber("orders", sql="amount > 5")
    @router.publisher("bills")
    async def bill(order: Order) -> Any:
        return OrbitMQResponse({"order": order.id}, tags="new")

    @broker.subscriber("eu-orders", group="audit")
    async def audit(body: Any) -> str:
        return f"seen {body['id']}"

    broker.include_router(router)
    bills = broker.subscriber("eu-bills", tags="new")

    @bills
    async def book(body: Any) -> None: ...

    async with TestOrbitMQBroker(broker) as br:
        await br.publish({"id": 7}, "eu-orders", headers={"amount": "9"})
        await br.publish({"id": 8}, "eu-orders", headers={"amount": "1"})
        bill.mock.assert_called_once_with({"id": 7})
        assert audit.mock.call_count == 2
        book.mock.assert_called_once_with({"order": 7})
        reply = await br.request({"id": 9}, "eu-orders")
        assert await reply.decode() == "seen 9"


async def test_a_failing_handler_fails_the_test() -> None:
    broker = OrbitMQBroker("127.0.0.1:1")

    @broker.subscriber("orders")
    async def handle(order: Order) -> None: ...

    async with TestOrbitMQBroker(broker) as br:
        with pytest.raises(Exception, match="id"):
            await br.publish({"amount": 5}, "orders")


def test_the_application_has_an_asyncapi_document() -> None:
    broker = OrbitMQBroker("127.0.0.1:9876")

    @broker.subscriber("orders")
    @broker.publisher("bills")
    async def bill(order: Order) -> dict[str, int]:
        return {}

    document = AsyncAPI(broker).to_specification().to_jsonable()
    assert {channel["address"] for channel in document["channels"].values()} == {"orders", "bills"}
    assert document["servers"]["development"]["protocol"] == "rocketmq"
    assert "Order" in str(document["components"]["schemas"])


def test_a_message_carries_its_options() -> None:
    response = OrbitMQResponse("x", tags="t", delay=5).as_publish_command()
    response.destination = "later"
    assert isinstance(response.message(b"x", None), Message)
    assert response.message(b"x", None).properties["TIMER_DELAY_SEC"] == "5"
