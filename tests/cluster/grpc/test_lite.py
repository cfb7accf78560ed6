"""Lite topics: chosen, sent to and received from over gRPC, and what the broker says of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from cluster.grpc.grpc_harness import MODES, consumer_settings, message, receive_request, resource, served
from orbitmq.admin import AdminClient
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from cluster.grpc.grpc_harness import Served, Stubs

LIGHT_QUEUES = {"enableLmq": "true", "enableMultiDispatch": "true"}
PARENT, GROUP = "sessions", "agents"
TYPE_ERROR = pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.fixture(params=MODES)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """In front of a broker of its process, and of a cluster."""
    shortest: dict[str, Any] = {"grpc_client_consumer_min_long_polling_timeout_millis": 100}
    async with served(LIGHT_QUEUES, mode=request.param, **shortest) as running:
        await running.topic(PARENT, "LITE")
        bind(running, GROUP)
        bind(running, "frail", retries=1)
        running.group("unbound")
        yield running


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Stubs]:
    async with consumer(server) as stubs:
        yield stubs


def bind(server: Served, group: str, *, retries: int = 16, **attributes: str) -> None:
    found = {"lite.bind.topic": PARENT, **{key.replace("_", "."): value for key, value in attributes.items()}}
    server.broker.groups.update(SubscriptionGroupConfig(group, retry_max_times=retries, attributes=found))


@contextlib.asynccontextmanager
async def consumer(server: Served, group: str = GROUP, client_id: str = "") -> AsyncIterator[Stubs]:
    async with server.client(client_id) as stubs:
        stream, _ = await stubs.settle(consumer_settings(group, PARENT, kind=pb.LITE_PUSH_CONSUMER))
        yield stubs
        stream.cancel()


async def choose(
    client: Stubs, *names: str, group: str = GROUP, action: pb.LiteSubscriptionAction = pb.PARTIAL_ADD, **more: Any
) -> int:
    request = rpc.SyncLiteSubscriptionRequest(
        topic=resource(PARENT), group=resource(group), lite_topic_set=names, action=action, **more
    )
    return int((await client.unary("SyncLiteSubscription", request)).status.code)


def lite(name: str, body: bytes) -> pb.Message:
    return message(PARENT, body, lite_topic=name)


async def send(client: Stubs, name: str, *bodies: str) -> None:
    for body in bodies:
        response = await client.send(lite(name, body.encode()))
        assert response.status.code == pb.OK, response


async def received(client: Stubs, count: int = 1, group: str = GROUP, **more: Any) -> list[tuple[str, str]]:
    found = await client.received(PARENT, group, count, **more)
    return [(one.system_properties.lite_topic, one.body.decode()) for one in found]


async def nothing(client: Stubs, group: str = GROUP) -> None:
    request = receive_request(PARENT, group)
    request.long_polling_timeout.FromMilliseconds(200)
    found = await client.all("ReceiveMessage", request)
    assert [one.status.code for one in found if one.HasField("status")] == [pb.MESSAGE_NOT_FOUND], found


async def acknowledge(client: Stubs, *messages: pb.Message, group: str = GROUP) -> list[int]:
    request = rpc.AckMessageRequest(topic=resource(PARENT), group=resource(group))
    for one in messages:
        system = one.system_properties
        request.entries.add(
            message_id=system.message_id, receipt_handle=system.receipt_handle, lite_topic=system.lite_topic
        )
    return [entry.status.code for entry in (await client.unary("AckMessage", request)).entries]


async def hide(client: Stubs, one: pb.Message, *, suspend: bool = False, group: str = GROUP) -> str:
    system = one.system_properties
    request = rpc.ChangeInvisibleDurationRequest(
        topic=resource(PARENT),
        group=resource(group),
        receipt_handle=system.receipt_handle,
        message_id=system.message_id,
        lite_topic=system.lite_topic,
        suspend=suspend,
    )
    response = await client.unary("ChangeInvisibleDuration", request)
    assert response.status.code == pb.OK, response
    return str(response.receipt_handle)


async def test_a_client_receives_the_lite_topics_that_it_chose(server: Served, client: Stubs) -> None:
    assert await choose(client, "a", "b") == pb.OK
    await send(client, "a", "a1")
    await send(client, "c", "c1")
    await send(client, "b", "b1", "b2")
    assert sorted(await received(client, 3)) == [("a", "a1"), ("b", "b1"), ("b", "b2")]
    async with consumer(server) as other:
        assert await choose(other, "c") == pb.OK
        found = await other.received(PARENT, GROUP)
        system = found[0].system_properties
        assert (found[0].body, system.message_type, system.delivery_attempt) == (b"c1", pb.LITE, 1)
        assert system.queue_offset == 0


async def test_a_held_receive_gets_the_next_message(client: Stubs) -> None:
    assert await choose(client, "a") == pb.OK
    waiting = asyncio.ensure_future(received(client))
    await asyncio.sleep(0.1)
    await send(client, "a", "late")
    assert await waiting == [("a", "late")]


async def test_a_lite_topic_is_consumed_in_order(client: Stubs) -> None:
    await choose(client, "a")
    await send(client, "a", "1")
    (first,) = await client.received(PARENT, GROUP)
    await send(client, "a", "2", "3")
    await nothing(client)
    assert await acknowledge(client, first) == [pb.OK]
    found = await client.received(PARENT, GROUP, 2)
    assert [one.body for one in found] == [b"2", b"3"]
    assert await acknowledge(client, *found) == [pb.OK, pb.OK]
    await nothing(client)


async def test_what_is_not_acknowledged_comes_again_and_is_counted(client: Stubs) -> None:
    await choose(client, "a")
    await send(client, "a", "1")
    (first,) = await client.received(PARENT, GROUP)
    await hide(client, first)
    (second,) = await client.received(PARENT, GROUP)
    assert second.system_properties.delivery_attempt == 2
    await hide(client, second, suspend=True)
    (third,) = await client.received(PARENT, GROUP)
    assert third.system_properties.delivery_attempt == 2
    assert await acknowledge(client, third) == [pb.OK]
    await nothing(client)


async def test_a_message_is_dead_after_the_retries_of_the_group(server: Served) -> None:
    async with consumer(server, "frail") as client:
        await choose(client, "a", group="frail")
        await send(client, "a", "poison", "good")
        found: list[pb.Message] = []
        while not found or found[-1].body != b"good":
            found += await client.received(PARENT, "frail", batch=1)
            await hide(client, found[-1], group="frail")
    attempts = [(one.body, one.system_properties.delivery_attempt) for one in found]
    assert attempts == [(b"poison", 1), (b"poison", 2), (b"good", 1)]
    assert server.broker.store.max_offset("%DLQ%frail", 0) == 1
    # The dead letter does not belong to the lite topic.
    assert server.broker.store.max_offset(f"%LMQ%${PARENT}$a", 0) == 2


async def test_dead_letters_of_a_client_are_acknowledged(server: Served, client: Stubs) -> None:
    await choose(client, "a")
    await send(client, "a", "1")
    (found,) = await client.received(PARENT, GROUP, renews=True)
    system = found.system_properties
    request = rpc.ForwardMessageToDeadLetterQueueRequest(
        topic=resource(PARENT),
        group=resource(GROUP),
        receipt_handle=system.receipt_handle,
        message_id=system.message_id,
        lite_topic="a",
        max_delivery_attempts=1,
    )
    assert (await client.unary("ForwardMessageToDeadLetterQueue", request)).status.code == pb.OK
    assert server.broker.offsets.query(GROUP, f"%LMQ%${PARENT}$a", 0) == 1


async def test_a_lite_topic_can_be_given_up_and_all_replaced(client: Stubs) -> None:
    await choose(client, "a", "b")
    assert await choose(client, "a", action=pb.PARTIAL_REMOVE) == pb.OK
    await send(client, "a", "a1")
    await nothing(client)
    assert await choose(client, "a", "c", action=pb.COMPLETE_ADD) == pb.OK
    assert await received(client) == [("a", "a1")]
    await send(client, "b", "b1")
    await send(client, "c", "c1")
    assert await received(client) == [("c", "c1")]
    assert await choose(client, action=pb.COMPLETE_REMOVE) == pb.OK
    await nothing(client)


async def test_a_lite_topic_begins_where_the_client_wants(client: Stubs) -> None:
    await send(client, "a", "1", "2", "3")
    newest = pb.OffsetOption(policy=pb.OffsetOption.MAX)
    await choose(client, "a", offset_option=newest)
    await nothing(client)
    await choose(client, "a", offset_option=pb.OffsetOption(offset=2))
    assert await received(client) == [("a", "3")]
    await choose(client, "a", offset_option=pb.OffsetOption(policy=pb.OffsetOption.MIN))
    assert await received(client, 3) == [("a", "1"), ("a", "2"), ("a", "3")]


async def test_clients_of_a_group_share_a_lite_topic(server: Served, client: Stubs) -> None:
    async with consumer(server) as other:
        await choose(client, "a")
        await choose(other, "a")
        await send(client, "a", "1")
        assert await received(client) == [("a", "1")]
        await nothing(other)


async def test_an_exclusive_lite_topic_goes_to_the_last_client(server: Served) -> None:
    bind(server, "alone", lite_sub_model="Exclusive")
    async with server.client() as first, consumer(server, "alone") as second:
        stream, _ = await first.settle(consumer_settings("alone", PARENT, kind=pb.LITE_PUSH_CONSUMER))
        await choose(first, "a", group="alone")
        await choose(second, "a", group="alone")
        told = await asyncio.wait_for(stream.read(), 10)
        assert told.notify_unsubscribe_lite_command.lite_topic == "a"
        await send(second, "a", "1")
        await nothing(first, "alone")
        assert await received(second, group="alone") == [("a", "1")]
        stream.cancel()


async def test_a_wildcard_group_gets_every_lite_topic(server: Served) -> None:
    bind(server, "everything", lite_sub_wildcard="true")
    async with consumer(server, "everything") as client:
        await send(client, "a", "before")
        assert await choose(client, group="everything", action=pb.COMPLETE_ADD) == pb.OK
        assert await received(client, group="everything") == [("a", "before")]
        await send(client, "b", "after")
        assert await received(client, group="everything") == [("b", "after")]
        assert await choose(client, "a", group="everything") == pb.INTERNAL_SERVER_ERROR


async def test_the_end_of_a_client_gives_up_its_lite_topics(server: Served, client: Stubs) -> None:
    await choose(client, "a")
    assert server.broker.pop.lite.subscriptions.count == 1
    end = rpc.NotifyClientTerminationRequest(group=resource(GROUP))
    assert (await client.unary("NotifyClientTermination", end)).status.code == pb.OK
    for _ in range(200):
        if not server.broker.pop.lite.subscriptions.count:
            break
        await asyncio.sleep(0.02)
    assert server.broker.pop.lite.subscriptions.count == 0


async def test_other_messages_and_groups_are_refused(server: Served, client: Stubs) -> None:
    await server.topic("orders")
    assert (await client.send(message(PARENT))).status.code == TYPE_ERROR
    assert (await client.send(message("orders", lite_topic="a"))).status.code == TYPE_ERROR
    assert (await client.send(lite("a b", b"x"))).status.code == pb.ILLEGAL_LITE_TOPIC
    assert (await client.send(lite("a", b"x"), lite("a", b"y"))).status.code == pb.BAD_REQUEST
    assert await choose(client, "a", group="unbound") == pb.INTERNAL_SERVER_ERROR
    async with consumer(server, "unbound") as stranger:
        responses = await stranger.receive(PARENT, "unbound")
        assert responses[0].status.code == pb.INTERNAL_SERVER_ERROR
        assert "bind topic not match" in responses[0].status.message


@pytest.mark.parametrize("mode", MODES)
async def test_quotas_have_codes_of_their_own(mode: str) -> None:
    settings = {**LIGHT_QUEUES, "maxLmqConsumeQueueNum": "1", "maxLiteSubscriptionCount": "2"}
    async with served(settings, mode=mode) as server:
        await server.topic(PARENT, "LITE")
        bind(server, GROUP)
        async with consumer(server) as client:
            assert await choose(client, "a", "b") == pb.OK
            assert await choose(client, "b", "c") == pb.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
            assert await choose(client, "b") == pb.OK
            await send(client, "a", "1")
            assert (await client.send(lite("b", b"2"))).status.code == pb.LITE_TOPIC_QUOTA_EXCEEDED


@pytest.mark.parametrize("mode", MODES)
async def test_a_broker_without_light_queues_says_so(mode: str) -> None:
    async with served(mode=mode) as server:
        await server.topic(PARENT, "LITE")
        bind(server, GROUP)
        async with consumer(server) as client:
            assert await choose(client, "a") == pb.NOT_IMPLEMENTED
            assert (await client.send(lite("a", b"x"))).status.code == pb.NOT_IMPLEMENTED
            assert await choose(client, "a b") == pb.ILLEGAL_LITE_TOPIC


async def test_tools_see_lite_topics_their_clients_and_their_lag(server: Served, client: Stubs) -> None:
    await choose(client, "a", "b")
    await send(client, "a", "1", "2", "3")
    (first, *_) = await client.received(PARENT, GROUP, 3)
    await acknowledge(client, first)
    async with AdminClient(server.cluster.name_server) as admin:
        found = admin.lite_topics
        (info,) = (await found.broker_info(broker=server.broker.settings.broker.broker_address)).values()
        assert (info.current_lmq_num, info.lite_subscription_count, info.topic_meta) == (1, 2, {PARENT: -1})
        assert info.group_meta == {PARENT: [GROUP, "frail"]}
        (parent,) = (await found.parent_topic(PARENT)).values()
        assert (parent.lite_topic_count, parent.groups) == (1, [GROUP, "frail"])
        (topic,) = (await found.lite_topic(PARENT, "a")).values()
        assert [(one.client_id, one.group) for one in topic.subscriber or ()] == [(client.client_id, GROUP)]
        assert topic.topic_offset is not None
        assert topic.topic_offset.max_offset == 3
        (one,) = (await found.client(PARENT, GROUP, client.client_id)).values()
        assert (one.lite_topic_count, len(one.lite_topic_set or ())) == (2, 2)
        (lag,) = (await found.group(PARENT, GROUP)).values()
        assert lag.total_lag_count == 2
        assert [(top.lite_topic, top.lag_count) for top in lag.lag_count_top_k or ()] == [("a", 2)]
        (progress,) = (await found.group(PARENT, GROUP, lite_topic="a")).values()
        assert progress.lite_topic_offset_wrapper is not None
        assert progress.lite_topic_offset_wrapper.consumer_offset == 1
        await found.dispatch(server.broker.settings.broker.broker_address, GROUP)


async def test_a_deleted_parent_takes_its_lite_topics_with_it(server: Served, client: Stubs) -> None:
    await choose(client, "a")
    await send(client, "a", "1")
    async with AdminClient(server.cluster.name_server) as admin:
        await admin.topics.delete(PARENT)
    assert server.broker.store.queues.count_lmq() == 0
    server.broker.topics.update(TopicConfig(PARENT, 1, 1, 6, attributes={"message.type": "LITE"}))
    await server.broker.registration.settled()
    assert server.broker.offsets.query(GROUP, f"%LMQ%${PARENT}$a", 0) == -1


async def test_an_acknowledged_message_does_not_come_again_with_one_before_it(client: Stubs) -> None:
    await choose(client, "a")
    await send(client, "a", "1", "2", "3")
    first, second, third = await client.received(PARENT, GROUP, 3)
    await acknowledge(client, second)
    await hide(client, first)
    await hide(client, third)
    await send(client, "a", "4")
    found = await client.received(PARENT, GROUP, 3)
    assert [(one.body, one.system_properties.delivery_attempt) for one in found] == [
        (b"1", 2),
        (b"3", 2),
        (b"4", 1),
    ]
    assert await acknowledge(client, *found) == [pb.OK] * 3
    await nothing(client)
