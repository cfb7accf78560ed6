"""Property room: acknowledged messages with full properties are still deferred, redelivered and committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.properties import encode
from orbitmq.testing import ManualClock
from support.broker.broker_harness import T0
from support.broker.pop_harness import Got, PopEnds, bodies_of, popping
from support.broker.requests import CONSUMERS, TOPIC, properties_of, stored
from support.broker.transaction_harness import GIVEN_UP, transaction_scene

if TYPE_CHECKING:
    from support.broker.requests import Talker

MAX_PROPERTIES = 32_767
SIZES = [*range(32_400, MAX_PROPERTIES, 7), MAX_PROPERTIES]
"""Sizes of properties as clients send them. The broker adds 62 bytes to each: up to 32,705 a plain one is
accepted."""
ROOMY: dict[str, Any] = {"mappedFileSizeCommitLog": 1 << 25}


async def send_full(client: Talker, size: int, **more: str) -> bool:
    """Send a message with properties of this size; True if it was accepted."""
    properties = {"UNIQ_KEY": f"K{size}", **more, "long": "x"}
    properties["long"] *= size - len(encode(properties)) + 1
    assert len(encode(properties)) == size
    answer = await client.sends(b"%d" % size, properties=properties)
    if answer.code != ResponseCode.SUCCESS:
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "properties length limit 32KB" in (answer.remark or "")
    return answer.code == ResponseCode.SUCCESS


def deliver_delays(ends: PopEnds, ms: int) -> None:
    """Let time pass and deliver due delayed messages."""
    ends.clock.advance(ms)
    while ends.broker.schedule.deliver_due() <= ends.clock.now_ms():
        pass


async def pop_all(ends: PopEnds, count: int) -> list[Got]:
    """Pop until ``count`` messages arrived: a pop that used up its time on the loop responds with fewer."""
    got: list[Got] = []
    async with asyncio.timeout(10):
        while len(got) < count:
            got += await ends.client.gets()
    return got


async def test_every_accepted_timer_message_is_delivered() -> None:
    async with popping(**ROOMY) as ends:
        due = str(T0 + 5000)
        taken = [b"%d" % size for size in SIZES if await send_full(ends.client, size, TIMER_DELIVER_MS=due)]
        assert max(taken) > b"32600"
        ends.wait(8000)
        delivered = stored(ends.broker)
        assert sorted(record.body for record in delivered) == sorted(taken)
        for record in delivered:
            assert properties_of(record)["UNIQ_KEY"] == f"K{record.body.decode()}"


async def test_a_timed_message_that_rolls_is_delivered_with_full_properties() -> None:
    async with popping(timerRollWindowSlot=10, **ROOMY) as ends:
        taken = [
            b"%d" % size for size in SIZES if await send_full(ends.client, size, TIMER_DELIVER_MS=str(T0 + 25_000))
        ]
        ends.wait(20_000)
        assert stored(ends.broker) == []
        ends.wait(10_000)
        assert sorted(record.body for record in stored(ends.broker)) == sorted(taken)


async def test_every_popped_message_is_redelivered_repeatedly() -> None:
    async with popping(**ROOMY) as ends:
        taken = [b"%d" % size for size in SIZES if await send_full(ends.client, size)]
        for times in range(4):
            got = await pop_all(ends, len(taken))
            assert bodies_of(got) == sorted(taken)
            assert {one.record.reconsume_times for one in got} == {times}
            ends.wait()
        await ends.client.settles(*await pop_all(ends, len(taken)))
        ends.wait()
        assert await ends.client.gets() == []


async def test_a_message_sent_back_is_retried_and_finally_moved_to_the_dead_letter_queue() -> None:
    async with popping(**ROOMY) as ends:
        await ends.client.subscribes()
        taken = [b"%d" % size for size in SIZES if await send_full(ends.client, size)]
        for record in stored(ends.broker):
            answer = await ends.client.sends_back(record.physical_offset, delayLevel=1)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        deliver_delays(ends, 2000)
        retries = stored(ends.broker, f"%RETRY%{CONSUMERS}")
        assert sorted(record.body for record in retries) == sorted(taken)
        assert {record.reconsume_times for record in retries} == {1}
        for record in retries:
            answer = await ends.client.sends_back(record.physical_offset, level=-1)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        dead = stored(ends.broker, f"%DLQ%{CONSUMERS}")
        assert sorted(record.body for record in dead) == sorted(taken)


async def test_every_half_message_is_checked_and_committed() -> None:
    async with transaction_scene(**ROOMY) as scene:
        taken = []
        for size in SIZES:
            more = {"TRAN_MSG": "true", "PGROUP": "PG_tx"}
            if await send_full(scene.producer, size, **more):
                taken.append(b"%d" % size)
        assert max(taken) > b"32600"
        await scene.check()
        for _ in range(await scene.producer.questions()):
            half = await scene.producer.questioned()
            answer = await scene.producer.ends(half)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert sorted(scene.bodies()) == sorted(taken)
        assert scene.bodies(GIVEN_UP) == []


async def test_a_popped_message_at_the_maximum_reconsume_count_is_redelivered() -> None:
    async with popping() as ends:
        for number in range(8):
            await ends.client.stores(b"%d" % number, reconsumeTimes=2_147_483_647)
            assert len(await pop_all(ends, 1)) == 1
        await ends.client.stores(b"other")
        assert len(await pop_all(ends, 1)) == 1
        ends.wait()
        again = await pop_all(ends, 9)
        assert bodies_of(again) == sorted([*(b"%d" % number for number in range(8)), b"other"])
        assert {one.record.reconsume_times for one in again} == {2_147_483_647, 1}


async def test_a_message_at_the_maximum_reconsume_count_is_sent_back_to_the_dead_letter_queue() -> None:
    async with popping() as ends:
        await ends.client.subscribes()
        await ends.client.stores(b"old", reconsumeTimes=2_147_483_647)
        (record,) = stored(ends.broker)
        answer = await ends.client.sends_back(record.physical_offset)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        (dead,) = stored(ends.broker, f"%DLQ%{CONSUMERS}")
        assert (dead.body, dead.reconsume_times) == (b"old", 2_147_483_647)


async def test_a_deferred_message_fits_after_crc_properties_were_enabled() -> None:
    clock = ManualClock(T0)
    async with popping(clock=clock, **ROOMY) as ends:
        disk = ends.broker.disk
        taken = [
            b"%d" % size for size in SIZES if await send_full(ends.client, size, TIMER_DELIVER_MS=str(T0 + 5000))
        ]
    async with popping(disk, clock, enabledAppendPropCRC="true", **ROOMY) as ends:
        ends.wait(8000)
        assert sorted(record.body for record in stored(ends.broker, TOPIC)) == sorted(taken)
