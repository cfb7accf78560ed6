"""Looking messages up by key and place, and looking into consume queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.query import processor as query
from orbitmq.broker.query.processor import QueryRequests
from orbitmq.protocol.bodies import QueryConsumeQueueResponseBody
from orbitmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.java import string_hash
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.record import iter_records
from orbitmq.store import StoredMessage
from support.broker.client_registry_harness import (
    GROUP,
    TOPIC,
    client_broker,
    consumer,
    heartbeat,
    sql,
    subscription,
)
from support.broker.offset_harness import QUERIES, exchanges, offset_broker, take_over_captured_messages
from support.store.stores import open_golden, send

if TYPE_CHECKING:
    from pathlib import Path

    from support.broker.offset_harness import OffsetBroker

BY_KEY, BY_ID = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID
UNITS = RequestCode.QUERY_CONSUME_QUEUE
NOT_FOUND = "can not find message, maybe time range not correct"


async def found(broker: OffsetBroker, key: str, **fields: object) -> list[int]:
    """Where the messages with a key lie."""
    asked: dict[str, object] = {"topic": TOPIC, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
    answer = await broker.ask(BY_KEY, key=key, **{**asked, **fields})
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        assert answer.remark == NOT_FOUND
        assert set(answer.ext_fields.values()) == {"0"}
        return []
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.body is not None
    return [record.physical_offset for record in iter_records(memoryview(answer.body))]


# By key and by place


async def test_a_real_client_finds_its_messages_as_in_a_real_broker() -> None:
    async with offset_broker() as broker:
        take_over_captured_messages(broker)
        count = 0
        for request, expected in exchanges(QUERIES, BY_KEY, BY_ID):
            answer = await broker.tool.answer(request.wire)
            if request.ext_fields.get("offset") == "17":
                # There lies the middle of another message. A real broker answers with what it finds, nothing.
                assert expected.code == ResponseCode.SUCCESS
                assert expected.body_size == 0
                assert (answer.code, answer.remark) == (1, "can not find message by the offset, 17")
            else:
                assert answer == Command.decode(expected.frame), request
            count += 1
        assert count == 7


@pytest.mark.parametrize("serialize_type", list(SerializeType))
async def test_responses_have_the_header_encoding_of_the_request(serialize_type: SerializeType) -> None:
    async with offset_broker() as broker:
        (offset,) = send(broker.store, topic=TOPIC, KEYS="k1")
        fields = {"topic": TOPIC, "key": "k1", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}
        for request in (
            Command(BY_KEY, 7, ext_fields=fields, serialize_type=serialize_type),
            Command(BY_ID, 8, ext_fields={"offset": str(offset)}, serialize_type=serialize_type),
        ):
            answer = await broker.tool.answer(request.encode())
            assert (answer.code, answer.serialize_type, answer.opaque) == (0, serialize_type, request.opaque)
            assert answer.body == bytes(broker.store.record(offset) or b"")


async def test_keys_unique_keys_and_tags_are_found_each_in_its_own_way() -> None:
    async with offset_broker() as broker:
        first = send(broker.store, topic=TOPIC, KEYS="k1 k2", UNIQ_KEY="U1", TAGS="a")[0]
        second = send(broker.store, topic=TOPIC, KEYS="k1", UNIQ_KEY="U2", TAGS="a")[0]
        send(broker.store, topic="TopicB", KEYS="k1", UNIQ_KEY="U3", TAGS="a")
        assert await found(broker, "k1") == [first, second]
        assert await found(broker, "k2", indexType="K") == [first]
        assert await found(broker, "U2", _UNIQUE_KEY_QUERY=True) == [second]
        assert await found(broker, "a", indexType="T") == [first, second]
        assert await found(broker, "a") == []
        assert await found(broker, "a", indexType="T", _UNIQUE_KEY_QUERY=True) == []
        assert await found(broker, "k1", lastKey="whatever") == [first, second]


async def test_a_query_returns_at_most_the_requested_number_and_one_response() -> None:
    async with offset_broker() as broker:
        offsets = send(broker.store, 70, topic=TOPIC, KEYS="k")
        assert await found(broker, "k", maxNum=3) == offsets[-3:]
        assert await found(broker, "k", maxNum=1000) == offsets[-64:]
        assert await found(broker, "k", maxNum=1, _UNIQUE_KEY_QUERY=True) == offsets[-32:]
        for nothing in (0, -1):
            assert await found(broker, "k", maxNum=nothing) == []


async def test_only_messages_of_the_requested_time_are_found() -> None:
    async with offset_broker() as broker:
        start = broker.clock.now_ms()
        offsets = []
        for _ in range(3):
            offsets += send(broker.store, topic=TOPIC, KEYS="k")
            broker.clock.advance(10_000)
        inside = {"beginTimestamp": start + 5_000, "endTimestamp": start + 15_000}
        assert await found(broker, "k", **inside) == offsets[1:2]


async def test_of_more_than_a_client_can_take_the_newest_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async with offset_broker() as broker:
        offsets = send(broker.store, 5, topic=TOPIC, size=1000, KEYS="k")
        monkeypatch.setattr(query, "MAX_ANSWER_BYTES", 2500)
        assert await found(broker, "k") == offsets[-2:]
        monkeypatch.setattr(query, "MAX_ANSWER_BYTES", 10)
        assert await found(broker, "k") == offsets[-1:]


async def test_nothing_is_found_without_an_index() -> None:
    async with offset_broker({"message_index_enable": False}) as broker:
        send(broker.store, topic=TOPIC, KEYS="k")
        assert await found(broker, "k") == []


@pytest.mark.parametrize("missing", ["topic", "key", "maxNum", "beginTimestamp", "endTimestamp"])
async def test_a_query_that_lacks_something_is_refused_by_name(missing: str) -> None:
    async with offset_broker() as broker:
        fields: dict[str, object] = {
            "topic": TOPIC,
            "key": "k",
            "maxNum": 1,
            "beginTimestamp": 0,
            "endTimestamp": 1,
        }
        answer = await broker.ask(BY_KEY, **{**fields, missing: None})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert missing in (answer.remark or "")


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
async def test_where_no_message_begins_none_is_found(offset: int) -> None:
    async with offset_broker() as broker:
        send(broker.store, 3, topic=TOPIC)
        answer = await broker.ask(BY_ID, offset=offset)
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")
        assert answer.body is None


# A consume queue


async def units(broker: OffsetBroker, **fields: object) -> QueryConsumeQueueResponseBody:
    asked: dict[str, object] = {"topic": TOPIC, "queueId": 0, "index": 0, "count": 10}
    return QueryConsumeQueueResponseBody.decode(await broker.body(UNITS, **{**asked, **fields}))


async def test_a_tool_looks_into_a_queue_as_into_that_of_a_real_broker() -> None:
    ((request, expected),) = exchanges("admin2", UNITS)
    said = QueryConsumeQueueResponseBody.decode(expected.frame[2])
    assert said.queue_data is not None
    async with offset_broker() as broker:
        broker.store.append(StoredMessage("Before", 0, b""))
        for tag in "BCDEF":
            send(broker.store, topic="T_push", TAGS=tag)
        answer = await broker.tool.answer(request.wire)
        wanted = Command.decode(expected.frame)
        assert (answer.code, answer.remark, answer.ext_fields) == (wanted.code, wanted.remark, {})
        assert answer.body is not None
        ours = QueryConsumeQueueResponseBody.decode(answer.body)
        assert ours.queue_data is not None
        assert [unit.tags_code for unit in ours.queue_data] == [unit.tags_code for unit in said.queue_data]
        for unit, theirs in zip(ours.queue_data, said.queue_data, strict=True):
            unit.physic_offset, unit.physic_size = theirs.physic_offset, theirs.physic_size
        assert ours.encode() == expected.frame[2]


async def test_the_response_has_the_units_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async with offset_broker() as broker:
        offsets = send(broker.store, 25, topic=TOPIC, TAGS="a")
        for index, count, wanted in ((0, 25, offsets), (0, 2**31 - 1, offsets), (8, 4, offsets[8:12]), (3, 0, [])):
            shown = await units(broker, index=index, count=count)
            assert shown.queue_data is not None
            assert [unit.physic_offset for unit in shown.queue_data] == wanted
            assert {unit.tags_code for unit in shown.queue_data} <= {string_hash("a")}
            assert (shown.min_queue_index, shown.max_queue_index) == (0, 25)
        monkeypatch.setattr(query, "MAX_UNITS", 12)
        assert len((await units(broker, count=20)).queue_data or ()) == 12


@pytest.mark.parametrize("index", [-1, 3])
async def test_a_unit_that_is_not_there_is_named(index: int) -> None:
    async with offset_broker() as broker:
        send(broker.store, 3, topic=TOPIC)
        answer = await broker.ask(UNITS, topic=TOPIC, queueId=0, index=index, count=1)
        assert (answer.code, answer.remark) == (0, f"Index {index} of 0@{TOPIC} is not exist!")
        assert answer.body == b'{"maxQueueIndex":3,"minQueueIndex":0,"queueData":[]}'


async def test_a_queue_that_is_not_there_is_named() -> None:
    async with offset_broker() as broker:
        answer = await broker.ask(UNITS, topic=TOPIC, queueId=5, index=0, count=1)
        assert (answer.code, answer.remark) == (1, f"5@{TOPIC} is not exist!")


async def test_the_response_has_the_subscription_of_a_group_and_its_units() -> None:
    async with offset_broker() as broker, broker.broker.client() as client:
        send(broker.store, 1, topic=TOPIC)
        send(broker.store, 1, topic="TopicB")
        assert (await units(broker, consumerGroup=GROUP)).filter_data == f"{GROUP}@{TOPIC} is not online!"
        await client.beat(heartbeat("c1", consumer(GROUP, subscription(TOPIC, "a"), sql("TopicB", "x > 1"))))
        tags = await units(broker, consumerGroup=GROUP)
        assert (tags.subscription_data, tags.filter_data) == (subscription(TOPIC, "a"), "null")
        other = await units(broker, topic="TopicB", consumerGroup=GROUP)
        assert '"expression":"x > 1"' in (other.filter_data or "")


async def test_the_units_of_a_batch_queue_are_its_batches() -> None:
    async with offset_broker({"batch_topics": [TOPIC]}) as broker:
        batch = encode_batch([(0, b"hello", b"")] * 3)
        appended = [broker.store.append_inner_batch(StoredMessage(TOPIC, 0, batch)) for _ in range(2)]
        shown = await units(broker)
        assert [(unit.physic_offset, unit.physic_size) for unit in shown.queue_data or ()] == [
            (one.offset, one.size) for one in appended
        ]


async def test_extended_units_of_a_real_broker_are_returned_decoded(tmp_path: Path) -> None:
    store = open_golden("extra", tmp_path)
    async with client_broker(
        lambda broker: QueryRequests(store, broker.clients, broker.filters).handlers
    ) as broker:
        async with broker.client() as client:
            await client.beat(heartbeat("c1", consumer("g_sql2", sql("TopicSql", "price > 1"))))
            answer = await client.asks(
                UNITS, topic="TopicSql", queueId="0", index="0", count="3", consumerGroup="g_sql2"
            )
        assert answer.body is not None
        shown = QueryConsumeQueueResponseBody.decode(answer.body).queue_data
        assert shown is not None
        assert len(shown) == 3
        for unit in shown:
            assert unit.tags_code < -(2**31)
            assert '"tagsCode":' in (unit.extend_data_json or "")
            assert set(unit.bit_map or "") <= {"0", "1"}
            assert len(unit.bit_map or "") == broker.filters.bloom.bit_count
    store.close()
