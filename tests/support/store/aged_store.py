"""Stores whose files are old or whose disk is full, as a test says: what retention looks at."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.platform.disk import Space
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import LOG_FILE, T0, open_small, send

if TYPE_CHECKING:
    from orbitmq.store import MessageStore

HOUR = 3_600_000
PER_FILE = 3
"""Messages of ``SIZE`` bytes that fit a log file."""
SIZE = 1000
PER_CENT = 10 * LOG_FILE
"""Bytes of one per cent of such a disk: as much as one round of retention removes."""


class GivenSpace(MemoryDisk):
    """A disk that is as full as a test says."""

    used = 10
    used_of: dict[str, int]
    """Per cent used, by the end of a path; ``used`` for others."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.used_of = {}

    def space(self, path: str) -> Space:
        used = next((used for end, used in self.used_of.items() if path.endswith(end)), self.used)
        return Space(100 * PER_CENT, used * PER_CENT, (100 - used) * PER_CENT)


@dataclasses.dataclass
class Aged:
    """A store on a virtual disk with a clock of its own."""

    store: MessageStore
    disk: GivenSpace
    clock: ManualClock
    settings: dict[str, Any]

    def files(self) -> int:
        return len(self.disk.list("/store/commitlog"))

    def crash(self) -> None:
        """End the process, not the machine."""
        left = self.disk.kill()
        self.disk = GivenSpace(self.clock)
        self.disk._names, self.disk._used = left._names, left._used

    def reopen(self) -> None:
        self.store = open_small("/store", disk=self.disk, clock=self.clock, **self.settings)


def aged(files: int = 4, **settings: Any) -> Aged:
    """A store with so many log files, all full but the last, everything flushed."""
    clock = ManualClock(T0)
    disk = GivenSpace(clock)
    store = open_small("/store", disk=disk, clock=clock, **settings)
    send(store, (files - 1) * PER_FILE + 1, size=SIZE, KEYS="k", UNIQ_KEY="u")
    store.flush()
    assert len(disk.list("/store/commitlog")) == files
    return Aged(store, disk, clock, settings)
