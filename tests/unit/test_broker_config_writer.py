"""Tables on their way to the disk: the newest state of each, one after another, until the disk takes it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from client_ends import CONFIG_DIR, run_here, writer_on
from orbitmq.broker import config_writer
from orbitmq.broker.config_writer import ConfigWriter
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper, TopicConfig, TopicConfigSerializeWrapper
from orbitmq.store import DiskFaultError
from orbitmq.store.config_json import CONSUMER_OFFSETS, TOPICS
from orbitmq.testing import MemoryDisk
from remoting_ends import eventually

if TYPE_CHECKING:
    from collections.abc import Callable


def topics(*names: str) -> TopicConfigSerializeWrapper:
    return TopicConfigSerializeWrapper({name: TopicConfig(name, 1, 1) for name in names})


def offsets(offset: int) -> ConsumerOffsetSerializeWrapper:
    return ConsumerOffsetSerializeWrapper(offset_table={"t@g": {0: offset}})


class Gated:
    """Runs work only when it is told to, like a disk that takes its time."""

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


async def test_a_table_that_was_never_written_is_new() -> None:
    assert writer_on(MemoryDisk()).load(TOPICS).topic_config_table == {}


async def test_a_marked_table_is_on_the_disk_when_it_is_said_to_be() -> None:
    disk = MemoryDisk()
    writer = writer_on(disk)
    writer.mark(TOPICS, lambda: topics("a"))
    await writer.saved()

    assert on_disk(disk.power_cut()) == {"a"}


async def test_without_anything_marked_all_is_saved() -> None:
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


async def test_many_changes_of_one_moment_are_one_write() -> None:
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


async def test_a_table_that_changes_while_it_is_written_is_written_once_more() -> None:
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


async def test_writing_does_not_hold_up_the_loop() -> None:
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


# A disk that does not take it


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_writer, "RETRY_SECONDS", 0.001)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_writer, "RETRY_SECONDS", 3600.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_dir"])
async def test_who_waits_hears_of_a_failure_and_it_is_tried_again(operation: str) -> None:
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
async def test_stopping_tries_once_more_at_once() -> None:
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
async def test_stopping_says_that_the_disk_does_not_take_it_to_everybody() -> None:
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


async def test_who_has_stopped_waiting_does_no_harm() -> None:
    disk, gate = MemoryDisk(), Gated()
    writer = ConfigWriter(disk, CONFIG_DIR, gate)
    writer.mark(TOPICS, lambda: topics("a"))
    impatient = writer.saved()
    other = writer.saved()
    impatient.cancel()
    await gate.let_one_through()
    await other

    assert on_disk(disk) == {"a"}


async def test_what_is_marked_when_it_stops_is_written() -> None:
    disk = MemoryDisk()
    writer = ConfigWriter(disk, CONFIG_DIR, run_here)
    writer.mark(TOPICS, lambda: topics("a"))
    writer.mark(CONSUMER_OFFSETS, lambda: offsets(3))
    await writer.stop()

    assert on_disk(disk) == {"a"}
    assert writer.load(CONSUMER_OFFSETS).offset_table == {"t@g": {0: 3}}
