"""Allocation of the next log file ahead of time, by a worker thread: as RocketMQ's AllocateMappedFileService."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import MappedFile
    from orbitmq.store.commitlog.mapped_files import LogFiles

RESERVE_STEP = 16 * 1024 * 1024
"""Disk space is preallocated in steps of this size ahead of the write position.

A whole file at once would be simpler, but every test that opens a broker would then need a gigabyte.
"""

Allocated: TypeAlias = "tuple[int, MappedFile, int]"
"""A file: its first offset in the log, its map, and how much of it is reserved."""


class NextFile:
    """The file that follows the current one of the log, if it is allocated already."""

    def __init__(self, files: LogFiles, *, is_synced_often: bool) -> None:
        self._files = files
        self._is_synced_often = is_synced_often
        self._allocated: Allocated | None = None

    @property
    def is_allocated(self) -> bool:
        return self._allocated is not None

    def allocating(self, base: int) -> Callable[[], Allocated]:
        """A blocking call that creates the file with this first offset. It raises OSError."""

        def allocate() -> Allocated:
            mapped = self._files.create(base)
            first = min(RESERVE_STEP, self._files.file_size)
            try:
                mapped.reserve(0, first)
                mapped.warm(0, first, is_synced_often=self._is_synced_often)
            except OSError:
                # There is time: the append that needs the space retries and reports the error.
                first = 0
            return base, mapped, first

        return allocate

    def keep(self, allocated: Allocated, base: int) -> None:
        """Keep a file that ``allocating`` has created, if it is the one with this first offset."""
        if self._allocated is None and allocated[0] == base:
            self._allocated = allocated
        elif allocated[0] not in self._files:
            self._remove(allocated[1])

    def take(self, base: int) -> Allocated | None:
        """The allocated file, if it has this first offset."""
        allocated = self._allocated
        if allocated is None or allocated[0] != base:
            return None
        self._allocated = None
        return allocated

    def drop(self) -> None:
        """Remove the file, as RocketMQ does on a clean stop."""
        if self._allocated is not None:
            self._remove(self._allocated[1])
            self._allocated = None

    def close(self) -> None:
        """Release the file and leave it on disk."""
        if self._allocated is not None:
            self._allocated[1].close()
            self._allocated = None

    def _remove(self, mapped: MappedFile) -> None:
        self._files.disk.remove(mapped.path)
        mapped.close()
