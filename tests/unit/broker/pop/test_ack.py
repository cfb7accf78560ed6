"""Acknowledgements one by one and in bulk, and messages that are hidden for longer or come back sooner."""

from __future__ import annotations

import dataclasses

import pytest

from orbitmq.protocol.bodies import BatchAckMessageRequestBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import loads
from support.broker.pop_harness import BACK_MS, INVISIBLE_MS, Got, bodies_of, popping
from support.broker.requests import CONSUMERS, TOPIC, properties_of, stored

TIMER = "rmq_sys_wheel_timer"


async def test_acknowledged_messages_are_not_redelivered() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b", "c")
        await ends.client.settles(*await ends.client.gets())
        ends.wait(3 * BACK_MS)
        assert await ends.client.gets() == []
        assert ends.broker.pop.pop_offsets.in_flight(TOPIC, CONSUMERS, 0) == 0


async def test_an_acknowledgement_is_answered_with_nothing_else() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        answer = await ends.client.acks(got)
        assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (0, None, {}, None)


async def test_one_that_comes_when_the_time_is_just_over_still_counts() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        late, _ = await ends.client.gets()
        ends.clock.advance(INVISIBLE_MS + 500)
        await ends.client.settles(late)
        ends.wait(5000)
        assert bodies_of(await ends.client.gets()) == [b"b"]


async def test_one_that_comes_too_late_does_nothing() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (late,) = await ends.client.gets()
        ends.wait()
        await ends.client.settles(late)
        assert bodies_of(await ends.client.gets()) == [b"a"]


async def test_acknowledging_twice_is_acknowledging_once() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        first, _ = await ends.client.gets()
        await ends.client.settles(first, first)
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [b"b"]


async def test_a_message_that_came_again_is_acknowledged_by_its_own_receipt() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        ends.wait()
        await ends.client.settles(*await ends.client.gets())
        ends.wait(2 * BACK_MS)
        assert await ends.client.gets() == []


async def test_the_receipt_of_another_message_settles_nothing_of_this_one() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        wrong = dataclasses.replace(got, receipt=got.receipt._replace(pop_time=got.receipt.pop_time - 1))
        await ends.client.settles(wrong)
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [b"a"]


async def test_offsets_topics_and_queues_that_cannot_be_are_refused() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()

        async def refused(**fields: object) -> tuple[int, str | None]:
            said = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": 0, "offset": 0, **fields}
            said.setdefault("extraInfo", str(got.receipt))
            answer = await ends.client.asks(RequestCode.ACK_MESSAGE, **said)
            return answer.code, answer.remark

        code, remark = await refused(offset=9)
        assert code == ResponseCode.NO_MESSAGE
        assert remark == "offset is illegal, key:TopicTest@0, commit:9, store:0~1"
        assert (await refused(queueId=9))[0] == ResponseCode.MESSAGE_ILLEGAL
        assert (await refused(queueId=-1))[0] == ResponseCode.MESSAGE_ILLEGAL
        assert (await refused(topic="nowhere"))[0] == ResponseCode.TOPIC_NOT_EXIST
        assert (await refused(extraInfo="what"))[0] == ResponseCode.SYSTEM_ERROR
        assert (await refused(extraInfo="0 1 2 88 0 broker-a 0 0"))[0] == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("place", [0, 1, 2, 6, 7])
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**40])
async def test_receipts_with_numbers_that_no_record_can_hold_are_refused(place: int, number: int) -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        parts = str(got.receipt).split(" ")
        parts[place] = str(number)
        said = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": 0, "offset": 0}
        for code, more in (
            (RequestCode.ACK_MESSAGE, {}),
            (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, {"invisibleTime": 1000}),
        ):
            answer = await ends.client.asks(code, **said, **more, extraInfo=" ".join(parts))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert answer.remark.endswith("is no receipt of a popped message: a number is out of range")


