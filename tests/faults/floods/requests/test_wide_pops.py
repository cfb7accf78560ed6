"""Pops of topics with very many queues, for very many groups: others are served, and no message is missed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from faults.floods.served import served_before
from orbitmq.broker.long_polling import table
from orbitmq.broker.pop import assignment as pop_assignment
from orbitmq.broker.pop import peek as pop_peek
from orbitmq.broker.pop import processor as pop
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import (
    MessageModel,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    QueueData,
    SetMessageRequestModeRequestBody,
    TopicRouteData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.broker.pop_harness import Popper, got_by, pop_fields, popping
from support.broker.requests import CONSUMERS, TOPIC, Talker, talking_at, talking_to
from support.nameserver_harness import as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from orbitmq.broker import Broker

WIDE = "TopicWide"
POLL_MS = 60_000


async def make(client: Talker, queues: int, topic: str = WIDE) -> None:
    answer = await client.asks(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=topic, defaultTopic="TBW102", readQueueNums=queues,
        writeQueueNums=queues, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
    )  # fmt: skip
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def pop_request(topic: str, group: str, opaque: int, **fields: object) -> Command:
    said = pop_fields(topic, group, **fields)  # type: ignore[arg-type]
    return Command(RequestCode.POP_MESSAGE, opaque, ext_fields=as_text(said))


async def test_a_pop_of_very_many_queues_resumes_where_its_time_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop, "POP_SECONDS", 0)
    async with popping() as ends:
        ends.broker.pop.pops.draw = lambda: 0
        await make(ends.client, 50)
        await ends.client.fills("a", topic=WIDE, queueId=40)
        assert (await ends.client.pops(WIDE)).code != ResponseCode.SUCCESS
        found = [got for _ in range(45) for got in await ends.client.gets(WIDE)]
        assert [got.body for got in found] == [b"a"]


async def test_a_held_pop_scans_all_of_very_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop, "POP_SECONDS", 0)
    async with popping() as ends:
        ends.broker.pop.pops.draw = lambda: 0
        await make(ends.client, 50)
        await ends.client.fills("a", topic=WIDE, queueId=40)
        assert [got.body for got in await ends.client.gets(WIDE, poll_ms=POLL_MS)] == [b"a"]
        # A message in a queue that was scanned already.
        opaque = ends.client.posts(pop_request(WIDE, CONSUMERS, 5, poll_ms=POLL_MS))
        await ends.client.pass_time()
        await ends.client.fills("b", topic=WIDE, queueId=1)
        answer = await ends.client.answer_to(opaque)
        assert [got.body for got in got_by(answer, WIDE, CONSUMERS)] == [b"b"]


async def test_a_notification_leaves_unscanned_queues_to_the_pop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with popping() as ends:
        await make(ends.client, 50)
        await ends.client.gets(WIDE)
        fields = {"consumerGroup": CONSUMERS, "topic": WIDE, "queueId": -1, "pollTime": 0, "bornTime": 0}
        answer = await ends.client.asks(RequestCode.NOTIFICATION, **fields, order=False)
        assert answer.ext_fields["hasMsg"] == "false"
        monkeypatch.setattr("orbitmq.broker.pop.notification.CHECK_SECONDS", -1)
        answer = await ends.client.asks(RequestCode.NOTIFICATION, **fields, order=False)
        assert answer.ext_fields["hasMsg"] == "true"
        monkeypatch.setattr(pop_peek, "PEEK_SECONDS", -1)
        answer = await ends.client.asks(
            RequestCode.PEEK_MESSAGE, consumerGroup=CONSUMERS, topic=WIDE, queueId=-1, maxMsgNums=32
        )
        assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_one_message_for_very_many_groups_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SLICE_SECONDS", 0)
    groups = [f"group{number}" for number in range(100)]
    async with popping() as ends, talking_to(ends.broker) as other:
        await make(ends.client, 1, TOPIC)
        for group in groups:
            await ends.client.gets(group=group)
        waiting = [
            ends.client.posts(pop_request(TOPIC, group, 5_000 + number, poll_ms=POLL_MS))
            for number, group in enumerate(groups)
        ]
        await ends.client.pass_time()
        assert len(ends.broker.pop.pops.held) == len(groups)
        await other.stores(b"for all")
        served = 0
        while len(ends.broker.pop.pops.held):
            await other.pass_time()
            served += 1
        assert served >= 3
        for opaque in waiting:
            answer = await ends.client.answer_to(opaque)
            assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_offsets_created_by_pops_count_for_the_share_of_the_client() -> None:
    async with popping(maxConsumerOffsets=400) as ends:
        await make(ends.client, 300)
        answer = await ends.client.pops(WIDE)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "consumer offsets" in (answer.remark or "")
        assert len(ends.broker.offsets) <= 200


def asked(topic: str) -> bytes:
    return QueryAssignmentRequestBody(
        client_id="client", strategy_name="AVG", message_model=MessageModel.BROADCASTING, topic=topic,
        consumer_group=CONSUMERS,
    ).encode()  # fmt: skip


async def test_very_many_queues_are_assigned_without_blocking_others() -> None:
    async with popping() as ends, talking_to(ends.broker) as other:
        await make(ends.client, 20_000)
        await other.stores(b"for others")
        request = Command(RequestCode.QUERY_ASSIGNMENT, 77, body=asked(WIDE))
        answer, served = await served_before(ends.client, request, other)
        found = QueryAssignmentResponseBody.decode(answer.body or b"").message_queue_assignments
        assert len(found or ()) == 20_000
        assert served >= 3


@contextlib.asynccontextmanager
async def broker_with_name_server() -> AsyncIterator[tuple[NameServer, Broker]]:
    config = NameServerConfig(listen_port=0, bind_address="127.0.0.1", kv_config_path="/ns/kvConfig.json")
    server = NameServer(config, disk=MemoryDisk())
    await server.start()
    try:
        async with running_broker(namesrvAddr=f"127.0.0.1:{server.port}") as broker:
            yield server, broker
    finally:
        await server.stop()


async def test_routes_with_absurd_numbers_of_queues_are_not_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any client may register 2,147,483,647 queues of a topic with a name server."""
    async with broker_with_name_server() as (server, broker), Popper.of(broker) as client:
        await broker.registration.settled()
        names = list(server.table.groups)

        async def share_out(topic: str, queues: int) -> Command:
            data = [QueueData(name, queues, queues, 6, 0) for name in names]
            async with talking_at(f"127.0.0.1:{server.port}") as teller:
                await teller.asks(
                    RequestCode.REGISTER_TOPIC_IN_NAMESRV, TopicRouteData(queue_datas=data).encode(), topic=topic
                )
            return await client.asks(RequestCode.QUERY_ASSIGNMENT, asked(topic))

        answer = await share_out("Absurd", (1 << 31) - 1)
        found = QueryAssignmentResponseBody.decode(answer.body or b"").message_queue_assignments
        assert len(found or ()) == 65_535
        assert len(broker.pop.assignments._routes) == 1
        monkeypatch.setattr(pop_assignment, "MAX_CACHED_QUEUES", 100)
        await share_out("Wider", 101)
        assert len(broker.pop.assignments._routes) == 0
        monkeypatch.setattr(pop_assignment, "MAX_ASSIGNED_QUEUES", 200)
        answer = await share_out("Widest", 201)
        assert answer.remark == "Widest has 201 queues, at most 200 can be shared out"


async def test_modes_of_topics_and_groups_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_assignment, "MAX_MODES", 2)
    async with popping() as ends:
        await ends.client.fills("a")
        answers = [
            await ends.client.asks(
                RequestCode.SET_MESSAGE_REQUEST_MODE,
                SetMessageRequestModeRequestBody(
                    topic=TOPIC, consumer_group=f"group{number}", mode=MessageRequestMode.POP
                ).encode(),
            )
            for number in (1, 2, 1, 3)
        ]
        assert [answer.code for answer in answers] == [0, 0, 0, 1]
        assert answers[3].remark == "modes of 2 topics and groups are set, and no more are allowed"
