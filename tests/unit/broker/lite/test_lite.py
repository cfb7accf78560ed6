"""Lite topics of a broker over remoting: expiry, restarts, and requests that are refused."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

import orjson
import pytest

from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import Talker, send_request, talking_to
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command

PARENT, GROUP, CLIENT = "sessions", "agents", "client@1"
MINUTE_MS = 60_000
INVISIBLE_MS = 10_000


def queue(lite_topic: str) -> str:
    return f"%LMQ%${PARENT}${lite_topic}"


@dataclasses.dataclass(slots=True)
class Ends:
    """A broker whose time is moved by hand, and a client."""

    broker: Broker
    client: Talker
    clock: ManualClock

    async def sends(self, lite_topic: str, *bodies: str) -> None:
        for body in bodies:
            await self.client.stores(body.encode(), topic=PARENT, properties={"__LITE_TOPIC": lite_topic})

    async def chooses(self, *names: str, action: str = "PARTIAL_ADD", **more: object) -> Command:
        entry = {
            "action": action,
            "clientId": CLIENT,
            "group": GROUP,
            "topic": PARENT,
            "liteTopicSet": names,
            **more,
        }
        return await self.client.asks(RequestCode.LITE_SUBSCRIPTION_CTL, orjson.dumps({"subscriptionSet": [entry]}))

    async def pops(self, **more: object) -> Command:
        fields = {"clientId": CLIENT, "consumerGroup": GROUP, "topic": PARENT, "maxMsgNum": 32, "pollTime": 0}
        return await self.client.asks(
            RequestCode.POP_LITE_MESSAGE, **{**fields, "invisibleTime": INVISIBLE_MS, **more}
        )

    async def gets(self) -> list[bytes]:
        return bodies_of(await self.pops())

    async def acks(self, answer: Command, number: int = 0) -> Command:
        record = list(iter_records(answer.body or b""))[number]
        fields = answer.ext_fields
        offset = (find(record.properties, b"INNER_MULTI_QUEUE_OFFSET") or b"").decode()
        receipt = f"0 {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a 0 {offset}"
        return await self.client.asks(
            RequestCode.ACK_MESSAGE,
            consumerGroup=GROUP,
            topic=PARENT,
            queueId=0,
            offset=offset,
            extraInfo=receipt,
            liteTopic=(find(record.properties, b"__LITE_TOPIC") or b"").decode(),
        )


def bodies_of(answer: Command) -> list[bytes]:
    return [record.body for record in iter_records(answer.body or b"")]


@contextlib.asynccontextmanager
async def lite(
    disk: MemoryDisk | None = None, clock: ManualClock | None = None, **more: object
) -> AsyncIterator[Ends]:
    clock = clock or ManualClock(T0)
    settings: dict[str, Any] = {"enableLmq": True, "enableMultiDispatch": True, **more}
    async with running_broker(disk, clock, **settings) as broker, talking_to(broker) as client:
        if PARENT not in broker.topics.configs:
            attributes = {"message.type": "LITE", "lite.topic.expiration": "30"}
            broker.topics.update(TopicConfig(PARENT, 2, 2, 6, attributes=attributes))
            broker.groups.update(SubscriptionGroupConfig(GROUP, attributes={"lite.bind.topic": PARENT}))
            await broker.topics.settled([PARENT])
        yield Ends(broker, client, clock)


async def expire(ends: Ends) -> None:
    ends.broker.pop.lite.expiry.run()
    await ends.broker.pop.lite.expiry.settled()


async def test_a_pop_answers_with_a_count_for_each_message() -> None:
    async with lite() as ends:
        await ends.chooses("a", "b")
        await ends.sends("a", "1", "2")
        await ends.sends("b", "3")
        answer = await ends.pops()
        assert bodies_of(answer) == [b"1", b"2", b"3"]
        assert answer.ext_fields["orderCountInfo"] == "0;0;0"
        assert answer.ext_fields["reviveQid"] == "999"
        ends.clock.advance(INVISIBLE_MS)
        assert (await ends.pops()).ext_fields["orderCountInfo"] == "1;1;1"


async def test_after_a_restart_what_was_not_acknowledged_comes_again() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with lite(disk, clock) as ends:
        await ends.chooses("a")
        await ends.sends("a", "1", "2", "3")
        answer = await ends.pops()
        assert (await ends.acks(answer)).code == ResponseCode.SUCCESS
    async with lite(disk, clock) as ends:
        # The broker does not know of the pop any more, and must not skip the second message.
        assert (await ends.acks(answer, 2)).code == ResponseCode.SUCCESS
        assert ends.broker.offsets.query(GROUP, queue("a"), 0) == 1
        await ends.chooses("a", action="COMPLETE_ADD")
        assert await ends.gets() == [b"2", b"3"]


async def test_a_lite_topic_without_messages_expires_with_its_offsets() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with lite(disk, clock) as ends:
        await ends.chooses("a", "b")
        await ends.sends("a", "old")
        answer = await ends.pops()
        clock.advance(20 * MINUTE_MS)
        await ends.sends("b", "new")
        await expire(ends)
        assert ends.broker.store.queues.count_lmq() == 2
        clock.advance(11 * MINUTE_MS)
        await expire(ends)
        assert ends.broker.store.max_offset(queue("a"), 0) == 0
        assert ends.broker.store.max_offset(queue("b"), 0) == 1
        assert ends.broker.offsets.query(GROUP, queue("a"), 0) == -1
        assert (await ends.acks(answer)).code == ResponseCode.SUCCESS
        # It comes again with the next message, and its clients still want it.
        await ends.sends("a", "again")
        assert await ends.gets() == [b"new", b"again"]
    async with lite(disk, clock) as ends:
        assert ends.broker.store.max_offset(queue("a"), 0) == 1


async def test_a_message_for_a_lite_topic_that_is_being_deleted_waits() -> None:
    async with lite() as ends:
        await ends.sends("a", "old")
        end = ends.broker.topics.withdraw([queue("a")])
        sent = ends.client.posts(send_request(b"new", topic=PARENT, properties={"__LITE_TOPIC": "a"}))
        await ends.client.pass_time()
        assert ends.broker.store.max_offset(queue("a"), 0) == 1
        end(True)
        assert (await ends.client.answer_to(sent)).code == ResponseCode.SUCCESS
        assert ends.broker.store.max_offset(queue("a"), 0) == 2


async def test_lite_topics_stay_for_a_while_after_a_start_and_without_a_limit() -> None:
    disk, clock = MemoryDisk(), ManualClock(T0)
    async with lite(disk, clock) as ends:
        await ends.sends("a", "1")
    clock.advance(60 * MINUTE_MS)
    async with lite(disk, clock) as ends:
        await expire(ends)
        assert ends.broker.store.queues.count_lmq() == 1
        clock.advance(15 * MINUTE_MS)
        ends.broker.topics.update(TopicConfig(PARENT, 2, 2, 6, attributes={"message.type": "LITE"}))
        await ends.broker.topics.settled([PARENT])
        await expire(ends)
        assert ends.broker.store.queues.count_lmq() == 1


async def test_clients_that_are_silent_are_forgotten() -> None:
    async with lite() as ends:
        await ends.chooses("a")
        subscriptions = ends.broker.pop.lite.subscriptions
        ends.clock.advance(180_000)
        ends.broker.pop.lite.expire_clients()
        assert subscriptions.count == 1
        ends.clock.advance(1)
        ends.broker.pop.lite.expire_clients()
        assert (subscriptions.count, len(subscriptions)) == (0, 0)
        assert await ends.gets() == []


async def test_a_held_pop_is_answered_when_its_messages_are_visible_again() -> None:
    async with lite() as ends:
        await ends.chooses("a")
        await ends.sends("a", "1")
        assert await ends.gets() == [b"1"]
        waiting = asyncio.ensure_future(ends.pops(pollTime=60_000))
        await eventually(lambda: len(ends.broker.pop.lite.pops.held) == 1)
        ends.clock.advance(INVISIBLE_MS)
        assert bodies_of(await waiting) == [b"1"]


async def test_pops_that_cannot_be_served_are_refused() -> None:
    async with lite() as ends:
        ends.broker.groups.update(SubscriptionGroupConfig("unbound"))
        ends.broker.topics.update(TopicConfig("orders", 1, 1, 6))
        await ends.broker.topics.settled(["orders"])
        for fields, code in (
            ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"topic": "orders"}, ResponseCode.INVALID_PARAMETER),
            ({"consumerGroup": "nobody"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
            ({"consumerGroup": "unbound"}, ResponseCode.INVALID_PARAMETER),
            ({"maxMsgNum": 33}, ResponseCode.INVALID_PARAMETER),
            ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER),
            ({}, ResponseCode.POLLING_TIMEOUT),
        ):
            assert (await ends.pops(**fields)).code == code, fields


async def test_changes_that_say_nothing_are_refused() -> None:
    async with lite() as ends:
        for body in (b"", b"{}", b'{"subscriptionSet":[]}'):
            answer = await ends.client.asks(RequestCode.LITE_SUBSCRIPTION_CTL, body)
            assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert (await ends.client.asks(RequestCode.LITE_SUBSCRIPTION_CTL, b"[")).code == ResponseCode.SYSTEM_ERROR
        assert (await ends.chooses("a", group="nobody")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await ends.chooses("a", clientId="")).code == ResponseCode.SUCCESS
        assert ends.broker.pop.lite.subscriptions.count == 0


@pytest.mark.parametrize("name", ["a/b", "a,b", "a$b", "..", "a b"])
async def test_names_that_no_lite_topic_can_have_are_refused(name: str) -> None:
    async with lite() as ends:
        answer = await ends.client.sends(b"x", topic=PARENT, properties={"__LITE_TOPIC": name})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert ends.broker.store.queues.count_lmq() == 0


async def test_a_lite_topic_of_an_ordinary_topic_is_a_property_like_others() -> None:
    async with lite() as ends:
        await ends.client.stores(b"x", topic="TopicTest", properties={"__LITE_TOPIC": "a"})
        assert ends.broker.store.queues.count_lmq() == 0


async def test_clients_count_towards_the_quota_even_without_a_lite_topic() -> None:
    async with lite(maxLiteSubscriptionCount=1) as ends:
        assert (await ends.chooses(action="COMPLETE_ADD")).code == ResponseCode.SUCCESS
        answer = await ends.chooses(action="COMPLETE_ADD", clientId="client@2")
        assert answer.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
        assert (await ends.chooses("a", action="COMPLETE_ADD")).code == ResponseCode.SUCCESS


async def test_an_exclusive_lite_topic_is_not_taken_back_by_a_repetition() -> None:
    async with lite() as ends:
        attributes = {"lite.bind.topic": PARENT, "lite.sub.model": "Exclusive"}
        ends.broker.groups.update(SubscriptionGroupConfig(GROUP, attributes=attributes))
        await ends.chooses("a", "b")
        await ends.chooses("a", clientId="client@2")
        await ends.chooses("a", "b", action="COMPLETE_ADD")
        found = ends.broker.pop.lite.subscriptions
        assert [one.client_id for one in found.of_queue(queue("a"))] == ["client@2"]
        assert [one.client_id for one in found.of_queue(queue("b"))] == [CLIENT]
        await ends.chooses(action="COMPLETE_REMOVE", clientId="client@2")
        await ends.chooses("a", "b", action="COMPLETE_ADD")
        assert [one.client_id for one in found.of_queue(queue("a"))] == [CLIENT]


async def test_a_repetition_looks_at_every_lite_topic_again() -> None:
    async with lite() as ends:
        await ends.chooses("a")
        await ends.sends("a", "1")
        found = ends.broker.pop.lite.subscriptions.find(CLIENT)
        assert found is not None
        found.ready.clear()
        await ends.chooses("a", action="COMPLETE_ADD")
        assert list(found.ready) == [queue("a")]
