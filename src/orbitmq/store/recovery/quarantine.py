"""Quarantine: a copy of what recovery cuts off the end of the log.

After a crash this is usually a torn record or nothing. But a setting, a disk fault or a bug can make intact records
look damaged, and then the copy is all that is left of them. ``quarantine`` is a folder below the store's root that
RocketMQ ignores. Files are named by physical offset and time, ``commitlog-<offset>-<time>``; they begin with the
byte at that offset, and trailing zeros are omitted.

``quarantineMaxBytes`` limits the folder: the oldest files are removed first, and of a larger cut only the beginning
is copied. If the disk refuses the copy, recovery logs that and continues: a full disk must not keep a broker down.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store.commitlog.mapped_files import LogFiles

logger = logging.getLogger(__name__)

FOLDER = "quarantine"
PIECE = 1 << 20
"""Bytes copied per write."""


class Quarantine:
    """Copies bytes of the log that recovery is about to drop."""

    def __init__(self, disk: Disk, clock: Clock, root: str, most_bytes: int) -> None:
        self._disk = disk
        self._clock = clock
        self._folder = os.path.join(root, FOLDER)
        self._max_bytes = most_bytes

    def keep_end(self, files: LogFiles, end: int, reason: str) -> list[str]:
        """Copy everything written behind ``end``; returns the paths of the copies."""
        kept, total, saved = [], 0, 0
        for base in files.bases:
            start = max(end, base)
            size = self._written_size(files, base, start) if base + files.file_size > end else 0
            if not size:
                continue
            total += size
            path = os.path.join(self._folder, f"commitlog-{start:020d}-{self._clock.now_ms()}")
            room = min(size, self._max_bytes - saved)
            if room > 0 and self._copy(files, base, start, room, path):
                kept.append(path)
                saved += room
        if total:
            logger.error(
                "recovery: cut %d bytes off the log at offset %d: %s; %d bytes kept in %s",
                total,
                end,
                reason,
                saved,
                ", ".join(kept) or "no file (quarantineMaxBytes, or the disk refused)",
            )
        return kept

    def _written_size(self, files: LogFiles, base: int, start: int) -> int:
        """Size of the written part of a file from an offset on: up to its last byte that is not zero."""
        view = memoryview(files.mapped(base).buffer)
        for begin, stop in reversed(list(files.disk.written_ranges(files.path(base), start - base))):
            at = min(stop, len(view))
            while at > begin:
                piece = bytes(view[max(begin, at - PIECE) : at]).rstrip(b"\0")
                if piece:
                    return max(begin, at - PIECE) + len(piece) - (start - base)
                at -= PIECE
        return 0

    def _copy(self, files: LogFiles, base: int, start: int, size: int, path: str) -> bool:
        try:
            self._make_room(size)
            self._disk.create(path, size)
            at = 0
            for piece in self._pieces(files, base, start, size):
                rest = memoryview(piece)
                while rest:
                    written = self._disk.pwrite(path, at, rest)
                    at += written
                    rest = rest[written:]
            self._disk.sync(path)
            self._disk.sync_dir(self._folder)
        except OSError as error:
            logger.error(
                "recovery: no copy of the log from offset %d in %s: %s", start, path, error.strerror or error
            )
            return False
        return True

    @staticmethod
    def _pieces(files: LogFiles, base: int, start: int, size: int) -> Iterator[bytes]:
        view = memoryview(files.mapped(base).buffer)
        position = start - base
        for at in range(position, position + size, PIECE):
            yield bytes(view[at : min(at + PIECE, position + size)])

    def _make_room(self, size: int) -> None:
        """Remove the oldest copies until a new one fits into the limit."""
        found = []
        for name in self._disk.list(self._folder):
            stat = self._disk.stat(os.path.join(self._folder, name))
            if stat is not None:
                found.append((stat.mtime_ms, name, stat.size))
        found.sort()
        total = sum(held for _, _, held in found)
        for _, name, held in found:
            if total + size <= self._max_bytes:
                return
            logger.warning("recovery: removed %s from quarantine: quarantineMaxBytes=%d", name, self._max_bytes)
            self._disk.remove(os.path.join(self._folder, name))
            total -= held
