"""Long polling: when a consumer pulls, when it does not, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from support.client.consumer_harness import GROUP, TOPIC, Inbox, consuming, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.client.consumer.process_queue import ProcessQueue
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.push.consumer import Consumer


def windows(consumer: Consumer) -> list[ProcessQueue]:
    return [queue for queue in consumer._running().queues.process_queues if queue.queue.topic == TOPIC]


async def test_a_message_wakes_a_pull_that_waits() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, broker_suspend_max_time=30.0):
        held = place.cluster.broker().pulls.held
        await eventually(lambda: len(held) == 5)
        await place.send("a")
        await inbox.has(b"a")


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"pull_threshold_for_queue": 20, "pull_batch_size": 10}, 30),
        ({"pull_threshold_size_for_queue": 1, "pull_batch_size": 2, "body": 30_000}, 40),
        ({"consume_concurrently_max_span": 15, "pull_batch_size": 10}, 30),
    ],
)
async def test_no_more_is_pulled_while_too_much_waits(options: dict[str, Any], most: int) -> None:
    release, started = asyncio.Event(), asyncio.Event()
    inbox = Inbox()
    size = options.pop("body", 1)

    async def wait(message: ReceivedMessage) -> None:
        started.set()
        await release.wait()
        inbox.messages.append(message)

    async with shop(queues=1) as place:
        bodies = [b"%03d" % number + random.randbytes(size) for number in range(100)]
        await place.send(*bodies)
        async with consuming(place, wait, consume_thread_max=1, **options) as consumer:
            await started.wait()
            (window,) = windows(consumer)
            await eventually(lambda: window.is_full)
            pulled = window.next_offset
            await asyncio.sleep(0.05)
            assert window.next_offset == pulled <= most
            release.set()
            await inbox.has_all(place.sent)
    assert inbox.repeats == 0


async def test_pulls_carry_the_offset_that_was_reached() -> None:
    inbox = Inbox()
    async with (
        shop(queues=1) as place,
        consuming(place, inbox.take_async, persist_consumer_offset_interval=3600.0, broker_suspend_max_time=0.05),
    ):
        await place.send_many(5)
        await eventually(lambda: place.committed() == 5)


async def test_a_stored_offset_beyond_the_end_is_put_right() -> None:
    inbox = Inbox()
    async with shop(queues=1) as place:
        await place.send_many(3)
        place.cluster.broker().offsets.commit(GROUP, TOPIC, 0, 500)
        async with consuming(place, inbox.take_async):
            await eventually(lambda: place.committed() == 3)
            await place.send("next")
            await inbox.has(b"next")
    assert inbox.bodies == [b"next"]


async def test_a_queue_that_lost_its_end_goes_on_where_it_ends_now() -> None:
    inbox = Inbox()
    async with (
        shop(queues=1) as place,
        consuming(place, inbox.take_async, broker_suspend_max_time=0.05) as consumer,
    ):
        await place.send_many(10)
        await inbox.has_all(place.sent)
        consumer.pause()
        connections = consumer._running()._instance.client.connections
        await eventually(lambda: not any(one.pending_calls for one in connections))
        # What was answered last is taken in the next turn of the loop.
        await asyncio.sleep(0.01)
        (window,) = windows(consumer)
        # As after a power cut: the broker has fewer messages than this consumer has seen.
        window.next_offset = 1000
        consumer.resume()
        await eventually(lambda: window.is_dropped and windows(consumer))
        await place.send("next")
        await inbox.has(b"next")
    assert inbox.repeats == 0


async def test_a_broker_that_forgot_the_group_is_told_again() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, broker_suspend_max_time=0.05):
        clients = place.cluster.broker().clients
        before = clients.consumers[GROUP]
        clients.consumers.pop(GROUP)
        await eventually(lambda: clients.consumers.get(GROUP) not in {None, before})
        await place.send("a")
        await inbox.has(b"a")


async def test_a_subscription_may_travel_with_every_pull() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, tags="a", post_subscription_when_pull=True):
        await place.send("a", tags="a")
        await place.send("b", tags="b")
        await inbox.has(b"a")
        await eventually(lambda: place.committed() == 2)
    assert inbox.bodies == [b"a"]


async def test_names_with_characters_that_formats_use_are_pulled_too() -> None:
    inbox = Inbox()
    async with shop() as place:
        await place.add_topic("50%d%s")
        async with consuming(place, inbox.take_async, "g%d", topic="50%d%s"):
            await place.send("a", topic="50%d%s")
            await inbox.has(b"a")


async def test_an_interval_between_pulls_is_kept_without_losing_anything() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, pull_interval=0.01, pull_batch_size=1):
        await place.send_many(20)
        await inbox.has_all(place.sent)
    assert inbox.repeats == 0


async def test_a_topic_that_may_not_be_read_is_tried_until_it_may() -> None:
    inbox = Inbox()
    async with shop() as place, consuming(place, inbox.take_async, broker_suspend_max_time=0.05):
        group = place.cluster.broker().groups.configs[GROUP]
        group.consume_enable = False
        await place.send("a")
        await asyncio.sleep(0.1)
        group.consume_enable = True
        await inbox.has(b"a")
