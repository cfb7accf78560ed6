"""Messages, dead letters and deferred messages through the operator's client, on a running cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message
from orbitmq.admin import InvalidRequestError, NotFoundError
from orbitmq.admin.message.dead_letters import DeadLetterFilter
from orbitmq.aio import TransactionProducer, TransactionState

if TYPE_CHECKING:
    from orbitmq.admin import AdminClient
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.testing import LocalCluster


async def test_a_message_is_found_by_each_of_its_names(admin: AdminClient, orders: list[str]) -> None:
    (by_key,) = await admin.messages.by_key("orders", "key-3")
    (by_unique_key,) = await admin.messages.by_unique_key("orders", orders[3])
    found = [
        by_key,
        by_unique_key,
        await admin.messages.by_id("orders", orders[3]),
        await admin.messages.by_id("orders", by_key.offset_message_id),
        await admin.messages.by_offset_id(by_key.offset_message_id),
        await admin.messages.by_offset("orders", by_key.broker_name, by_key.queue_id, by_key.queue_offset),
    ]
    assert {one.body for one in found} == {b"body 3"}
    assert await admin.messages.by_key("orders", "key-9") == []


async def test_a_message_that_does_not_exist_is_reported(admin: AdminClient, orders: list[str]) -> None:
    message = (await admin.messages.by_key("orders", "key-3"))[0]
    for work in (
        admin.messages.by_id("orders", orders[0][:-4] + "FFFF"),
        admin.messages.by_offset_id(message.offset_message_id[:16] + "00000000000FFFFF"),
        admin.messages.by_offset("orders", "broker-a", 0, 99),
        admin.messages.by_offset("orders", "broker-z", 0, 0),
        admin.messages.by_key("nowhere", "key"),
    ):
        with pytest.raises(NotFoundError):
            await work
    with pytest.raises(InvalidRequestError):
        await admin.messages.by_offset_id("not an id")


async def _bodies(admin: AdminClient, **options: object) -> list[str]:
    found: list[ReceivedMessage] = [one async for one in admin.messages.read("orders", **options)]  # type: ignore[arg-type]
    return sorted(one.text() for one in found)


async def test_ranges_are_read_by_time_tag_and_queue(admin: AdminClient, orders: list[str]) -> None:
    everything = [f"body {number}" for number in range(6)]
    assert await _bodies(admin) == everything
    assert await _bodies(admin, tags="A") == everything[::2]
    assert await _bodies(admin, sql="TAGS = 'B'") == everything[1::2]
    assert len(await _bodies(admin, limit=2)) == 2
    last = (await admin.messages.by_unique_key("orders", orders[-1]))[0]
    assert await _bodies(admin, begin_ms=last.store_timestamp + 1) == []
    assert await _bodies(admin, end_ms=last.store_timestamp) == everything
    one_queue = await _bodies(admin, broker_name=last.broker_name, queue_id=last.queue_id)
    assert last.text() in one_queue
    assert len(one_queue) < 6


async def test_a_stored_message_is_sent_again_with_changes(admin: AdminClient, orders: list[str]) -> None:
    message = (await admin.messages.by_unique_key("orders", orders[3]))[0]
    receipt = await admin.delivery.resend(message, body=b"repaired", keys="again")
    (copy,) = await admin.messages.by_key("orders", "again")
    assert (copy.body, copy.tags, copy.message_id) == (b"repaired", message.tags, receipt.message_id)
    with pytest.raises(InvalidRequestError, match="empty"):
        await admin.delivery.send(Message("orders", b""))
    with pytest.raises(NotFoundError):
        await admin.delivery.send(Message("nowhere", b"x"))


async def test_dead_letters_are_listed_and_sent_again(
    pair: LocalCluster, admin: AdminClient, orders: list[str]
) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise RuntimeError("broken")

    consumer = pair.consumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET", max_reconsume_times=0)
    consumer.on("orders")(fail)
    async with consumer:
        await pair.wait_until_consumed("billing")
    (queue,) = await admin.dead_letters.all()
    assert (queue.group, queue.messages) == ("billing", len(orders))
    assert (await admin.groups.describe("billing")).dead_letters == len(orders)
    planned = await admin.dead_letters.resend("billing", dry_run=True)
    assert {one.topic for one in planned} == {"orders"}
    kinds = await admin.dead_letters.kinds("billing")
    assert [(one.origin, one.tag, one.count) for one in kinds] == [("orders", "A", 3), ("orders", "B", 3)]
    some = await admin.dead_letters.resend("billing", which=DeadLetterFilter("orders", "B"), dry_run=True)
    assert len(some) == 3
    assert not await admin.dead_letters.resend("billing", which=DeadLetterFilter(retries=77), dry_run=True)
    done = await admin.dead_letters.resend("billing", message_id=planned[0].offset_message_id)
    assert [one.error for one in done] == [""]
    assert len(await _bodies(admin)) == len(orders) + 1
    with pytest.raises(NotFoundError):
        await admin.dead_letters.resend("billing", message_id="none")
    with pytest.raises(NotFoundError, match="given up no message"):
        [one async for one in admin.dead_letters.read("other")]


async def test_deferred_messages_and_open_transactions_are_counted(pair: LocalCluster, admin: AdminClient) -> None:
    async with pair.producer(group="shop") as producer:
        await producer.send(Message("later", "1", delay_level=18))
    counts = await admin.deferred.counts()
    assert sum(one.by_delay_level.get(18, 0) + one.timed for one in counts) == 1
    assert [one.unsettled for one in await admin.deferred.transactions()] == [0, 0]


async def test_deferred_messages_are_listed_by_their_delivery_time(pair: LocalCluster, admin: AdminClient) -> None:
    async with pair.producer(group="shop") as producer:
        await producer.send(Message("later", "2", delay=7200, keys="second"))
        await producer.send(Message("later", "1", delay=1800, keys="first", tags="T"))
        gone = await producer.send(Message("later", "3", delay=3600))
        await producer.send(Message("later", "4", delay_level=18, keys="level"))
        assert gone.recall_handle is not None
        await producer.recall("later", gone.recall_handle)
    waiting = await admin.waiting.deferred()
    assert [one.keys for one in waiting.messages] == [("first",), ("second",), ("level",)]
    assert waiting.is_complete
    first = waiting.messages[0]
    assert (first.topic, first.tags, first.body_size) == ("later", "T", 1)
    assert abs(first.due_ms - first.stored_ms - 1_800_000) < 2000
    spans = dict(waiting.by_time(first.stored_ms))
    assert (spans["1 h"], spans["6 h"], sum(spans.values())) == (1, 2, 3)
    found = await admin.messages.by_offset_id(first.offset_message_id)
    assert found.body == b"1"
    assert not (await admin.waiting.deferred(scan=1)).is_complete
    with pytest.raises(InvalidRequestError):
        await admin.waiting.deferred(scan=0)


async def _undecided(_: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def test_open_transactions_are_listed_until_they_end(pair: LocalCluster, admin: AdminClient) -> None:
    async with TransactionProducer(pair.name_server, group="shop", check=_undecided) as producer:
        async with producer.transaction(Message("paid", "1", keys="ended")) as transaction:
            transaction.commit()
        async with producer.transaction(Message("paid", "2", keys="open")) as transaction:
            transaction.unknown()

        # Brokers write down in batches what has ended.
        await pair.advance(10)
        while len(await admin.waiting.transactions()) != 1:  # noqa: ASYNC110 - only the cluster knows
            await asyncio.sleep(0.02)
    (found,) = await admin.waiting.transactions()
    assert (found.topic, found.producer_group, found.keys) == ("paid", "shop", ("open",))
    assert found.message_id == transaction.transaction_id
