"""Disk: the interface for every file operation of the store.

``LocalDisk`` is the machine's file system. A simulator hands in another one that loses what was not synced and
fails on request, so nothing in this package may touch ``os``, ``open`` or ``mmap`` except this file.

Pinned semantics, which an implementation must keep and the store relies on:

- Contents written (through a map, ``pwrite`` or ``write``) are visible to later reads at once and durable only
  after ``sync`` of that file. Names (a created, renamed or removed file) are durable only after ``sync_dir`` of
  their directory.
- ``pwrite`` may write less than it was given, as the system call may.
- A mapped buffer stays readable while a slice of it is alive, even after ``close`` and ``remove``.
- Errors are ``OSError`` with an errno; the store turns them into its own.
- Files and directories that a disk makes belong to the user of the process alone (0600 and 0700). Existing ones
  keep their permissions: an operator may have opened them to a backup on purpose.

Not here: retry, caching of contents, any knowledge of what the bytes mean.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import functools
import mmap
import os
import stat
import threading
from typing import TYPE_CHECKING, ClassVar, Protocol

from orbitmq import native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.native.buffer import Buffer


_NATIVE = native.load()

SYNCFS_FROM = 512
"""From this many files on, one sync of the file system beats a sync of each (about a millisecond each)."""


LARGE_PAGE = 2 << 20
"""Bytes of a map that are prefaulted by one system call, during which no other thread can map or unmap.

Linux keeps such a part of a file in one large page, if advised to. Zeroing it then takes 0.15 ms, where Linux's own
read-ahead of small pages takes 20 ms in one go on a disk set to 8 MiB, which blocks that processor. Stores to it
and its write-back cost less too: on ext4 of Linux 6.18 a record of 330 bytes 0.10 µs instead of 0.15, and 192 MiB
55 ms instead of 65.
"""
_WARMED_AT_ONCE = 1 << 19
"""Bytes of small pages per system call, for the same reason: a third of a millisecond."""
_ASKED_AT_ONCE = 1 << 17
"""Bytes per read-ahead request: of a larger one, Linux may read only as much as its disk is set to."""
_MADV_POPULATE_READ = 22
"""Linux 5.14; Python has no constant for it."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_MAX_DIRECTORIES = 1 << 17
"""Directories that ``LocalDisk`` caches as free of links: one for each queue, and some."""
LINK_REFUSED = "OrbitMQ follows no symbolic links below a data directory"


