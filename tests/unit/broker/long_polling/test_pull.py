"""Pulls that wait: for the first message they want, for their time to be over, or for the broker to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker import broker as server
from orbitmq.broker.long_polling import table
from orbitmq.broker.long_polling.pull import MAX_HOLD_MS, RECHECK_MS, HeldPull
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.flags import ONEWAY, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION
from orbitmq.store import StoredMessage
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import T0, sql, subscription
from support.broker.requests import (
    CONSUMERS,
    HOLD_MS,
    TOPIC,
    Talker,
    bodies,
    pull_request,
    send_request,
    talk,
    talking_to,
)
from support.remoting_harness import PATIENCE, eventually

if TYPE_CHECKING:
    from orbitmq.broker import Broker

SYNC = {"flushDiskType": "SYNC_FLUSH"}


async def held(broker: Broker, client: Talker, offset: int = 0, count: int | None = None, **said: Any) -> int:
    """Post a pull that has to be held; its opaque."""
    wanted = len(broker.pulls.held) + 1 if count is None else count
    opaque = client.posts(pull_request(offset, hold_ms=said.pop("hold_ms", HOLD_MS), **said))
    await eventually(lambda: len(broker.pulls.held) == wanted)
    return opaque


@pytest.fixture(autouse=True)
def _swept_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of these tests is moved by hand; so they poll it in short intervals."""
    monkeypatch.setattr(table, "SWEEP_SECONDS", 0.005)


async def topic_with(client: Talker, *tags: str) -> None:
    """Make the topic, with these messages in its first queue."""
    await client.stores(b"elsewhere", queueId=3)
    for tag in tags:
        await client.stores(b"old", properties={"TAGS": tag})


# Waking


@pytest.mark.parametrize("settings", [{}, SYNC], ids=["async", "sync"])
async def test_a_held_pull_is_woken_by_the_first_message(settings: dict[str, str]) -> None:
    async with talk(**settings) as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client)
        await client.stores(b"other queue", queueId=1)
        assert opaque not in client.answers
        await client.stores(b"new")
        answer = await client.answer_to(opaque)

        assert (answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]) == (0, "FOUND", "1")
        assert bodies(answer) == [b"new"]
        assert len(broker.pulls.held) == 0


async def test_a_pull_at_the_end_of_a_queue_is_held_and_gets_the_next_messages() -> None:
    async with talk() as (broker, client):
        await topic_with(client, "a", "b")
        opaque = await held(broker, client, 2)
        await client.stores(b"new")

        assert bodies(await client.answer_to(opaque)) == [b"new"]


async def test_all_messages_of_one_moment_come_in_one_answer() -> None:
    async with talk() as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client)
        items = [(0, b"%d" % number, b"") for number in range(5)]
        await client.stores(encode_batch(items), code=RequestCode.SEND_BATCH_MESSAGE)

        assert bodies(await client.answer_to(opaque)) == [b"0", b"1", b"2", b"3", b"4"]


async def test_several_pulls_of_one_queue_are_all_woken() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await topic_with(client)
        opaques = [await held(broker, client, group=f"group{number}") for number in range(3)]
        elsewhere = await held(broker, other)
        assert broker.pulls.held.waiting_for(TOPIC, 0) == 4
        await client.stores(b"new")

        for opaque in opaques:
            assert bodies(await client.answer_to(opaque)) == [b"new"]
        assert bodies(await other.answer_to(elsewhere)) == [b"new"]


async def test_pulls_of_several_queues_are_woken_by_their_own() -> None:
    async with talk() as (broker, client):
        await topic_with(client)
        opaques = [await held(broker, client, queue_id=queue_id) for queue_id in range(3)]
        client.send(*(send_request(b"%d" % queue_id, queueId=queue_id).encode() for queue_id in (2, 0)))

        assert bodies(await client.answer_to(opaques[2])) == [b"2"]
        assert bodies(await client.answer_to(opaques[0])) == [b"0"]
        assert broker.pulls.held.waiting_for(TOPIC, 1) == 1


async def test_a_message_that_does_not_match_does_not_wake() -> None:
    async with talk(enablePropertyFilter="true") as (broker, client):
        await topic_with(client)
        by_tag = await held(broker, client, tags="red")
        by_expression = await held(broker, client, tags="size > 5", expressionType="SQL92")
        everything = await held(broker, client)
        for number in range(3):
            await client.stores(b"%d" % number, properties={"TAGS": "blue", "size": str(number)})
        assert bodies(await client.answer_to(everything)) == [b"0"]
        assert len(broker.pulls.held) == 2
        await client.stores(b"wanted", properties={"TAGS": "red"})
        assert bodies(await client.answer_to(by_tag)) == [b"wanted"]
        await client.stores(b"large", properties={"size": "6"})
        assert bodies(await client.answer_to(by_expression)) == [b"large"]


