"""MemoryDisk: a disk in memory that loses power, fails and fills up on request, for simulations of a store.

It implements the contract of ``orbitmq.platform.disk.Disk``. Every choice comes from its seed, so a run that found
a fault is reproducible.

What a power cut leaves (``power_cut``):

- *Contents.* Every page that differs from what was last synced is, by itself, the old page, the new one, or torn:
  each of its 512-byte sectors old or new. Pages may so survive out of order, as they do on Linux, where
  write-back follows no order. A size that changed is the old or the new one, so a file that was never synced may
  be empty, or have its size and zeros (XFS after a crash), or have some of its bytes. A file that ``write``
  replaced is as it was, or empty (ext4's delayed allocation), or has its new size with zeros or new bytes in it.
- *Names.* Every name that was created, renamed or removed and not made durable by ``sync_dir`` has changed or
  not. A rename is one change: the file has its old name or its new one, and a name that it takes over is never
  missing. A change that builds on another (a rename of a file just created) does not happen without it.
- *Locks* are gone, and so are reserved pages that were not synced.

Harsher than ext4 and XFS, on purpose: their journals keep changes of names in order, and on them syncing a new
file makes its name durable too; here neither holds. As gentle as they are, also on purpose: a sector is never
half written, an unchanged durable page is never damaged, and ``sync_dir`` of a directory makes the
directory itself reachable, because ``create`` makes directories without telling which were missing.

A sync that fails (``fail("sync")``) does to its pages what Linux does: they stay readable, count as clean, and no
later sync writes them unless they are changed again. Such a page is mostly, not always, the old one after a
power cut, because the device may have taken it before it complained.

Not modelled: damage of data at rest, times other than of modification, permissions, links, and the refusal of
stores through a map opened with ``writable=False``.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import functools
import random
import threading
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from orbitmq.platform.disk import FileStat, Space
from orbitmq.testing.simulation.clock import ManualClock
from orbitmq.testing.simulation.disk_namespace import Directory, NameTree, parts, refusal
from orbitmq.testing.simulation.disk_pages import PagedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.native.buffer import Buffer
    from orbitmq.platform.clock import Clock
    from orbitmq.testing.simulation.disk_namespace import Node

CHANGING = frozenset(["create", "write", "pwrite", "zero", "sync", "sync_dir", "rename", "remove", "reserve"])
"""Operations that are counted and at which ``crash_after`` can cut the power."""

OPERATIONS = CHANGING | frozenset(["list", "stat", "read", "pread", "map", "space", "lock"])
"""Operations for which ``fail`` can inject errors."""

UNLIMITED = 1 << 40
"""Reported size of a disk without a capacity."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class PowerCut(BaseException):
    """The machine lost power. Not an ``Exception``, so that nothing in a store handles it."""


class UnreservedStoreError(AssertionError):
    """Bytes were stored into a hole of a mapped file. On a full disk this kills the process."""


class BrokenMapError(AssertionError):
    """A file changed its size under an open map. A mapped file's size is fixed; reading past it kills."""


@dataclasses.dataclass(slots=True)
class _Fault:
    operation: str
    path_contains: str
    after: int
    times: int
    error: int

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.path_contains not in path or not self.times:
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return True


