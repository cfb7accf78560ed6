"""Orderly pops: one batch of a queue at a time, in order, again and again until it is settled."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from orbitmq.broker.long_polling import table
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from support.broker.pop_harness import INVISIBLE_MS, Got, PopEnds, got_by, popper_of, popping
from support.broker.requests import CONSUMERS, TOPIC, stored
from support.remoting_harness import eventually


@pytest.fixture(autouse=True)
def _time_that_passes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SWEEP_SECONDS", 0.001)


async def pop(ends: PopEnds, **said: Any) -> tuple[list[Got], str]:
    """The messages of an orderly pop, with their reconsume times."""
    answer = await ends.client.pops(order=True, **said)
    return got_by(answer), answer.ext_fields.get("orderCountInfo", "")


def bodies(got: list[Got]) -> list[bytes]:
    return [one.body for one in got]


async def test_an_orderly_queue_is_blocked_until_its_messages_are_acknowledged() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abcd")
        first, counts = await pop(ends, most=2)
        assert bodies(first) == [b"a", b"b"]
        assert counts == "0 0 0"
        assert (await pop(ends))[0] == []
        await ends.client.settles(first[0])
        assert (await pop(ends))[0] == []
        await ends.client.settles(first[1])
        assert bodies((await pop(ends))[0]) == [b"c", b"d"]


async def test_no_check_point_is_left_and_no_retry_topic_made() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        answer = await ends.client.pops(order=True)
        assert answer.ext_fields["reviveQid"] == "999"
        assert stored(ends.broker, "rmq_sys_wheel_timer") == []
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 0
        ends.wait(3 * INVISIBLE_MS)
        assert pop_retry_topic(TOPIC, CONSUMERS) not in ends.broker.topics.configs


async def test_other_queues_are_not_held_up() -> None:
    async with popping() as ends:
        await ends.client.fills("a", queueId=0)
        await ends.client.fills("b", queueId=1)
        assert bodies((await pop(ends, queue_id=0))[0]) == [b"a"]
        assert bodies((await pop(ends))[0]) == [b"b"]


async def test_orderly_messages_not_acknowledged_in_time_are_redelivered_and_counted() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abc")
        first, _ = await pop(ends, most=2)
        await ends.client.settles(first[0])
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 1
        ends.clock.advance(INVISIBLE_MS)
        again, counts = await pop(ends, most=2)
        assert bodies(again) == [b"b", b"c"]
        assert counts == "0 qo0%1 1;0 0 0"
        ends.clock.advance(INVISIBLE_MS)
        again, counts = await pop(ends, most=2)
        assert bodies(again) == [b"b", b"c"]
        assert sorted(counts.split(";")) == ["0 0 1", "0 qo0%1 2", "0 qo0%2 1"]


async def test_the_same_attempt_may_ask_again() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abc")
        await pop(ends, most=2, attemptId="one")
        assert (await pop(ends, most=2, attemptId="two"))[0] == []
        again, counts = await pop(ends, most=2, attemptId="one")
        assert bodies(again) == [b"a", b"b"]
        assert counts == "0 0 0"


async def test_an_acknowledgement_of_an_earlier_pop_is_passed_over() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        first, _ = await pop(ends)
        ends.clock.advance(INVISIBLE_MS)
        second, _ = await pop(ends)
        await ends.client.settles(*first)
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 0
        await ends.client.settles(*second)
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 1
        # What the group is past already is settled.
        await ends.client.settles(*first)


async def test_an_acknowledgement_of_a_message_that_was_not_popped_is_refused() -> None:
    async with popping() as ends:
        await ends.client.fills(*"ab")
        (got,), _ = await pop(ends, most=1)
        other = dataclasses.replace(got, receipt=got.receipt._replace(offset=1))
        answer = await ends.client.acks(other)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (answer.remark or "").startswith(
            "offset is illegal, key:TopicTest@CG_test@0, old:0, commit:1, next:-1"
        )


async def test_messages_are_acknowledged_together() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abc")
        got, _ = await pop(ends)
        assert (await ends.client.acks_together(*got)).code == ResponseCode.SUCCESS
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 3


async def test_a_message_can_be_hidden_for_longer() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,), _ = await pop(ends)
        ends.clock.advance(4000)
        answer = await ends.client.hides(got, 30_000)
        assert answer.ext_fields == {
            "popTime": str(got.receipt.pop_time),
            "invisibleTime": "34000",
            "reviveQid": "999",
        }
        ends.clock.advance(29_999)
        assert (await pop(ends))[0] == []
        ends.clock.advance(1)
        assert bodies((await pop(ends))[0]) == [b"a"]


async def test_settling_the_last_message_wakes_who_waits() -> None:
    async with popping() as ends, popper_of(ends.broker) as other:
        await ends.client.fills(*"ab")
        got, _ = await pop(ends, most=1)
        waiting = asyncio.create_task(ends.client.gets(order=True, poll_ms=15_000))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        await other.settles(*got)
        assert bodies(await waiting) == [b"b"]


async def test_the_end_of_its_time_wakes_who_waits() -> None:
    async with popping() as ends:
        await ends.client.fills(*"ab")
        await pop(ends, most=1, invisible_ms=2000)
        waiting = asyncio.create_task(ends.client.gets(order=True, poll_ms=15_000))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        ends.clock.advance(2000)
        assert bodies(await waiting) == [b"a", b"b"]


async def test_a_group_that_was_sent_elsewhere_is_not_held_up() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abc")
        await pop(ends)
        ends.broker.offsets.reset(CONSUMERS, TOPIC, 0, 2)
        assert bodies((await pop(ends))[0]) == [b"c"]


async def test_order_info_is_loaded_after_a_restart() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abc")
        first, _ = await pop(ends, most=2, attemptId="one")
        await ends.client.settles(first[1])
        disk = ends.broker.disk
    text = disk.read("/messages/config/consumerOrderInfo.json")
    (info,) = loads(text)["table"][f"{TOPIC}@{CONSUMERS}"].values()
    assert info == {
        "a": "one",
        "cm": 2,
        "i": INVISIBLE_MS,
        "l": ends.clock.now_ms(),
        "o": [0, 1],
        "popTime": first[0].receipt.pop_time,
    }
    assert b'"orderedConsumptionLevel":"QUEUE"' in text
    assert json.dumps(info)
    async with popping(disk, ends.clock) as ends:
        assert (await pop(ends))[0] == []
        await ends.client.settles(first[0])
        assert bodies((await pop(ends))[0]) == [b"c"]
