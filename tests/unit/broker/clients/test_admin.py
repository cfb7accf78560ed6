"""Admin requests for clients, compared with the responses of Apache's broker."""

from __future__ import annotations

import json
from typing import Any

from orbitmq.protocol.bodies import ConsumerConnection, ProducerTableInfo, QuerySubscriptionResponseBody
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from support.broker.client_registry_harness import (
    GROUP,
    T0,
    TOPIC,
    client_broker,
    consumer,
    heartbeat,
    subscription,
)
from support.wire_captures import Captured, captured

TOOLS = "admin"


def exchanges(code: int) -> list[tuple[Captured, Captured]]:
    """Recorded requests with this code, and their responses."""
    frames = captured(TOOLS)
    asked = {(frame.connection, frame.header["opaque"]): frame for frame in frames if frame.code == code}
    return [
        (asked[frame.connection, frame.header["opaque"]], frame)
        for frame in frames
        if frame.is_response and frame.request_code == code and not frame.to_server
    ]


async def test_a_live_client_looks_the_same_to_tools_as_on_apaches_broker() -> None:
    said = [frame for frame in captured(TOOLS) if frame.code == RequestCode.HEART_BEAT and frame.connection == 2]
    questions = [
        *exchanges(RequestCode.GET_CONSUMER_CONNECTION_LIST),
        *exchanges(RequestCode.GET_PRODUCER_CONNECTION_LIST),
        *exchanges(RequestCode.GET_ALL_PRODUCER_INFO),
    ]
    assert len(questions) > 30
    async with client_broker() as broker, broker.client() as live, broker.client() as tool:
        for frame in said:
            await live.answer(frame.wire)
        for question, expected in questions:
            answer = await tool.answer(question.wire)
            assert answer.code == expected.code, str(expected)
            assert answer.remark == expected.header["remark"]
            assert answer.ext_fields == expected.ext_fields
            assert comparable(answer.body) == comparable(expected.frame[2]), str(expected)


def comparable(body: bytes | None) -> Any:
    """A body without ports and times; subscriptions have times in their versions."""
    if not body:
        return None

    def without(value: dict[str, Any]) -> dict[str, Any]:
        for name in value.keys() & {"clientAddr", "remoteIP"}:
            value[name] = value[name].rpartition(":")[0]
        for name in value.keys() & {"lastUpdateTimestamp", "subVersion"}:
            value[name] = 0
        return value

    return json.loads(body, object_hook=without)


async def test_the_connections_of_a_group_are_listed_with_their_heartbeat_data() -> None:
    async with client_broker() as broker, broker.client() as go, broker.client() as java:
        await go.beat(heartbeat("c-go", consumer()), LanguageCode.GO, 317)
        await java.beat(heartbeat("c-java", consumer()))
        answer = await java.asks(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=GROUP)
        listed = ConsumerConnection.decode(answer.body or b"")
        assert [(one.client_id, one.client_addr, one.language, one.version) for one in listed.connection_set] == [
            ("c-go", go.address, "GO", 317),
            ("c-java", java.address, "JAVA", 513),
        ]
        assert listed.subscription_table == {TOPIC: subscription()}


async def test_all_producers_are_listed_by_group_with_the_time_of_their_last_heartbeat() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("p1", producers=["PG_a", "PG_b"]))
        broker.clock.advance(30_000)
        await client.beat(heartbeat("p1", producers=["PG_b"]))
        answer = await client.asks(RequestCode.GET_ALL_PRODUCER_INFO)
        table = ProducerTableInfo.decode(answer.body or b"").data
        assert {group: [one.last_update_timestamp for one in members] for group, members in table.items()} == {
            "PG_a": [T0],
            "PG_b": [T0 + 30_000],
        }
        assert {one.remote_ip for members in table.values() for one in members} == {f"/{client.address}"}


async def test_a_subscription_is_returned_and_a_missing_one_is_not_an_error() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))

        async def asked(**fields: str) -> QuerySubscriptionResponseBody:
            answer = await client.asks(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, **fields)
            assert answer.code == ResponseCode.SUCCESS
            return QuerySubscriptionResponseBody.decode(answer.body or b"")

        assert await asked(group=GROUP, topic=TOPIC) == QuerySubscriptionResponseBody(subscription(), GROUP, TOPIC)
        assert await asked(group="nobody", topic=TOPIC) == QuerySubscriptionResponseBody(None, "nobody", TOPIC)
        answer = await client.asks(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group=GROUP)
        assert (answer.code, answer.remark) == (1, "field topic is missing")
