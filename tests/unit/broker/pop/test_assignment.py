"""Which queues a client is given by the broker, and how it is to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.bodies import (
    MessageModel,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import loads
from support.broker.client_registry_harness import consumer, heartbeat, subscription
from support.broker.pop_harness import BROKER, Popper, popping
from support.broker.requests import CONSUMERS, TOPIC, talking_to

if TYPE_CHECKING:
    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command

PULL, POP = MessageRequestMode.PULL, MessageRequestMode.POP


async def set_mode(client: Popper, mode: MessageRequestMode = POP, share: int = 0, **said: str) -> Command:
    asked = {"topic": TOPIC, "consumer_group": CONSUMERS, **said}
    body = SetMessageRequestModeRequestBody(mode=mode, pop_share_queue_num=share, **asked)
    return await client.asks(RequestCode.SET_MESSAGE_REQUEST_MODE, body.encode())


async def queues_of(
    client: Popper,
    client_id: str,
    strategy: str = "AVG",
    model: MessageModel = MessageModel.CLUSTERING,
    **said: Any,
) -> list[tuple[int, MessageRequestMode]] | None:
    asked = {"topic": TOPIC, "consumer_group": CONSUMERS, **said}
    body = QueryAssignmentRequestBody(
        client_id=client_id, strategy_name=strategy, message_model=model, **asked
    ).encode()
    answer = await client.asks(RequestCode.QUERY_ASSIGNMENT, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    found = QueryAssignmentResponseBody.decode(answer.body or b"").message_queue_assignments
    if found is None:
        return None
    assert all(one.message_queue is not None and one.message_queue.broker_name == BROKER for one in found)
    return sorted((one.message_queue.queue_id, one.mode) for one in found if one.message_queue is not None)


async def join(broker: Broker, client: Popper, *ids: str) -> list[Any]:
    """Members of the group, each on a connection of its own."""
    joined = []
    for client_id in ids:
        context = talking_to(broker)
        member = await context.__aenter__()
        said = consumer(CONSUMERS, subscription(TOPIC))
        await member.asks(RequestCode.HEART_BEAT, heartbeat(client_id, said).encode())
        joined.append(context)
    return joined


async def leave(joined: list[Any]) -> None:
    for context in joined:
        await context.__aexit__(None, None, None)


async def test_members_pull_their_shares_by_default() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        joined = await join(ends.broker, ends.client, "b", "a", "c")
        shares = [await queues_of(ends.client, who) for who in "abc"]
        assert shares == [[(0, PULL), (1, PULL)], [(2, PULL)], [(3, PULL)]]
        by_circle = [await queues_of(ends.client, who, "AVG_BY_CIRCLE") for who in "abc"]
        assert by_circle == [[(0, PULL), (3, PULL)], [(1, PULL)], [(2, PULL)]]
        await leave(joined)


async def test_members_that_pop_share_all_queues() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        assert (await set_mode(ends.client, share=8)).code == ResponseCode.SUCCESS
        joined = await join(ends.broker, ends.client, "a", "b")
        assert await queues_of(ends.client, "a") == [(-1, POP)]
        assert await queues_of(ends.client, "b") == [(-1, POP)]
        await leave(joined)


async def test_members_can_share_with_some_others_only() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await set_mode(ends.client, share=1)
        joined = await join(ends.broker, ends.client, *"abcd")
        assert await queues_of(ends.client, "a") == [(0, POP), (1, POP)]
        assert await queues_of(ends.client, "d") == [(0, POP), (3, POP)]
        more = await join(ends.broker, ends.client, *"ef")
        assert await queues_of(ends.client, "f") == [(1, POP)]
        await leave(joined + more)


async def test_a_client_that_is_not_a_member_or_names_an_unknown_topic_gets_no_queues() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        assert await queues_of(ends.client, "a") is None
        joined = await join(ends.broker, ends.client, "a")
        assert await queues_of(ends.client, "stranger") == []
        assert await queues_of(ends.client, "a", "CONFIG") is None
        assert await queues_of(ends.client, "a", topic="nowhere") is None
        await leave(joined)


async def test_everybody_of_a_broadcasting_group_has_all_queues() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        found = await queues_of(ends.client, "anyone", model=MessageModel.BROADCASTING)
        assert found == [(number, PULL) for number in range(4)]


async def test_a_broker_can_be_set_to_let_all_pop_but_for_retries() -> None:
    async with popping(defaultMessageRequestMode="POP") as ends:
        await ends.client.fills("a")
        joined = await join(ends.broker, ends.client, "a")
        assert await queues_of(ends.client, "a") == [(-1, POP)]
        assert await queues_of(ends.client, "a", topic=f"%RETRY%{CONSUMERS}") == [(0, PULL)]
        await leave(joined)


async def test_modes_are_persisted_and_listed() -> None:
    async with popping() as ends:
        await ends.client.fills("a")
        await set_mode(ends.client, share=8)
        answer = await ends.client.asks(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        said = {"consumerGroup": CONSUMERS, "mode": "POP", "popShareQueueNum": 8, "topic": TOPIC}
        assert loads(answer.body or b"") == {"messageRequestModeMap": {TOPIC: {CONSUMERS: said}}}
        disk = ends.broker.disk
        assert loads(disk.read("/messages/config/messageRequestMode.json")) == loads(answer.body or b"")
    async with popping(disk) as ends:
        assert ends.broker.pop.assignments.mode_of(TOPIC, CONSUMERS).mode is POP


@pytest.mark.parametrize(
    ("said", "code", "remark"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "topic[nowhere] not exist"),
        (
            {"consumer_group": "nobody"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group does not exist",
        ),
    ],
)
async def test_modes_that_cannot_be_are_refused(said: dict[str, Any], code: ResponseCode, remark: str) -> None:
    async with popping(autoCreateSubscriptionGroup=False) as ends:
        await ends.client.fills("a")
        answer = await set_mode(ends.client, **said)
        assert (answer.code, answer.remark) == (code, remark)
