"""A disk whose maps are not in memory until somebody fetches them, and that takes its time when told to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.local_mapped_file import LocalMappedFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    Part = tuple[int, int]


class ColdMap(LocalMappedFile):
    """A map of which only what was fetched is in memory."""

    __slots__ = ("_disk", "_there")

    def __init__(self, disk: ColdDisk, path: str, *, writable: bool) -> None:
        super().__init__(path, writable=writable)
        self._disk = disk
        self._there: set[int] = set()

    def is_in_memory(self, start: int, end: int) -> bool:
        return self._there.issuperset(range(start, end))

    def fetch(self, parts: Sequence[Part]) -> None:
        super().fetch(parts)
        self._disk.fetched += parts
        assert self._disk.may_go_on.wait(30)
        if self._disk.is_broken:
            raise OSError(5, "Input/output error")
        for start, end in parts:
            self._there.update(range(start, end))


class ColdDisk(LocalDisk):
    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[Part] = []
        """Parts that somebody wanted to have, in this order."""
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_broken = False

    def map(self, path: str, *, writable: bool = True) -> LocalMappedFile:
        return ColdMap(self, path, writable=writable)
