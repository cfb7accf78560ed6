"""Config writer: each table is written in its newest state, one after another, with retry."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.config import persistence as config_writer
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper, TopicConfig, TopicConfigSerializeWrapper
from orbitmq.store import DiskFaultError
from orbitmq.store.config_tables import CONSUMER_OFFSETS, TOPICS
from orbitmq.testing import MemoryDisk
from support.broker.client_registry_harness import CONFIG_DIR, run_here, writer_on
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def topics(*names: str) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper({name: TopicConfig(name, 1, 1) for name in names})


def offsets(offset: int) -> ConsumerOffsetSerializeWrapper:
    return ConsumerOffsetSerializeWrapper(offset_table={"t@g": {0: offset}})


class Gated:
    """Runs work only when released, like a slow disk."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def __call__(self, work: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.works.append((work, future))
        return await future

    async def let_one_through(self) -> None:
        await eventually(lambda: self.works)
        work, future = self.works.pop(0)
        future.set_result(work())


def on_disk(disk: MemoryDisk) -> set[str]:
    return set(TOPICS.load(disk, CONFIG_DIR, read_only=True).topic_config_table)


async def test_a_missing_table_file_loads_as_empty() -> None:
    assert writer_on(MemoryDisk()).load(TOPICS).topic_config_table == {}


async def test_saved_completes_once_a_marked_table_is_on_disk() -> None:
    disk = MemoryDisk()
    writer = writer_on(disk)
    writer.mark(TOPICS, lambda: topics("a"))
    await writer.saved()

    assert on_disk(disk.power_cut()) == {"a"}


async def test_saved_completes_at_once_without_marked_tables() -> None:
    saved = writer_on(MemoryDisk()).saved()

    assert saved.done()
    await saved


async def test_a_table_is_encoded_when_it_is_written_and_not_when_it_is_marked() -> None:
    disk = MemoryDisk()
    writer = writer_on(disk)
    names = ["a"]
    writer.mark(TOPICS, lambda: topics(*names))
    names.append("b")
    await writer.saved()

    assert on_disk(disk) == {"a", "b"}


async def test_concurrent_changes_share_one_write() -> None:
    disk = MemoryDisk()
    encoded = []
    writer = writer_on(disk)

    def table(number: int) -> TopicConfigSerializeWrapper:
        encoded.append(number)
        return topics(str(number))

    for number in range(100):
        writer.mark(TOPICS, lambda number=number: table(number))  # type: ignore[misc]
    await writer.saved()

    assert encoded == [99]
    assert on_disk(disk) == {"99"}


async def test_a_table_that_changes_during_its_write_is_written_again() -> None:
    disk, gate = MemoryDisk(), Gated()
    writer = ConfigWriter(disk, CONFIG_DIR, gate)
    writer.mark(TOPICS, lambda: topics("first"))
    await eventually(lambda: gate.works)
    writer.mark(TOPICS, lambda: topics("second"))
    second = writer.saved()
    await gate.let_one_through()
    await eventually(lambda: gate.works)
    assert on_disk(disk) == {"first"}
    assert not second.done()
    await gate.let_one_through()
    await second

    assert on_disk(disk) == {"second"}
    await writer.stop()


async def test_tables_are_written_one_after_another() -> None:
    disk, gate = MemoryDisk(), Gated()
    writer = ConfigWriter(disk, CONFIG_DIR, gate)
    writer.mark(TOPICS, lambda: topics("a"))
    writer.mark(CONSUMER_OFFSETS, lambda: offsets(7))
    saved = writer.saved()
    await gate.let_one_through()
    await eventually(lambda: gate.works)
    assert len(gate.works) == 1
    assert not saved.done()
    await gate.let_one_through()
    await saved

    assert writer.load(CONSUMER_OFFSETS).offset_table == {"t@g": {0: 7}}


async def test_writing_does_not_block_the_event_loop() -> None:
    disk = MemoryDisk()
    seen = []

    async def in_a_thread(work: Callable[[], Any]) -> Any:
        def noted() -> Any:
            seen.append(threading.current_thread())
            return work()

        return await asyncio.to_thread(noted)

    writer = ConfigWriter(disk, CONFIG_DIR, in_a_thread)
    writer.mark(TOPICS, lambda: topics("a"))
    await writer.stop()

    assert seen != [threading.main_thread()]
    assert on_disk(disk) == {"a"}


# Failing disk


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_writer, "RETRY_SECONDS", 0.001)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_writer, "RETRY_SECONDS", 3600.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_dir"])
async def test_a_failed_write_fails_its_waiters_and_is_retried(operation: str) -> None:
    disk = MemoryDisk()
    disk.fail(operation, times=3, path_contains="config")
    writer = writer_on(disk)
    writer.mark(TOPICS, lambda: topics("a"))
    with pytest.raises(DiskFaultError, match=r"topics\.json"):
        await writer.saved()
    await eventually(lambda: writer._writing is None)

    assert on_disk(disk) == {"a"}


@pytest.mark.usefixtures("impatient")
async def test_after_a_failure_the_newest_state_is_written() -> None:
    disk = MemoryDisk()
    disk.fail("write", times=2, path_contains="config")
    writer = writer_on(disk)
    writer.mark(TOPICS, lambda: topics("old"))
    with pytest.raises(DiskFaultError):
        await writer.saved()
    writer.mark(TOPICS, lambda: topics("new"))
    await eventually(lambda: writer._writing is None)

    assert on_disk(disk) == {"new"}


@pytest.mark.usefixtures("patient")
async def test_stopping_retries_at_once() -> None:
    disk = MemoryDisk()
    disk.fail("write", times=1, path_contains="config")
    writer = writer_on(disk)
    writer.mark(TOPICS, lambda: topics("a"))
    with pytest.raises(DiskFaultError):
        await writer.saved()
    later = writer.saved()
    await writer.stop()

    assert on_disk(disk) == {"a"}
    await later


@pytest.mark.usefixtures("patient")
async def test_stopping_reports_a_failed_write_to_all_waiters() -> None:
    disk = MemoryDisk()
    disk.fail("write", times=100, path_contains="config")
    writer = writer_on(disk)
    writer.mark(TOPICS, lambda: topics("a"))
    with pytest.raises(DiskFaultError):
        await writer.saved()
    later = writer.saved()
    with pytest.raises(DiskFaultError):
        await writer.stop()
    with pytest.raises(DiskFaultError):
        await later


async def test_a_cancelled_waiter_is_ignored() -> None:
    disk, gate = MemoryDisk(), Gated()
    writer = ConfigWriter(disk, CONFIG_DIR, gate)
    writer.mark(TOPICS, lambda: topics("a"))
    impatient = writer.saved()
    other = writer.saved()
    impatient.cancel()
    await gate.let_one_through()
    await other

    assert on_disk(disk) == {"a"}


async def test_tables_marked_at_stop_are_written() -> None:
    disk = MemoryDisk()
    writer = ConfigWriter(disk, CONFIG_DIR, run_here)
    writer.mark(TOPICS, lambda: topics("a"))
    writer.mark(CONSUMER_OFFSETS, lambda: offsets(3))
    await writer.stop()

    assert on_disk(disk) == {"a"}
    assert writer.load(CONSUMER_OFFSETS).offset_table == {"t@g": {0: 3}}
