"""Topics created by clients: on disk before a message to them is acknowledged, or not created at all."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.store import StoreError
from orbitmq.store.config_tables import TOPICS
from orbitmq.testing import MemoryDisk
from orbitmq.testing.simulation.switched_disk import SwitchedDisk
from support.broker.broker_harness import ROOT, running_broker
from support.broker.client_registry_harness import consumer, heartbeat, subscription
from support.broker.requests import CONSUMERS, Talker, bodies, send_request, talk, talking_to
from support.limit_counts import counts
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command

NEW = "orders"


def saved_topics(disk: MemoryDisk) -> set[str]:
    """The topics in the synced content of ``topics.json``."""
    data = disk.durable_bytes(f"{ROOT}/config/{TOPICS.name}")
    return set() if data is None else set(TOPICS.shape.decode(data).topic_config_table)


class Gate:
    """Holds back the writes of config tables until it is opened, and counts them."""

    def __init__(self, broker: Broker) -> None:
        self._run = broker.writer._run
        self._open = asyncio.Event()
        self.writes = 0
        broker.writer._run = self

    async def __call__(self, work: Callable[[], Any]) -> Any:
        self.writes += 1
        await self._open.wait()
        return await self._run(work)

    def open(self) -> None:
        self._open.set()


@contextlib.asynccontextmanager
async def gated(**settings: object) -> AsyncIterator[tuple[Broker, Talker, Gate, MemoryDisk]]:
    disk = MemoryDisk()
    async with talk(disk, **settings) as (broker, client):
        await broker.writer.saved()
        gate = Gate(broker)
        try:
            yield broker, client, gate, disk
        finally:
            gate.open()


KINDS = {
    "plain": lambda: send_request(b"plain", NEW),
    "version 1": lambda: send_request(b"plain", NEW, code=RequestCode.SEND_MESSAGE),
    "binary": lambda: send_request(b"plain", NEW, binary=True),
    "batch": lambda: send_request(
        encode_batch([(0, b"one", b""), (0, b"two", b"")]), NEW, code=RequestCode.SEND_BATCH_MESSAGE
    ),
    "delay": lambda: send_request(b"later", NEW, {"DELAY": "3"}),
    "timed": lambda: send_request(b"timed", NEW, {"TIMER_DELAY_MS": "3600000"}),
    "half": lambda: send_request(b"half", NEW, {"TRAN_MSG": "true", "PGROUP": "producers"}),
}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_first_message_of_a_topic_is_acknowledged_once_the_topic_is_on_disk(
    kind: str, flush: str
) -> None:
    async with gated(flushDiskType=flush) as (broker, client, gate, disk):
        opaque = client.posts(KINDS[kind]())
        await eventually(lambda: gate.writes)
        await client.pass_time()
        assert opaque not in client.answers
        assert NEW not in broker.topics.configs
        gate.open()
        answer = await client.answer_to(opaque)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert NEW in saved_topics(disk)


async def test_many_new_topics_share_one_write() -> None:
    async with gated() as (_, client, gate, disk):
        opaques = [client.posts(send_request(b"m", f"{NEW}{number}")) for number in range(200)]
        await client.pass_time()
        gate.open()
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS
        assert gate.writes <= 2  # one may have begun with the first topic
        assert {f"{NEW}{number}" for number in range(200)} <= saved_topics(disk)


async def test_messages_that_wait_for_their_topic_keep_their_order() -> None:
    async with gated() as (_, client, gate, _):
        sent = [b"%d" % number for number in range(15)]
        opaques = [client.posts(send_request(body, NEW)) for body in sent]
        await client.pass_time()
        gate.open()
        opaques += [client.posts(send_request(b"later %d" % number, NEW)) for number in range(15)]
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS
        answer = await client.pulls(topic=NEW, most=32)
        assert bodies(answer)[:15] == sent


async def test_oneway_messages_wait_for_their_topic_too() -> None:
    async with gated() as (broker, client, gate, disk):
        client.posts(send_request(b"oneway", NEW, oneway=True))
        await eventually(lambda: gate.writes)
        assert broker.store.max_offset(NEW, 0) == 0
        gate.open()
        await eventually(lambda: broker.store.max_offset(NEW, 0) == 1)
        assert NEW in saved_topics(disk)


@counts(Limit.WAITING_SENDS)
async def test_messages_that_wait_for_topics_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.send.processor.MAX_POSTPONED_BYTES", 1000)
    async with gated() as (_, client, gate, _):
        first = client.posts(send_request(bytes(600), NEW))
        refused = await client.sends(bytes(600), NEW)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "more than 1000 bytes" in (refused.remark or "")
        gate.open()
        assert (await client.answer_to(first)).code == ResponseCode.SUCCESS
        assert (await client.sends(bytes(600), NEW)).code == ResponseCode.SUCCESS


async def test_a_disk_that_refuses_the_table_refuses_the_message_and_leaves_no_topic() -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        await broker.writer.saved()
        disk.fail("write")
        answer = await client.sends(b"m", NEW)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            f"topic {NEW} was not created: the disk does not take config/topics.json, free space"
        )
        assert NEW not in broker.topics.configs
        assert NEW not in broker.store.queues.names()
        disk.heal()
        await eventually(lambda: broker.writer._writing is None)
        assert NEW not in saved_topics(disk)
        assert (await client.sends(b"m", NEW)).code == ResponseCode.SUCCESS
        assert NEW in saved_topics(disk)


async def test_a_topic_created_by_a_tool_accepts_messages_once_it_is_on_disk() -> None:
    async with gated(autoCreateTopicEnable="false") as (_, client, gate, disk):
        creating = asyncio.create_task(created(client, NEW))
        await eventually(lambda: gate.writes)
        opaque = client.posts(send_request(b"m", NEW))
        await client.pass_time()
        assert opaque not in client.answers
        gate.open()
        assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS
        assert (await creating).code == ResponseCode.SUCCESS
        assert NEW in saved_topics(disk)


async def test_a_queue_added_by_a_tool_accepts_messages_once_it_is_on_disk() -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        assert (await created(client, NEW)).code == ResponseCode.SUCCESS
        gate = Gate(broker)
        adding = asyncio.create_task(created(client, NEW, queues=8))
        try:
            await eventually(lambda: gate.writes)
            assert (await client.sends(b"too early", NEW, queueId=7)).code == ResponseCode.INVALID_PARAMETER
            assert (await client.sends(b"as before", NEW, queueId=3)).code == ResponseCode.SUCCESS
            assert not adding.done()
        finally:
            gate.open()
        assert (await adding).code == ResponseCode.SUCCESS
        assert (await client.sends(b"in time", NEW, queueId=7)).code == ResponseCode.SUCCESS
        data = disk.durable_bytes(f"{ROOT}/config/{TOPICS.name}")
        assert data is not None
        assert TOPICS.shape.decode(data).topic_config_table[NEW].write_queue_nums == 8


async def test_a_disk_that_refuses_the_table_leaves_a_topic_as_it_was() -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        assert (await created(client, NEW)).code == ResponseCode.SUCCESS
        disk.fail("write")
        refused = await created(client, NEW, queues=8)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "was not changed" in (refused.remark or "")
        assert broker.topics.configs[NEW].write_queue_nums == 4
        disk.heal()
        assert (await created(client, NEW, queues=8)).code == ResponseCode.SUCCESS
        assert broker.topics.configs[NEW].write_queue_nums == 8


async def created(client: Talker, topic: str, queues: int = 4) -> Command:
    return await client.asks(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic, defaultTopic="TBW102", readQueueNums=queues, writeQueueNums=queues, perm=6,
        topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
    )  # fmt: skip


async def test_a_heartbeat_is_answered_when_the_retry_topic_is_on_disk() -> None:
    async with gated() as (broker, client, gate, disk):
        data = heartbeat("client@1", consumer(CONSUMERS, subscription(NEW))).encode()
        answer = asyncio.create_task(client.asks(RequestCode.HEART_BEAT, data))
        await eventually(lambda: gate.writes)
        await client.pass_time()
        assert not answer.done()
        assert CONSUMERS in broker.clients.consumers
        gate.open()
        assert (await answer).code == ResponseCode.SUCCESS
        assert RETRY_PREFIX + CONSUMERS in saved_topics(disk)


async def test_consumers_register_while_the_disk_refuses_tables() -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        await broker.writer.saved()
        disk.fail("write")
        await client.subscribes()
        assert CONSUMERS in broker.clients.consumers
        assert RETRY_PREFIX + CONSUMERS not in broker.topics.configs
        disk.heal()


@pytest.mark.parametrize(("level", "topic"), [(0, RETRY_PREFIX + CONSUMERS), (-1, DLQ_PREFIX + CONSUMERS)])
async def test_a_send_back_is_acknowledged_once_its_topic_is_on_disk(level: int, topic: str) -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        await client.stores(b"m", NEW)
        # Only known groups; the heartbeat of another member would have created the retry topic.
        broker.groups.find(CONSUMERS)
        await broker.writer.saved()
        gate = Gate(broker)
        sending = asyncio.create_task(client.sends_back(0, level=level))
        await eventually(lambda: gate.writes)
        await client.pass_time()
        assert not sending.done()
        gate.open()
        assert (await sending).code == ResponseCode.SUCCESS
        assert topic in saved_topics(disk)


async def test_a_power_failure_keeps_a_topic_and_its_first_message() -> None:
    disk = SwitchedDisk(MemoryDisk())
    with contextlib.suppress(StoreError):
        async with talk(disk, flushDiskType="SYNC_FLUSH") as (_, client):
            await client.stores(b"first", NEW)
            after = disk.power_off()
    async with running_broker(after) as broker, talking_to(broker) as client:
        assert bodies(await client.pulls(topic=NEW)) == [b"first"]
