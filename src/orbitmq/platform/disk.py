"""Disk: the interface for every file operation of the store.

``LocalDisk`` (``local_disk.py``) is the machine's file system. A simulator hands in another one that loses what was
not synced and fails on request, so nothing else may touch ``os``, ``open`` or ``mmap``.

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

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.native.buffer import Buffer


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
