"""Queues consumed in their order, whatever fails and whoever comes and goes."""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.client.message import Message
from orbitmq.protocol.bodies import MessageQueue
from support.client.consumer_harness import GROUP, TOPIC, Inbox, consuming, share_of, shared, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.clients.queue_locks import QueueLocks
    from orbitmq.client.message import ReceivedMessage


def by_queue(inbox: Inbox) -> dict[tuple[str, int], list[int]]:
    found = collections.defaultdict(list)
    for message in inbox.messages:
        found[message.broker_name, message.queue_id].append(message.queue_offset)
    return found


def first_times(offsets: list[int]) -> list[int]:
    return list(dict.fromkeys(offsets))


def assert_in_order(inbox: Inbox) -> None:
    """Each queue as a row of offsets, of which some come several times."""
    for offsets in by_queue(inbox).values():
        assert first_times(offsets) == list(range(len(first_times(offsets))))


@pytest.mark.parametrize("kind", ["thread", "coroutine", "inline"])
async def test_order_is_kept_through_failures(kind: str) -> None:
    inbox, chance = Inbox(), random.Random(5)

    def handle(message: ReceivedMessage) -> None:
        inbox.take(message)
        if chance.random() < 0.2:
            raise ValueError("not now")

    async def handle_async(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        handle(message)

    async with shop() as place:
        await place.send_many(60)
        handler: Any = handle_async if kind == "coroutine" else handle
        async with consuming(place, handler, orderly=True, inline=kind == "inline"):
            await place.send_many(60)
            await inbox.has_all(place.sent)
            await place.cluster.wait_until_consumed(GROUP)
    for offsets in by_queue(inbox).values():
        # Never one before the one before it has succeeded: a row that only repeats itself or goes on by one.
        assert all(next_ - one in {0, 1} for one, next_ in itertools.pairwise(offsets))
    assert_in_order(inbox)


async def test_one_queue_has_one_call_at_a_time_and_all_together_many() -> None:
    running: collections.Counter[int] = collections.Counter()
    most: collections.Counter[int] = collections.Counter()
    together = 0

    async def handle(message: ReceivedMessage) -> None:
        nonlocal together
        running[message.queue_id] += 1
        most[message.queue_id] = max(most[message.queue_id], running[message.queue_id])
        together = max(together, running.total())
        await asyncio.sleep(0.001)
        running[message.queue_id] -= 1

    async with shop() as place:
        await place.send_many(80)
        async with consuming(place, handle, orderly=True):
            await place.cluster.wait_until_consumed(GROUP)
    assert set(most.values()) == {1}
    assert together > 1


async def test_a_message_that_always_fails_lets_the_others_pass_as_a_dead_letter() -> None:
    inbox = Inbox()

    def handle(message: ReceivedMessage) -> None:
        inbox.take(message)
        if message.body == b"1":
            raise ValueError("never")

    async with shop(queues=1) as place, consuming(place, handle, orderly=True, max_reconsume_times=2):
        await place.send_many(4)
        await inbox.has_all(place.sent)
        await eventually(lambda: place.cluster.dead_letters(GROUP))
        await eventually(lambda: place.committed() == 4)
        (dead,) = place.cluster.dead_letters(GROUP)
    assert (dead.body, dead.topic) == (b"1", TOPIC)
    assert inbox.bodies == [b"0", b"1", b"1", b"1", b"2", b"3"]
    assert [message.reconsume_times for message in inbox.messages if message.body == b"1"] == [2, 2, 2]


async def test_a_handler_may_bury_a_message_or_let_its_queue_wait() -> None:
    inbox = Inbox()

    async def handle(message: ReceivedMessage) -> ConsumeResult:
        inbox.messages.append(message)
        if message.body == b"0":
            return ConsumeResult.later(-1)
        return ConsumeResult.later(suspend=0.01) if len(inbox.messages) == 2 else ConsumeResult.SUCCESS

    async with shop(queues=1) as place, consuming(place, handle, orderly=True, suspend_current_queue_time=30):
        await place.send_many(2)
        await eventually(lambda: inbox.bodies == [b"0", b"1", b"1"])
        assert [letter.body for letter in place.cluster.dead_letters(GROUP)] == [b"0"]


async def test_of_a_batch_that_fails_the_rest_comes_again_in_order() -> None:
    lists: list[list[bytes]] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        lists.append([message.body for message in messages])
        return ConsumeResult.success(0) if len(lists) == 1 else ConsumeResult.SUCCESS

    async with shop(queues=1) as place:
        await place.send_many(4)
        async with consuming(place, handle, orderly=True, consume_message_batch_max_size=3):
            await place.cluster.wait_until_consumed(GROUP)
    assert lists == [[b"0", b"1", b"2"], [b"1", b"2", b"3"]]


async def test_order_is_kept_while_members_join_and_leave() -> None:
    inbox, stop = Inbox(), asyncio.Event()
    busy: collections.Counter[tuple[str, int]] = collections.Counter()

    async def handle(message: ReceivedMessage) -> None:
        key = message.broker_name, message.queue_id
        busy[key] += 1
        assert busy[key] == 1, "two members consume one queue"
        inbox.messages.append(message)
        await asyncio.sleep(0.0005)
        busy[key] -= 1

    async with shop(brokers=2, queues=2) as place, consuming(place, handle, orderly=True):
        sending = asyncio.create_task(place.send_until(stop))
        for _ in range(3):
            async with consuming(place, handle, orderly=True) as second:
                await shared([2], second)
                await inbox.grows(40)
        stop.set()
        await sending
        await inbox.has_all(place.sent)
    assert_in_order(inbox)
    # Whoever leaves hands its queues over with all it has consumed of them.
    assert inbox.repeats == 0


async def test_the_locks_of_one_that_leaves_are_free_at_once_and_of_one_that_is_killed_later() -> None:
    left, right = Inbox(), Inbox()
    async with shop() as place:
        consumer = place.consumer(orderly=True)
        consumer.on(TOPIC)(left.take_async)
        await consumer.start()
        await place.send_many(8)
        await left.has_all(place.sent)
        await eventually(lambda: place.committed() == 8)
        await consumer.abort()
        async with consuming(place, right.take_async, orderly=True) as other:
            assert not share_of(other)
            await place.send_many(8)
            await place.cluster.advance(61)
            await right.has_all(place.sent[8:])
        async with consuming(place, left.take_async, orderly=True) as third:
            assert len(share_of(third)) == 4
    assert left.repeats == right.repeats == 0


async def test_a_queue_that_is_taken_away_is_not_unlocked_before_its_handler_has_returned() -> None:
    started, release = threading.Event(), threading.Event()
    other = Inbox()

    def slow(_: ReceivedMessage) -> None:
        started.set()
        release.wait(30)

    async with shop(queues=1) as place, consuming(place, slow, orderly=True, client_ip="9.9.9.9"):
        await place.send_many(1)
        await eventually(started.is_set)
        # The smaller client id gets the only queue.
        async with consuming(place, other.take_async, orderly=True, client_ip="1.1.1.1") as first:
            assert not share_of(first)
            release.set()
            await shared([1], first)
            await place.send("next")
            await other.has(b"next")
    assert other.bodies == [b"next"]


async def test_broadcasting_needs_no_locks(tmp_path: Any) -> None:
    inbox = Inbox()
    options: dict[str, Any] = {"message_model": "BROADCASTING", "local_offset_store_dir": str(tmp_path)}
    async with shop() as place:
        await place.send_many(40)
        async with consuming(place, inbox.take, orderly=True, **options):
            await inbox.has_all(place.sent)
            assert not place.cluster.broker().locks.group_holds_lock(GROUP)
    assert_in_order(inbox)


async def test_messages_with_one_sharding_key_are_consumed_as_they_were_sent() -> None:
    inbox = Inbox()
    async with shop(brokers=2) as place, consuming(place, inbox.take, orderly=True):
        keys = [f"customer-{number}" for number in range(6)]
        for step in range(10):
            for key in keys:
                await place.producer.send(Message(TOPIC, f"{key}/{step}", sharding_key=key))
        await eventually(lambda: len(inbox.messages) == 60)
    for key in keys:
        steps = [body for body in inbox.bodies if body.startswith(key.encode() + b"/")]
        assert steps == [f"{key}/{step}".encode() for step in range(10)]


async def _renewed(locks: QueueLocks, queue: MessageQueue, since_ms: int) -> None:
    await eventually(lambda: locks._held[GROUP][queue].locked_ms >= since_ms)


async def test_locks_are_kept_alive() -> None:
    queue = MessageQueue(TOPIC, "broker-a", 0)
    async with shop() as place, consuming(place, print, orderly=True):
        locks, clock = place.cluster.broker().locks, place.cluster.clock
        for _ in range(3):
            await place.cluster.advance(40)
            await _renewed(locks, queue, clock.now_ms())
        assert locks.lock(GROUP, "somebody else", [queue]) == []
    assert len(locks) == 0