async def test_a_receipt_whose_invisible_time_never_ends_is_refused() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        never = dataclasses.replace(got, receipt=got.receipt._replace(invisible_ms=2**63 - 1))
        assert (await ends.client.acks(never)).code == ResponseCode.SYSTEM_ERROR
        answer = await ends.client.hides(got, 2**63 - 1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"invisibleTime {2**63 - 1}: the message would never be visible again"


# In bulk


async def test_several_messages_of_a_pop_are_acknowledged_together() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abcde")
        got = await ends.client.gets()
        answer = await ends.client.acks_together(got[0], got[2], got[4])
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})
        ack = stored(ends.broker, TIMER)[-1]
        assert properties_of(ack)["TAGS"] == "bAck"
        assert properties_of(ack)["UNIQ_KEY"].endswith("@ack")
        assert loads(ack.body)["aol"] == [0, 2, 4]
        assert loads(ack.body)["ao"] == -1
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [b"b", b"d"]


async def test_messages_that_came_again_are_acknowledged_together_too() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abc")
        await ends.client.gets()
        ends.wait()
        got = await ends.client.gets()
        assert got[0].receipt.kind == "1"
        await ends.client.acks_together(*got[:2])
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [b"c"]


async def test_offsets_outside_the_queue_are_passed_over() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        far = dataclasses.replace(got, receipt=got.receipt._replace(offset=5000))
        records = len(stored(ends.broker, TIMER))
        assert (await ends.client.acks_together(got, far)).code == ResponseCode.SUCCESS
        assert loads(stored(ends.broker, TIMER)[-1].body)["aol"] == [0]
        assert len(stored(ends.broker, TIMER)) == records + 1


@pytest.mark.parametrize("body", [None, BatchAckMessageRequestBody("broker-a", []).encode()])
async def test_no_acknowledgement_at_all_is_refused(body: bytes | None) -> None:
    async with popping() as ends:
        assert (await ends.client.asks(RequestCode.BATCH_ACK_MESSAGE, body)).code == ResponseCode.NO_MESSAGE


# For longer, or sooner


async def test_a_message_can_be_hidden_for_longer() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        a, _ = await ends.client.gets()
        ends.clock.advance(5000)
        now = ends.clock.now_ms()
        answer = await ends.client.hides(a, 30_000)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
        assert answer.ext_fields == {
            "popTime": str(now),
            "invisibleTime": "30000",
            "reviveQid": str(a.receipt.revive_queue),
        }
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [b"b"]
        ends.wait(20_000)
        assert b"a" in bodies_of(await ends.client.gets())


async def test_a_message_can_come_back_sooner() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets(invisible_ms=60_000)
        await ends.client.hides(got, 1000)
        ends.wait(6000)
        (again,) = await ends.client.gets()
        assert again.record.reconsume_times == 1
        ends.wait(60_000)
        assert bodies_of(await ends.client.gets()) == [b"a"], "and only once for what was popped first"


async def test_a_message_that_is_put_off_by_its_consumer_is_not_counted() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        await ends.client.hides(got, 1000, suspend=True)
        ends.wait()
        (again,) = await ends.client.gets()
        assert again.record.reconsume_times == 0


async def test_the_new_receipt_acknowledges_and_the_old_one_does_not() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        a, b = await ends.client.gets()
        renewed = [_renewed(one, (await ends.client.hides(one, 20_000)).ext_fields) for one in (a, b)]
        await ends.client.settles(renewed[0])
        await ends.client.settles(b)
        ends.wait(30_000)
        assert bodies_of(await ends.client.gets()) == [b"b"]


def _renewed(got: Got, fields: dict[str, str]) -> Got:
    receipt = got.receipt._replace(
        start_offset=got.receipt.offset,
        pop_time=int(fields["popTime"]),
        invisible_ms=int(fields["invisibleTime"]),
        revive_queue=int(fields["reviveQid"]),
    )
    return dataclasses.replace(got, receipt=receipt)


async def test_an_invalid_change_of_invisible_time_is_refused() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        (got,) = await ends.client.gets()
        beyond = dataclasses.replace(got, receipt=got.receipt._replace(offset=1))
        assert (await ends.client.hides(beyond, 1000)).code == ResponseCode.NO_MESSAGE
        assert (
            await ends.client.hides(dataclasses.replace(got, topic="no"), 1)
        ).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await ends.client.hides(got, 10**9)).code == ResponseCode.SYSTEM_ERROR
        assert (await ends.client.hides(got, -1)).code == ResponseCode.SYSTEM_ERROR
