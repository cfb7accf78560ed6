"""Reset of a group to a time: an idle member continues there at once, and not at the end of its long poll."""

from __future__ import annotations

import asyncio

from support.client.consumer_harness import TOPIC, Inbox, consuming, shop
from support.remoting_harness import eventually


async def test_an_idle_group_continues_at_once() -> None:
    inbox = Inbox()
    async with shop() as place:
        await place.send_many(8)
        async with consuming(place, inbox.take_async, broker_suspend_max_time=15.0) as consumer:
            await inbox.has_all(place.sent)
            held = place.cluster.broker("broker-a").pulls.held
            await eventually(lambda: all(held.waiting_for(TOPIC, queue) for queue in range(4)))
            before = len(inbox.messages)
            async with asyncio.timeout(10):
                assert len(await consumer.reset_to_time(TOPIC, 0)) == 4
                await inbox.has_count(before + 8)
