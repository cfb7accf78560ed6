"""The event log: what was committed is there after a crash, and damage is reported instead of cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.controller.machine.events import BrokerIdApplied
from orbitmq.controller.storage import event_log
from orbitmq.controller.storage.event_log import EventLog
from orbitmq.controller.storage.interface import CommitError
from orbitmq.platform.errors import DiskFaultError, StoreDamagedError, StoreError
from orbitmq.testing import MemoryDisk
from support.nameserver_harness import run_here

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

FOLDER = "/c"
PATH = "/c/events.log"


def opened(disk: Disk) -> EventLog:
    return EventLog(disk, FOLDER, "n0", run_here)


async def fill(disk: Disk, names: list[str]) -> None:
    log = opened(disk)
    await log.start()
    for name in names:
        await log.commit(BrokerIdApplied("c", name, 1, "h:1", "h:1;1"))
    await log.stop()


async def names_in(disk: Disk) -> list[str]:
    log = opened(disk)
    await log.start()
    names = sorted(log.groups)
    await log.stop()
    return names


async def test_what_was_committed_is_there_after_a_power_cut() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    await log.start()
    await asyncio.gather(*(log.commit(BrokerIdApplied("c", f"b{n}", 1, "h:1", "h:1;1")) for n in range(10)))
    again = opened(disk.power_cut())
    await again.start()
    assert again.groups == log.groups
    assert len(again.groups) == 10
    assert again.groups["b3"].replicas[1].address == "h:1"


@pytest.mark.parametrize("cut", [1, 5, 12, 30])
async def test_a_torn_end_is_dropped(cut: int) -> None:
    disk = MemoryDisk()
    await fill(disk, ["a", "b"])
    data = disk.read(PATH)
    disk.write(PATH, data[:-cut])
    assert await names_in(disk) == ["a"]
    disk.write(PATH, data[:-cut] + bytes(cut))
    assert await names_in(disk) == ["a"]
    assert await names_in(disk) == ["a"]


async def test_damage_in_front_of_intact_events_is_reported() -> None:
    disk = MemoryDisk()
    await fill(disk, ["a", "b"])
    data = bytearray(disk.read(PATH))
    data[data.index(b'"brokerName":"a"') + 3] ^= 1
    disk.write(PATH, bytes(data))
    with pytest.raises(StoreDamagedError, match="damaged at byte"):
        await opened(disk).start()
    # Nothing was changed, so that it can be restored; and the directory is free again.
    assert disk.read(PATH) == bytes(data)
    disk.write(PATH, b"")
    with pytest.raises(StoreDamagedError, match="no snapshot"):
        await opened(disk).start()


async def test_a_second_controller_may_not_use_the_directory() -> None:
    disk = MemoryDisk()
    first = opened(disk)
    await first.start()
    with pytest.raises(StoreError, match="another controller"):
        await opened(disk).start()
    await first.stop()
    await fill(disk, ["a"])


async def test_a_long_log_becomes_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "COMPACTED_FROM", 500)
    disk = MemoryDisk()
    log = opened(disk)
    await log.start()
    for turn in range(200):
        await log.commit(BrokerIdApplied("c", "a", 1, "h:1", f"h:1;{turn}"))
        assert len(disk.read(PATH)) < 1500
    await log.stop()
    assert await names_in(disk) == ["a"]


async def test_a_disk_that_fails_ends_the_leadership() -> None:
    disk = MemoryDisk()
    log = opened(disk)
    await log.start()
    await log.commit(BrokerIdApplied("c", "a", 1, "h:1", "h:1;1"))
    disk.fail("sync", path_contains=PATH)
    with pytest.raises(CommitError, match="cannot be written"):
        await log.commit(BrokerIdApplied("c", "b", 1, "h:1", "h:1;1"))
    assert "b" not in log.groups
    assert not log.leadership().is_leader
    with pytest.raises(CommitError):
        await log.commit(BrokerIdApplied("c", "d", 1, "h:1", "h:1;1"))
    await log.stop()


async def test_a_directory_that_cannot_be_written_is_named() -> None:
    disk = MemoryDisk()
    disk.fail("sync", path_contains=".tmp")
    with pytest.raises(DiskFaultError, match=r"/c/events\.log"):
        await opened(disk).start()