async def test_a_message_that_matches_the_heartbeat_subscription_wakes_a_pull() -> None:
    async with talk(enablePropertyFilter="true") as (broker, client):
        await topic_with(client)
        await client.subscribes(subscription(TOPIC, "red"))
        await client.subscribes(sql(TOPIC, "size > 5"), group="sql")
        by_tag = await held(broker, client, sys_flag=0, tags=None)
        by_expression = await held(broker, client, group="sql", sys_flag=0, tags=None)
        await client.stores(b"no", properties={"TAGS": "blue", "size": "1"})
        await client.pass_time()
        assert len(broker.pulls.held) == 2
        await client.stores(b"yes", properties={"TAGS": "red", "size": "6"})

        assert bodies(await client.answer_to(by_tag)) == [b"yes"]
        assert bodies(await client.answer_to(by_expression)) == [b"yes"]


async def test_a_wanted_message_behind_many_others_of_the_same_moment_wakes() -> None:
    count = 2000
    async with talk() as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client, tags="red")
        items = [(0, b"x", b"TAGS\x01blue\x02")] * count + [(0, b"y", b"TAGS\x01red\x02")]
        await client.stores(encode_batch(items), code=RequestCode.SEND_BATCH_MESSAGE)
        answer = await client.answer_to(opaque)
        while answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            answer = await client.pulls(int(answer.ext_fields["nextBeginOffset"]), tags="red")

        assert bodies(answer) == [b"y"]


async def test_a_pull_is_held_again_after_it_was_woken() -> None:
    async with talk() as (broker, client):
        await topic_with(client)
        for number in range(5):
            opaque = await held(broker, client, number)
            await client.stores(b"%d" % number)
            assert bodies(await client.answer_to(opaque)) == [b"%d" % number]


async def test_the_commit_of_a_held_pull_is_applied_at_once_and_once() -> None:
    async with talk() as (broker, client):
        await topic_with(client, "a", "b")
        flags = PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET
        opaque = await held(broker, client, 2, sys_flag=flags, commitOffset=1)
        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == 1
        broker.offsets.commit(CONSUMERS, TOPIC, 0, 2)
        await client.stores()
        await client.answer_to(opaque)

        assert broker.offsets.query(CONSUMERS, TOPIC, 0) == 2


async def test_a_held_pull_of_a_deleted_topic_is_refused() -> None:
    async with talk() as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client)
        broker.topics.delete(TOPIC)
        broker.pulls.held.release()

        assert (await client.answer_to(opaque)).code == ResponseCode.TOPIC_NOT_EXIST


# Not held


async def test_a_pull_without_the_suspend_flag_is_answered_at_once() -> None:
    async with talk() as (broker, client):
        await topic_with(client)

        assert (await client.pulls()).code == ResponseCode.PULL_NOT_FOUND
        assert (await client.pulls(sys_flag=PULL_SUBSCRIPTION | 2)).code == ResponseCode.PULL_NOT_FOUND
        assert (await client.pulls(suspendTimeoutMillis=9)).code == ResponseCode.PULL_NOT_FOUND
        assert (await client.pulls(9, hold_ms=HOLD_MS)).code == ResponseCode.PULL_OFFSET_MOVED
        assert len(broker.pulls.held) == 0


async def test_no_more_pulls_are_held_than_the_limit() -> None:
    async with talk(maxHeldPulls=3, clientSharePercent=100) as (broker, client):
        await topic_with(client)
        for _ in range(3):
            await held(broker, client)

        assert (await client.pulls(hold_ms=HOLD_MS)).code == ResponseCode.PULL_NOT_FOUND
        assert len(broker.pulls.held) == 3


# Time


async def test_a_pull_for_which_nothing_came_is_answered_when_its_time_is_over() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        await topic_with(client, "a")
        opaque = await held(broker, client, 1)
        for _ in range(3):
            clock.advance(RECHECK_MS - 1)
            await client.pass_time()
            assert opaque not in client.answers
        clock.advance(3)
        answer = await client.answer_to(opaque)

        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
        assert answer.ext_fields["nextBeginOffset"] == "1"


async def test_a_pull_without_matching_messages_is_answered_after_some_seconds() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client, tags="red")
        await client.stores(properties={"TAGS": "blue"})
        await client.pass_time()
        assert opaque not in client.answers
        clock.advance(RECHECK_MS)
        answer = await client.answer_to(opaque)

        assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert answer.ext_fields["nextBeginOffset"] == "1"


