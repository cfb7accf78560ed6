"""POP: delivery of messages, their invisible time, and the redelivery of unacknowledged ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.broker.long_polling import table
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PERM_WRITE
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.store import StoredMessage
from support.broker.pop_harness import BACK_MS, INVISIBLE_MS, Got, bodies_of, got_by, pop_fields, popper_of, popping
from support.broker.requests import CONSUMERS, TOPIC, properties_of, stored
from support.remoting_harness import eventually

RETRY = pop_retry_topic(TOPIC, CONSUMERS)
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@pytest.fixture(autouse=True)
def _time_that_passes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SWEEP_SECONDS", 0.001)


# What is handed out


async def test_messages_of_all_queues_come_in_one_answer() -> None:
    async with popping() as ends:
        for queue_id in range(4):
            await ends.client.fills(f"a{queue_id}", f"b{queue_id}", queueId=queue_id)
        answer = await ends.client.pops()

        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        got = got_by(answer)
        assert bodies_of(got) == sorted(b"%c%d" % (letter, at) for letter in b"ab" for at in range(4))
        assert answer.ext_fields["restNum"] == "0"
        assert answer.ext_fields["popTime"] == str(ends.clock.now_ms())
        assert answer.ext_fields["invisibleTime"] == str(INVISIBLE_MS)
        assert "orderCountInfo" not in answer.ext_fields
        records = {record.queue_id: record for record in (one.record for one in got)}
        assert all(record.topic == TOPIC for record in records.values())


async def test_popped_messages_are_invisible_to_the_group_and_visible_to_others() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        assert bodies_of(await ends.client.gets(most=1)) == [b"a"]
        assert bodies_of(await ends.client.gets()) == [b"b"]
        assert await ends.client.gets() == []
        assert bodies_of(await ends.client.gets(TOPIC, "another_group")) == [b"a", b"b"]


async def test_one_queue_can_be_popped_alone() -> None:
    async with popping() as ends:
        await ends.client.fills("a", queueId=0)
        await ends.client.fills("b", queueId=1)
        assert bodies_of(await ends.client.gets(queue_id=1)) == [b"b"]
        assert bodies_of(await ends.client.gets(queue_id=0)) == [b"a"]


async def test_the_rest_of_the_queues_is_counted() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b", "c", queueId=0)
        await ends.client.fills("d", "e", queueId=1)
        answer = await ends.client.pops(most=2, queue_id=0)
        assert answer.ext_fields["restNum"] == "1"
        answer = await ends.client.pops(most=1)
        assert answer.ext_fields["restNum"] == "2"


async def test_the_broker_moves_the_group_on_and_leaves_a_check_point() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b", "c")
        await ends.client.gets(most=2)
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 2
        (parked,) = stored(ends.broker, "rmq_sys_wheel_timer")
        assert properties_of(parked)["TAGS"] == "ck"
        assert ends.broker.pop.pop_offsets.in_flight(TOPIC, CONSUMERS, 0) == 2


@pytest.mark.parametrize("mode", [0, 1])
async def test_a_new_group_of_a_young_topic_gets_everything(mode: int) -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        assert bodies_of(await ends.client.gets(init_mode=mode)) == [b"a", b"b"]


@pytest.mark.parametrize(("mode", "expected"), [(0, [b"a", b"b", b"c"]), (1, [b"c"])])
async def test_a_new_group_starts_at_the_position_of_its_init_mode(mode: int, expected: list[bytes]) -> None:
    async with popping(initPopOffsetByCheckMsgInMem=False) as ends:
        await ends.client.fills("a", "b", "c")
        assert bodies_of(await ends.client.gets(init_mode=mode)) == expected


async def test_a_group_that_was_sent_elsewhere_pops_from_there() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b", "c")
        await ends.client.gets()
        ends.broker.offsets.reset(CONSUMERS, TOPIC, 0, 1)
        assert bodies_of(await ends.client.gets()) == [b"b", b"c"]
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 3


async def test_a_group_behind_the_first_message_or_before_the_last_is_put_right() -> None:
    async with popping() as ends:
        await ends.client.fills("a", "b")
        ends.broker.offsets.commit(CONSUMERS, TOPIC, 0, 99)
        assert await ends.client.gets() == []
        await ends.client.fills("c")
        assert bodies_of(await ends.client.gets()) == [b"c"]


# Filters


async def test_only_messages_with_the_tags_come_and_the_group_is_past_the_others() -> None:
    async with popping() as ends:
        await ends.client.fills("a:x", "b:y", "c:z", "d:x")
        answer = await ends.client.pops(exp="x || z")
        assert bodies_of(got_by(answer)) == [b"a", b"c", b"d"]
        assert answer.ext_fields["msgOffsetInfo"] == "0 0 0,2,3"
        assert answer.ext_fields["startOffsetInfo"] == "0 0 0"
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 4


async def test_messages_are_chosen_by_their_properties() -> None:
    async with popping() as ends:
        for number in range(5):
            await ends.client.stores(b"%d" % number, properties={"n": str(number)})
        got = await ends.client.gets(expType="SQL92", exp="n BETWEEN 1 AND 3")
        assert bodies_of(got) == [b"1", b"2", b"3"]


async def test_a_pop_reads_past_many_messages_that_do_not_match() -> None:
    async with popping() as ends:
        for _ in range(2000):
            ends.broker.store.append(StoredMessage(TOPIC, 0, b"no", b"TAGS\x01x\x02"))
        await ends.client.fills("wanted:y")
        got: list[bytes] = []
        async with asyncio.timeout(10):
            while not got:  # a pop that used up its time on the loop answers with nothing and has moved on
                got = bodies_of(await ends.client.gets(exp="y"))
        assert got == [b"wanted"]


async def test_redelivery_with_a_filter_brings_the_right_messages() -> None:
    async with popping() as ends:
        await ends.client.fills("a:x", "b:y", "c:x", "d:x")
        first, second, third = await ends.client.gets(exp="x")
        await ends.client.settles(second)
        ends.wait()
        assert bodies_of(await ends.client.gets(exp="x")) == [first.body, third.body]


async def test_an_expression_that_does_not_compile_is_refused() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        answer = await ends.client.pops(expType="SQL92", exp="a >")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# Coming back


async def test_unacknowledged_messages_are_redelivered_once_more() -> None:
    async with popping() as ends:
        await ends.client.fills("a:x", "b", "c")
        popped_at = ends.clock.now_ms()
        a, b, c = await ends.client.gets()
        await ends.client.settles(b)
        ends.wait()
        again = await ends.client.gets()

        assert bodies_of(again) == [a.body, c.body]
        first = next(one for one in again if one.body == b"a")
        assert first.record.reconsume_times == 1
        assert first.record.topic == TOPIC
        assert first.topic == RETRY
        assert first.receipt.kind == "1"
        (lying, _) = stored(ends.broker, RETRY)
        assert lying.topic == RETRY
        assert lying.born_timestamp == a.record.born_timestamp
        assert lying.born_host == ends.broker.store.log.store_host
        properties = properties_of(lying)
        before = properties_of(a.record)
        assert properties == {**before, "1ST_POP_TIME": str(popped_at), "ORIGIN_GROUP": CONSUMERS}
        assert ends.broker.topics.configs[RETRY].read_queue_nums == 1
        assert ends.broker.pop.pop_offsets.in_flight(TOPIC, CONSUMERS, 0) == 0


async def test_it_is_not_back_before_its_time() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        ends.wait(INVISIBLE_MS)
        assert await ends.client.gets() == []
        ends.wait(BACK_MS - INVISIBLE_MS)
        assert bodies_of(await ends.client.gets()) == [b"a"]


async def test_a_message_is_redelivered_until_acknowledged_and_counted_each_time() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        first_pop = ends.clock.now_ms()
        for times in range(20):
            (got,) = await ends.client.gets()
            assert got.record.reconsume_times == times
            assert properties_of(got.record).get("1ST_POP_TIME", str(first_pop)) == str(first_pop)
            ends.wait()
        (got,) = await ends.client.gets()
        await ends.client.settles(got)
        ends.wait(3 * BACK_MS)
        assert await ends.client.gets() == []


async def test_retries_are_popped_first_with_the_configured_probability() -> None:
    async with popping(popFromRetryProbability=100) as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        ends.wait()
        await ends.client.fills("new")
        assert bodies_of(await ends.client.gets(most=1)) == [b"a"]
        assert bodies_of(await ends.client.gets(most=1)) == [b"new"]


async def test_the_retry_topic_has_the_newer_name_if_that_is_set_and_the_older_one_is_read_too() -> None:
    async with popping() as ends:
        await ends.client.fills("old")
        await ends.client.gets()
        ends.wait()
        disk = ends.broker.disk
    async with popping(disk, ends.clock, enableRetryTopicV2=True) as ends:
        await ends.client.fills("new")
        await ends.client.gets(queue_id=0, most=1)
        ends.wait()
        found: list[Any] = []
        while len(found) < 2:
            found += await ends.client.gets()
        assert bodies_of(found) == [b"new", b"old"]
        assert {got.receipt.kind for got in found} == {"1", "2"}
        assert f"%RETRY%{CONSUMERS}+{TOPIC}" in ends.broker.topics.configs
        await ends.client.settles(*found)
        ends.wait()
        assert await ends.client.gets() == []


async def test_the_retry_topic_can_be_returned_under_its_own_name() -> None:
    async with popping(popResponseReturnActualRetryTopic=True) as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        ends.wait()
        answer = await ends.client.pops()
        (got,) = got_by(answer)
        assert got.record.topic == RETRY
        assert "POP_CK" not in properties_of(got.record)


async def test_a_message_with_no_invisible_time_is_redelivered_soon() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets(invisible_ms=0)
        ends.wait(5000)
        assert bodies_of(await ends.client.gets()) == [b"a"]


async def test_messages_of_a_deleted_topic_are_not_redelivered() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        ends.broker.topics.delete(TOPIC)
        ends.wait()
        assert RETRY not in ends.broker.topics.configs
        assert ends.broker.offsets.query("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) == 0


async def test_check_points_take_turns_with_the_revive_queues() -> None:
    async with popping() as ends:
        await ends.client.fills(*"abcdefghij")
        queues = [(await ends.client.pops(most=1)).ext_fields["reviveQid"] for _ in range(10)]
        assert queues == [str(number % 8) for number in range(10)]
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [letter.encode() for letter in "abcdefghij"]
        offsets = ends.broker.offsets.of_group("CID_RMQ_SYS_REVIVE_GROUP", REVIVE)
        assert offsets == {number: 1 if number < 2 else 0 for number in range(8)}


async def test_of_fewer_revive_queues_than_before_all_are_read() -> None:
    async with popping(reviveQueueNum=8) as ends:
        await ends.client.fills(*"abcdefgh")
        for _ in range(8):
            await ends.client.gets(most=1)
        disk = ends.broker.disk
    async with popping(disk, ends.clock, reviveQueueNum=2) as ends:
        ends.wait()
        assert bodies_of(await ends.client.gets()) == [letter.encode() for letter in "abcdefgh"]


# Waiting


async def test_a_pop_that_finds_nothing_waits_for_a_message() -> None:
    async with popping() as ends, popper_of(ends.broker) as other:
        await ends.client.fills("first")
        await ends.client.gets()
        waiting = asyncio.create_task(ends.client.gets(poll_ms=15_000))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        await other.fills("late", queueId=3)
        assert bodies_of(await waiting) == [b"late"]


async def test_a_pop_of_one_queue_does_not_wait_for_another_one() -> None:
    async with popping() as ends, popper_of(ends.broker) as other:
        await ends.client.fills("first")
        waiting = asyncio.create_task(ends.client.gets(queue_id=1, poll_ms=15_000))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        await other.fills("elsewhere", queueId=0)
        await other.pass_time()
        assert not waiting.done()
        await other.fills("here", queueId=1)
        assert bodies_of(await waiting) == [b"here"]


async def test_those_who_wait_are_served_one_after_another() -> None:
    async with popping() as ends, popper_of(ends.broker) as other:
        await ends.client.fills("x")
        await ends.client.gets()
        waiting: list[asyncio.Task[list[Got]]] = []
        for _ in range(3):
            waiting.append(asyncio.create_task(ends.client.gets(poll_ms=15_000, most=1)))
            await eventually(lambda: len(ends.broker.pop.pops.held) == len(waiting))
        await other.fills("a", "b", "c")
        got = await asyncio.gather(*waiting)
        assert [bodies_of(some) for some in got] == [[b"a"], [b"b"], [b"c"]]


async def test_a_redelivered_message_wakes_held_pops() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        waiting = asyncio.create_task(ends.client.gets(poll_ms=100_000, queue_id=2))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        ends.wait()
        assert bodies_of(await waiting) == [b"a"]


async def test_a_pop_whose_filter_does_not_match_stays_held() -> None:
    async with popping() as ends, popper_of(ends.broker) as other:
        await ends.client.fills("x:x")
        waiting = asyncio.create_task(ends.client.gets(poll_ms=15_000, exp="y"))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        await other.fills("a:x")
        await other.pass_time()
        assert not waiting.done()
        await other.fills("b:y")
        assert bodies_of(await waiting) == [b"b"]
        assert ends.broker.offsets.query(CONSUMERS, TOPIC, 0) == 3


async def test_a_pop_ends_when_its_time_is_over() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        waiting = asyncio.create_task(ends.client.pops(poll_ms=15_000))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        ends.clock.advance(14_960)
        answer = await waiting
        assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert answer.ext_fields["msgOffsetInfo"] == ""
        assert answer.ext_fields["startOffsetInfo"] == ""
        assert answer.ext_fields["reviveQid"] == "2"


async def test_a_pop_that_will_not_wait_is_answered_at_once() -> None:
    async with popping() as ends:
        await ends.client.fills("a", queueId=1)
        answer = await ends.client.pops(queue_id=0)
        assert answer.code == ResponseCode.POLLING_TIMEOUT


async def test_too_many_may_not_wait() -> None:
    async with popping(popPollingSize=1) as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        waiting = [asyncio.create_task(ends.client.pops(poll_ms=15_000)) for _ in range(2)]
        await eventually(lambda: len(ends.broker.pop.pops.held) == 2)
        assert (await ends.client.pops(poll_ms=15_000)).code == ResponseCode.POLLING_FULL
        info = await ends.client.asks(RequestCode.POLLING_INFO, consumerGroup=CONSUMERS, topic=TOPIC, queueId=-1)
        assert info.ext_fields == {"pollingNum": "2"}
        ends.clock.advance(15_000)
        await asyncio.gather(*waiting)


async def test_a_pop_of_a_closed_connection_consumes_no_message() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        async with popper_of(ends.broker) as leaving:
            waiting = asyncio.create_task(leaving.pops(poll_ms=15_000))
            await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await eventually(lambda: len(ends.broker.connections) == 1)
        await ends.client.fills("b")
        assert bodies_of(await ends.client.gets()) == [b"b"]


async def test_a_broker_that_stops_answers_those_who_wait() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await ends.client.gets()
        waiting = asyncio.create_task(ends.client.pops(poll_ms=15_000))
        await eventually(lambda: len(ends.broker.pop.pops.held) == 1)
        await ends.broker.stop()
        assert (await waiting).code == ResponseCode.POLLING_TIMEOUT


# Refusals


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "topic[nowhere] not exist, apply first please! "),
        (
            {"most": 33},
            ResponseCode.INVALID_PARAMETER,
            "the broker[127.0.0.1] pop message's num is greater than 32",
        ),
        ({"queue_id": 77}, ResponseCode.INVALID_PARAMETER, "queueId[77] is illegal, topic:[TopicTest] "),
        ({"invisible_ms": 10**9}, ResponseCode.INVALID_PARAMETER, "invisibleTime[1000000000] is illegal"),
    ],
)
async def test_invalid_pops_are_refused(fields: dict[str, Any], code: ResponseCode, remark: str) -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        answer = await ends.client.pops(**fields)
        assert answer.code == code
        assert (answer.remark or "").startswith(remark)
        assert answer.ext_fields == {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


@pytest.mark.parametrize("born", [1, 2**62])
async def test_a_client_whose_clock_is_wrong_gets_messages(born: int) -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        answer = await ends.client.pops(bornTime=born)
        assert answer.code == ResponseCode.SUCCESS


async def test_a_group_that_may_not_consume_and_a_topic_that_may_not_be_read_are_refused() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        ends.broker.groups.update(SubscriptionGroupConfig(CONSUMERS, consume_enable=False))
        assert (await ends.client.pops()).code == ResponseCode.NO_PERMISSION
        ends.broker.topics.update(TopicConfig("closed", 1, 1, PERM_WRITE))
        assert (await ends.client.pops("closed")).code == ResponseCode.NO_PERMISSION


async def test_an_unknown_group_is_refused_where_groups_are_made_by_hand() -> None:
    async with popping(autoCreateSubscriptionGroup=False) as ends:
        await ends.client.fills("a")
        assert (await ends.client.pops()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_without_the_timer_there_is_no_pop() -> None:
    async with popping(timerWheelEnable=False) as ends:
        await ends.client.fills("a")
        answer = await ends.client.pops()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable is false" in (answer.remark or "")


async def test_a_queue_with_too_much_in_flight_hands_out_nothing() -> None:
    async with popping(enablePopMessageThreshold=True, popInflightMessageThreshold=1) as ends:
        await ends.client.fills("a", "b", "c")
        first = await ends.client.gets(most=2)
        assert await ends.client.gets() == []
        await ends.client.settles(*first)
        assert bodies_of(await ends.client.gets()) == [b"c"]


async def test_pops_are_not_served_on_the_vip_port() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        async with type(ends.client).of(ends.broker, vip=True) as client:
            answer = await client.asks(RequestCode.POP_MESSAGE, **pop_fields())
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
