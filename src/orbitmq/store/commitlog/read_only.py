"""Log files opened read-only: faults are collected instead of raised, and nothing is written."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.commitlog.scanner import Blank, LogView, Seen
from orbitmq.store.consumequeue.unit_file import file_name

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk
    from orbitmq.store.config import StoreConfig


class FileFault(NamedTuple):
    """A log file that is missing or has the wrong size."""

    path: str
    offset: int
    """Physical offset at which the file begins, or should begin."""
    reason: str


class ReadOnlyLog(LogFiles):
    """Log files as found on disk: one may be missing, too short or too long."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        super().__init__(disk, config.commit_log_dirs, config.mapped_file_size_commit_log, writable=False)
        self.faults: list[FileFault] = []

    def load(self) -> None:
        found: dict[int, str] = {}
        for directory in self._directories:
            for name in self.disk.list(directory):
                if len(name) == 20 and name.isdigit():
                    found[int(name)] = os.path.join(directory, name)
        for base in sorted(found):
            stat = self.disk.stat(found[base])
            size = 0 if stat is None else stat.size
            if size == 0:
                # A crash between creating a file and setting its size leaves an empty one, and only as the last.
                if base != max(found):
                    self.faults.append(FileFault(found[base], base, "the file is empty"))
                del found[base]
            elif size != self.file_size:
                reason = f"the file has {size} bytes, the log's files have {self.file_size}"
                self.faults.append(FileFault(found[base], base, reason))
        bases = sorted(found)
        for before, base in itertools.pairwise(bases):
            missing = before + self.file_size
            if base > missing:
                path = os.path.join(self.directory_for(missing), file_name(missing))
                self.faults.append(FileFault(path, missing, f"nothing is there up to offset {base}"))
        self._paths = {base: found[base] for base in bases}

    def is_whole(self, offset: int) -> bool:
        """True if a whole record, or the blank that ends a file, is at an offset by now.

        A record that was half written when first read, because a broker is appending, is whole a moment later.
        """
        buffer = self.buffer_at(offset)
        base = offset - offset % self.file_size
        if buffer is None or offset - base >= len(buffer):
            return False
        found = LogView(base, buffer).look(offset - base)
        return isinstance(found, Blank) or (isinstance(found, Seen) and found.body_is_intact)

    def file_at(self, offset: int) -> str:
        """The path of the file that holds an offset, whether it exists or not."""
        base = offset - offset % self.file_size
        return self._paths.get(base) or os.path.join(self.directory_for(base), file_name(base))
