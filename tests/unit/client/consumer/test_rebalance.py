"""Members of a group share queues: while they join, leave and die, no message is lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.consumer.allocate_strategy import AllocateAveragelyByCircle
from orbitmq.client.consumer.rebalance import RebalanceLoop
from support.client.consumer_harness import GROUP, TOPIC, Inbox, consuming, share_of, shared, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.bodies import MessageQueue


async def test_two_members_share_the_queues_and_no_message_comes_twice() -> None:
    left, right = Inbox(), Inbox()
    async with (
        shop(brokers=2) as place,
        consuming(place, left.take_async) as one,
        consuming(place, right.take) as two,
    ):
        await shared([4, 4], one, two)
        await place.send_many(200)
        await eventually(lambda: set(left.bodies) | set(right.bodies) == set(place.sent))
        await place.cluster.wait_until_consumed(GROUP)
        owned = [set(share_of(member)) for member in (one, two)]
    assert not owned[0] & owned[1]
    assert len(left.messages) + len(right.messages) == 200
    assert left.messages
    assert right.messages


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_no_message_is_lost_while_a_member_joins_and_leaves_or_is_killed(end: str) -> None:
    inbox, stop = Inbox(), asyncio.Event()
    async with shop() as place, consuming(place, inbox.take_async) as stays:
        sending = asyncio.create_task(place.send_until(stop))
        for _ in range(3):
            goes = place.consumer()
            goes.on(TOPIC)(inbox.take)
            await goes.start()
            await shared([2, 2], stays, goes)
            await inbox.grows(50)
            await (goes.close() if end == "close" else goes.abort())
            await shared([4], stays)
        stop.set()
        await sending
        await inbox.has_all(place.sent)
        await place.cluster.wait_until_consumed(GROUP)


async def test_many_members_come_and_go_at_the_same_time() -> None:
    inbox, stop = Inbox(), asyncio.Event()
    async with shop(brokers=2) as place, consuming(place, inbox.take_async) as stays:
        sending = asyncio.create_task(place.send_until(stop))
        async with contextlib.AsyncExitStack() as stack:
            others = await asyncio.gather(
                *(stack.enter_async_context(consuming(place, inbox.take_async)) for _ in range(5))
            )
            await eventually(lambda: sorted(len(share_of(one)) for one in (stays, *others)) == [1, 1, 1, 1, 2, 2])
        await shared([8], stays)
        stop.set()
        await sending
        await inbox.has_all(place.sent)


async def test_more_members_than_queues_leave_some_without() -> None:
    async with (
        shop(queues=1) as place,
        consuming(place, print) as one,
        consuming(place, print) as two,
    ):
        await eventually(lambda: sorted([len(share_of(one)), len(share_of(two))]) == [0, 1])


async def test_a_strategy_may_be_chosen_and_changes_are_told() -> None:
    told: list[tuple[str, int, int]] = []

    def listener(topic: str, all_: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        told.append((topic, len(all_), len(mine)))
        raise ValueError("nobody minds")

    options: dict[str, Any] = {"allocate_message_queue_strategy": AllocateAveragelyByCircle()}
    async with (
        shop() as place,
        consuming(place, print, message_queue_listener=listener, client_ip="1.1.1.1", **options) as one,
        consuming(place, print, client_ip="2.2.2.2", **options) as two,
    ):
        await shared([2, 2], one, two)
        assert [queue.queue_id for queue in share_of(one)] == [0, 2]
        assert [queue.queue_id for queue in share_of(two)] == [1, 3]
    assert (TOPIC, 4, 4) in told
    assert (TOPIC, 4, 2) in told


async def test_a_strategy_that_fails_changes_nothing() -> None:
    class Fails:
        name = "FAILS"

        def allocate(self, *_: object) -> list[MessageQueue]:
            raise ValueError("no idea")

    async with shop() as place, consuming(place, print, allocate_message_queue_strategy=Fails()) as one:
        assert one.queues == []


async def test_new_queues_of_a_topic_are_consumed_when_routes_are_refreshed() -> None:
    inbox = Inbox()
    async with shop(queues=2) as place, consuming(place, inbox.take_async, poll_name_server_interval=0.05) as one:
        await place.add_topic(TOPIC, 6)
        await shared([6], one)


async def test_limits_for_a_whole_topic_are_shared_out() -> None:
    async with shop() as place, consuming(place, print, pull_threshold_for_topic=100) as one:
        member = one._running()
        assert {queue.max_messages for queue in member.queues.process_queues} == {100 // len(one.queues)}


# Rounds


async def test_rounds_come_at_intervals_and_sooner_when_asked_for_or_not_complete() -> None:
    results = [False, False, True, True]
    done = 0

    async def one_round() -> bool:
        nonlocal done
        done += 1
        if done == 6:
            raise ValueError("a fault")
        return results[done - 1] if done <= len(results) else True

    rounds = RebalanceLoop(one_round, 3600, 0.001)
    rounds.start()
    await eventually(lambda: done == 3)
    rounds.soon()
    await eventually(lambda: done == 4)
    rounds.soon()
    await eventually(lambda: done == 5)
    rounds.soon()
    # After a fault another one follows by itself.
    await eventually(lambda: done == 7)
    await rounds.close()


async def test_a_round_that_has_begun_is_finished_before_rounds_end() -> None:
    began, release, ended = asyncio.Event(), asyncio.Event(), False

    async def one_round() -> bool:
        nonlocal ended
        began.set()
        await release.wait()
        ended = True
        return True

    rounds = RebalanceLoop(one_round, 3600, 3600)
    rounds.start()
    await began.wait()
    closing = asyncio.create_task(rounds.close())
    await asyncio.sleep(0)
    release.set()
    await closing
    assert ended
