"""Marker of a failed sync: bytes of the log may be readable and not on the disk.

The kernel may mark pages as clean that it could not write. A process that starts on the same machine reads them
intact, and no sync writes them until they are dirtied again. The marker tells the next process that opens the
store. It is never synced: like the page cache it outlives the process, and after a reboot what is readable is on
the disk. A marker that comes back then costs time only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.unit_file import write_fully

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk
    from orbitmq.store.commitlog.mapped_files import LogFiles

FILE_NAME = "orbitmq.unflushed"

WRITTEN_AT_ONCE = 1 << 20


class FailedSyncMarker:
    """The marker that a sync of the log failed, or may fail from now on."""

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
    """Rewrite the bytes of the log, so that the next sync covers them."""
    while start < end:
        base = start - start % files.file_size
        stop = min(end, base + files.file_size, start + WRITTEN_AT_ONCE)
        data = bytes(memoryview(files.mapped(base).buffer)[start - base : stop - base])
        # Behind the blank that ends a file it is sparse. Zeros there would take space, which a full disk has not.
        write_fully(files.disk, files.path(base), start - base, data.rstrip(b"\0"))
        start = stop
