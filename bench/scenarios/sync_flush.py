"""Group commit: appenders that each wait until their message is on the disk, and how few fsyncs serve them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING

from bench.figures import figure
from bench.machine import GIB
from bench.messages import BORN_HOST, QUEUES, TOPIC, body, many_properties, open_store
from bench.rounds import Stopwatch, Timing
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.local_mapped_file import LocalMappedFile
from orbitmq.store import StoredMessage
from orbitmq.store.background.service import StoreService
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from bench.figures import Figure, Settings

APPENDERS = (1, 16, 256)


class CountingFile(LocalMappedFile):
    """A mapped file that counts its syncs."""

    __slots__ = ("syncs",)

    def __init__(self, path: str, *, writable: bool) -> None:
        super().__init__(path, writable=writable)
        self.syncs = 0

    def sync(self) -> None:
        super().sync()
        self.syncs += 1


class CountingDisk(LocalDisk):
    """The local disk, counting the syncs of log files."""

    def __init__(self) -> None:
        super().__init__()
        self._log_files: list[CountingFile] = []

    def map(self, path: str, *, writable: bool = True) -> LocalMappedFile:
        file = CountingFile(path, writable=writable)
        if "/commitlog/" in path:
            self._log_files.append(file)
        return file

    @property
    def log_syncs(self) -> int:
        return sum(file.syncs for file in self._log_files)


@dataclasses.dataclass(slots=True)
class Case:
    """The results of the rounds with one number of appenders."""

    timing: Timing = dataclasses.field(default_factory=Timing)
    syncs_per_second: list[float] = dataclasses.field(default_factory=list)
    records_per_sync: list[float] = dataclasses.field(default_factory=list)


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 2 * GIB)


def run(settings: Settings) -> list[Figure]:
    """Rounds of a fixed time with 1, 16 and 256 concurrent appenders of 128-byte messages."""
    cases = asyncio.run(_measure(settings))
    lines: list[Figure] = []
    for number, case in cases.items():
        subject = f"{number} appenders" if number > 1 else "1 appender"
        lines += case.timing.per_item(subject, "record")
        lines.append(figure(subject, "fsyncs of the log", "fsyncs/s", case.syncs_per_second))
        lines.append(figure(subject, "records an fsync serves", "records", case.records_per_sync))
    return lines


async def _measure(settings: Settings) -> dict[int, Case]:
    disk = CountingDisk()
    store = open_store(settings.directory, disk=disk, flush=FlushDiskType.SYNC_FLUSH)
    service = StoreService(store)
    await service.start()
    cases = {number: Case() for number in APPENDERS}
    seconds = settings.choose(50, 1000) / 1000
    for turn in range(settings.choose(1, 5) + 1):
        for number, case in cases.items():
            syncs = disk.log_syncs
            with Stopwatch() as watch:
                records = await _append_for(service, number, seconds)
            syncs = disk.log_syncs - syncs
            if turn:
                case.timing.add(watch, records)
                case.syncs_per_second.append(syncs / watch.wall)
                case.records_per_sync.append(records / syncs)
    await service.stop()
    return cases


async def _append_for(service: StoreService, appenders: int, seconds: float) -> int:
    """Let so many appenders work for a time; returns how many messages they know to be on the disk."""
    store = service.store
    content = body(128)
    held = many_properties()
    end = time.perf_counter() + seconds

    async def append_one_by_one(number: int) -> int:
        count = 0
        while time.perf_counter() < end:
            stored = store.append(
                StoredMessage(
                    TOPIC,
                    (number + count) % QUEUES,
                    content,
                    held[(number * 31 + count) % len(held)],
                    born_timestamp=store.clock.now_ms(),
                    born_host=BORN_HOST,
                )
            )
            await service.flushed(stored.offset + stored.size)
            count += 1
        return count

    return sum(await asyncio.gather(*(append_one_by_one(number) for number in range(appenders))))
