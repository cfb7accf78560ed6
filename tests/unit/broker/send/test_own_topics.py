"""Topics that are the broker's own stores: no client writes to them, whichever way it tries."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode
from orbitmq.store import StoredMessage
from support.broker.broker_harness import T0
from support.broker.pop_harness import popping
from support.broker.requests import TOPIC, properties_of, send_request, stored, talk
from support.broker.transaction_harness import HALF, transaction_scene

OWN = [
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_REVIVE_LOG_other",
    "SCHEDULE_TOPIC_XXXX",
]
FAR = 2_000_000_000

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "binary": {"binary": True},
    "timed": {"properties": {"UNIQ_KEY": "K", "TIMER_DELIVER_MS": str(T0 + 9000)}},
    "delayed": {"properties": {"UNIQ_KEY": "K", "DELAY": "1"}},
    "half": {"properties": {"UNIQ_KEY": "K", "TRAN_MSG": "true", "PGROUP": "PG"}},
    "old code": {"code": RequestCode.SEND_MESSAGE},
    "place in properties": {"properties": {"UNIQ_KEY": "K", "REAL_TOPIC": TOPIC, "REAL_QID": "0"}},
}


@pytest.mark.parametrize("topic", OWN)
@pytest.mark.parametrize("way", WAYS)
async def test_a_send_is_refused(topic: str, way: str) -> None:
    async with talk() as (broker, client):
        answer = await client.sends(b"poison", topic=topic, **WAYS[way])
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"Sending message to topic[{topic}] is forbidden."
        assert stored(broker, topic) == []
        assert broker.store.log.end == 0


@pytest.mark.parametrize("topic", OWN)
async def test_batches_and_replies_are_refused(topic: str) -> None:
    async with talk() as (broker, client):
        batch = encode_batch([(0, b"poison", encode({"UNIQ_KEY": "K"}))])
        answer = await client.sends(batch, topic=topic, code=RequestCode.SEND_BATCH_MESSAGE)
        assert answer.code == ResponseCode.NO_PERMISSION
        reply = send_request(b"poison", topic=topic, code=RequestCode.SEND_REPLY_MESSAGE_V2)
        assert (await client.says(reply)).code == ResponseCode.NO_PERMISSION
        assert broker.store.log.end == 0


async def test_a_place_in_the_properties_of_a_waiting_message_is_replaced() -> None:
    async with popping() as ends:
        for way in ({"TIMER_DELIVER_MS": str(T0 + 3000)}, {"DELAY": "1"}):
            properties = {"UNIQ_KEY": "K", "REAL_TOPIC": HALF, "REAL_QID": str(FAR), **way}
            await ends.client.stores(b"mine", properties=properties, queueId=1)
        ends.wait(6000)
        while ends.broker.schedule.deliver_due() <= ends.clock.now_ms():
            pass
        assert [record.body for record in stored(ends.broker, TOPIC, 1)] == [b"mine", b"mine"]
        assert stored(ends.broker, HALF) == []


@pytest.mark.parametrize("parked", ["rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
async def test_a_stored_message_for_a_queue_that_does_not_exist_goes_to_one_that_is_read(parked: str) -> None:
    async with popping() as ends:
        await ends.client.stores(b"first")
        for queue_id in (FAR, 5):
            properties = {"UNIQ_KEY": "K", "DELAY": "1", "TIMER_OUT_MS": str(T0)}
            properties |= {"REAL_TOPIC": TOPIC, "REAL_QID": str(queue_id)}
            ends.broker.store.append(StoredMessage(parked, 0, b"%d" % queue_id, encode(properties)))
        ends.wait(6000)
        while ends.broker.schedule.deliver_due() <= ends.clock.now_ms():
            pass
        assert [record.body for record in stored(ends.broker, TOPIC, 0)] == [b"first", b"%d" % FAR]
        assert [record.body for record in stored(ends.broker, TOPIC, 1)] == [b"5"]
        assert ends.broker.store.queues.queue_ids(TOPIC) == [0, 1]


@pytest.mark.parametrize("parked", ["rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
@pytest.mark.parametrize("topic", [HALF, "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "../up", "a b"])
async def test_a_stored_message_for_a_topic_of_the_broker_is_skipped_and_counted(parked: str, topic: str) -> None:
    async with popping() as ends:
        store = ends.broker.store
        good = {"UNIQ_KEY": "K", "DELAY": "1", "TIMER_OUT_MS": str(T0), "REAL_TOPIC": TOPIC, "REAL_QID": "0"}
        store.append(StoredMessage(parked, 0, b"poison", encode(good | {"REAL_TOPIC": topic})))
        store.append(StoredMessage(parked, 0, b"good", encode(good)))
        before = store.max_offset(topic, 0)
        ends.wait(6000)
        while ends.broker.schedule.deliver_due() <= ends.clock.now_ms():
            pass
        assert [record.body for record in stored(ends.broker)] == [b"good"]
        assert store.max_offset(topic, 0) == before
        assert sum(ends.broker.stats.quarantine.counts.values()) == 1
        table = await ends.client.asks(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b'"quarantined_' in (table.body or b"")


async def test_a_message_that_waits_for_a_queue_its_topic_has_lost_is_read_from_another() -> None:
    async with popping() as ends:
        await ends.client.stores(
            b"late", queueId=3, properties={"UNIQ_KEY": "K", "TIMER_DELIVER_MS": str(T0 + 3000)}
        )
        ends.broker.topics.update(TopicConfig(TOPIC, 2, 2, 6))
        ends.wait(6000)
        assert [record.body for record in stored(ends.broker, TOPIC, 1)] == [b"late"]


async def test_a_plain_message_is_not_made_a_half_message_for_a_topic_of_the_broker() -> None:
    async with transaction_scene() as scene:
        properties = {"UNIQ_KEY": "K", "PGROUP": "PG_tx", "REAL_TOPIC": "rmq_sys_wheel_timer", "REAL_QID": str(FAR)}
        answer = await scene.producer.stores(b"trick", properties=properties)
        refused = await scene.producer.asks(
            RequestCode.RESUME_CHECK_HALF_MESSAGE, topic=TOPIC, msgId=answer.ext_fields["msgId"]
        )
        assert refused.code == ResponseCode.NO_PERMISSION
        assert scene.bodies(HALF) == []


async def test_a_half_message_for_a_queue_that_does_not_exist_is_committed_to_one_that_is_read() -> None:
    async with transaction_scene() as scene:
        half = await scene.producer.prepares(b"late", queueId=3)
        scene.broker.topics.update(TopicConfig(TOPIC, 2, 2, 6))
        assert (await scene.producer.ends(half)).code == ResponseCode.SUCCESS
        assert scene.bodies(TOPIC, 1) == [b"late"]
        assert properties_of(stored(scene.broker, TOPIC, 1)[0])["UNIQ_KEY"] == half.key
