"""Finds the end of a commit log opened read-only, possibly while a broker is appending to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.commitlog.column_scanner import Chunk, scan_log
from orbitmq.store.commitlog.scanner import LogView, Seen

if TYPE_CHECKING:
    from orbitmq.store.commitlog.mapped_files import LogFiles


def find_end(files: LogFiles) -> int:
    """The offset after the last whole record; the start of the log if there is none.

    Only the last file in use is scanned, and only its last bodies are read: a record that is torn or being written
    can only be at the end, and earlier damage does not end the log.
    """
    start = next((base for base in reversed(files.bases) if _is_used(files, base)), None)
    if start is None:
        return files.start
    for is_thorough in (False, True):
        last: Chunk | None = None
        for step in scan_log(files, start, check_crc=is_thorough, search_unwritten=True):
            if isinstance(step, Chunk):
                last = step
        if last is None:
            break
        end = _end_of_whole(last)
        if end is not None:
            return end
    return start


def _is_used(files: LogFiles, base: int) -> bool:
    return isinstance(LogView(base, files.mapped(base).buffer).look(0), Seen)


def _end_of_whole(chunk: Chunk) -> int | None:
    """End of the last record whose body and properties are intact."""
    for position in reversed(chunk.position.tolist()):
        seen = chunk.view.look(position)
        if isinstance(seen, Seen) and seen.body_is_intact and not chunk.view.is_torn(seen):
            return seen.offset + seen.size
    return None
