"""SwitchedDisk: a disk that can be powered off under a running broker.

A broker in the process of a test cannot be killed. Powering off its disk instead lets it stop in its own way: every
operation fails, and nothing that it would persist on the way out reaches the disk.
"""

from __future__ import annotations

import errno
import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.testing.simulation.disk import MemoryDisk, PowerCut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.native.buffer import Buffer
    from orbitmq.platform.disk import FileStat, MappedFile, Space

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _switched(method: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """Wraps an operation to fail as on a removed device, also when a thread is in the middle of it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        switch: SwitchedDisk = self if isinstance(self, SwitchedDisk) else self.disk
        if switch.is_on:
            try:
                return method(self, *args, **kwargs)
            except PowerCut:
                pass
        raise OSError(errno.EIO, "the disk has no power")

    return call


class SwitchedMap:
    """A mapped file of a ``SwitchedDisk``. Stores into its buffer after the power-off are lost."""

    __slots__ = ("_inner", "buffer", "disk", "path", "size")

    def __init__(self, disk: SwitchedDisk, inner: MappedFile) -> None:
        self.disk = disk
        self._inner = inner
        self.path = inner.path
        self.size = inner.size
        self.buffer: Buffer = inner.buffer

    @_switched
    def reserve(self, start: int, end: int) -> None:
        self._inner.reserve(start, end)

    def warm(self, start: int, end: int, *, is_synced_often: bool = False) -> None:
        self._inner.warm(start, end, is_synced_often=is_synced_often)

    def expect_reading(self) -> None:
        self._inner.expect_reading()

    def is_in_memory(self, start: int, end: int) -> bool:
        return self._inner.is_in_memory(start, end)

    def fetch(self, parts: Sequence[tuple[int, int]]) -> None:
        self._inner.fetch(parts)

    @_switched
    def sync(self) -> None:
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()
        self.buffer = bytearray()


class SwitchedDisk:
    """Implements ``Disk`` by delegation to ``inner``, until ``power_off``."""

    def __init__(self, inner: MemoryDisk | LocalDisk) -> None:
        self.inner = inner
        self.is_on = True

    def power_off(self, seed: int | None = None) -> SwitchedDisk:
        """Power off; returns the remaining disk, powered on.

        In memory that is the disk after a power cut (``MemoryDisk.power_cut``). A real disk keeps everything
        written, because the machine has not stopped: as after ``kill -9``.
        """
        self.is_on = False
        if isinstance(self.inner, MemoryDisk):
            return SwitchedDisk(self.inner.power_cut(seed))
        return SwitchedDisk(LocalDisk())

    def close(self) -> None:
        """Close the cached descriptors."""
        if isinstance(self.inner, LocalDisk):
            self.inner.close()

    # The contract of Disk

    def refuse_links(self, directory: str) -> None:
        self.inner.refuse_links(directory)

    @_switched
    def list(self, directory: str) -> list[str]:
        return self.inner.list(directory)

    @_switched
    def stat(self, path: str) -> FileStat | None:
        return self.inner.stat(path)

    @_switched
    def read(self, path: str) -> bytes:
        return self.inner.read(path)

    @_switched
    def write(self, path: str, data: bytes) -> None:
        self.inner.write(path, data)

    @_switched
    def create(self, path: str, size: int) -> None:
        self.inner.create(path, size)

    @_switched
    def pread(self, path: str, offset: int, length: int) -> bytes:
        return self.inner.pread(path, offset, length)

    @_switched
    def pwrite(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> int:
        return self.inner.pwrite(path, offset, data)

    @_switched
    def zero(self, path: str, start: int) -> None:
        self.inner.zero(path, start)

    @_switched
    def written_ranges(self, path: str, start: int) -> Sequence[tuple[int, int]]:
        return self.inner.written_ranges(path, start)

    @_switched
    def map(self, path: str, *, writable: bool = True) -> SwitchedMap:
        return SwitchedMap(self, self.inner.map(path, writable=writable))

    @_switched
    def sync(self, path: str) -> None:
        self.inner.sync(path)

    @_switched
    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        self.inner.sync_many(files, directories)

    @_switched
    def sync_dir(self, directory: str) -> None:
        self.inner.sync_dir(directory)

    @_switched
    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    @_switched
    def remove(self, path: str) -> None:
        self.inner.remove(path)

    @_switched
    def space(self, path: str) -> Space:
        return self.inner.space(path)

    @_switched
    def lock(self, path: str) -> Callable[[], None]:
        return self.inner.lock(path)