@dataclasses.dataclass(frozen=True, slots=True)
class FileStat:
    """Attributes of a file that the store uses."""

    size: int
    mtime_ms: int
    is_dir: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """Space on the file system of a path, in bytes."""

    total: int
    used: int
    usable: int

    @property
    def ratio(self) -> float:
        """Used share as RocketMQ computes it: whole per cents, rounded up."""
        whole = self.used + self.usable
        return -(-100 * self.used // whole) / 100 if whole > 0 else 1.0


class MappedFile(Protocol):
    """A file of fixed size mapped into memory."""

    path: str
    size: int
    buffer: Buffer

    def reserve(self, start: int, end: int) -> None:
        """Ensure that storing into ``buffer[start:end]`` cannot fail for lack of space.

        A store into a hole of a mapped file on a full disk kills the process, so space is reserved first, where the
        refusal is an ``OSError``.
        """

    def warm(self, start: int, end: int, *, is_synced_often: bool = False) -> None:
        """Prefault a reserved part before it is stored to, where supported. Blocks; safe to call from a worker
        thread while others store to other parts.

        A part that is synced after every few stores must not lie in large pages: each sync would write all of one.
        """

    def expect_reading(self) -> None:
        """Advise that the reserved part is complete: from now on it is read, mostly front to back."""

    def is_in_memory(self, start: int, end: int) -> bool:
        """True if a part can be read without blocking on the disk, or if that is unknown."""

    def fetch(self, parts: Sequence[tuple[int, int]]) -> None:
        """Read parts into memory ahead of time, where supported. Blocks; safe to call from a worker thread."""

    def sync(self) -> None:
        """Make everything stored so far durable. Blocks; safe to call from a worker thread."""

    def close(self) -> None:
        """Release the file. Slices still in use stay valid."""


class Disk(Protocol):
    """The file operations of a store. Paths are plain strings."""

    def list(self, directory: str) -> list[str]:
        """Names in a directory, sorted; empty if it does not exist."""

    def stat(self, path: str) -> FileStat | None: ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a whole small file, making directories as needed."""

    def create(self, path: str, size: int) -> None:
        """Create a zero-filled file of this size, making directories as needed. An existing one is kept."""

    def pread(self, path: str, offset: int, length: int) -> bytes:
        """Read up to ``length`` bytes; shorter at the end of the file, empty if there is no such file."""

    def pwrite(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> int: ...

    def zero(self, path: str, start: int) -> None:
        """Make every byte from ``start`` to the end of the file zero, also as seen through a map."""

    def written_ranges(self, path: str, start: int) -> Sequence[tuple[int, int]]:
        """Ranges from ``start`` on that may contain bytes other than zero; the rest was never written."""

    def map(self, path: str, *, writable: bool = True) -> MappedFile: ...

    def sync(self, path: str) -> None: ...

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        """``sync`` of every file, then ``sync_dir`` of every directory, in the fastest way available."""

    def sync_dir(self, directory: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory; no error if it is not there."""

    def space(self, path: str) -> Space: ...

    def refuse_links(self, directory: str) -> None:
        """Refuse paths below a directory that lead over symbolic links, with ``ELOOP``, from now on.

        The directory itself may be a link, and so may each directory that this is called for.
        """

    def lock(self, path: str) -> Callable[[], None]:
        """Take the exclusive lock of RocketMQ's ``lock`` file; returns the release. ``BlockingIOError`` if held."""


def machine_memory() -> int:
    """The physical memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def blank_memory(size: int) -> Buffer:
    """Zeroed memory whose untouched pages take no memory, unlike those of a bytearray."""
    return mmap.mmap(-1, size)


def _make_directories(path: str) -> None:
    """Create a directory and its parents with mode 0700; ``os.makedirs`` applies the mode to the last only."""
    if os.path.isdir(path):
        return
    _make_directories(os.path.dirname(path) or ".")
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    return libc


class LocalMappedFile:
    """A memory map of a local file."""

    __slots__ = ("_fd", "_is_writable", "buffer", "path", "size")

    def __init__(self, path: str, *, writable: bool, flags: int = 0) -> None:
        """``flags`` are additional ones for ``os.open``."""
        self.path = path
        self._is_writable = writable
        self._fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | flags)
        try:
            self.size = os.fstat(self._fd).st_size
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            # A map of length 0 is refused by the kernel; an empty file has no bytes to address anyway.
            self.buffer: Buffer = mmap.mmap(self._fd, self.size, access=access) if self.size else bytearray()
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise

    def reserve(self, start: int, end: int) -> None:
        # The system call would extend the file, and refuses an empty range.
        if not 0 <= start <= end <= self.size:
            raise ValueError(f"[{start}, {end}) is not in a file of {self.size} bytes")
        if start < end:
            os.posix_fallocate(self._fd, start, end - start)
            self._advise(mmap.MADV_RANDOM, start, end)

    def warm(self, start: int, end: int, *, is_synced_often: bool = False) -> None:
        buffer = self.buffer
        if not isinstance(buffer, mmap.mmap):
            return
        if is_synced_often:
            # Prefaulting pages together takes half the time of one by one.
            _NATIVE.advise(buffer, start, end, _WARMED_AT_ONCE, mmap.MADV_WILLNEED, _MADV_POPULATE_READ)
            return
        # No page beyond the reserved part: storing to a part of it would allocate space for all of it.
        first, last = -(-start // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
        if first < last:
            _NATIVE.advise(buffer, start, first, LARGE_PAGE, _MADV_POPULATE_READ)
            _NATIVE.populate_huge_pages(buffer, first, last, LARGE_PAGE)
            start = last
        _NATIVE.advise(buffer, start, end, LARGE_PAGE, _MADV_POPULATE_READ)

    def expect_reading(self) -> None:
        buffer = self.buffer
        if isinstance(buffer, mmap.mmap):
            _NATIVE.advise(buffer, 0, self.size, self.size, mmap.MADV_NOHUGEPAGE)
        self._advise(mmap.MADV_NORMAL, 0, self.size)

    def is_in_memory(self, start: int, end: int) -> bool:
        buffer = self._addressed()
        if buffer is None:
            return True
        start -= start % mmap.PAGESIZE
        pages = ctypes.create_string_buffer(-(-(end - start) // mmap.PAGESIZE))
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        return bool(_libc().mincore(address + start, end - start, pages)) or b"\0" not in pages.raw

    def fetch(self, parts: Sequence[tuple[int, int]]) -> None:
        # Local reference: the map stays until the fetch is done, even if the file is closed in the meantime.
        buffer = self._addressed()
        if buffer is None:
            return
        # Request all parts before waiting for the first.
        for start, end in parts:
            _NATIVE.advise(buffer, start, end, _ASKED_AT_ONCE, mmap.MADV_WILLNEED)
        for start, end in parts:
            _NATIVE.advise(buffer, start, end, LARGE_PAGE, _MADV_POPULATE_READ)

    def _addressed(self) -> mmap.mmap | None:
        """The map, if its address is available. Python does not give that of a read-only map."""
        return self.buffer if self._is_writable and isinstance(self.buffer, mmap.mmap) else None

    def _advise(self, advice: int, start: int, end: int) -> None:
        """Advise how a part is used next. Otherwise the first store to a page makes the kernel read it and read
        ahead: 8 MiB of zeros, for example, which blocks everything for 30 ms."""
        if isinstance(self.buffer, mmap.mmap):
            start -= start % mmap.PAGESIZE
            self.buffer.madvise(advice, start, end - start)

    def sync(self) -> None:
        # fdatasync and not mmap.flush: it writes the dirty pages of the map too, and CPython runs it without
        # the interpreter lock, which mmap.flush keeps.
        if self._fd < 0:
            raise OSError(errno.EBADF, "the map is closed", self.path)
        os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # Dropping the reference unmaps when the last slice goes; mmap.close() would refuse while one lives.
        self.buffer = bytearray()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


class LocalDisk:
    """The file system of this machine.

    Reads of unmapped files cache a bounded number of descriptors, least recently used out first. Thread-safe; reads
    are serialised.
    """

    _locked: ClassVar[set[str]] = set()

    def __init__(self, *, max_open_files: int = 256) -> None:
        if max_open_files < 1:
            raise ValueError(f"max_open_files must be at least 1, not {max_open_files}")
        self._readers: collections.OrderedDict[str, int] = collections.OrderedDict()
        self._max_open_files = max_open_files
        # Files are removed in worker threads. A descriptor closed during a read would read whatever file reuses its
        # number.
        self._reading = threading.Lock()
        self._without_links: set[str] = set()
        """Directories, each with a trailing separator, below which no path may lead over a link."""
        self._without_link: dict[str, int] = {}
        """Checked directories, with the flag for files in them."""

    def refuse_links(self, directory: str) -> None:
        self._without_links.add(directory.rstrip(os.sep) + os.sep)
        self._without_link.clear()

    def _refuse_links_in(self, path: str) -> int:
        """Raise ``ELOOP`` if a path leads over a link below one of the directories named for that.

        Returns the flag that keeps ``os.open`` from following a link created at this moment.
        """
        flag = self._refuse_links_above(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if flag and stat.S_ISLNK(os.lstat(path).st_mode) and path + os.sep not in self._without_links:
                raise OSError(errno.ELOOP, LINK_REFUSED, path)
        return flag

    def _refuse_links_above(self, path: str) -> int:
        """The same without the last part of the path, which the flag covers.

        A directory is checked once: queues write thousands of pages a second, and only the user of this process can
        replace a directory below one with mode 0700 later.
        """
        directory = os.path.dirname(path)
        flag = self._without_link.get(directory)
        if flag is None:
            flag = self._look_for_links(directory)
            if len(self._without_link) >= _MAX_DIRECTORIES:
                self._without_link.clear()
            self._without_link[directory] = flag
        return flag

    def _look_for_links(self, directory: str) -> int:
        probe = directory + os.sep
        above = max((top for top in self._without_links if probe.startswith(top)), key=len, default=None)
        if above is None:
            return 0
        at = len(above) - 1
        while 0 <= at < len(directory):
            at = directory.find(os.sep, at + 1)
            part = directory if at < 0 else directory[:at]
            try:
                if stat.S_ISLNK(os.lstat(part).st_mode):
                    raise OSError(errno.ELOOP, LINK_REFUSED, part)
            except (FileNotFoundError, NotADirectoryError):
                break
        return os.O_NOFOLLOW

    def _open(self, path: str, flags: int, *, make: bool = False) -> int:
        flags |= self._refuse_links_above(path)
        if make:
            _make_directories(os.path.dirname(path) or ".")
        try:
            return os.open(path, flags, FILE_MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, LINK_REFUSED, path) from None
            raise

    def list(self, directory: str) -> list[str]:
        self._refuse_links_in(directory)
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def stat(self, path: str) -> FileStat | None:
        self._refuse_links_in(path)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(found.st_size, found.st_mtime_ns // 1_000_000, stat.S_ISDIR(found.st_mode))

    def read(self, path: str) -> bytes:
        with open(self._open(path, os.O_RDONLY), "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes) -> None:
        with open(self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, make=True), "wb") as file:
            file.write(data)

    def create(self, path: str, size: int) -> None:
        fd = self._open(path, os.O_RDWR | os.O_CREAT, make=True)
        try:
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def pread(self, path: str, offset: int, length: int) -> bytes:
        with self._reading:
            readers = self._readers
            fd = readers.get(path)
            if fd is None:
                try:
                    fd = self._open(path, os.O_RDONLY)
                except (FileNotFoundError, NotADirectoryError):
                    return b""
                if len(readers) >= self._max_open_files:
                    os.close(readers.popitem(last=False)[1])
                readers[path] = fd
            else:
                readers.move_to_end(path)
            return os.pread(fd, length, offset)

    def pwrite(self, path: str, offset: int, data: bytes | bytearray | memoryview) -> int:
        fd = self._open(path, os.O_WRONLY)
        try:
            return os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def zero(self, path: str, start: int) -> None:
        ranges = self.written_ranges(path, start)
        fd = self._open(path, os.O_WRONLY)
        try:
            # The holes of a sparse file stay holes.
            for at, stop in ranges:
                while at < stop:
                    at += os.pwrite(fd, bytes(min(stop - at, 1 << 20)), at)  # noqa: PLW2901
        finally:
            os.close(fd)

    def written_ranges(self, path: str, start: int) -> Sequence[tuple[int, int]]:
        ranges = []
        fd = self._open(path, os.O_RDONLY)
        try:
            while True:
                begin = os.lseek(fd, start, os.SEEK_DATA)
                start = os.lseek(fd, begin, os.SEEK_HOLE)
                ranges.append((begin, start))
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        finally:
            os.close(fd)
        return ranges

    def map(self, path: str, *, writable: bool = True) -> LocalMappedFile:
        return LocalMappedFile(path, writable=writable, flags=self._refuse_links_in(path))

    def sync(self, path: str) -> None:
        fd = self._open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        if len(files) >= SYNCFS_FROM and self._sync_file_system(files):
            return
        for path in files:
            self.sync(path)
        for path in directories:
            self.sync_dir(path)

    def _sync_file_system(self, files: Sequence[str]) -> bool:
        """Sync the whole file system of these files; False if the system has no such call, or no file exists."""
        try:
            syncfs = ctypes.CDLL(None, use_errno=True).syncfs
        except (AttributeError, OSError):
            return False
        for path in files:
            try:
                fd = self._open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # removed in the meantime: any other leads to the same file system
            try:
                if syncfs(fd):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
            finally:
                os.close(fd)
            return True
        return False

    def sync_dir(self, directory: str) -> None:
        self._refuse_links_in(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        for path in (source, target):
            self._refuse_links_above(path)
        os.replace(source, target)
        self._forget(source)
        self._forget(target)

    def remove(self, path: str) -> None:
        # A link in the last part is removed itself; its target stays.
        self._refuse_links_above(path)
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except IsADirectoryError:
            os.rmdir(path)
        # Afterwards, because a concurrent read may have opened the file once more.
        self._forget(path)

    def space(self, path: str) -> Space:
        while not os.path.exists(path):
            parent = os.path.dirname(path) or "."
            if parent == path:
                raise FileNotFoundError(errno.ENOENT, "no such path", path)
            path = parent
        found = os.statvfs(path)
        unit = found.f_frsize
        total = found.f_blocks * unit
        return Space(total, total - found.f_bfree * unit, found.f_bavail * unit)

    def lock(self, path: str) -> Callable[[], None]:
        _make_directories(os.path.dirname(path) or ".")
        self._refuse_links_in(path)
        path = os.path.realpath(path)
        # POSIX locks belong to a process, and closing any descriptor of the file drops them: two stores in
        # one process must be distinguished here, before the file is even opened.
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
        try:
            # The byte range [0, 1) is what Java's FileChannel.lock(0, 1, false) takes, so the two exclude
            # each other.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            os.pwrite(fd, b"lock", 0)
        except BaseException:
            os.close(fd)
            raise
        self._locked.add(path)
        held = [fd]

        def release() -> None:
            # Once only: at a second call the descriptor's number may belong to another file.
            while held:
                os.close(held.pop())
                self._locked.discard(path)

        return release

    def close(self) -> None:
        """Close the descriptors kept for reading."""
        with self._reading:
            while self._readers:
                os.close(self._readers.popitem()[1])

    def __del__(self) -> None:
        if hasattr(self, "_reading"):
            self.close()

    def _forget(self, path: str) -> None:
        """Close the cached descriptors of a path and of everything below it."""
        below = path + "/"
        with self._reading:
            gone = [name for name in self._readers if name == path or name.startswith(below)]
            descriptors = [self._readers.pop(name) for name in gone]
        # Outside the lock: closing the last descriptor of a large removed file takes long.
        for fd in descriptors:
            os.close(fd)
