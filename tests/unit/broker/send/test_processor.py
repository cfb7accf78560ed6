"""Sends: which messages a broker takes, what it makes of them, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.flags import (
    BORN_HOST_V6,
    COMPRESSED,
    INNER_BATCH,
    NEED_UNWRAP,
    PERM_READ,
    PERM_READ_WRITE,
    TRANSACTION_PREPARED,
)
from orbitmq.protocol.message.message_id import decode_offset_id, decode_unique_id
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, SCHEDULE_TOPIC, TOPICS_CLOSED_TO_CLIENTS
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import T0
from support.broker.requests import BORN, CONSUMERS, TOPIC, properties_of, send_request, stored, talk, talking_to
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command

RETRY = f"%RETRY%{CONSUMERS}"
DEAD = f"%DLQ%{CONSUMERS}"
BEFORE_LIMITS = 120
"""A client older than those that may say how often they want a message again."""


def told(answer: Command) -> dict[str, str]:
    """Fields of every response to a send, also of an error."""
    return {name: answer.ext_fields[name] for name in ("MSG_REGION", "TRACE_ON")}


# Ways to say it


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_message_is_stored_with_the_fields_of_its_request(code: RequestCode, binary: bool) -> None:
    async with talk() as (broker, client):
        answer = await client.stores(
            b"body", properties={"TAGS": "red", "UNIQ_KEY": "K1"}, code=code, binary=binary, queueId=2, flag=7,
            sysFlag=COMPRESSED, reconsumeTimes=0,
        )  # fmt: skip
        (record,) = stored(broker, queue_id=2)
        born_host = client.address

        assert (record.topic, record.queue_id, record.queue_offset) == (TOPIC, 2, 0)
        assert (record.body, record.flag, record.sys_flag) == (b"body", 7, COMPRESSED)
        assert (record.born_timestamp, record.store_timestamp, record.reconsume_times) == (BORN, T0, 0)
        assert host_text(record.born_host) == born_host
        assert host_text(record.store_host) == f"{HOST}:{broker.port}"
        assert bool(answer.serialize_type) is binary
        assert answer.remark is None
        assert answer.ext_fields == {
            "msgId": broker.store.message_id(record.physical_offset),
            "queueId": "2",
            "queueOffset": "0",
            "transactionId": "K1",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


async def test_messages_of_a_queue_are_numbered_and_their_ids_say_where_they_are() -> None:
    async with talk() as (broker, client):
        answers = [await client.stores(b"%d" % number, queueId=1) for number in range(3)]

        assert [answer.ext_fields["queueOffset"] for answer in answers] == ["0", "1", "2"]
        records = stored(broker, queue_id=1)
        places = [decode_offset_id(answer.ext_fields["msgId"])[1] for answer in answers]
        assert [record.physical_offset for record in records] == places
        assert [record.body for record in records] == [b"0", b"1", b"2"]


async def test_code_320_without_the_batch_mark_is_a_plain_send() -> None:
    async with talk() as (broker, client):
        await client.stores(b"one", code=RequestCode.SEND_BATCH_MESSAGE, batch=False)

        assert [record.body for record in stored(broker)] == [b"one"]


async def test_a_broker_that_chooses_the_queue_uses_all_of_them() -> None:
    async with talk() as (broker, client):
        used = {(await client.stores(queueId=-1)).ext_fields["queueId"] for _ in range(200)}

        assert used == {"0", "1", "2", "3"}
        assert sum(len(stored(broker, queue_id=queue_id)) for queue_id in range(4)) == 200


async def test_a_oneway_send_is_stored_and_not_answered() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig(TOPIC, 4, 4))
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            client.posts(send_request(code=code, oneway=True))
        client.posts(send_request(encode_batch([(0, b"x", b"")]), code=RequestCode.SEND_BATCH_MESSAGE, oneway=True))
        client.posts(send_request(b"", oneway=True))
        client.posts(send_request(topic="a b", oneway=True))
        await client.pass_time()

        assert client.answers == {}
        assert len(stored(broker)) == 3


async def test_missing_or_malformed_fields_are_answered_with_an_error_and_the_connection_stays() -> None:
    async with talk() as (_, client):
        for wrong in ({"queueId": None}, {"queueId": "many"}, {"topic": None}, {"bornTimestamp": "now"}):
            answer = await client.sends(**wrong)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark
        await client.stores()


# Topics


async def test_an_unknown_topic_is_made_after_its_model_with_as_many_queues_as_both_allow() -> None:
    async with talk() as (broker, client):
        await client.stores(topic="four")
        await client.stores(topic="eight", defaultTopicQueueNums=100)
        await client.stores(topic="unit", unitMode=True)

        assert broker.topics.configs["four"] == TopicConfig("four", 4, 4, PERM_READ_WRITE)
        assert broker.topics.configs["eight"].write_queue_nums == 8
        assert broker.topics.configs["unit"].topic_sys_flag == 1


async def test_an_unknown_topic_is_refused_if_topics_are_not_made_by_sends() -> None:
    async with talk(autoCreateTopicEnable="false") as (broker, client):
        answer = await client.sends()

        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark is not None
        assert answer.remark.startswith(f"topic[{TOPIC}] not exist, apply first please!")
        assert told(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert TOPIC not in broker.topics.configs


@pytest.mark.parametrize("model", ["no-such-topic", "SELF_TEST_TOPIC"])
async def test_a_topic_is_not_made_after_a_model_that_is_not_there_or_does_not_bequeath(model: str) -> None:
    async with talk() as (_, client):
        assert (await client.sends(defaultTopic=model)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_retry_topic_is_made_even_if_topics_are_not_made_by_sends() -> None:
    async with talk(autoCreateTopicEnable="false") as (broker, client):
        await client.stores(topic=RETRY)

        assert broker.topics.configs[RETRY].write_queue_nums == 1
        assert len(stored(broker, RETRY)) == 1


@pytest.mark.parametrize("topic", sorted(TOPICS_CLOSED_TO_CLIENTS))
async def test_topics_of_the_broker_itself_are_closed(topic: str) -> None:
    async with talk() as (_, client):
        answer = await client.sends(topic=topic)

        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"Sending message to topic[{topic}] is forbidden."


@pytest.mark.parametrize(
    ("topic", "why"), [("a b", "illegal characters"), ("", "blank"), ("t" * 128, "longer than topic max length")]
)
async def test_a_name_that_is_none_is_refused(topic: str, why: str) -> None:
    async with talk() as (_, client):
        answer = await client.sends(topic=topic)

        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert why in (answer.remark or "")


async def test_a_topic_that_may_only_be_read_is_written_all_the_same_as_in_rocketmq() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig("readable", 1, 1, PERM_READ))

        await client.stores(topic="readable")

        assert broker.store.max_offset("readable", 0) == 1


async def test_an_unknown_queue_is_refused_with_the_configuration_of_the_topic() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig("grown", read_queue_nums=4, write_queue_nums=2))
        for queue_id in (2, 3):
            assert (await client.stores(topic="grown", queueId=queue_id)).ext_fields["queueId"] == str(queue_id)
        answer = await client.sends(topic="grown", queueId=4)

        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == (
            "request queueId[4] is illegal, TopicConfig [topicName=grown, readQueueNums=4, writeQueueNums=2, "
            "perm=RW-, topicFilterType=SINGLE_TAG, topicSysFlag=0, order=false, attributes={}] "
            f"Producer: {client.address}"
        )


async def test_a_topic_without_queues_takes_nothing() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig("none", 0, 0))
        for queue_id in (-1, 0):
            answer = await client.sends(topic="none", queueId=queue_id)
            assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_an_ordered_topic_is_closed_while_the_broker_may_not_write() -> None:
    async with talk(brokerPermission=4) as (broker, client):
        broker.topics.update(TopicConfig("ordered", 1, 1, order=True))
        answer = await client.sends(topic="ordered")

        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == f"the broker[{HOST}] sending message is forbidden"
        await client.stores()


# Sizes


async def test_a_body_is_accepted_up_to_the_limit() -> None:
    async with talk(maxMessageSize=1000) as (broker, client):
        await client.stores(bytes(1000))
        answer = await client.sends(bytes(1001))

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert "msg body length limit 1000B" in answer.remark
        assert told(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert len(stored(broker)) == 1


async def test_properties_that_do_not_fit_are_refused() -> None:
    async with talk() as (broker, client):
        answer = await client.sends(properties={"long": "x" * 32760})

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert stored(broker) == []


@pytest.mark.parametrize("body", [b"", None])
async def test_a_message_without_a_body_is_refused(body: bytes | None) -> None:
    async with talk() as (_, client):
        answer = await client.sends(body)

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "the body is empty: a message has at least one byte"


# Properties


async def properties_after(said: str, broker: Broker, **more: object) -> dict[str, str]:
    async with talking_to(broker) as client:
        await client.stores(properties=said, topic="P", **more)
    return properties_of(stored(broker, "P")[-1])


async def test_the_broker_adds_region_trace_and_cluster() -> None:
    async with talk(regionId="here", traceOn="false", brokerClusterName="C1") as (broker, client):
        answer = await client.stores(properties={"UNIQ_KEY": "K", "a": "1"})
        (record,) = stored(broker)

        assert told(answer) == {"MSG_REGION": "here", "TRACE_ON": "false"}
        assert record.properties == (
            b"UNIQ_KEY\x01K\x02a\x011\x02MSG_REGION\x01here\x02TRACE_ON\x01false\x02CLUSTER\x01C1\x02"
        )


async def test_properties_that_the_broker_adds_are_stored_once() -> None:
    async with talk() as (broker, _):
        said = "CLUSTER\x01mine\x02UNIQ_KEY\x01K\x02MSG_REGION\x01mine\x02TRACE_ON\x01mine\x02"
        await properties_after(said, broker)
        (record,) = stored(broker, "P")

        assert record.properties == (
            b"UNIQ_KEY\x01K\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
        )


async def test_a_message_without_a_unique_key_is_given_one() -> None:
    async with talk() as (broker, client):
        answers = [await client.stores(properties=said) for said in ("", "TAGS\x01a\x02", "UNIQ_KEY\x01\x02")]
        keys = [properties_of(record)["UNIQ_KEY"] for record in stored(broker)]

        assert keys == [answer.ext_fields["transactionId"] for answer in answers]
        assert len(set(keys)) == 3
        assert {decode_unique_id(key).address for key in keys} == {bytes((127, 0, 0, 1))}


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ("UNIQ_KEY\x01K\x02", "K"),
        ("a\x01b\x02UNIQ_KEY\x01K", "K"),
        ("MY_UNIQ_KEY\x01no\x02UNIQ_KEY\x01K\x02", "K"),
        ("a\x01UNIQ_KEY\x01no\x02UNIQ_KEY\x01K\x02", "K"),
        ('UNIQ_KEY\x01"K"\u00e9\x02', '"K"\u00e9'),
    ],
)
async def test_the_unique_key_is_found_wherever_it_stands(said: str, key: str) -> None:
    async with talk() as (broker, client):
        answer = await client.stores(properties=said)

        assert answer.ext_fields["transactionId"] == key
        assert properties_of(stored(broker)[0])["UNIQ_KEY"] == key


async def test_the_last_property_may_lack_its_end() -> None:
    async with talk() as (broker, _):
        found = await properties_after("UNIQ_KEY\x01K\x02TAGS\x01red", broker)

        assert found["TAGS"] == "red"
        assert found["MSG_REGION"] == "DefaultRegion"


async def test_properties_that_are_empty_or_of_a_pop_are_not_stored() -> None:
    async with talk() as (broker, _):
        await properties_after(
            "POP_CK\x011 2 3\x02a\x01\x02UNIQ_KEY\x01K\x02\x01x\x02b\x01c\x02nothing\x02", broker
        )
        (record,) = stored(broker, "P")

        assert record.properties.startswith(b"UNIQ_KEY\x01K\x02b\x01c\x02MSG_REGION\x01")


async def test_a_value_may_contain_and_end_with_the_sign_between_name_and_value() -> None:
    async with talk() as (broker, _):
        found = await properties_after("POP_CK\x01x\x02a\x01b\x01\x02c\x01\x01\x02UNIQ_KEY\x01K\x02", broker)

        assert (found["a"], found["c"]) == ("b\x01", "\x01")


async def test_flags_that_are_not_the_clients_to_set_are_not_stored() -> None:
    async with talk() as (broker, client):
        wrong = BORN_HOST_V6 | NEED_UNWRAP | INNER_BATCH | TRANSACTION_PREPARED
        await client.stores(sysFlag=wrong | COMPRESSED)

        assert stored(broker)[0].sys_flag == COMPRESSED


async def test_a_topic_that_is_compacted_wants_keys() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig("table", 1, 1, attributes={"cleanup.policy": "COMPACTION"}))
        answer = await client.sends(topic="table")

        assert (answer.code, answer.remark) == (ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        await client.stores(topic="table", properties={"KEYS": "k"})


# What is not plain


@pytest.mark.parametrize(("level", "parked_at"), [("1", 0), ("18", 17), ("99", 17)])
async def test_a_message_with_a_delay_level_is_deferred(level: str, parked_at: int) -> None:
    async with talk() as (broker, client):
        answer = await client.stores(properties={"DELAY": level}, queueId=3)
        (record,) = stored(broker, SCHEDULE_TOPIC, parked_at)
        found = properties_of(record)

        assert stored(broker, queue_id=3) == []
        assert (found["REAL_TOPIC"], found["REAL_QID"]) == (TOPIC, "3")
        assert found["DELAY"] == str(parked_at + 1)
        assert answer.ext_fields["queueId"] == "3"


@pytest.mark.parametrize("level", ["0", "-1", "soon"])
async def test_a_delay_that_is_none_delays_nothing(level: str) -> None:
    async with talk() as (broker, client):
        await client.stores(properties={"DELAY": level})

        assert len(stored(broker)) == 1


async def test_a_delayed_message_comes_when_its_time_has_come() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock) as (broker, client):
        await client.stores(b"later", properties={"DELAY": "1"}, queueId=1)
        await client.stores(b"now", queueId=1)
        clock.advance(1000)
        await eventually(lambda: len(stored(broker, queue_id=1)) == 2)

        assert [record.body for record in stored(broker, queue_id=1)] == [b"now", b"later"]


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_without_a_timer_wheel_a_message_for_a_time_is_refused_clearly(name: str) -> None:
    async with talk(timerWheelEnable=False) as (broker, client):
        answer = await client.sends(properties={name: "5"})

        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "accurate timer message is not enabled, timerWheelEnable is false"
        assert stored(broker) == []


async def test_a_delay_level_wins_over_a_timer() -> None:
    async with talk() as (broker, client):
        await client.stores(properties={"DELAY": "2", "TIMER_DELAY_SEC": "5"})
        (record,) = stored(broker, SCHEDULE_TOPIC, 1)

        assert "TIMER_DELAY_SEC" not in properties_of(record)


# When nothing is taken


async def test_sends_are_refused_before_the_configured_start_time() -> None:
    clock = ManualClock(T0)
    async with talk(clock=clock, startAcceptSendRequestTimeStamp=T0 + 1000) as (broker, client):
        answer = await client.sends()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("broker unable to service, until ")
        assert told(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        clock.advance(1000)
        await eventually(lambda: broker.flow.refusal is None)
        await client.stores()


async def test_a_store_that_takes_nothing_says_why() -> None:
    async with talk() as (broker, client):
        broker.store.appender.gate.close("test", "the disk is resting")
        at_once = await client.sends()
        await eventually(lambda: broker.flow.refusal is not None)
        later = await client.sends()
        broker.store.appender.gate.open("test")
        await eventually(lambda: broker.flow.refusal is None)

        for answer in (at_once, later):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "the disk is resting" in (answer.remark or "")
            assert (answer.remark or "").startswith("service not available now")
        await client.stores()


async def test_the_model_of_new_topics_can_be_sent_to_as_any_other() -> None:
    async with talk() as (broker, client):
        await client.stores(topic=AUTO_CREATE_TOPIC)

        assert len(stored(broker, AUTO_CREATE_TOPIC)) == 1
