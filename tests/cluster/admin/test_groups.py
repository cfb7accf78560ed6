"""Groups, their members, lag and offsets through the operator's client, on a running cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.admin import ClientOfflineError, InvalidRequestError, NotFoundError
from orbitmq.admin.group.model import GroupSettings
from orbitmq.admin.group.offsets import ResetTo
from orbitmq.admin.message.delivery import Track

if TYPE_CHECKING:
    from orbitmq.admin import AdminClient
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.testing import LocalCluster


async def test_a_group_is_created_altered_and_deleted(admin: AdminClient) -> None:
    assert await admin.groups.create("billing", GroupSettings(retry_max_times=3), dry_run=True)
    assert await admin.groups.all() == []
    await admin.groups.create("billing", GroupSettings(retry_max_times=3))
    (found,) = await admin.groups.all()
    assert (found.name, found.brokers) == ("billing", ("broker-a", "broker-b"))
    assert [place.config.retry_max_times for place in found.placements] == [3, 3]
    changes = await admin.groups.alter("billing", GroupSettings(consume_enable=False), broker="broker-b")
    assert [str(one) for one in changes] == ["group billing at broker-b: consumeEnable True -> False"]
    assert len(await admin.groups.delete("billing")) == 2
    assert await admin.groups.all() == []


async def test_looking_at_a_group_does_not_create_it(admin: AdminClient) -> None:
    with pytest.raises(NotFoundError):
        await admin.groups.describe("absent")
    with pytest.raises(NotFoundError):
        await admin.groups.alter("absent", GroupSettings(consume_enable=False))
    with pytest.raises(NotFoundError):
        await admin.groups.delete("absent")
    with pytest.raises(ClientOfflineError):
        await admin.members.connections("absent")
    assert await admin.groups.all() == []


async def test_a_running_group_is_described(pair: LocalCluster, admin: AdminClient, orders: list[str]) -> None:
    consumer = pair.consumer("billing", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    seen: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    consumer.on("orders")(seen.put)
    async with consumer:
        for _ in orders:
            await seen.get()
        await consumer.persist_offsets()
        found = await admin.groups.describe("billing")
        assert found.is_online
        assert found.connections is not None
        (member,) = found.connections.members
        assert (member.language, member.version) == ("PYTHON", "V5_5_0")
        assert ("orders", "*") in [(one.topic, one.expression) for one in found.connections.subscriptions]
        assert found.check is not None
        assert found.check.agree
        assert found.lag.lag == 0
        assert {queue.client_id for queue in found.lag.queues} == {member.client_id}
        info = await admin.members.running_info("billing", member.client_id, with_stacks=True)
        assert info.jstack
        assert await admin.topics.groups("orders") == ["billing"]
        message = (await admin.messages.by_unique_key("orders", orders[0]))[0]
        assert [(one.group, one.track) for one in await admin.delivery.track(message)] == [
            ("billing", Track.CONSUMED)
        ]
        result = await admin.messages.consume_directly(message, "billing", member.client_id)
        assert result.consume_result == "CR_SUCCESS"
    (offline,) = await admin.groups.all(with_lag=True)
    assert (offline.lag, offline.inflight) == (0, 0)
    assert "orders" in offline.topics


async def test_members_with_other_subscriptions_are_found(
    pair: LocalCluster, admin: AdminClient, orders: list[str]
) -> None:
    one, other = (pair.consumer("billing", instance_name=name) for name in ("one", "other"))
    one.on("orders", tags="A")(lambda message: None)
    other.on("orders", tags="B")(lambda message: None)
    async with one, other:
        check = await admin.members.check_subscriptions("billing")
        assert len(check.by_member) == 2
        assert not check.agree


async def test_offsets_are_reset_skipped_and_cloned(admin: AdminClient, orders: list[str]) -> None:
    await admin.groups.create("billing")
    assert sum(one.after for one in await admin.offsets.skip("billing", "orders", dry_run=True)) == len(orders)
    assert await admin.offsets.committed("billing", "orders") == {}
    await admin.offsets.skip("billing", "orders")
    assert (await admin.lag.of_group("billing")).lag == 0
    await admin.offsets.reset("billing", "orders", ResetTo(earliest=True))
    assert (await admin.lag.of_group("billing", topic="orders")).by_topic() == {"orders": len(orders)}
    message = (await admin.messages.by_unique_key("orders", orders[-1]))[0]
    changes = await admin.offsets.reset("billing", "orders", ResetTo(time_ms=message.store_timestamp + 1))
    assert sum(one.after for one in changes) == len(orders)
    (change,) = await admin.offsets.reset(
        "billing", "orders", ResetTo(offset=1), broker_name=message.broker_name, queue_id=message.queue_id
    )
    assert change.after == 1
    with pytest.raises(NotFoundError, match="create it first"):
        await admin.offsets.clone("billing", "copy", "orders")
    await admin.groups.create("copy")
    await admin.offsets.clone("billing", "copy", "orders")
    assert await admin.offsets.committed("copy", "orders") == await admin.offsets.committed("billing", "orders")


async def test_an_offset_needs_its_queue(admin: AdminClient, orders: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="one queue"):
        await admin.offsets.reset("billing", "orders", ResetTo(offset=1))
    with pytest.raises(NotFoundError, match="queue"):
        await admin.offsets.reset("billing", "orders", ResetTo(offset=1), broker_name="broker-a", queue_id=99)
    with pytest.raises(NotFoundError):
        await admin.lag.of_group("absent")
