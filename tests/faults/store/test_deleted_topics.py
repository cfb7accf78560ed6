"""Topics that are deleted: no crash brings their messages back, and lost tables are noticed."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store import StoredMessage, StoreError
from orbitmq.store.recovery.deleted_topics import DELETED_TOPICS, MAX_DELETED_TOPICS
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.verify import verify
from orbitmq.testing import MemoryDisk
from orbitmq.testing.simulation.switched_disk import SwitchedDisk
from support.broker.broker_harness import ROOT, running_broker
from support.broker.requests import Talker, bodies, talk, talking_to
from support.store.stores import TOPIC, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.platform.disk import Disk

DOOMED = "doomed"


async def deleted(client: Talker, topic: str = DOOMED) -> None:
    answer = await client.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def read(client: Talker, topic: str = DOOMED) -> list[bytes]:
    answer = await client.pulls(topic=topic)
    return bodies(answer) if answer.code == ResponseCode.SUCCESS else []


def is_sound(disk: Disk) -> bool:
    return verify(disk, survey(disk, ROOT)).is_sound


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("is_again", [False, True])
async def test_messages_of_a_deleted_topic_stay_away_after_a_kill(flush: str, is_again: bool) -> None:
    disk = SwitchedDisk(MemoryDisk())
    with contextlib.suppress(StoreError):
        async with talk(disk, flushDiskType=flush) as (_, client):
            for number in range(5):
                await client.stores(b"old %d" % number, DOOMED)
            await deleted(client)
            if is_again:
                await client.stores(b"new", DOOMED)
            disk.is_on = False
            assert isinstance(disk.inner, MemoryDisk)
            after = disk.inner.kill()
    async with running_broker(after) as broker, talking_to(broker) as client:
        assert (DOOMED in broker.topics.configs) is is_again
        assert await read(client) == ([b"new"] if is_again else [])
        await client.stores(b"later", DOOMED)
        assert await read(client) == ([b"new"] if is_again else []) + [b"later"]
    assert is_sound(after)


@pytest.mark.parametrize("seed", range(10))
async def test_messages_of_a_deleted_topic_stay_away_after_a_power_cut(seed: int) -> None:
    disk = SwitchedDisk(MemoryDisk(seed))
    with contextlib.suppress(StoreError):
        async with talk(disk, flushDiskType="SYNC_FLUSH") as (broker, client):
            for number in range(30):
                await client.stores(b"old %d" % number, DOOMED)
            if seed % 2:
                broker.store.sync_queues()
            await deleted(client)
            await client.stores(b"new", DOOMED)
            after = disk.power_off(seed)
    async with running_broker(after) as broker, talking_to(broker) as client:
        assert await read(client) == [b"new"]


async def test_a_disk_that_refuses_a_deletion_keeps_the_topic_and_its_messages() -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        await client.stores(b"kept", DOOMED)
        await broker.writer.saved()
        disk.fail("write", path_contains=DELETED_TOPICS.name)
        answer = await client.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic=DOOMED)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "was not deleted" in (answer.remark or "")
        assert await read(client) == [b"kept"]
        await client.stores(b"more", DOOMED)
        await deleted(client)
        assert await read(client) == []


async def test_the_deleted_topics_that_are_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.store.recovery.deleted_topics.MAX_DELETED_TOPICS", 1)
    async with talk() as (broker, client):
        for topic in ("one", "two", "empty"):
            await client.stores(b"m", topic)
        await deleted(client, "one")
        answer = await client.asks(RequestCode.DELETE_TOPIC_IN_BROKER, topic="two")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert f"{MAX_DELETED_TOPICS} at most are allowed" in (answer.remark or "")
        assert "two" in broker.topics.configs


def test_a_deletion_is_forgotten_when_its_records_have_expired(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 5)
        store.delete_topic(TOPIC)
        end = store.log.end
        send(store, 5, topic="Other")
        assert store.deleted.ends == {TOPIC: end}
        store.deleted.follow_log(end, store.log.end)
        assert store.deleted.ends == {}


def test_records_appended_after_a_cut_of_the_log_are_not_hidden() -> None:
    disk = MemoryDisk(seed=1)
    store = open_small("/store", disk=disk)
    send(store, 3)
    store.flush()
    send(store, 10, size=100)
    store.delete_topic(TOPIC)
    with open_small("/store", disk=disk.power_cut()) as again:
        assert read_all(again) == []
        new = send(again, 4)
        again.abandon()
        killed = again.disk
        assert isinstance(killed, MemoryDisk)
    with open_small("/store", disk=killed.kill()) as once_more:
        assert [record.physical_offset for record in read_all(once_more)] == new


# Tables that are lost


async def filled(disk: MemoryDisk) -> None:
    async with talk(disk) as (_, client):
        for queue_id in range(3):
            await client.stores(b"m%d" % queue_id, "orders", queueId=queue_id)
        await client.stores(b"old", DOOMED)
        await deleted(client)


def empty_tables(disk: MemoryDisk, *, removes: bool) -> None:
    for name in disk.list(f"{ROOT}/config"):
        if name.startswith(DELETED_TOPICS.name):
            continue
        if removes:
            disk.remove(f"{ROOT}/config/{name}")
        else:
            disk.write(f"{ROOT}/config/{name}", b"")


@pytest.mark.parametrize("removes", [True, False])
async def test_topics_are_restored_from_the_log_if_all_tables_are_lost(
    removes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    await filled(disk)
    empty_tables(disk, removes=removes)
    with caplog.at_level(logging.WARNING):
        async with running_broker(disk) as broker, talking_to(broker) as client:
            config = broker.topics.configs["orders"]
            assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
            answer = await client.pulls(topic="orders", queue_id=2)
            assert bodies(answer) == [b"m2"]
            assert DOOMED not in broker.topics.configs
            assert (await client.asks(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
            assert bodies(await client.pulls(topic="orders", queue_id=2)) == [b"m2"]
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "topics: recovered orders with 3 queues" in said
    for name in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        assert f"config: {name} is " in said
    assert "recovered 1 topics from the log" in said


async def test_a_lost_table_is_restored_from_its_backup(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    await filled(disk)
    async with running_broker(disk):
        pass  # the second close leaves a .bak of everything
    disk.write(f"{ROOT}/config/topics.json", b"")
    with caplog.at_level(logging.WARNING):
        async with running_broker(disk) as broker:
            assert broker.topics.configs["orders"].read_queue_nums == 4
    assert any("topics.json.bak" in record.getMessage() for record in caplog.records)


async def test_a_topic_that_the_table_lacks_is_created_again_and_a_deleted_one_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    async with talk(disk) as (broker, client):
        await client.stores(b"kept", "kept")
        broker.store.append(StoredMessage("orders", 1, b"m"))
        await client.stores(b"old", DOOMED)
        await deleted(client)
        broker.store.append(StoredMessage(DOOMED, 0, b"a delayed message of it"))
    async with running_broker(disk) as broker:
        assert broker.topics.configs["orders"].read_queue_nums == 2
        assert DOOMED not in broker.topics.configs
    assert "topics: recovered orders" in caplog.text


async def test_a_new_broker_and_one_with_its_tables_have_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    with caplog.at_level(logging.WARNING):
        await filled(disk)
        async with running_broker(disk):
            pass
    assert [record.getMessage() for record in caplog.records if "config" in record.getMessage()] == []
