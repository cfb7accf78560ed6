"""The history of a broker, read by its request: what clients, operators and the disk did to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.aio import Consumer, Message, Producer
from orbitmq.protocol.broker_events import BrokerEvents, EventKind, events_request
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.testing import LocalCluster
from support.broker.requests import talking_at
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.broker import Broker
    from orbitmq.protocol.broker_events import BrokerEvent


async def ask(broker: Broker, request: Command) -> Command:
    async with talking_at(f"127.0.0.1:{broker.port}") as talker:
        return await talker.says(request)


async def history(broker: Broker, *kinds: EventKind, after: int = 0) -> list[BrokerEvent]:
    answer = await ask(broker, events_request(kinds=kinds, after_sequence=after))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return BrokerEvents.decode(answer.body or b"").events


async def test_the_history_of_a_group() -> None:
    async with LocalCluster() as cluster:
        broker = cluster.broker()
        async with Producer(cluster.name_server, group="shop") as producer:
            await producer.send(Message("orders", b"1"))
            consumer = Consumer(cluster.name_server, group="billing")
            consumer.on("orders")(lambda _: None)
            async with consumer:
                await eventually(lambda: "billing" in broker.clients.consumers)
        await eventually(lambda: "billing" not in broker.clients.consumers)
        found = await history(broker)
        kinds = [(event.kind, event.subject) for event in found]
        for expected in (
            ("BROKER_START", "broker-a"),
            ("TOPIC_CREATE", "orders"),
            ("GROUP_CREATE", "billing"),
            ("PRODUCER_JOIN", "shop"),
            ("CONSUMER_JOIN", "billing"),
            ("REBALANCE", "billing"),
            ("CONSUMER_LEAVE", "billing"),
            ("PRODUCER_LEAVE", "shop"),
        ):
            assert expected in kinds
        (left,) = [event for event in found if event.kind == "CONSUMER_LEAVE"]
        assert left.detail.endswith("unregistered")
        assert await history(broker, after=found[-1].sequence) == []


async def test_changes_and_refusals_of_operators() -> None:
    async with LocalCluster() as cluster:
        broker = cluster.broker()
        topic = {"topic": "t", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "order": "false"}
        topic |= {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "topicSysFlag": "0"}
        for perm in ("6", "4"):
            await ask(broker, Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields={**topic, "perm": perm}))
        await ask(broker, Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": "t"}))
        await ask(broker, Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"transactionCheckMax=7"))
        refused = await ask(broker, events_request(limit=0))
        assert (refused.code, refused.remark) == (ResponseCode.INVALID_PARAMETER, "limit=0: give 1 to 1000")
        found = [(event.kind, event.subject) for event in await history(broker)]
        kinds = ("TOPIC_CREATE", "TOPIC_CHANGE", "TOPIC_DELETE")
        assert [kind for kind, subject in found if subject == "t"] == [*kinds]
        assert ("SETTINGS_CHANGE", "") in found
        (event,) = await history(broker, EventKind.REQUEST_REFUSED)
        assert event.subject == "29001"
        assert "limit=0: give 1 to 1000" in event.detail


async def test_the_history_survives_a_restart() -> None:
    async with LocalCluster() as cluster:
        await cluster.stop("broker-a")
        await cluster.start("broker-a")
        found = [event.kind for event in await history(cluster.broker())]
        assert [kind for kind in found if kind.startswith("BROKER")] == [
            "BROKER_START",
            "BROKER_STOP",
            "BROKER_START",
        ]


async def test_malformed_requests_for_the_history() -> None:
    async with LocalCluster() as cluster:
        for fields in ({"since": "x"}, {"limit": "1001"}, {"afterSequence": "-"}):
            answer = await ask(cluster.broker(), Command(29001, ext_fields=fields))
            assert answer.code != ResponseCode.SUCCESS
            assert answer.remark
