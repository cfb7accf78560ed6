"""How far a group is: kept by brokers, or in a file where Java's clients have it and in their form."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from orbitmq.client.config import ClientConfig
from orbitmq.client.consumer.offset_store import LocalOffsets, RemoteOffsets
from orbitmq.client.consumer.start_offset import max_offset, min_offset, offset_at
from orbitmq.client.errors import NoRouteError
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.store import StoreError
from orbitmq.testing import MemoryDisk
from support.client.consumer_harness import GROUP, TOPIC, shop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.client.consumer_harness import Shop

FIRST, SECOND = MessageQueue(TOPIC, "broker-a", 0), MessageQueue(TOPIC, "broker-a", 1)

JAVA_FILE = b"""{
\t"offsetTable":{
\t\t{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"orders"
\t\t}:17,
\t\t{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:4
\t}
}"""
"""Objects as keys, which is not JSON but what fastjson writes and reads."""


@contextlib.asynccontextmanager
async def instance_of(place: Shop) -> AsyncIterator[ClientInstance]:
    config = ClientConfig(name_servers=(place.cluster.name_server,))
    instance = ClientInstance.acquire(config, "test@1")
    try:
        yield instance
    finally:
        await instance.release()


@pytest.mark.parametrize("confirmed", [True, False])
async def test_brokers_keep_offsets_that_others_find(confirmed: bool) -> None:
    async with shop() as place, instance_of(place) as instance:
        place.cluster.broker().groups.find(GROUP)
        mine, other = RemoteOffsets(instance, GROUP), RemoteOffsets(instance, GROUP)
        assert await other.fetch(FIRST) is None
        mine.update(FIRST, 5)
        mine.update(SECOND, 6)
        await mine.persist([FIRST], confirmed=confirmed)
        await eventually(lambda: place.committed() == 5)
        assert (await other.fetch(FIRST), await other.fetch(SECOND)) == (5, None)
        assert (other.read(FIRST), mine.read(FIRST)) == (None, 5)
        await mine.persist(confirmed=confirmed)
        await eventually(lambda: place.committed() == 11)


async def test_offsets_only_go_up_if_that_is_wanted() -> None:
    async with shop() as place, instance_of(place) as instance:
        offsets = RemoteOffsets(instance, GROUP)
        offsets.update(FIRST, 5)
        offsets.update(FIRST, 3, increase_only=True)
        assert offsets.read(FIRST) == 5
        offsets.update(FIRST, 3)
        assert offsets.table(TOPIC) == {FIRST: 3}
        assert offsets.table("other") == {}
        offsets.remove(FIRST)
        assert offsets.read(FIRST) is None


async def test_a_broker_that_does_not_answer_is_a_matter_of_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    async with shop() as place, instance_of(place) as instance:
        offsets = RemoteOffsets(instance, GROUP)
        nowhere = MessageQueue(TOPIC, "broker-x", 0)
        offsets.update(nowhere, 1)
        await offsets.persist(confirmed=True)
        assert "could not commit" in caplog.text
        with pytest.raises(NoRouteError, match="broker-x"):
            await offsets.fetch(nowhere)


async def test_queues_are_asked_where_they_begin_and_end() -> None:
    async with shop(queues=1) as place, instance_of(place) as instance:
        await place.send("a")
        await place.cluster.advance(100)
        await place.send("b", "c")
        stored = place.cluster.messages(TOPIC)[1].store_timestamp
        assert await min_offset(instance, FIRST) == 0
        assert await max_offset(instance, FIRST) == 3
        assert await offset_at(instance, FIRST, stored - 1) == 1


# In a file


async def test_a_file_of_a_java_client_is_read_and_written_in_its_form(tmp_path: Path) -> None:
    folder = tmp_path / "10.0.0.1@DEFAULT" / GROUP
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_bytes(JAVA_FILE)
    offsets = LocalOffsets(str(tmp_path), "10.0.0.1@DEFAULT", GROUP)
    offsets.load()
    assert (await offsets.fetch(FIRST), await offsets.fetch(SECOND)) == (4, 17)
    assert offsets.read(FIRST) is None
    offsets.update(FIRST, 9)
    await offsets.persist()
    await offsets.close()
    assert (folder / "offsets.json").read_bytes() == JAVA_FILE.replace(b"}:4", b"}:9")
    assert (folder / "offsets.json.bak").read_bytes() == JAVA_FILE


async def test_a_broken_file_is_made_good_by_the_one_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "c" / GROUP
    folder.mkdir(parents=True)
    (folder / "offsets.json").write_bytes(b"{ broken")
    offsets = LocalOffsets(str(tmp_path), "c", GROUP)
    with pytest.raises(StoreError):
        offsets.load()
    (folder / "offsets.json.bak").write_bytes(JAVA_FILE)
    offsets.load()
    assert await offsets.fetch(SECOND) == 17


async def test_a_disk_that_fails_is_a_matter_of_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    offsets = LocalOffsets("/offsets", "c", GROUP, disk)
    offsets.load()
    offsets.update(FIRST, 1)
    disk.fail("write")
    await offsets.persist()
    assert "could not write" in caplog.text
    await offsets.persist()
    await offsets.close()
    again = LocalOffsets("/offsets", "c", GROUP, disk)
    again.load()
    assert await again.fetch(FIRST) == 1


def test_offsets_lie_in_the_home_directory_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert LocalOffsets("", "ip@DEFAULT", "g").directory == "/home/somebody/.rocketmq_offsets/ip@DEFAULT/g"