def _exclusive(method: Callable[Concatenate[MemoryDisk, _P], _T]) -> Callable[Concatenate[MemoryDisk, _P], _T]:
    """Serialises operations: a store syncs in a worker thread."""

    @functools.wraps(method)
    def call(self: MemoryDisk, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._mutex:
            return method(self, *args, **kwargs)

    return call


class MemoryMappedFile:
    """A file of a ``MemoryDisk``, addressed in memory. Inert after its disk lost power."""

    __slots__ = ("_disk", "_file", "_writable", "buffer", "path", "size")

    def __init__(self, disk: MemoryDisk, file: PagedFile, path: str, *, writable: bool) -> None:
        self._disk = disk
        self._file: PagedFile | None = file
        self._writable = writable
        self.path = path
        self.size = file.size
        self.buffer: Buffer = file.live
        file.maps += 1

    def reserve(self, start: int, end: int) -> None:
        if not 0 <= start <= end <= self.size:
            raise ValueError(f"[{start}, {end}) is not in a file of {self.size} bytes")
        if self._file is None or not self._writable:
            raise refusal(errno.EBADF, self.path)
        self._disk._reserve(self._file, self.path, start, end)

    def warm(self, start: int, end: int, *, is_synced_often: bool = False) -> None:
        """No effect: all of it is in memory."""

    def expect_reading(self) -> None:
        """No effect: memory is read in any order."""

    def is_in_memory(self, start: int, end: int) -> bool:  # noqa: ARG002
        """Always True."""
        return True

    def fetch(self, parts: Sequence[tuple[int, int]]) -> None:
        """No effect: there is nothing to fetch."""

    def sync(self) -> None:
        if self._file is None:
            raise refusal(errno.EBADF, self.path)
        self._disk._sync(self._file, self.path)

    def close(self) -> None:
        file, self._file, self.buffer = self._file, None, bytearray()
        if file is not None:
            self._disk._unmap(file)

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()


class MemoryDisk:
    """A disk whose faults come from a seed.

    ``capacity`` is in bytes, taken in pages. ``check_reservations`` makes ``sync``, ``kill`` and ``power_cut``
    raise ``UnreservedStoreError`` for a stored page that was neither reserved nor written by an operation.
    ``read_only`` makes every change fail with ``EROFS``. ``operations`` counts the changes let through. Times
    of modification come from ``clock``; a store through a map counts when it is synced, as it is not seen before.
    """

    def __init__(
        self,
        seed: int = 0,
        capacity: int | None = None,
        page_size: int = 4096,
        *,
        clock: Clock | None = None,
        check_reservations: bool = True,
    ) -> None:
        if page_size <= 0 or page_size % 512:
            raise ValueError(f"page_size is a multiple of the sector's 512 bytes, not {page_size}")
        self.capacity = capacity
        self.page_size = page_size
        self.check_reservations = check_reservations
        self.read_only = False
        self.operations = 0
        self._clock: Clock = ManualClock() if clock is None else clock
        self._random = random.Random(seed)
        self._names = NameTree()
        self._used = 0
        self._locked: set[tuple[str, ...]] = set()
        self._faults: list[_Fault] = []
        self._operations_left: int | None = None
        self._short_writes = 0.0
        self._is_dead = False
        self._mutex = threading.RLock()

    # Faults

    def fail(
        self,
        operation: str,
        *,
        after: int = 0,
        error: int = errno.EIO,
        times: int = 1,
        path_contains: str = "",
    ) -> None:
        """Inject errors: after ``after`` calls of an operation the next ``times`` calls raise ``OSError(error)``.

        Only calls whose path contains ``path_contains`` count; a rename's path is ``source -> target``.
        """
        if operation not in OPERATIONS:
            raise ValueError(f"no operation {operation!r}; there are {', '.join(sorted(OPERATIONS))}")
        self._faults.append(_Fault(operation, path_contains, after, times, error))

    def short_writes(self, probability: float) -> None:
        """Let ``pwrite`` write only a part of its data, with this probability."""
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"a probability is between 0 and 1, not {probability}")
        self._short_writes = probability

    def crash_after(self, operations: int) -> None:
        """Raise ``PowerCut`` after this many further changes, in the next one, which is done in part or not at all.

        From then on every call raises ``PowerCut``; ``power_cut`` or ``kill`` returns the remaining disk.
        """
        if operations < 0:
            raise ValueError(f"operations is a number of calls to come, not {operations}")
        self._operations_left = operations

    def heal(self) -> None:
        """Cancel every injected fault that has not occurred yet."""
        self._faults.clear()
        self._operations_left = None
        self._short_writes = 0.0
        self.read_only = False

    @_exclusive
    def power_cut(self, seed: int | None = None) -> MemoryDisk:
        """The disk as the machine finds it after a power cut now; this one is dead.

        May be called again, also with other seeds, for other outcomes of the same power cut.
        """
        self._die()
        self._check_all_reserved()
        rng = random.Random(self._random.getrandbits(64) if seed is None else seed)
        return self._successor(self._names.after_power_cut(rng), rng.getrandbits(64))

    @_exclusive
    def kill(self) -> MemoryDisk:
        """The disk as the next process finds it after this one was killed; this one is dead.

        Everything written is there, and what was not durable still is not.
        """
        self._die()
        self._check_all_reserved()
        return self._successor(copy.deepcopy(self._names), self._random.getrandbits(64))

    @_exclusive
    def durable_bytes(self, path: str) -> bytes | None:
        """The synced contents; ``None`` if there never were any. For assertions: a store cannot read this."""
        return self._names.file(path).durable_bytes()

    # The contract of Disk

    @_exclusive
    def list(self, directory: str) -> list[str]:
        self._begin("list", directory)
        node = self._names.find(directory)
        return sorted(node.entries) if isinstance(node, Directory) else []

    @_exclusive
    def stat(self, path: str) -> FileStat | None:
        self._begin("stat", path)
        node = self._names.find(path)
        if isinstance(node, PagedFile):
            return FileStat(node.size, node.mtime_ms, is_dir=False)
        return None if node is None else FileStat(self.page_size, 0, is_dir=True)

    @_exclusive
    def read(self, path: str) -> bytes:
        self._begin("read", path)
        return bytes(self._names.file(path).live[:])

    @_exclusive
    def write(self, path: str, data: bytes) -> None:
        self._begin("write", path, lambda: self._write(path, self._prefix(data)))
        self._write(path, data)

    @_exclusive
    def create(self, path: str, size: int) -> None:
        self._begin("create", path, lambda: self._create(path, 0))
        self._create(path, size)

    @_exclusive
    def pread(self, path: str, offset: int, length: int) -> bytes:
        self._begin("pread", path)
        if offset < 0 or length < 0:
            raise refusal(errno.EINVAL, path)
        try:
            return bytes(self._names.file(path).live[offset : offset + length])
        except (FileNotFoundError, NotADirectoryError):
            return b""

    @_exclusive
    def pwrite(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> int:
        taken = bytes(data)
        self._begin("pwrite", path, lambda: self._store(self._names.file(path), offset, self._prefix(taken)))
        if self._random.random() < self._short_writes and len(taken) > 1:
            taken = taken[: self._random.randrange(1, len(taken))]
        return self._store(self._names.file(path), offset, taken)

    @_exclusive
    def zero(self, path: str, start: int) -> None:
        self._alive()
        file = self._names.file(path)
        self._begin("zero", path, lambda: file.zero(start, self._random.randint(0, file.size)))
        file.zero(start, file.size)
        file.mtime_ms = self._clock.now_ms()

    @_exclusive
    def written_ranges(self, path: str, start: int) -> Sequence[tuple[int, int]]:
        self._begin("stat", path)
        size = self._names.file(path).size
        return [(start, size)] if start < size else []

    @_exclusive
    def map(self, path: str, *, writable: bool = True) -> MemoryMappedFile:
        self._begin("map", path)
        if self.read_only and writable:
            raise refusal(errno.EROFS, path)
        return MemoryMappedFile(self, self._names.file(path), path, writable=writable)

    @_exclusive
    def sync(self, path: str) -> None:
        self._alive()
        self._sync(self._names.file(path), path)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        for path in files:
            self.sync(path)
        for path in directories:
            self.sync_dir(path)

    @_exclusive
    def sync_dir(self, directory: str) -> None:
        self._begin("sync_dir", directory)
        self._names.sync(directory)

    @_exclusive
    def rename(self, source: str, target: str) -> None:
        self._begin("rename", f"{source} -> {target}")
        self._unlink(self._names.rename(source, target))

    @_exclusive
    def remove(self, path: str) -> None:
        self._begin("remove", path)
        self._unlink(self._names.remove(path))

    @_exclusive
    def space(self, path: str) -> Space:
        self._begin("space", path)
        total = UNLIMITED if self.capacity is None else self.capacity
        return Space(total, self._used, max(total - self._used, 0))

    def refuse_links(self, directory: str) -> None:
        """No effect: there are no links here."""

    @_exclusive
    def lock(self, path: str) -> Callable[[], None]:
        self._begin("lock", path)
        key = parts(path)
        if key in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        self._create(path, 0)
        self._store(self._names.file(path), 0, b"lock")
        self._locked.add(key)
        held = [key]

        def release() -> None:
            # Once only: a second call must not release a lock that was taken since.
            while held:
                self._locked.discard(held.pop())

        return release

    # For maps

    @_exclusive
    def _reserve(self, file: PagedFile, path: str, start: int, end: int) -> None:
        self._begin("reserve", path)
        if file.missing_room(start, end) > self._free():
            raise refusal(errno.ENOSPC, path)
        self._used += file.missing_room(start, end)
        file.take_room(start, end)

    @_exclusive
    def _sync(self, file: PagedFile, path: str) -> None:
        try:
            self._begin("sync", path)
        except OSError:
            file.lose_changes()
            raise
        self._check_reserved(file)
        if self.read_only and file.changed():
            raise refusal(errno.EROFS, path)
        room = file.room
        if file.sync():
            file.mtime_ms = self._clock.now_ms()
        self._used += file.room - room

    @_exclusive
    def _unmap(self, file: PagedFile) -> None:
        file.maps -= 1
        self._free_if_unused(file)

    # Shared by all operations

    def _alive(self) -> None:
        if self._is_dead:
            raise PowerCut("this disk is dead: continue with the one that power_cut() or kill() returned")

    def _begin(self, operation: str, path: str, in_part: Callable[[], object] | None = None) -> None:
        """Count an operation and apply injected faults. ``in_part`` does a part of the operation."""
        self._alive()
        is_change = operation in CHANGING
        if is_change:
            if self._operations_left == 0:
                self._perhaps(in_part)
                self._die()
                raise PowerCut(f"power cut in {operation} of {path}")
            if self._operations_left is not None:
                self._operations_left -= 1
            self.operations += 1
        for fault in self._faults:
            if fault.strikes(operation, path):
                if fault.error in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
                    self._perhaps(in_part)
                raise refusal(fault.error, path)
        if self.read_only and (is_change or operation == "lock") and operation not in ("sync", "sync_dir"):
            raise refusal(errno.EROFS, path)

    def _perhaps(self, in_part: Callable[[], object] | None) -> None:
        if in_part is not None and self._random.random() < 0.5:
            with contextlib.suppress(OSError):
                in_part()

    def _prefix(self, data: bytes) -> bytes:
        return data[: self._random.randint(0, len(data))]

    def _create(self, path: str, size: int) -> None:
        node = self._names.find(path)
        if isinstance(node, Directory):
            raise refusal(errno.EISDIR, path)
        if node is None:
            node = PagedFile(path, self.page_size, size, self._clock.now_ms())
            self._names.add(path, node)
        elif size > node.size:
            self._check_size_may_change(node)
            node.grow(size)

    def _write(self, path: str, data: bytes) -> None:
        self._create(path, 0)
        file = self._names.file(path)
        self._check_size_may_change(file)
        self._used -= file.room
        file.replace()
        if self._store(file, 0, data) < len(data):
            raise refusal(errno.ENOSPC, path)

    def _store(self, file: PagedFile, offset: int, data: bytes) -> int:
        """Write as much as fits, as the system does."""
        if offset < 0:
            raise refusal(errno.EINVAL, file.path)
        fitting = data[: file.fitting(offset, offset + len(data), self._free())]
        if data and not fitting:
            raise refusal(errno.ENOSPC, file.path)
        if offset + len(fitting) > file.size:
            self._check_size_may_change(file)
        self._used += file.missing_room(offset, offset + len(fitting))
        file.store(offset, fitting)
        file.mtime_ms = self._clock.now_ms()
        return len(fitting)

    def _free(self) -> int:
        return (UNLIMITED if self.capacity is None else self.capacity) - self._used

    def _unlink(self, node: Node | None) -> None:
        if isinstance(node, PagedFile):
            node.is_linked = False
            self._free_if_unused(node)

    def _free_if_unused(self, file: PagedFile) -> None:
        if not file.is_linked and not file.maps:
            self._used -= file.room

    def _check_size_may_change(self, file: PagedFile) -> None:
        if file.maps:
            raise BrokenMapError(f"{file.path} is mapped and cannot change its size: close the map first")

    def _check_reserved(self, file: PagedFile) -> None:
        if self.check_reservations and (pages := file.pages_without_room()):
            raise UnreservedStoreError(
                f"{file.path}: bytes were stored in page {pages[0]} and {len(pages) - 1} others without reserve()"
            )

    def _check_all_reserved(self) -> None:
        for file in self._names.files():
            self._check_reserved(file)

    def _die(self) -> None:
        if not self._is_dead:
            self._is_dead = True
            for file in self._names.files():
                file.freeze()

    def _successor(self, names: NameTree, seed: int) -> MemoryDisk:
        disk = MemoryDisk(
            seed, self.capacity, self.page_size, clock=self._clock, check_reservations=self.check_reservations
        )
        disk._names = names
        disk._used = names.room()
        return disk
