"""Batches: many messages in one send, stored one by one or as one record, and all or none."""

from __future__ import annotations

import pytest

from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch, split_record
from orbitmq.protocol.message.properties import encode
from support.broker.requests import CONSUMERS, properties_of, stored, talk

RETRY = f"%RETRY%{CONSUMERS}"


def batch(*messages: bytes) -> bytes:
    return encode_batch([(1, body, encode({"UNIQ_KEY": f"K{number}"})) for number, body in enumerate(messages)])


async def test_a_batch_is_stored_message_by_message() -> None:
    async with talk() as (broker, client):
        await client.stores(b"before", queueId=2)
        answer = await client.stores(batch(b"a", b"b", b"c"), code=RequestCode.SEND_BATCH_MESSAGE, queueId=2)
        records = stored(broker, queue_id=2)[1:]

        assert [(record.body, record.flag) for record in records] == [(b"a", 1), (b"b", 1), (b"c", 1)]
        assert [properties_of(record)["UNIQ_KEY"] for record in records] == ["K0", "K1", "K2"]
        ids = [broker.store.message_id(record.physical_offset) for record in records]
        assert answer.ext_fields["msgId"] == ",".join(ids)
        assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("2", "1")
        assert (answer.ext_fields["MSG_REGION"], answer.ext_fields["TRACE_ON"]) == ("DefaultRegion", "true")


async def test_a_batch_to_a_topic_made_for_batches_is_one_record() -> None:
    async with talk() as (broker, client):
        broker.topics.update(TopicConfig("batches", 1, 1, attributes={"queue.type": "BatchCQ"}))
        said = {"code": RequestCode.SEND_BATCH_MESSAGE, "topic": "batches", "properties": {"UNIQ_KEY": "B"}}
        answers = [await client.stores(batch(b"a", b"b"), **said) for _ in range(2)]
        result = broker.store.get("batches", 0, 0)

        assert [answer.ext_fields["batchUniqId"] for answer in answers] == ["B", "B"]
        assert [answer.ext_fields["queueOffset"] for answer in answers] == ["0", "2"]
        assert [answer.ext_fields["msgId"].count(",") for answer in answers] == [0, 0]
        records = [record for one in stored(broker, "batches")[:1] for record in split_record(one)]
        assert [record.body for record in records] == [b"a", b"b"]
        assert result.max_offset == 4


@pytest.mark.parametrize("wrong", [b"short", batch(b"a")[:-1], batch(b"a") + b"\0"])
async def test_a_malformed_batch_is_refused_and_nothing_is_stored(wrong: bytes) -> None:
    async with talk() as (broker, client):
        answer = await client.sends(wrong, code=RequestCode.SEND_BATCH_MESSAGE)

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert stored(broker) == []


async def test_a_batch_with_one_message_too_many_bytes_is_refused_as_a_whole() -> None:
    async with talk(maxMessageSize=1000) as (broker, client):
        answer = await client.sends(batch(b"a", bytes(1001)), code=RequestCode.SEND_BATCH_MESSAGE)

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert stored(broker) == []


async def test_a_batch_of_retries_is_refused() -> None:
    async with talk() as (broker, client):
        answer = await client.sends(batch(b"a"), code=RequestCode.SEND_BATCH_MESSAGE, topic=RETRY)

        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a batch cannot be a retry" in (answer.remark or "")
        assert stored(broker, RETRY) == []
