"""The log files of a store that is only looked at: nothing is written, and a fault is noted instead of raised."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.store.log_files import LogFiles
from orbitmq.store.scan import Blank, LogView, Seen
from orbitmq.store.unit_files import file_name

if TYPE_CHECKING:
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.disk import Disk


class FileFault(NamedTuple):
    """A file that is not as the others are."""

    path: str
    offset: int
    """Where in the log it begins, or should."""
    reason: str


class ReadableLog(LogFiles):
    """Log files as they are: one may be missing, or shorter or longer than the others."""

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
                # A crash between creating a file and giving it its size leaves this, and only as the last one.
                if base != max(found):
                    self.faults.append(FileFault(found[base], base, "the file is empty"))
                del found[base]
            elif size != self.file_size:
                reason = f"the file has {size} bytes where the log's files have {self.file_size}"
                self.faults.append(FileFault(found[base], base, reason))
        bases = sorted(found)
        for before, base in itertools.pairwise(bases):
            missing = before + self.file_size
            if base > missing:
                path = os.path.join(self.directory_for(missing), file_name(missing))
                self.faults.append(FileFault(path, missing, f"nothing is there up to offset {base}"))
        self._paths = {base: found[base] for base in bases}

    def is_whole(self, offset: int) -> bool:
        """Whether a whole record, or the blank that ends a file, lies at an offset by now.

        A record seen half written in a store that is being written to is whole a moment later.
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
