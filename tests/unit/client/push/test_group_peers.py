"""Members of one group: a queue passes without repeated messages, and different subscriptions are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.client.consumer_harness import TOPIC, Inbox, consuming, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    import pytest


async def test_a_member_that_joins_waits_for_the_offsets_of_the_one_that_had_the_queues() -> None:
    inbox = Inbox()
    async with shop(queues=8) as place:
        await place.send_many(400)
        options: dict[str, Any] = {"persist_consumer_offset_interval": 60.0, "inline": True}
        first = place.consumer(**options)
        first.on(TOPIC)(inbox.take)
        second = place.consumer(**options)
        second.on(TOPIC)(inbox.take)
        async with first:
            await inbox.has_count(1)
            async with second:
                await inbox.has_all(place.sent)
                await eventually(lambda: len(second.queues) > 1)
    assert inbox.repeats == 0


async def test_client_and_broker_name_members_that_subscribe_differently(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox = Inbox()
    async with (
        shop() as place,
        consuming(place, inbox.take, tags="a || b") as one,
        consuming(place, inbox.take, tags="a") as other,
    ):
        prefix = "clients: members of group billing subscribe differently"
        warned = [f"{prefix}: {other.client_id} subscribes orders by a"]
        warned += [f"{other.client_id} subscribes orders by a where this member subscribes orders by a || b"]
        warned += [f"{one.client_id} subscribes orders by a || b where this member subscribes orders by a"]
        await eventually(lambda: all(text in caplog.text for text in warned))
        assert one.client_id in next(text for text in caplog.messages if text.startswith("clients: members"))


async def test_equal_subscriptions_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox()
    async with (
        shop() as place,
        consuming(place, inbox.take, tags="b || a") as one,
        consuming(place, inbox.take, tags="a || b") as other,
    ):
        await eventually(lambda: all(len(peer._running()._compared) == 2 for peer in (one, other)))
    assert "differ" not in caplog.text
