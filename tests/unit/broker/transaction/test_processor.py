"""Half messages and END_TRANSACTION: records in the log and responses, compared with Apache's broker."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.broker.transaction.op_queue import MAX_PENDING
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import COMPRESSED, TRANSACTION_COMMIT
from orbitmq.protocol.message.record import Record, decode_record, encode_record
from orbitmq.store.config_tables import TRANSACTION_METRICS
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import TOPIC, bodies, properties_of, pull_request, stored, talk
from support.broker.transaction_harness import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    OPS,
    ROLLBACK,
    UNKNOWN,
    Half,
    TransactionPeer,
    producing_to,
    transaction_scene,
)
from support.remoting_harness import HOST, eventually
from support.store import golden

# Half messages


async def test_a_half_message_is_stored_in_the_half_topic_with_its_real_topic() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"half", {"KEYS": "k", "TAGS": "t"}, queueId=2, flag=7)

        assert scene.bodies(queue_id=2) == []
        (record,) = stored(scene.broker, HALF)
        assert (record.queue_id, record.queue_offset, record.physical_offset) == (0, 0, half.physical)
        assert (record.body, record.sys_flag, record.flag, record.born_timestamp) == (b"half", 0, 7, T0)
        assert record.prepared_transaction_offset == 0
        assert properties_of(record) == {
            "UNIQ_KEY": half.key,
            "TRAN_MSG": "true",
            "PGROUP": GROUP,
            "WAIT": "true",
            "KEYS": "k",
            "TAGS": "t",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "__transactionId__": half.key,
            "REAL_TOPIC": TOPIC,
            "REAL_QID": "2",
        }


async def test_the_response_has_the_requested_queue_and_the_offset_of_the_half_message() -> None:
    async with transaction_scene() as scene:
        await scene.producer.prepares()
        properties = {"TRAN_MSG": "TRUE", "UNIQ_KEY": "U", "PGROUP": GROUP}
        answer = await scene.producer.stores(properties=properties, queueId=3)

        record = stored(scene.broker, HALF)[1]
        assert answer.ext_fields == {
            "queueId": "3",
            "transactionId": "U",
            "msgId": scene.broker.store.message_id(record.physical_offset),
            "queueOffset": "1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


@pytest.mark.parametrize("value", ["true", "TRUE"])
async def test_half_messages_are_refused_by_a_setting(value: str) -> None:
    async with talk(rejectTransactionMessage=True) as (broker, client):
        answer = await client.sends(properties={"TRAN_MSG": value})

        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == (
            f"the broker[{HOST}] sending transaction message is forbidden; "
            "rejectTransactionMessage=true in its settings, set rejectTransactionMessage=false"
        )
        assert stored(broker) == stored(broker, HALF) == []
        await client.stores(properties={"TRAN_MSG": "false"})


async def test_a_resend_of_an_old_client_after_a_transaction_is_not_a_half_message() -> None:
    async with talk() as (broker, client):
        await client.stores(properties={"TRAN_MSG": "true", "DELAY": "1"}, reconsumeTimes=1)

        assert stored(broker, HALF) == []
        assert [record.body for record in stored(broker, "SCHEDULE_TOPIC_XXXX")] == [b"hello"]


async def test_a_half_message_with_a_delivery_time_is_refused() -> None:
    async with talk() as (broker, client):
        answer = await client.sends(properties={"TRAN_MSG": "true", "TIMER_DELAY_SEC": "5"})

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert stored(broker, HALF) == []


async def test_clients_cannot_send_to_the_topics_of_transactions() -> None:
    async with talk() as (_, client):
        for topic in (HALF, OPS, GIVEN_UP):
            answer = await client.sends(topic=topic)
            assert (answer.code, answer.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")


# END_TRANSACTION


async def test_a_committed_message_equals_apaches() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"paid", {"KEYS": "k"}, queueId=1, flag=-5, sysFlag=4 | COMPRESSED)
        scene.clock.advance(10)
        answer = await scene.producer.ends(half)

        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
        (record,) = stored(scene.broker, TOPIC, 1)
        before = stored(scene.broker, HALF)[0]
        assert (record.body, record.queue_offset, record.flag) == (b"paid", 0, -5)
        assert record.sys_flag == TRANSACTION_COMMIT | COMPRESSED
        assert record.prepared_transaction_offset == half.physical
        assert (record.born_timestamp, record.born_host) == (before.born_timestamp, before.born_host)
        assert record.store_timestamp == T0 + 10
        kept = properties_of(before)
        del kept["REAL_TOPIC"], kept["REAL_QID"]
        assert properties_of(record) == kept
        assert kept["TRAN_MSG"] == "true"


async def test_a_rolled_back_message_is_not_delivered() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares()
        answer = await scene.producer.ends(half, ROLLBACK)

        # A success for which Apache's broker sends no remark.
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert scene.bodies() == []


async def test_an_unknown_outcome_gets_no_response_and_changes_nothing() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares()
        for how in (UNKNOWN, 4, 99):
            fields = {"commitOrRollback": how}
            await scene.producer.ends_quietly(half, **fields)
        assert scene.bodies() == []
        assert (await scene.producer.ends(half)).code == 0
        assert scene.bodies() == [b"hello"]


async def test_a_oneway_end_takes_effect() -> None:
    async with transaction_scene() as scene:
        await scene.producer.ends_quietly(await scene.producer.prepares())
        assert scene.bodies() == [b"hello"]


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"producerGroup": "another"}, "The producer group wrong"),
        ({"tranStateTableOffset": 5}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 10_000_000}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
        ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
    ],
)
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_an_end_must_match_its_half_message(wrong: dict[str, Any], remark: str, how: int) -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares()
        answer = await scene.producer.ends(half, how, **wrong)

        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert scene.bodies() == []
        assert (await scene.producer.ends(half)).code == 0


async def test_no_other_message_can_be_ended() -> None:
    async with transaction_scene() as scene:
        properties = {"PGROUP": GROUP, "UNIQ_KEY": "K", "REAL_TOPIC": "Elsewhere", "REAL_QID": "0"}
        await scene.producer.stores(properties=properties)
        plain = Half("K", 0, stored(scene.broker)[0].physical_offset)
        half = await scene.producer.prepares()
        # A record inside a body, from a client that knows the end of the log.
        (log_end, record) = scene.broker.store.log.end, stored(scene.broker, HALF)[0]
        inside = Half(half.key, 1 << 50, _begin_of_body(log_end))
        forged = _record_at(record, inside)
        await scene.producer.stores(forged)
        assert scene.broker.store.record(inside.physical) is not None

        for one in (plain, inside):
            answer = await scene.producer.ends(one)
            assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        assert stored(scene.broker, "Elsewhere") == []


def _begin_of_body(log_end: int) -> int:
    return log_end + 88


def _record_at(record: Record, place: Half) -> bytes:
    return encode_record(
        topic=HALF.encode(), queue_id=0, body=b"forged", properties=record.properties,
        queue_offset=place.queue_offset, physical_offset=place.physical, born_host=bytes(8), store_host=bytes(8),
    )  # fmt: skip


async def test_the_first_end_wins() -> None:
    async with transaction_scene() as scene:
        committed, rolled_back = [await scene.producer.prepares(body) for body in (b"a", b"b")]
        await scene.producer.ends(committed)
        await scene.producer.ends(rolled_back, ROLLBACK)

        assert (await scene.producer.ends(committed)).code == 0
        late = await scene.producer.ends(committed, ROLLBACK)
        assert (late.code, late.remark) == (1, "the transaction was already committed")
        late = await scene.producer.ends(rolled_back)
        assert (late.code, late.remark) == (1, "the transaction was already rolled back")
        assert scene.bodies() == [b"a"]


async def test_a_transaction_with_an_immunity_time_must_be_ended_within_it() -> None:
    async with transaction_scene() as scene:
        patient, usual = [
            await scene.producer.prepares(b"p", {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) for text in ("10", "2")
        ]
        scene.clock.advance(6000)
        assert (await scene.producer.ends(usual)).code == 0, "transactionTimeOut is the least"
        scene.clock.advance(4001)
        for how in (COMMIT, ROLLBACK):
            answer = await scene.producer.ends(patient, how)
            assert (answer.code, answer.remark) == (604, "not set any response code")
        assert scene.bodies() == [b"p"]


async def test_the_delay_of_a_half_message_begins_at_its_commit() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"later", {"DELAY": "3"})
        scene.clock.advance(60_000)
        scene.broker.schedule.deliver_due()
        assert scene.bodies() == []
        await scene.producer.ends(half)
        scene.clock.advance(9_999)
        scene.broker.schedule.deliver_due()
        assert scene.bodies() == []
        scene.clock.advance(1)
        scene.broker.schedule.deliver_due()
        assert scene.bodies() == [b"later"]


async def test_an_end_is_refused_while_the_store_refuses_appends() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares()
        scene.broker.store.appender.gate.close("test", "for a test")
        answer = await scene.producer.ends(half)
        assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
        scene.broker.store.appender.gate.open("test")

        assert scene.bodies() == []
        assert (await scene.producer.ends(half)).code == 0
        assert scene.bodies() == [b"hello"]


async def test_a_commit_wakes_held_pulls() -> None:
    for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        async with transaction_scene(flushDiskType=flush) as scene:
            half = await scene.producer.prepares()
            held = scene.producer.posts(pull_request(hold_ms=30_000))
            await scene.producer.ends(half)
            assert bodies(await scene.producer.answer_to(held)) == [b"hello"]


# Op queue


async def test_op_messages_name_many_half_messages_and_equal_apaches() -> None:
    async with transaction_scene() as scene:
        halves = [await scene.producer.prepares() for _ in range(3)]
        await scene.producer.ends(halves[0])
        await scene.producer.ends(halves[2], ROLLBACK)
        await scene.producer.ends(halves[1])
        assert stored(scene.broker, OPS) == []
        scene.clock.advance(50)
        await scene.broker.transactions.ops.write()

        (record,) = stored(scene.broker, OPS)
        apaches = next(row for row in golden.expected_records("basic") if row.get("topic") == OPS)
        theirs = decode_record(golden.commit_log("basic"), apaches["physicalOffset"])
        assert (record.body, record.properties) == (theirs.body, theirs.properties)
        assert record.body == b"0,2,1,"
        assert (record.sys_flag, record.flag, record.queue_id) == (0, 0, 0)
        assert record.born_timestamp == record.store_timestamp == T0 + 50
        assert record.born_host == record.store_host


async def test_op_messages_are_written_after_the_batch_interval() -> None:
    async with transaction_scene(transactionOpBatchInterval=1) as scene:
        await scene.producer.ends(await scene.producer.prepares())
        await eventually(lambda: scene.bodies(OPS) == [b"0,"])
        await scene.producer.ends(await scene.producer.prepares())
        await eventually(lambda: scene.bodies(OPS) == [b"0,", b"1,"])


async def test_op_messages_are_written_at_the_size_limit() -> None:
    async with transaction_scene(transactionOpMsgMaxSize=10) as scene:
        for _ in range(7):
            await scene.producer.ends(await scene.producer.prepares())
        await eventually(lambda: scene.bodies(OPS)[:1] == [b"0,1,2,3,4,"])


async def test_ends_are_refused_once_too_many_op_messages_are_pending() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares()
        ops = scene.broker.transactions.ops
        scene.broker.store.appender.gate.close("test", "for a test")
        ops.add(0, list(range(1, MAX_PENDING + 1)))
        answer = await scene.producer.ends(half, ROLLBACK)
        assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
        scene.broker.store.appender.gate.open("test")
        await ops.write()
        named = [int(number) for body in scene.bodies(OPS) for number in body.split(b",") if number]
        assert named == list(range(1, MAX_PENDING + 1))
        assert (await scene.producer.ends(half, ROLLBACK)).code == 0


# Counts, and resumed checks


async def test_half_messages_are_counted_by_topic() -> None:
    disk = MemoryDisk()
    async with transaction_scene(disk) as scene:
        halves = [await scene.producer.prepares(topic=topic) for topic in ("A", "A", "A", "B")]
        await scene.producer.ends(halves[0])
        await scene.producer.ends(halves[1], ROLLBACK)
        counts = scene.broker.transactions.counts
        assert (counts.of("A"), counts.of("B"), counts.of("C")) == (1, 1, 0)
    table = TRANSACTION_METRICS.load(disk, "/messages/config")
    assert {topic: metric.count for topic, metric in table.transaction_count.items()} == {"A": 1, "B": 1}
    assert table.data_version.counter == 6
    async with running_broker(disk) as broker:
        assert broker.transactions.counts.of("A") == 1


async def test_a_refused_half_message_is_not_counted() -> None:
    async with transaction_scene() as scene:
        scene.broker.store.appender.gate.close("test", "for a test")
        answer = await scene.producer.sends(properties={"TRAN_MSG": "true", "PGROUP": GROUP})
        scene.broker.store.appender.gate.open("test")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert scene.broker.transactions.counts.of(TOPIC) == 0


async def test_checks_of_a_given_up_half_message_can_be_resumed() -> None:
    async with transaction_scene(transactionCheckMax=1) as scene:
        await scene.producer.prepares(b"stubborn")
        for _ in range(2):
            await scene.check()
        (given_up,) = stored(scene.broker, GIVEN_UP)
        assert await scene.producer.questions() == 1
        identity = scene.broker.store.message_id(given_up.physical_offset)
        answer = await scene.producer.asks(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=identity, topic=GIVEN_UP)

        assert (answer.code, answer.remark) == (0, None)
        await scene.producer.questioned()
        await scene.check(1)
        question = await scene.producer.questioned()
        await scene.producer.ends(question)
        assert scene.bodies() == [b"stubborn"]


@pytest.mark.parametrize("message_id", ["7F00000100002A9F0000000000000001", "no id", None])
async def test_checks_of_a_missing_message_cannot_be_resumed(message_id: str | None) -> None:
    async with transaction_scene() as scene:
        answer = await scene.producer.asks(RequestCode.RESUME_CHECK_HALF_MESSAGE, msgId=message_id, topic=GIVEN_UP)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark


async def test_producers_over_the_vip_port_end_transactions_too() -> None:
    async with transaction_scene() as scene:
        async with TransactionPeer.of(scene.broker, vip=True) as vip, producing_to(scene.broker) as other:
            assert isinstance(vip, TransactionPeer)
            half = await vip.prepares()
            assert (await other.ends(half)).code == 0
            assert (await vip.ends(half)).code == 0
        assert scene.bodies() == [b"hello"]


async def test_half_messages_that_another_master_checks_end_here_without_effect() -> None:
    async with transaction_scene() as scene:
        moved = [await scene.producer.prepares(b"%d" % number) for number in range(3)]
        late = await scene.producer.prepares(b"late")
        scene.broker.transactions.take_over(0, 3)
        assert scene.progress()[0] == 3
        for how in (COMMIT, ROLLBACK):
            answer = await scene.producer.ends(moved[0], how)
            assert answer.code == ResponseCode.SUCCESS
        await scene.check()
        assert (await scene.producer.questioned()).key == late.key
        assert await scene.producer.questions() == 1
        assert scene.bodies() == []
        progress = scene.progress()
        for unknown in (1, 100):
            scene.broker.transactions.take_over(0, unknown)
        assert scene.progress() == progress
