"""LocalDisk: the file system of this machine."""

from __future__ import annotations

import collections
import ctypes
import errno
import fcntl
import os
import stat
import threading
from typing import TYPE_CHECKING, ClassVar

from orbitmq.platform.disk import FileStat, Space
from orbitmq.platform.local_mapped_file import LocalMappedFile
from orbitmq.platform.symlink_guard import LINK_REFUSED, SymlinkGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SYNCFS_FROM = 512
"""From this many files on, one sync of the file system beats a sync of each (about a millisecond each)."""

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


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
        self._links = SymlinkGuard()

    def refuse_links(self, directory: str) -> None:
        self._links.protect(directory)

    def _open(self, path: str, flags: int, *, make: bool = False) -> int:
        flags |= self._links.check_directory(path)
        if make:
            _make_directories(os.path.dirname(path) or ".")
        try:
            return os.open(path, flags, FILE_MODE)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, LINK_REFUSED, path) from None
            raise

    def list(self, directory: str) -> list[str]:
        self._links.check(directory)
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def stat(self, path: str) -> FileStat | None:
        self._links.check(path)
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
        return LocalMappedFile(path, writable=writable, flags=self._links.check(path))

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
        self._links.check(directory)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        for path in (source, target):
            self._links.check_directory(path)
        os.replace(source, target)
        self._forget(source)
        self._forget(target)

    def remove(self, path: str) -> None:
        # A link in the last part is removed itself; its target stays.
        self._links.check_directory(path)
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
        self._links.check(path)
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
