"""What a failed sync leaves in doubt: bytes of the log that can be read and are perhaps not on the disk.

The kernel may count pages as clean that it could not write. A process that starts on the same machine finds them
whole, and no sync writes them any more, until they are written to once more. A mark tells whoever opens the store
next that this may be so. It is never synced: like the pages it outlives the process, and after the machine went
down, what is read is what is on the disk. A mark that comes back then costs time only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.store.unit_files import write_fully

if TYPE_CHECKING:
    from orbitmq.store.disk import Disk
    from orbitmq.store.log_files import LogFiles

FILE_NAME = "orbitmq.unflushed"

WRITTEN_AT_ONCE = 1 << 20


class UnflushedMark:
    """The mark that a sync of the log failed, or may fail from now on."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._path = os.path.join(root, FILE_NAME)

    def is_there(self) -> bool:
        return self._disk.stat(self._path) is not None

    def leave(self) -> None:
        self._disk.create(self._path, 0)

    def remove(self) -> None:
        self._disk.remove(self._path)


def write_again(files: LogFiles, start: int, end: int) -> None:
    """Write what the log holds once more, so that the next sync covers it."""
    while start < end:
        base = start - start % files.file_size
        stop = min(end, base + files.file_size, start + WRITTEN_AT_ONCE)
        data = bytes(memoryview(files.mapped(base).buffer)[start - base : stop - base])
        # Behind the blank that ends a file are holes. Zeros there would take space, which a full disk has not.
        write_fully(files.disk, files.path(base), start - base, data.rstrip(b"\0"))
        start = stop
