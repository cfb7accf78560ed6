"""Topics through the operator's client, on a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.admin import NotFoundError, RefusedError
from orbitmq.admin.topic.model import TopicKind, TopicSettings

if TYPE_CHECKING:
    from orbitmq.admin import AdminClient


async def test_a_topic_is_created_altered_and_deleted(admin: AdminClient) -> None:
    settings = TopicSettings(read_queues=4, write_queues=3, attributes={"message.type": "FIFO"})
    planned = await admin.topics.create("orders", settings, dry_run=True)
    assert await admin.topics.names() == []
    assert await admin.topics.create("orders", settings) == planned
    (found,) = await admin.topics.all()
    assert (found.name, found.kind, found.brokers) == ("orders", TopicKind.NORMAL, ("broker-a", "broker-b"))
    assert (found.read_queues, found.write_queues, found.message_type) == (8, 6, "FIFO")
    assert found.is_consistent
    changes = await admin.topics.alter("orders", TopicSettings(perm=4), broker="broker-a")
    assert [str(one) for one in changes] == ["topic orders at broker-a: perm RW- -> R--"]
    assert not (await admin.topics.all())[0].is_consistent
    assert await admin.topics.create("orders", TopicSettings(perm=6)) != []
    assert await admin.topics.create("orders", TopicSettings(perm=6)) == []
    deleted = await admin.topics.delete("orders")
    assert [one.after for one in deleted] == [None, None]
    assert await admin.topics.names() == [] == await admin.topics.all()


async def test_a_description_has_queues_settings_groups_and_addresses(
    admin: AdminClient, orders: list[str]
) -> None:
    found = await admin.topics.describe("orders")
    assert found.messages == len(orders)
    assert [(queue.broker_name, queue.queue_id) for queue in found.queues] == [
        *(("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1)),
    ]
    assert all(queue.last_update_ms for queue in found.queues if queue.messages)
    assert found.groups == ()
    assert set(found.addresses) == {"broker-a", "broker-b"}


async def test_system_topics_are_listed_when_they_are_wanted(admin: AdminClient) -> None:
    names = await admin.topics.names(kinds=(TopicKind.SYSTEM,))
    assert {"TBW102", "broker-a", "DefaultCluster"} <= set(names)
    assert await admin.topics.names(cluster="DefaultCluster") == []


async def test_the_order_configuration_follows_the_topic(admin: AdminClient) -> None:
    await admin.topics.create("orders", TopicSettings(write_queues=2, order=True))
    assert await admin.topics.order_configuration("orders") == "broker-a:2;broker-b:2"
    assert (await admin.topics.describe("orders")).order_configuration == "broker-a:2;broker-b:2"
    await admin.topics.delete("orders")
    assert await admin.topics.order_configuration("orders") is None


async def test_a_topic_that_does_not_exist_is_reported(admin: AdminClient) -> None:
    for work in (
        admin.topics.describe("nowhere"),
        admin.topics.alter("nowhere", TopicSettings(perm=4)),
        admin.topics.delete("nowhere"),
        admin.topics.create("nowhere", cluster="NoCluster"),
    ):
        with pytest.raises(NotFoundError):
            await work


async def test_the_broker_refuses_an_unknown_attribute(admin: AdminClient) -> None:
    with pytest.raises(RefusedError, match="unsupported key"):
        await admin.topics.create("orders", TopicSettings(attributes={"no.such": "1"}))
    assert await admin.topics.names() == []
