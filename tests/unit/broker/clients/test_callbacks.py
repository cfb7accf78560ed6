"""Requests from the broker to its clients: relays for admin tools, notifications and offset resets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.clients import callbacks as relay
from orbitmq.broker.clients.callbacks import RelayRequests, client_status, reset_client_offset
from orbitmq.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.record import decode_record
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store import StoredMessage
from support.broker.client_registry_harness import (
    GROUP,
    TOPIC,
    Client,
    ClientBroker,
    client_broker,
    consumer,
    heartbeat,
)
from support.store.stores import open_small
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from orbitmq.store import MessageStore

QUEUES = {MessageQueue(TOPIC, "broker-a", 0): 5, MessageQueue(TOPIC, "broker-a", 1): 0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_small(tmp_path) as opened:
        yield opened


@contextlib.asynccontextmanager
async def relaying(store: MessageStore, **settings: Any) -> AsyncIterator[ClientBroker]:
    def more(broker: ClientBroker) -> dict[int, Any]:
        return RelayRequests(broker.config, broker.clients, broker.topics, broker.groups, store).handlers

    async with client_broker(more, **settings) as broker:
        yield broker


async def asked(client: Client, *answers: Command) -> list[Command]:
    """Requests that the broker sends to a client, which responds to them one after another."""
    requests = []
    for answer in answers:
        request = await client.receive()
        while request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            request = await client.receive()
        requests.append(request)
        response = request.response(answer.code, ext_fields=answer.ext_fields, body=answer.body)
        response.remark = answer.remark
        client.send(response.encode())
    return requests


# Relays for admin tools


async def test_running_info_is_relayed_as_by_apaches_broker(store: MessageStore) -> None:
    frames = [
        frame
        for frame in captured("admin")
        if RequestCode.GET_CONSUMER_RUNNING_INFO in {None if frame.is_response else frame.code, frame.request_code}
    ]
    to_broker, to_client, from_client, from_broker = frames[:4]
    said = [frame for frame in captured("admin") if frame.code == RequestCode.HEART_BEAT and frame.connection == 2]
    async with relaying(store) as broker, broker.client() as live, broker.client() as tool:
        for frame in said:
            await live.answer(frame.wire)
        answering = asyncio.create_task(asked(live, Command.decode(from_client.frame)))
        answer = await tool.answer(to_broker.wire)
        (request,) = await answering
    assert request.ext_fields == to_client.ext_fields
    assert (request.flag, request.body) == (0, None)
    assert (answer.code, answer.remark) == (0, from_broker.header["remark"])
    assert answer.ext_fields == from_broker.ext_fields
    assert answer.body == from_broker.frame[2]


async def test_a_relay_to_a_missing_client_is_refused(store: MessageStore) -> None:
    async with relaying(store) as broker, broker.client() as live, broker.client() as tool:
        await live.beat(heartbeat("c1", consumer()))
        for group, client_id in (("CG_nobody", "x"), (GROUP, "c2")):
            answer = await tool.asks(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=group, clientId=client_id)
            assert (answer.code, answer.remark) == (1, f"The Consumer <{group}> <{client_id}> not online")


async def test_a_relay_to_an_old_client_is_refused(store: MessageStore) -> None:
    async with relaying(store) as broker, broker.client() as old:
        await old.beat(heartbeat("c1", consumer()), version=61)
        answer = await old.asks(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="c1")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            "The Consumer <c1> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
        )


async def test_a_client_that_does_not_answer_in_time_is_reported(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "RELAY_SECONDS", 0.01)
    async with relaying(store) as broker, broker.client() as live, broker.client() as tool:
        await live.beat(heartbeat("c1", consumer()))
        answer = await tool.asks(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="c1")
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (answer.remark or "").startswith(f"consumer <{GROUP}> <c1> Timeout: ")


async def test_a_client_that_disconnects_during_a_relay_is_reported(store: MessageStore) -> None:
    async with relaying(store) as broker, broker.client() as live, broker.client() as tool:
        await live.beat(heartbeat("c1", consumer()))
        asking = asyncio.create_task(
            tool.asks(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="c1")
        )
        assert (await live.receive()).code == RequestCode.GET_CONSUMER_RUNNING_INFO
        live.hang_up()
        answer = await asking
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(f"invoke consumer <{GROUP}> <c1> Exception: ConnectionLostError")


async def test_a_client_is_given_the_message_that_it_is_to_consume(store: MessageStore) -> None:
    stored = store.append(StoredMessage(TOPIC, 0, b"hello"))
    async with relaying(store) as broker, broker.client() as live, broker.client() as tool:
        broker.topics.update(TopicConfig(TOPIC, topic_sys_flag=2))
        broker.groups.update(SubscriptionGroupConfig(GROUP, group_sys_flag=1))
        await live.beat(heartbeat("c1", consumer()))
        answering = asyncio.create_task(asked(live, Command(0, body=b'{"consumeResult":"CR_SUCCESS"}')))
        answer = await tool.asks(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            consumerGroup=GROUP,
            clientId="c1",
            msgId=store.message_id(stored.offset),
            topic=TOPIC,
        )
        (request,) = await answering
        assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
        assert decode_record(request.body or b"").body == b"hello"
        added = {name: request.ext_fields[name] for name in ("brokerName", "topicSysFlag", "groupSysFlag")}
        assert added == {"brokerName": broker.config.broker_name, "topicSysFlag": "2", "groupSysFlag": "1"}


@pytest.mark.parametrize(
    ("message_id", "complaint"),
    [
        (None, "field msgId is missing"),
        ("00", "an id has 32 or 56 characters, not 2"),
        ("0" * 32, f"message {'0' * 32} not found"),
    ],
)
async def test_a_missing_message_cannot_be_consumed_directly(
    store: MessageStore, message_id: str | None, complaint: str
) -> None:
    async with relaying(store) as broker, broker.client() as live:
        await live.beat(heartbeat("c1", consumer()))
        fields = {"consumerGroup": GROUP, "clientId": "c1"}
        if message_id is not None:
            fields["msgId"] = message_id
        answer = await live.asks(RequestCode.CONSUME_MESSAGE_DIRECTLY, **fields)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, complaint)


async def test_consuming_directly_requires_a_client_id(store: MessageStore) -> None:
    stored = store.append(StoredMessage(TOPIC, 0, b"hello"))
    async with relaying(store) as broker, broker.client() as live:
        await live.beat(heartbeat("c1", consumer()))
        answer = await live.asks(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            consumerGroup=GROUP,
            msgId=store.message_id(stored.offset),
        )
        assert (answer.code, answer.remark) == (1, f"The Consumer <{GROUP}> <null> not online")


# Notifications and offset resets


async def test_an_offset_reset_is_encoded_for_the_language_of_each_member() -> None:
    async with client_broker() as broker, broker.client() as java, broker.client() as cpp:
        await java.beat(heartbeat("c1", consumer()))
        await java.news()
        await cpp.beat(heartbeat("c2", consumer()), LanguageCode.CPP, 333)
        await java.news()
        await reset_client_offset(broker.clients, GROUP, TOPIC, 77, QUEUES)
        requests = [await client.receive() for client in (java, cpp)]
    for request in requests:
        assert request.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        assert request.is_oneway
        assert request.ext_fields == {
            "topic": TOPIC,
            "group": GROUP,
            "timestamp": "77",
            "queueId": "-1",
            "isForce": "false",
        }
    assert ResetOffsetBody.decode(requests[0].body or b"").offset_table == QUEUES
    listed = ResetOffsetBodyForC.decode(requests[1].body or b"").offset_table
    assert {MessageQueue(one.topic, one.broker_name, one.queue_id): one.offset for one in listed} == QUEUES


async def test_an_offset_reset_of_a_group_without_members_is_refused() -> None:
    async with client_broker() as broker:
        with pytest.raises(RequestRefusedError) as refused:
            await reset_client_offset(broker.clients, GROUP, TOPIC, 77, QUEUES)
    assert refused.value.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert str(refused.value) == (
        f"Consumer not online, so can not reset offset, Group: {GROUP} Topic: {TOPIC} Timestamp: 77"
    )


async def test_an_offset_reset_of_a_group_with_an_old_member_is_refused() -> None:
    async with client_broker() as broker, broker.client() as new, broker.client() as old:
        await new.beat(heartbeat("c1", consumer()))
        await old.beat(heartbeat("c2", consumer()), version=27)
        await new.news()
        with pytest.raises(RequestRefusedError, match="version=V3_0_6"):
            await reset_client_offset(broker.clients, GROUP, TOPIC, 77, QUEUES)
        with pytest.raises(RequestRefusedError, match="version=V3_0_6"):
            await client_status(broker.clients, GROUP, TOPIC)
        assert await new.news() == []


async def test_offsets_are_collected_from_the_members_that_respond() -> None:
    async with client_broker() as broker, contextlib.AsyncExitStack() as stack:
        members = [await stack.enter_async_context(broker.client()) for _ in range(4)]
        for number, member in enumerate(members):
            await member.beat(heartbeat(f"c{number}", consumer()))
        told = Command(0, body=GetConsumerStatusBody(message_queue_table=QUEUES).encode())
        answering = [
            asyncio.create_task(asked(members[0], told)),
            asyncio.create_task(asked(members[1], Command(ResponseCode.SYSTEM_ERROR, remark="no"))),
            asyncio.create_task(asked(members[2], Command(0, body=b"no JSON"))),
        ]
        asking = asyncio.create_task(client_status(broker.clients, GROUP, TOPIC))
        requests = [request for task in answering for request in await task]
        await broker.gone(members[3])
        assert (await asking).consumer_table == {"c0": QUEUES}
    for request in requests:
        assert request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert request.ext_fields == {"topic": TOPIC, "group": GROUP}


async def test_the_offsets_of_one_member_are_requested_from_it_alone() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer()))
        await second.beat(heartbeat("c2", consumer()))
        told = Command(0, body=GetConsumerStatusBody(message_queue_table=QUEUES).encode())
        answering = asyncio.create_task(asked(second, told))
        status = await client_status(broker.clients, GROUP, TOPIC, "c2")
        await answering
        assert status.consumer_table == {"c2": QUEUES}
        assert await first.news() == [GROUP, GROUP]


async def test_the_status_of_a_group_without_members_is_an_error() -> None:
    async with client_broker() as broker:
        with pytest.raises(RequestRefusedError) as refused:
            await client_status(broker.clients, GROUP, TOPIC)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert str(refused.value) == f"No Any Consumer online in the consumer group: [{GROUP}]"
