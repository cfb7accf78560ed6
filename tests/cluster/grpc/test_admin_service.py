"""Every call of the Admin service, against a broker with gRPC clients."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from cluster.grpc.grpc_harness import Stubs, consumer_settings, message, producer_settings, resource, served
from orbitmq.admin.grpc_service.service import AdminService
from orbitmq.cli.server.admin_calls import CALLS, SERVICE, serve_admin
from orbitmq.proxy.auth_hook import anonymous
from orbitmq.proxy.proto import admin_pb2 as rpc
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc.aio

    from cluster.grpc.grpc_harness import Served
    from orbitmq.admin.client import AdminClient


class Admin:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __call__(self, name: str, request: Any) -> Any:
        response = getattr(rpc, "ListMessageResponse" if name == "QueryMessage" else f"{name}Response")
        call = self._channel.unary_unary(
            f"/apache.rocketmq.v2.Admin/{name}", type(request).SerializeToString, response.FromString
        )
        return await call(request, timeout=20)


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served(before_start=lambda server, names: serve_admin(server, names, anonymous)) as running:
        await running.topic("orders", "FIFO", queues=2)
        running.group("billing")
        yield running


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Stubs]:
    async with server.client("consumer@1@x") as stubs:
        yield stubs


@pytest.fixture
def admin(client: Stubs) -> Admin:
    return Admin(client.channel)


async def test_topics(admin: Admin) -> None:
    found = await admin("DescribeTopicStatus", rpc.DescribeTopicStatusRequest(topic=resource("orders")))
    assert (found.status.code, found.topic_message_type) == (pb.OK, pb.FIFO)
    assert dict(found.tags) == {"message.type": "FIFO"}
    route = await admin("GetTopicRoute", rpc.GetTopicRouteRequest(topic=resource("orders")))
    assert json.loads(route.topic_route_data)["queueDatas"][0]["readQueueNums"] == 2
    missing = await admin("DescribeTopicStatus", rpc.DescribeTopicStatusRequest(topic=resource("missing")))
    assert missing.status.code == pb.TOPIC_NOT_FOUND


async def test_messages_are_sent_and_found(admin: Admin) -> None:
    began = time.time()
    sent = await admin(
        "AdminSendMessage",
        rpc.AdminSendMessageRequest(
            topic=resource("orders"), tag="t", key="k", body=b"body", user_properties={"x": "y"}
        ),
    )
    assert sent.status.code == pb.OK
    for search in ({"message_id": sent.message_id}, {"message_key": "k"}, {"subscription": "t"}):
        request = rpc.ListMessageRequest(topic=resource("orders"), max_message_nums=5, **search)
        request.begin_timestamp.FromSeconds(int(began) - 60)
        request.end_timestamp.FromSeconds(int(began) + 600)
        found = await admin("QueryMessage", request)
        assert found.status.code == pb.OK, search
        (one,) = found.messages
        assert (one.body, one.system_properties.tag, one.user_properties["x"]) == (b"body", "t", "y")
    request = rpc.ListMessageRequest(topic=resource("orders"), message_id="none")
    assert (await admin("QueryMessage", request)).status.code == pb.MESSAGE_NOT_FOUND


async def test_groups(server: Served, client: Stubs, admin: Admin) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders"))
    listed = await admin("ListConsumerConnection", rpc.ListConsumerConnectionRequest(group=resource("billing")))
    (member,) = listed.client_info
    assert (member.client_id, member.language, member.egress_ip, member.hostname) == (
        "consumer@1@x", "PYTHON", "127.0.0.1", "consumer"
    )  # fmt: skip
    for request in (rpc.ListSubscriptionRequest(group=resource("billing")),
                    rpc.ListSubscriptionRequest(topic=resource("orders"))):  # fmt: skip
        subscribed = await admin("ListSubscription", request)
        (one,) = [info for info in subscribed.subscription_info if info.topic.name == "orders"]
        assert (one.group.name, one.expression.expression, one.online) == ("billing", "*", True)
    described = await admin("DescribeSubscription", rpc.DescribeSubscriptionRequest(group=resource("billing")))
    assert described.client_subscription_info[0].client_info.client_id == "consumer@1@x"
    request = rpc.GetConsumerRunningInfoRequest(group=resource("billing"), client_id="consumer@1@x")
    info = await admin("GetConsumerRunningInfo", request)
    assert info.consumer_running_info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    offline = await admin("ListConsumerConnection", rpc.ListConsumerConnectionRequest(group=resource("none")))
    assert offline.status.code != pb.OK
    stats = await admin("GetProxyRuntimeStats", rpc.GetProxyRuntimeStatsRequest())
    assert (stats.status.code, stats.connections, stats.consumers) == (pb.OK, 1, 1)
    stream.cancel()


async def test_commands_to_a_client_go_over_its_telemetry(client: Stubs, admin: Admin) -> None:
    stream, _ = await client.settle(consumer_settings("billing", "orders", kind=pb.PUSH_CONSUMER))
    request = rpc.PrintThreadStackTraceRequest(group=resource("billing"), client_id="consumer@1@x")
    asked = asyncio.create_task(admin("PrintThreadStackTrace", request))
    command = await stream.read()
    reply = service_pb2.TelemetryCommand(status=pb.Status(code=pb.OK))
    reply.thread_stack_trace.nonce = command.print_thread_stack_trace_command.nonce
    reply.thread_stack_trace.thread_stack_trace = "main: waits"
    await stream.write(reply)
    assert (await asked).thread_stack_trace == "main: waits"

    sent = message("orders", b"verify", message_group="g")
    await client.send(sent)
    verify = rpc.VerifyMessageRequest(group=resource("billing"), topic=resource("orders"), client_id="consumer@1@x")
    verify.message_id = sent.system_properties.message_id
    asked = asyncio.create_task(admin("VerifyMessage", verify))
    command = await stream.read()
    assert command.verify_message_command.message.body == b"verify"
    reply = service_pb2.TelemetryCommand(status=pb.Status(code=pb.FAILED_TO_CONSUME_MESSAGE))
    reply.verify_message_result.nonce = command.verify_message_command.nonce
    await stream.write(reply)
    assert (await asked).status.code == pb.FAILED_TO_CONSUME_MESSAGE
    stream.cancel()


async def test_progress_is_read_and_reset(client: Stubs, admin: Admin) -> None:
    for number in range(3):
        await client.send(message("orders", b"%d" % number, message_group="g"))
    reset = rpc.ResetGroupOffsetRequest(group=resource("billing"), topic=resource("orders"))
    reset.reset_timestamp.FromSeconds(0)
    assert (await admin("ResetGroupOffset", reset)).status.code == pb.OK
    request = rpc.DescribeGroupAccumulationRequest(group=resource("billing"), topics=[resource("orders")])
    found = await admin("DescribeGroupAccumulation", request)
    assert (found.status.code, found.accumulation.accumulation) == (pb.OK, 3)
    assert found.topic_accumulation["orders"].ready_messages == 3
    spans = await admin(
        "QueryTimeSpan", rpc.QueryTimeSpanRequest(group=resource("billing"), topics=[resource("orders")])
    )
    assert spans.status.code == pb.OK
    assert {span.message_queue.id for span in spans.queue_time_span_list} == {0, 1}


async def test_the_rest(client: Stubs, admin: Admin) -> None:
    before = logging.getLogger("orbitmq").level
    try:
        level = rpc.ChangeLogLevelRequest(level=rpc.ChangeLogLevelRequest.WARN)
        assert (await admin("ChangeLogLevel", level)).remark == "log level changed to WARNING"
    finally:
        logging.getLogger("orbitmq").setLevel(before)
    stream, _ = await client.settle(producer_settings("orders"))
    assert (await admin("DeleteSubscription", rpc.DeleteSubscriptionRequest())).status.code == pb.NOT_IMPLEMENTED
    stream.cancel()


def test_the_calls_of_the_lazy_service_are_those_of_the_service() -> None:
    service = AdminService(cast("AdminClient", None), anonymous, "proxy", lambda: (0, 0, 0))
    assert {f"/{SERVICE}/{name}" for name in CALLS} == set(service.methods)
