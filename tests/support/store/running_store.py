"""Stores that run on the test's event loop, and settings that make their background work idle or busy."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq.store import StoredMessage
from orbitmq.store.background.service import StoreService
from orbitmq.testing import MemoryDisk, PowerCut
from support.store.stores import TOPIC

if TYPE_CHECKING:
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.store import MessageStore

IDLE: dict[str, Any] = {
    "flush_interval_commit_log": 10**9,
    "flush_interval_consume_queue": 10**9,
    "clean_resource_interval": 10**9,
    "commit_interval_commit_log": 10**9,
}
"""Settings with which nothing comes round by itself."""

BUSY: dict[str, Any] = {
    "flush_interval_commit_log": 1,
    "flush_interval_consume_queue": 1,
    "clean_resource_interval": 1,
    "commit_interval_commit_log": 1,
}
"""Settings with which everything comes round all the time."""

ALWAYS: dict[str, Any] = {"delete_when": ";".join(map(str, range(24))), "file_reserved_time": 0}
"""Settings with which every log file but the newest goes as soon as it is flushed."""

ROOMY: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "max_index_num": 10_000}


class Running:
    """Starts services and stops those that a test did not stop."""

    def __init__(self) -> None:
        self._services: list[StoreService] = []

    async def __call__(self, store: MessageStore, run_blocking: RunBlocking | None = None) -> StoreService:
        service = StoreService(store, run_blocking)
        await service.start()
        self._services.append(service)
        return service

    async def stop_all(self) -> None:
        for service in self._services:
            if service.store.is_open:
                await service.stop()


async def cut_power(service: StoreService, disk: MemoryDisk) -> MemoryDisk:
    """What is left of a running store's disk."""
    left = disk.power_cut()
    with contextlib.suppress(PowerCut):
        await service.stop()
    return left


def append(store: MessageStore, size: int = 10) -> int:
    """Append a message; returns where its record ends."""
    appended = store.append(StoredMessage(TOPIC, 0, b"m" * size))
    return appended.offset + appended.size
