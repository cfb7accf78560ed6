"""A client that sends to very many queues: the cost of stop and start depends on the messages, not on the
queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metadata.topics import MAX_QUEUES
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store import message_store
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import ROOT, running_broker
from support.broker.requests import TOPIC, bodies, talking_to

if TYPE_CHECKING:
    import pytest

    from support.broker.requests import Talker

WIDE = "TopicWide"
ABORT = f"{ROOT}/abort"
QUEUES = 60


async def makes_wide(client: Talker, queues: int) -> None:
    answer = await client.asks(
        RequestCode.UPDATE_AND_CREATE_TOPIC, topic=WIDE, defaultTopic="TBW102", readQueueNums=queues,
        writeQueueNums=queues, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order=False,
    )  # fmt: skip
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def queue_files(disk: MemoryDisk) -> list[str]:
    return disk.list(f"{ROOT}/consumequeue/{WIDE}")


async def test_queues_without_a_message_have_no_files() -> None:
    disk = MemoryDisk()
    async with running_broker(disk) as broker, talking_to(broker) as client:
        await makes_wide(client, MAX_QUEUES)
        await client.stores(topic=WIDE, queueId=7)
    assert queue_files(disk) == ["7"]
    assert disk.stat(ABORT) is None


async def test_a_stop_skips_a_flood_of_new_queues_and_a_start_rebuilds_them_from_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(message_store, "NEW_QUEUES_AT_CLOSE", QUEUES // 2)
    disk = MemoryDisk()
    async with running_broker(disk) as broker, talking_to(broker) as client:
        await client.stores(b"first")
        broker.store.sync_queues()
        await makes_wide(client, QUEUES)
        for number in range(QUEUES):
            await client.stores(b"%d" % number, topic=WIDE, queueId=number)
    assert queue_files(disk) == []
    assert disk.stat(ABORT) is not None
    assert any("closed without writing consume queues: 60 new ones" in record.message for record in caplog.records)
    async with running_broker(disk) as broker, talking_to(broker) as client:
        for number in range(QUEUES):
            assert bodies(await client.pulls(topic=WIDE, queue_id=number)) == [b"%d" % number]
        assert bodies(await client.pulls(topic=TOPIC)) == [b"first"]
        broker.store.sync_queues()
    assert len(queue_files(disk)) == QUEUES
    assert disk.stat(ABORT) is None
