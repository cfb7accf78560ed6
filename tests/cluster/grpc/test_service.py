"""Every call of MessagingService against a broker, over plain stubs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import grpc
import pytest

from cluster.grpc.grpc_harness import (
    MODES,
    consumer_settings,
    message,
    producer_settings,
    receive_request,
    resource,
    served,
)
from orbitmq.platform.limit_counts import Limit
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from support.limit_counts import counts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from cluster.grpc.grpc_harness import Served, Stubs


@pytest.fixture(params=MODES)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """In front of a broker of its process, and of a cluster."""
    async with served(mode=request.param) as running:
        await running.topic("orders")
        running.group("billing")
        yield running


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Stubs]:
    async with server.client() as stubs:
        yield stubs


async def test_a_route_names_every_queue_with_the_types_that_it_takes(server: Served, client: Stubs) -> None:
    await server.topic("mixed", "MIXED", 3)
    response = await client.unary("QueryRoute", rpc.QueryRouteRequest(topic=resource("mixed")))
    assert response.status.code == pb.OK
    assert [queue.id for queue in response.message_queues] == [0, 1, 2]
    queue = response.message_queues[0]
    assert list(queue.accept_message_types) == [pb.NORMAL, pb.FIFO, pb.DELAY, pb.TRANSACTION]
    assert (queue.permission, queue.broker.name, queue.broker.id) == (pb.READ_WRITE, "broker-a", 0)
    assert queue.broker.endpoints.addresses[0].port == server.server.port


@pytest.mark.parametrize(
    ("topic", "code"), [("missing", pb.TOPIC_NOT_FOUND), ("", pb.ILLEGAL_TOPIC), ("TBW102", pb.ILLEGAL_TOPIC)]
)
async def test_a_route_of_no_topic_is_refused(client: Stubs, topic: str, code: int) -> None:
    response = await client.unary("QueryRoute", rpc.QueryRouteRequest(topic=resource(topic)))
    assert response.status.code == code


async def test_an_ordered_group_is_assigned_queues_and_others_the_broker(server: Served, client: Stubs) -> None:
    server.group("ordered", ordered=True)
    for group, ids in (("billing", [-1]), ("ordered", [0, 1])):
        request = rpc.QueryAssignmentRequest(topic=resource("orders"), group=resource(group))
        response = await client.unary("QueryAssignment", request)
        assert [entry.message_queue.id for entry in response.assignments] == ids


async def test_settings_are_completed_with_those_of_the_group(server: Served, client: Stubs) -> None:
    server.group("few", ordered=True, retries=2)
    stream, settings = await client.settle(consumer_settings("few", "orders", kind=pb.PUSH_CONSUMER))
    assert settings.backoff_policy.max_attempts == 3
    assert len(settings.backoff_policy.customized_backoff.next) == 18
    assert settings.subscription.fifo
    assert settings.subscription.receive_batch_size == 32
    stream.cancel()


async def test_a_message_comes_back_with_everything_it_was_sent_with(client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    sent = message(
        "orders", b"42", tag="paid", keys=["a", "b"], user={"x": "y"}, born_timestamp=5, trace_context="t"
    )
    response = await client.send(sent)
    assert response.status.code == pb.OK
    (found,) = await client.received("orders", "billing")
    system = found.system_properties
    assert (found.body, system.tag, list(system.keys), found.user_properties["x"]) == (
        b"42",
        "paid",
        ["a", "b"],
        "y",
    )
    assert system.message_id == response.entries[0].message_id == sent.system_properties.message_id
    assert system.body_digest.checksum == "A1D0C6E83F027327D8461063F4AC58A6"
    assert (system.born_timestamp.seconds, system.trace_context, system.delivery_attempt) == (5, "t", 1)
    assert len(system.receipt_handle.split(" ")) == 9
    ack = rpc.AckMessageRequest(group=resource("billing"), topic=resource("orders"))
    ack.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    acked = await client.unary("AckMessage", ack)
    assert acked.status.code == pb.OK
    assert acked.entries[0].status.code == pb.OK
    stream.cancel()


async def test_a_batch_has_a_result_for_each_message(client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    response = await client.send(*(message("orders", b"%d" % number) for number in range(3)))
    assert [entry.offset for entry in response.entries] == [0, 1, 2]
    found = await client.received("orders", "billing", 3)
    assert sorted(one.body for one in found) == [b"0", b"1", b"2"]
    assert {one.system_properties.message_id for one in found} == {entry.message_id for entry in response.entries}
    stream.cancel()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (message("orders", b""), pb.MESSAGE_BODY_EMPTY),
        (message("orders", bytes(4 << 20 | 1)), pb.MESSAGE_BODY_TOO_LARGE),
        (message("orders", tag="a|b"), pb.ILLEGAL_MESSAGE_TAG),
        (message("orders", keys=["\x01"]), pb.ILLEGAL_MESSAGE_KEY),
        (message("orders", message_id=" "), pb.ILLEGAL_MESSAGE_ID),
        (message("orders", user={"KEYS": "x"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message("orders", user={"x": "\x02"}), pb.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (message("orders", user={"x": "y" * 20_000}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("orders", user={str(n): "y" for n in range(129)}), pb.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("orders", message_group="g" * 64), pb.ILLEGAL_MESSAGE_GROUP),
        (message("orders", message_group="g"), pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("orders", delivery_timestamp=1 << 33), pb.ILLEGAL_DELIVERY_TIME),
        (message("missing"), pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("%%%"), pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
async def test_wrong_messages_are_refused(client: Stubs, wrong: pb.Message, code: int) -> None:
    assert (await client.send(wrong)).status.code == code


async def test_no_message_and_mixed_topics_are_refused(server: Served, client: Stubs) -> None:
    await server.topic("other")
    assert (await client.send()).status.code == pb.MESSAGE_CORRUPTED
    assert (await client.send(message("orders"), message("other"))).status.code == pb.MESSAGE_CORRUPTED


async def test_a_receive_without_messages_ends_after_its_polling(client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    began = time.monotonic()
    status, end = await client.receive("orders", "billing")
    assert status.status.code == pb.MESSAGE_NOT_FOUND
    assert end.HasField("delivery_timestamp")
    assert time.monotonic() - began > 3
    stream.cancel()


async def test_a_receive_is_woken_by_a_message(client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    waiting = asyncio.create_task(client.received("orders", "billing"))
    await asyncio.sleep(0.3)
    await client.send(message("orders", b"woken"))
    assert [one.body for one in await waiting] == [b"woken"]
    stream.cancel()


async def test_receives_are_checked(server: Served, client: Stubs) -> None:
    (status, _) = await client.receive("orders", "billing")
    assert status.status.code == pb.INTERNAL_SERVER_ERROR  # no settings
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    for more, code in (
        ({"invisible": 1}, pb.ILLEGAL_INVISIBLE_TIME),
        ({"seconds": 3}, pb.ILLEGAL_POLLING_TIME),
        ({"filter_expression": pb.FilterExpression(type=pb.SQL, expression="a >")}, pb.ILLEGAL_FILTER_EXPRESSION),
    ):
        assert (await client.receive("orders", "billing", **more))[0].status.code == code
    assert (await client.receive("orders", "unknown"))[0].status.code == pb.CONSUMER_GROUP_NOT_FOUND
    (status, *_) = await client.all("ReceiveMessage", receive_request("orders", "billing"), None)
    assert status.status.code == pb.INTERNAL_SERVER_ERROR  # no deadline
    stream.cancel()


async def test_a_changed_invisible_time_gives_a_new_handle_and_another_delivery(client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    await client.send(message("orders"))
    (found,) = await client.received("orders", "billing")
    request = rpc.ChangeInvisibleDurationRequest(group=resource("billing"), topic=resource("orders"))
    request.receipt_handle = found.system_properties.receipt_handle
    request.invisible_duration.seconds = 1
    response = await client.unary("ChangeInvisibleDuration", request)
    assert response.status.code == pb.OK
    assert response.receipt_handle != request.receipt_handle
    (again,) = await client.received("orders", "billing")
    assert again.system_properties.message_id == found.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2
    ack = rpc.AckMessageRequest(group=resource("billing"), topic=resource("orders"))
    ack.entries.add(message_id="x", receipt_handle="nonsense")
    ack.entries.add(message_id="y", receipt_handle=again.system_properties.receipt_handle)
    acked = await client.unary("AckMessage", ack)
    assert acked.status.code == pb.MULTIPLE_RESULTS
    assert [entry.status.code for entry in acked.entries] == [pb.INTERNAL_SERVER_ERROR, pb.OK]
    stream.cancel()


async def test_a_forwarded_message_is_in_the_dead_letter_queue(server: Served, client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    await client.send(message("orders", b"dead"))
    (found,) = await client.received("orders", "billing")
    system = found.system_properties
    response = await client.unary(
        "ForwardMessageToDeadLetterQueue",
        rpc.ForwardMessageToDeadLetterQueueRequest(
            group=resource("billing"), topic=resource("orders"), receipt_handle=system.receipt_handle,
            message_id=system.message_id,
        ),
    )  # fmt: skip
    assert (response.status.code, response.status.message) == (pb.OK, "0")
    assert [one.body for one in server.cluster.messages("%DLQ%billing")] == [b"dead"]
    stream.cancel()


async def test_a_transaction_is_committed_once(server: Served, client: Stubs) -> None:
    await server.topic("tx", "TRANSACTION")
    half = message("tx", b"half", message_type=pb.TRANSACTION)
    (entry,) = (await client.send(half)).entries
    request = rpc.EndTransactionRequest(
        topic=resource("tx"), message_id=entry.message_id, transaction_id=entry.transaction_id, resolution=pb.COMMIT
    )
    assert (await client.unary("EndTransaction", request)).status.code == pb.OK
    assert [one.body for one in server.cluster.messages("tx")] == [b"half"]
    assert (await client.unary("EndTransaction", request)).status.code == pb.INTERNAL_SERVER_ERROR
    request.transaction_id = " "
    assert (await client.unary("EndTransaction", request)).status.code == pb.INVALID_TRANSACTION_ID


@pytest.mark.parametrize("mode", MODES)
async def test_an_orphaned_transaction_is_checked_over_telemetry(mode: str) -> None:
    async with served({"transactionCheckInterval": "200", "transactionTimeOut": "100"}, mode=mode) as server:
        await server.topic("tx", "TRANSACTION")
        async with server.client() as client:
            stream, _ = await client.settle(producer_settings("tx"))
            half = message("tx", b"half", message_type=pb.TRANSACTION)
            await client.send(half)
            command = await stream.read()
            recover = command.recover_orphaned_transaction_command
            assert recover.transaction_id == half.system_properties.message_id
            assert recover.message.body == b"half"
            request = rpc.EndTransactionRequest(
                topic=resource("tx"), message_id=recover.transaction_id, transaction_id=recover.transaction_id,
                resolution=pb.COMMIT, source=pb.SOURCE_SERVER_CHECK,
            )  # fmt: skip
            assert (await client.unary("EndTransaction", request)).status.code == pb.OK
            assert [one.body for one in server.cluster.messages("tx")] == [b"half"]
            stream.cancel()


async def test_delayed_messages_are_recalled(server: Served, client: Stubs) -> None:
    await server.topic("late", "DELAY")
    due = int(time.time()) + 60
    (entry,) = (await client.send(message("late", delivery_timestamp=due))).entries
    request = rpc.RecallMessageRequest(topic=resource("late"), recall_handle=entry.recall_handle)
    response = await client.unary("RecallMessage", request)
    assert (response.status.code, response.message_id) == (pb.OK, entry.message_id)
    request.recall_handle = "nonsense"
    assert (await client.unary("RecallMessage", request)).status.code == pb.INTERNAL_SERVER_ERROR


async def test_queues_are_read_by_offset(client: Stubs) -> None:
    for number in range(4):
        await client.send(message("orders", b"%d" % number))
    queue = pb.MessageQueue(topic=resource("orders"), id=0, broker=pb.Broker(name="broker-a"))
    end = await client.unary("QueryOffset", rpc.QueryOffsetRequest(message_queue=queue, query_offset_policy=pb.END))
    assert (end.status.code, end.offset) == (pb.OK, 2)
    pull = rpc.PullMessageRequest(group=resource("billing"), message_queue=queue, offset=0, batch_size=10)
    status, *messages, following = await client.all("PullMessage", pull)
    assert (status.status.code, len(messages), following.next_offset) == (pb.OK, 2, 2)
    pull.offset = 2
    status, following = await client.all("PullMessage", pull)
    assert (status.status.code, following.next_offset) == (pb.MESSAGE_NOT_FOUND, 2)
    get = rpc.GetOffsetRequest(group=resource("billing"), message_queue=queue)
    assert (await client.unary("GetOffset", get)).status.code == pb.OFFSET_NOT_FOUND
    update = rpc.UpdateOffsetRequest(group=resource("billing"), message_queue=queue, offset=1)
    assert (await client.unary("UpdateOffset", update)).status.code == pb.OK
    assert (await client.unary("GetOffset", get)).offset == 1
    update.offset = -1
    assert (await client.unary("UpdateOffset", update)).status.code == pb.ILLEGAL_OFFSET


async def test_clients_that_are_not_known_are_refused(server: Served, client: Stubs) -> None:
    assert (await client.unary("Heartbeat", rpc.HeartbeatRequest())).status.code == pb.UNRECOGNIZED_CLIENT_TYPE
    end = await client.unary("NotifyClientTermination", rpc.NotifyClientTerminationRequest())
    assert end.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
    client.client_id = ""
    assert (await client.unary("Heartbeat", rpc.HeartbeatRequest())).status.code == pb.CLIENT_ID_REQUIRED


@counts(Limit.GRPC_CLIENTS)
async def test_clients_beyond_their_number_are_refused() -> None:
    async with served(grpc_max_clients=1) as server, server.client() as client:
        await client.settle(consumer_settings("billing", "orders"))
        request = rpc.HeartbeatRequest(group=resource("billing"), client_type=pb.SIMPLE_CONSUMER)
        answer = await client.with_id("another").unary("Heartbeat", request)
        assert answer.status.code == pb.TOO_MANY_REQUESTS
        assert "grpcMaxClients" in answer.status.message
        assert (await client.unary("Heartbeat", request)).status.code == pb.OK


async def test_a_registered_consumer_is_a_member_until_it_terminates(server: Served, client: Stubs) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    heartbeat = rpc.HeartbeatRequest(group=resource("billing"), client_type=pb.SIMPLE_CONSUMER)
    assert (await client.unary("Heartbeat", heartbeat)).status.code == pb.OK
    assert server.broker.clients.consumers["billing"].client_ids() == [client.client_id]
    end = await client.unary(
        "NotifyClientTermination", rpc.NotifyClientTerminationRequest(group=resource("billing"))
    )
    assert end.status.code == pb.OK
    for _ in range(100):
        if "billing" not in server.broker.clients.consumers:
            break
        await asyncio.sleep(0.02)
    assert "billing" not in server.broker.clients.consumers
    stream.cancel()


async def test_wrong_settings_end_the_stream(client: Stubs) -> None:
    stream = client.telemetry()
    await stream.write(rpc.TelemetryCommand(settings=pb.Settings()))
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stream.read()
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("mode", MODES)
async def test_groups_are_created_where_that_is_allowed(mode: str) -> None:
    async with served(mode=mode, grpc_auto_create_consumer_group=True) as server, server.client() as client:
        await server.topic("orders")
        stream, _ = await client.settle(consumer_settings("unknown", "orders"))
        await client.send(message("orders"))
        assert len(await client.received("orders", "unknown")) == 1
        stream.cancel()
