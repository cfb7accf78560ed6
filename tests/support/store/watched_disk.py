"""Disks and threads that a test watches: what was asked of the disk by whom, and work that waits to be let go."""

from __future__ import annotations

import asyncio
import collections
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.local_mapped_file import LocalMappedFile
from orbitmq.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import FileStat

T = TypeVar("T")


class Operation(NamedTuple):
    """One call of a disk."""

    name: str
    path: str
    on_main_thread: bool


class Watch:
    """What was asked of a disk so far."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def note(self, name: str, path: str) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.operations.append(Operation(name, path, is_main))

    def of(self, name: str, path_contains: str = "") -> list[Operation]:
        return [one for one in self.operations if one.name == name and path_contains in one.path]

    def count(self, path_contains: str = "") -> collections.Counter[str]:
        return collections.Counter(one.name for one in self.operations if path_contains in one.path)


class WatchedDisk(MemoryDisk):
    """A virtual disk with a watch on it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.watch = Watch()

    def _begin(self, operation: str, path: str, in_part: Callable[[], object] | None = None) -> None:
        self.watch.note(operation, path)
        super()._begin(operation, path, in_part)


class _WatchedMap(LocalMappedFile):
    __slots__ = ("watch",)

    watch: Watch

    def sync(self) -> None:
        self.watch.note("sync of a map", self.path)
        super().sync()


class WatchedLocalDisk(LocalDisk):
    """The machine's disk with a watch on what changes it and on what opens files."""

    def __init__(self, *, max_open_files: int = 256) -> None:
        super().__init__(max_open_files=max_open_files)
        self.watch = Watch()

    def stat(self, path: str) -> FileStat | None:
        self.watch.note("stat", path)
        return super().stat(path)

    def list(self, directory: str) -> list[str]:
        self.watch.note("list", directory)
        return super().list(directory)

    def pread(self, path: str, offset: int, length: int) -> bytes:
        self.watch.note("pread", path)
        return super().pread(path, offset, length)

    def create(self, path: str, size: int) -> None:
        self.watch.note("create", path)
        super().create(path, size)

    def sync(self, path: str) -> None:
        self.watch.note("sync", path)
        super().sync(path)

    def map(self, path: str, *, writable: bool = True) -> LocalMappedFile:
        self.watch.note("map", path)
        mapped = _WatchedMap(path, writable=writable)
        mapped.watch = self.watch
        return mapped


async def inline(work: Callable[[], T]) -> T:
    """Does blocking work at once, as a simulator does."""
    return work()


class Turnstile:
    """Blocking work waits here, on the loop, until it is let through."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], object], asyncio.Event]] = []
        self.is_open = False

    async def __call__(self, work: Callable[[], T]) -> T:
        if not self.is_open:
            passed = asyncio.Event()
            self.waiting.append((work, passed))
            await passed.wait()
        return work()

    def let_one_through(self) -> None:
        self.waiting.pop(0)[1].set()

    def open(self) -> None:
        """Let everybody through from now on."""
        self.is_open = True
        while self.waiting:
            self.let_one_through()

    def close(self) -> None:
        self.is_open = False


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until something is so."""
    while not condition():  # noqa: ASYNC110  # conditions here are facts of a store, which sets no events
        await asyncio.sleep(0.001)


async def turns(count: int = 10) -> None:
    """Give the loop some turns: whatever could happen without the disk has happened then."""
    for _ in range(count):
        await asyncio.sleep(0)
