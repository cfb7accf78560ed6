"""Heartbeats, unregistering, subscription checks and consumer lists, compared with Apache's broker."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from orbitmq.broker.clients.registry import ClientLimits
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import ONEWAY
from support.broker.client_registry_harness import (
    GROUP,
    TOPIC,
    Client,
    ClientBroker,
    client_broker,
    consumer,
    heartbeat,
    sql,
    subscription,
)
from support.limit_counts import counts
from support.wire_captures import SCENARIOS, Captured, captured

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import HeartbeatData

OURS = {
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
}


def asks_us(frame: Captured) -> bool:
    return frame.to_server and not frame.is_response and frame.code in OURS


# In the scenario of a slave the same client has connections to two brokers.
REPLAYED = [name for name in SCENARIOS if name != "ha" and any(map(asks_us, captured(name)))]


@pytest.mark.parametrize("scenario", REPLAYED)
async def test_clients_are_answered_as_by_apaches_broker(scenario: str) -> None:
    frames = captured(scenario)
    answers = {
        (frame.connection, frame.header["opaque"]): frame
        for frame in frames
        if frame.is_response and not frame.to_server and frame.request_code in OURS
    }
    async with client_broker(enable_property_filter=True) as broker, contextlib.AsyncExitStack() as stack:
        clients: dict[int, Client] = {}
        for frame in filter(asks_us, frames):
            if frame.connection not in clients:
                clients[frame.connection] = await stack.enter_async_context(broker.client())
            client = clients[frame.connection]
            if frame.header["flag"] & ONEWAY:
                client.send(frame.wire)
                continue
            answer = await client.answer(frame.wire)
            expected = answers.get((frame.connection, frame.header["opaque"]))
            if expected is not None:
                check_same(answer, expected)
        for number, client in clients.items():
            assert await client.news() == notices(frames, number), f"{scenario}: connection {number}"


def check_same(answer: Command, expected: Captured) -> None:
    where = str(expected)
    assert answer.code == expected.code, where
    assert answer.ext_fields == expected.ext_fields, where
    if expected.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED:
        assert "at line 1, column 5" in (expected.header["remark"] or "")
        assert "at line 1, column 5" in (answer.remark or "")
        return
    if "NullPointerException" not in (expected.header["remark"] or ""):
        assert answer.remark == expected.header["remark"], where
    assert body_of(answer.body or b"") == body_of(expected.frame[2]), where


def body_of(body: bytes) -> object:
    """A body in which lists that are sets in Java are sorted."""
    value = json.loads(body) if body else None
    if isinstance(value, dict):
        return {name: sorted(items, key=str) for name, items in value.items()}
    return value


def notices(frames: tuple[Captured, ...], connection: int) -> list[str]:
    return [
        frame.ext_fields["consumerGroup"]
        for frame in frames
        if frame.connection == connection
        and not frame.to_server
        and not frame.is_response
        and frame.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    ]


# Heartbeats


async def test_a_new_member_is_notified_before_its_heartbeat_response() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))
        assert client.told == [GROUP]


async def test_other_members_are_notified_of_a_new_member_once() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer()))
        await first.news()
        await second.beat(heartbeat("c2", consumer()))
        assert await first.news() == [GROUP]
        assert await second.news() == [GROUP]


async def test_an_unchanged_heartbeat_notifies_no_member() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))
        await client.news()
        await client.beat(heartbeat("c1", consumer()))
        await client.beat(heartbeat("c1", consumer(GROUP, subscription(expression="a", version=2))))
        assert await client.news() == []


async def test_members_that_join_in_one_loop_iteration_are_notified_once() -> None:
    async with client_broker() as broker, broker.client() as old, broker.client() as new:
        await old.beat(heartbeat("c0", consumer()))
        await old.news()
        # Two heartbeats in one read: the second has another client id, so it is another member.
        said = (heartbeat("c1", consumer()), heartbeat("c2", consumer()))
        new.send(*[Command(34, opaque, body=one.encode()).encode() for opaque, one in enumerate(said, 1)])
        commands = [await new.receive() for _ in range(4)]
        assert [command.is_response for command in commands] == [False, True, False, True]
        assert await old.news() == [GROUP]


async def test_a_broadcasting_group_is_not_notified() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer(message_model=MessageModel.BROADCASTING)))
        assert await client.news() == []


@pytest.mark.parametrize("whose", ["the broker's", "the group's"])
async def test_notifications_can_be_disabled(whose: str) -> None:
    async with client_broker(notify_consumer_ids_changed_enable=whose != "the broker's") as broker:
        broker.groups.update(
            SubscriptionGroupConfig(GROUP, notify_consumer_ids_changed_enable=whose != "the group's")
        )
        async with broker.client() as first, broker.client() as second:
            await first.beat(heartbeat("c1", consumer()))
            await second.beat(heartbeat("c2", consumer()))
            await broker.gone(second)
            assert await first.news() == []


async def test_a_heartbeat_creates_the_group_and_its_retry_topic() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))
        assert GROUP in broker.groups.configs
        retry = broker.topics.configs[f"%RETRY%{GROUP}"]
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 1, 6, 0)


async def test_the_retry_topic_follows_the_settings_of_its_group() -> None:
    async with client_broker() as broker, broker.client() as client:
        broker.groups.update(SubscriptionGroupConfig(GROUP, retry_queue_nums=3))
        broker.topics.update(TopicConfig(TOPIC, order=True))
        await client.beat(heartbeat("c1", consumer(unit_mode=True)))
        retry = broker.topics.configs[f"%RETRY%{GROUP}"]
        assert (retry.read_queue_nums, retry.topic_sys_flag, retry.order) == (3, 2, True)
        await client.beat(heartbeat("c1", consumer(unit_mode=True), heartbeat_fingerprint=1, without_sub=True))
        assert broker.topics.configs[f"%RETRY%{GROUP}"].order


async def test_a_group_that_may_not_be_created_is_skipped() -> None:
    async with client_broker(auto_create_subscription_group=False) as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer(), producers=["PG"]))
        assert broker.clients.consumers == {}
        assert list(broker.clients.producers) == ["PG"]
        assert await client.news() == []


async def test_pull_consumers_can_be_refused() -> None:
    async with client_broker(reject_pull_consumer_enable=True) as broker, broker.client() as client:
        pulling = consumer("CG_pull", consume_type=ConsumeType.CONSUME_ACTIVELY)
        await client.beat(heartbeat("c1", consumer(), pulling))
        assert list(broker.clients.consumers) == [GROUP]


async def test_producers_are_not_registered_where_transactions_are_rejected() -> None:
    async with (
        client_broker(enable_register_producer=False, reject_transaction_message=True) as broker,
        broker.client() as client,
    ):
        await client.beat(heartbeat("c1", producers=["PG"]))
        assert broker.clients.producers == {}


async def test_a_heartbeat_without_a_body_is_refused() -> None:
    async with client_broker() as broker, broker.client() as client:
        answer = await client.asks(RequestCode.HEART_BEAT)
        assert (answer.code, answer.remark) == (1, "the heartbeat has no body")


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (heartbeat("c" * 1025), "the client id has 1025 characters, at most 1024 are allowed"),
        (heartbeat("c", producers=["p" * 1025]), "the producer group has 1025 characters"),
        (heartbeat("c", consumer("g" * 1025)), "the consumer group has 1025 characters"),
        (heartbeat("c", consumer(GROUP, subscription("t" * 2000))), "the topic has 2000 characters"),
        (heartbeat("c", consumer("A"), consumer("B"), producers=["C"]), "may be of 2 groups, this would be of 3"),
        (heartbeat("c", consumer(GROUP, *map(subscription, "abc"))), "may subscribe 2 topics, CG_a has 3"),
        (
            heartbeat("c", consumer(GROUP, subscription(expression="x" * 11))),
            "CG_a for TopicA: the subscription expression has 11 characters, at most 10 are allowed",
        ),
        (
            heartbeat("c", consumer(GROUP, SubscriptionData(TOPIC, "a", tags_set=["x" * 40]))),
            "CG_a for TopicA: tags and codes of the subscription are longer than three times 10 characters",
        ),
    ],
)
async def test_a_heartbeat_over_a_limit_is_refused_and_changes_nothing(said: HeartbeatData, complaint: str) -> None:
    limits = ClientLimits(groups_of_connection=2, subscriptions_of_group=2)
    async with client_broker(limits=limits, max_subscription_length=10) as broker, broker.client() as client:
        topics, groups = dict(broker.topics.configs), dict(broker.groups.configs)
        answer = await client.asks(RequestCode.HEART_BEAT, said.encode())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert complaint in (answer.remark or "")
        assert await client.news() == []
        assert (broker.clients.consumers, broker.clients.producers, broker.clients.memberships) == ({}, {}, 0)
        assert (broker.topics.configs, broker.groups.configs) == (topics, groups)


@counts(Limit.MEMBERSHIPS)
async def test_a_broker_at_the_client_limit_keeps_existing_members() -> None:
    limits = ClientLimits(memberships=1)
    async with client_broker(limits=limits) as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer()))
        answer = await second.asks(RequestCode.HEART_BEAT, heartbeat("c2", consumer()).encode())
        assert (answer.code, answer.remark) == (1, "this broker takes no more clients: it has 1 already")
        await first.beat(heartbeat("c1", consumer()))


# Heartbeats of version 2


async def fingerprinted(client: Client, fingerprint: int, *, without_sub: bool = False) -> str:
    """The response fields about subscriptions."""
    said = consumer(subscription_data_set=[]) if without_sub else consumer()
    answer = await client.beat(heartbeat("c1", said, heartbeat_fingerprint=fingerprint, without_sub=without_sub))
    assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    return answer.ext_fields["IS_SUB_CHANGE"]


async def test_an_equal_fingerprint_is_not_a_change() -> None:
    async with client_broker() as broker, broker.client() as client:
        assert await fingerprinted(client, 7) == "true"
        assert await fingerprinted(client, 7) == "false"
        assert await fingerprinted(client, -8) == "true"
        assert await fingerprinted(client, -8) == "false"


async def test_a_heartbeat_without_subscriptions_keeps_those_of_the_group() -> None:
    async with client_broker() as broker, broker.client() as client:
        await fingerprinted(client, 7)
        assert await fingerprinted(client, 7, without_sub=True) == "false"
        assert list(broker.clients.consumers[GROUP].subscriptions) == [TOPIC]


async def test_a_broker_requests_the_subscriptions_of_an_unknown_group() -> None:
    async with client_broker() as broker, broker.client() as client:
        assert await fingerprinted(client, 7, without_sub=True) == "true"
        assert await fingerprinted(client, 7) == "false"
        assert list(broker.clients.consumers[GROUP].subscriptions) == [TOPIC]


async def test_only_heartbeats_of_version_2_may_omit_subscriptions() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))
        await client.beat(heartbeat("c1", consumer(subscription_data_set=[]), without_sub=True))
        assert broker.clients.consumers[GROUP].subscriptions == {}


# Unregistering


async def test_a_member_that_leaves_is_removed_and_the_others_are_notified() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer()))
        await second.beat(heartbeat("c2", consumer()))
        await first.news()
        answer = await second.asks(RequestCode.UNREGISTER_CLIENT, clientID="c2", consumerGroup=GROUP)
        assert answer.code == ResponseCode.SUCCESS
        assert broker.clients.consumers[GROUP].client_ids() == ["c1"]
        assert await first.news() == [GROUP]


async def test_a_client_can_only_unregister_itself() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer(), producers=["PG"]))
        await first.news()
        await second.asks(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP, producerGroup="PG")
        assert broker.clients.consumers[GROUP].client_ids() == ["c1"]
        assert list(broker.clients.producers) == ["PG"]
        assert await first.news() == []


async def test_unregistering_creates_no_group() -> None:
    async with client_broker() as broker, broker.client() as client:
        before = dict(broker.groups.configs)
        answer = await client.asks(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="CG_new")
        assert answer.code == ResponseCode.SUCCESS
        assert broker.groups.configs == before


async def test_a_closed_connection_removes_its_memberships() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer()))
        await second.beat(heartbeat("c2", consumer(), producers=["PG"]))
        await first.news()
        await broker.gone(second)
        assert broker.clients.consumers[GROUP].client_ids() == ["c1"]
        assert broker.clients.producers == {}
        assert await first.news() == [GROUP]


# Consumer lists


async def ids_of(client: Client, group: str) -> list[str]:
    answer = await client.asks(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=group)
    assert answer.code == ResponseCode.SUCCESS
    return GetConsumerListByGroupResponseBody.decode(answer.body or b"").consumer_id_list


async def test_a_client_on_two_connections_is_listed_once() -> None:
    async with client_broker() as broker, broker.client() as old, broker.client() as new:
        await old.beat(heartbeat("c1", consumer()))
        await new.beat(heartbeat("c1", consumer()))
        assert await ids_of(new, GROUP) == ["c1"]
        await broker.gone(old)
        assert await ids_of(new, GROUP) == ["c1"]


async def test_a_group_without_members_is_an_error_and_not_an_empty_list() -> None:
    async with client_broker() as broker, broker.client() as client:
        await client.beat(heartbeat("c1", consumer()))
        await client.asks(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP)
        answer = await client.asks(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP)
        assert (answer.code, answer.remark) == (1, f"no consumer for this group, {GROUP}")


# Subscription checks


async def checked(broker: ClientBroker, asked: SubscriptionData) -> tuple[int, str | None]:
    async with broker.client() as client:
        body = CheckClientRequestBody("c1", GROUP, asked).encode()
        answer = await client.asks(RequestCode.CHECK_CLIENT_CONFIG, body)
        return answer.code, answer.remark


async def test_tags_need_no_check_and_sql92_must_be_enabled() -> None:
    async with client_broker(enable_property_filter=False) as broker:
        assert await checked(broker, subscription(expression="a || b")) == (0, None)
        assert await checked(broker, sql(TOPIC, "a = 1")) == (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92; enablePropertyFilter=false in its "
            "settings, set enablePropertyFilter=true",
        )


async def test_an_expression_that_does_not_compile_is_refused_with_the_position() -> None:
    async with client_broker(enable_property_filter=True) as broker:
        assert await checked(broker, sql(TOPIC, "a = 1")) == (0, None)
        code, remark = await checked(broker, sql(TOPIC, "a = 1 AND\nb >"))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "line 2" in (remark or "")
        code, remark = await checked(broker, subscription(type_="XPATH"))
        assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "XPATH" in (remark or "")
