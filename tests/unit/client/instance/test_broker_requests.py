"""What brokers ask of clients."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message.record import encode_record
from support.client.instance_harness import Consuming, instance_of
from support.client.producer_harness import peer_brokers
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.remoting import Connection


@contextlib.asynccontextmanager
async def asked(consumer: Consuming) -> AsyncIterator[Connection]:
    """The broker's end of a connection to a client with this consumer."""
    async with peer_brokers("broker-a") as peers, instance_of(peers.name_server) as instance:
        instance.add_consumer(consumer)
        await instance.call(peers.brokers[0].address, Command(RequestCode.HEART_BEAT))
        (connection,) = peers.brokers[0].server.connections
        yield connection


async def test_a_change_of_a_groups_members_makes_it_rebalance() -> None:
    consumer = Consuming("c")
    async with asked(consumer) as broker:
        told = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields={"consumerGroup": "c"})
        broker.call_oneway(told)
        broker.call_oneway(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext_fields={"consumerGroup": "no"}))
        await eventually(lambda: consumer.rebalances == 1)


async def test_offsets_can_be_reset_and_asked_for() -> None:
    consumer = Consuming("c")
    queue = MessageQueue("t", "broker-a", 1)
    fields = {"topic": "t", "group": "c"}
    async with asked(consumer) as broker:
        body = ResetOffsetBody(offset_table={queue: 5}).encode()
        reset = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext_fields=dict(fields), body=body)
        assert (await broker.call(reset, 10)).code == ResponseCode.SUCCESS
        assert consumer.resets == [("t", {queue: 5})]
        status = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=dict(fields))
        answer = await broker.call(status, 10)
        assert GetConsumerStatusBody.decode(answer.body or b"").message_queue_table == {queue: 17}


async def test_a_consumer_tells_how_it_is_and_consumes_what_it_is_given() -> None:
    consumer = Consuming("c")
    host = host_bytes("127.0.0.1:1")
    record = encode_record(topic=b"t", queue_id=1, body=b"x", born_host=host, store_host=host)
    async with asked(consumer) as broker:
        fields = {"consumerGroup": "c", "jstackEnable": "true"}
        info = await broker.call(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=fields), 10)
        assert ConsumerRunningInfo.decode(info.body or b"").jstack == "stacks"
        given = Command(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ext_fields={"consumerGroup": "c", "brokerName": "broker-a"},
            body=record,
        )
        result = await broker.call(given, 10)
        assert ConsumeMessageDirectlyResult.decode(result.body or b"").consume_result is CMResult.CR_SUCCESS
        assert [(taken.body, name) for taken, name in consumer.consumed] == [(b"x", "broker-a")]


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    ],
)
async def test_what_is_asked_of_a_group_that_is_not_here_is_refused(code: int) -> None:
    async with asked(Consuming("c")) as broker:
        answer = await broker.call(Command(code, ext_fields={"group": "x", "consumerGroup": "x"}), 10)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The Consumer Group <x> not exist in this consumer"


async def test_a_broken_record_is_refused_and_the_connection_kept() -> None:
    async with asked(Consuming("c")) as broker:
        fields = {"consumerGroup": "c", "brokerName": "b"}
        given = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields=fields, body=b"nonsense")
        assert (await broker.call(given, 10)).code == ResponseCode.SYSTEM_ERROR
        assert not broker.is_closing