async def test_each_pull_has_its_own_time() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        await topic_with(client)
        long = await held(broker, client, hold_ms=4000)
        short = await held(broker, client, hold_ms=2000)
        clock.advance(2000)
        await client.answer_to(short)
        assert broker.pulls.held.waiting_for(TOPIC, 0) == 1
        clock.advance(2000)
        await client.answer_to(long)


async def test_no_pull_is_held_longer_than_a_connection_may_be_idle() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client, hold_ms=10**9)
        clock.advance(MAX_HOLD_MS)

        assert (await client.answer_to(opaque)).code == ResponseCode.PULL_NOT_FOUND


async def test_without_long_polling_pulls_are_held_for_the_short_polling_time() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock, longPollingEnable="false", shortPollingTimeMills=700) as (broker, client):
        await topic_with(client)
        opaque = await held(broker, client)
        clock.advance(700)

        assert (await client.answer_to(opaque)).code == ResponseCode.PULL_NOT_FOUND


# Leaving


async def test_the_pulls_of_a_closed_connection_are_removed() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await topic_with(client)
        for _ in range(3):
            await held(broker, other)
        stays = await held(broker, client)
        other.hang_up()
        await eventually(lambda: len(broker.pulls.held) == 1)
        await client.stores(b"new")

        assert bodies(await client.answer_to(stays)) == [b"new"]


async def test_a_message_for_a_closed_connection_is_not_counted_as_pulled() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await topic_with(client)
        await held(broker, other)
        (connection,) = (known for known in broker.connections if known.remote_address == other.address)
        connection.abort()
        broker.store.append(StoredMessage(TOPIC, 0, b"new"))
        await eventually(lambda: len(broker.pulls.held) == 0)

        assert broker.offsets.pull_offset(CONSUMERS, TOPIC, 0) == -1


async def test_a_held_oneway_pull_does_no_harm() -> None:
    async with talk() as (broker, client):
        await topic_with(client)
        request = pull_request(hold_ms=HOLD_MS)
        request.flag |= ONEWAY
        client.posts(request)
        opaque = await held(broker, client, count=2)
        await client.stores(b"new")

        assert bodies(await client.answer_to(opaque)) == [b"new"]
        assert request.opaque not in client.answers
        (connection,) = broker.connections
        assert connection.deferred_responses == 0


async def test_stopping_answers_held_pulls_and_holds_no_others() -> None:
    async with talk() as (broker, client):
        await topic_with(client)
        opaques = [await held(broker, client, queue_id=queue_id) for queue_id in (0, 0, 1)]
        broker.pulls.held.release()
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.PULL_NOT_FOUND

        assert (await client.pulls(hold_ms=HOLD_MS)).code == ResponseCode.PULL_NOT_FOUND
        assert len(broker.pulls.held) == 0


async def test_a_client_that_goes_on_pulling_does_not_hold_up_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a pending response it would not end within this test.
    monkeypatch.setattr(server, "DRAIN_SECONDS", 10.0 * PATIENCE)
    async with talk() as (broker, client):
        await topic_with(client)
        await held(broker, client)

        async def pull_for_ever() -> None:
            while True:
                client.posts(pull_request(hold_ms=HOLD_MS))
                await asyncio.sleep(0)

        pulling = asyncio.create_task(pull_for_ever())
        async with asyncio.timeout(PATIENCE):
            await broker.stop()
        pulling.cancel()
        await asyncio.gather(pulling, return_exceptions=True)


# Faults


async def test_a_pull_that_fails_while_it_is_woken_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with talk(enablePropertyFilter="true") as (broker, client):
        await topic_with(client)
        fails = await held(broker, client, tags="length > 2", expressionType="SQL92")
        works = await held(broker, client, queue_id=1)

        def broken(_: HeldPull) -> bool:
            raise OSError(5, "the disk is gone")

        monkeypatch.setattr(broker.pulls.held, "_has_match", broken)
        client.send(send_request(queueId=0).encode(), send_request(b"fine", queueId=1).encode())
        answer = await client.answer_to(fails)

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "the disk is gone" in (answer.remark or "")
        assert bodies(await client.answer_to(works)) == [b"fine"]


async def test_a_sweep_that_fails_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(T0)
    complaints: list[dict[str, Any]] = []
    async with talk(clock=clock) as (broker, client):
        await topic_with(client)
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        opaque = await held(broker, client)
        with monkeypatch.context() as broken:
            broken.setattr(broker.store, "max_offset", lambda *_: 1 / 0)
            clock.advance(HOLD_MS)
            await eventually(lambda: complaints)

        assert (await client.answer_to(opaque)).code == ResponseCode.PULL_NOT_FOUND
        assert isinstance(complaints[0]["exception"], ZeroDivisionError)
