"""Files of the commit log: fixed size, named by the offset of their first byte, mapped at first use."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.unit_file import file_name
from orbitmq.store.errors import StoreDamagedError

if TYPE_CHECKING:
    from orbitmq.native.buffer import Buffer
    from orbitmq.platform.disk import Disk, MappedFile


class LogFiles:
    """A contiguous sequence of mapped files in one or more directories."""

    def __init__(
        self,
        disk: Disk,
        directories: tuple[str, ...],
        file_size: int,
        *,
        read_only_dirs: frozenset[str] = frozenset(),
        writable: bool = True,
    ) -> None:
        self.disk = disk
        self.file_size = file_size
        self.writable = writable
        self._directories = directories
        self._read_only_dirs = read_only_dirs
        self._paths: dict[int, str] = {}
        self._maps: dict[int, MappedFile] = {}

    def load(self) -> None:
        """Find the files. Raises StoreDamagedError for a wrong size or a missing file in the middle."""
        found: dict[int, str] = {}
        for directory in self._directories:
            for name in self.disk.list(directory):
                if len(name) == 20 and name.isdigit():
                    found[int(name)] = os.path.join(directory, name)
        bases = sorted(found)
        for base in bases:
            stat = self.disk.stat(found[base])
            size = 0 if stat is None else stat.size
            if size == self.file_size:
                continue
            if size == 0 and base == bases[-1]:
                # Left by a crash between creating a file and setting its size.
                if self.writable:
                    self.disk.remove(found[base])
                del found[base]
                continue
            raise StoreDamagedError(
                f"{found[base]} has {size} bytes but this store's log files have {self.file_size}: "
                "give the broker.conf the store was written with, or restore the file if it was truncated"
            )
        bases = sorted(found)
        for before, base in itertools.pairwise(bases):
            if base - before != self.file_size:
                raise StoreDamagedError(
                    f"commit log file {file_name(before + self.file_size)} is missing: restore it, or move "
                    "the files before it away to go on without them"
                )
        self._paths = {base: found[base] for base in bases}

    @property
    def bases(self) -> list[int]:
        """First offsets of the files, oldest first."""
        return list(self._paths)

    @property
    def start(self) -> int:
        """Offset of the oldest byte."""
        return next(iter(self._paths), 0)

    @property
    def limit(self) -> int:
        """Offset after the last byte that the files have room for."""
        return next(reversed(self._paths)) + self.file_size if self._paths else 0

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, base: int) -> bool:
        return base in self._paths

    def path(self, base: int) -> str:
        return self._paths[base]

    def mapped(self, base: int) -> MappedFile:
        """The mapped file that starts at ``base``."""
        mapped = self._maps.get(base)
        if mapped is None:
            mapped = self._maps[base] = self.disk.map(self._paths[base], writable=self.writable)
        return mapped

    def buffer_at(self, offset: int) -> Buffer | None:
        """The bytes of the file that holds ``offset``; None if there is no such file."""
        base = offset - offset % self.file_size
        mapped = self._maps.get(base)
        if mapped is not None:
            return mapped.buffer
        return self.mapped(base).buffer if base in self._paths else None

    def directory_for(self, base: int) -> str:
        """Directory for the file with this offset: round robin over the writable directories."""
        writable = [path for path in self._directories if path not in self._read_only_dirs]
        choices = writable or list(self._directories)
        return choices[base // self.file_size % len(choices)]

    def create(self, base: int) -> MappedFile:
        """Create and map the file for ``base`` and make its name and size durable. Blocks on the disk."""
        directory = self.directory_for(base)
        path = os.path.join(directory, file_name(base))
        is_new = self.disk.stat(directory) is None
        self.disk.create(path, self.file_size)
        self.disk.sync(path)
        mapped = self.disk.map(path)
        self.disk.sync_dir(directory)
        if is_new:
            self.disk.sync_dir(os.path.dirname(directory) or ".")
        return mapped

    def adopt(self, base: int, mapped: MappedFile) -> None:
        """Add a created file as the newest."""
        assert not self._paths or base == self.limit
        self._paths[base] = mapped.path
        self._maps[base] = mapped

    def remove(self, base: int) -> None:
        """Delete the oldest or the newest file. Slices that readers still hold stay readable until they let go.

        The name is gone for good when this returns: no power cut brings it back without its neighbour.
        """
        removal = FileRemoval(self, base)
        try:
            removal.run()
        finally:
            removal.finish()
            removal.abandon()

    def forget(self, base: int) -> MappedFile | None:
        """Drop a file that was removed from the disk; returns its map, if it has one."""
        del self._paths[base]
        return self._maps.pop(base, None)

    def close(self) -> None:
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()


class FileRemoval:
    """A file of the log that goes. ``run`` and ``abandon`` wait for the disk and may be done by a worker thread;
    ``finish`` is between them and belongs to the store's."""

    def __init__(self, files: LogFiles, base: int) -> None:
        self._files = files
        self._base = base
        self._path = files.path(base)
        self._is_gone = False
        self._mapped: MappedFile | None = None

    def run(self) -> None:
        """Remove the name for good."""
        disk = self._files.disk
        disk.remove(self._path)
        self._is_gone = True
        disk.sync_dir(os.path.dirname(self._path))

    def finish(self) -> None:
        """Drop the file, if its name is gone."""
        # Not earlier: a file that stays on disk but is dropped here would leave a hole later.
        if self._is_gone:
            self._mapped = self._files.forget(self._base)

    def abandon(self) -> None:
        """Give the bytes back: a gigabyte takes the disk some tenths of a second, after the last reader too."""
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
