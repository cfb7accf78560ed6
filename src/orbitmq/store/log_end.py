"""Where a log ends that nobody told the end of: one that is only looked at, and perhaps written to meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.bulk_scan import Chunk, scan_log
from orbitmq.store.scan import LogView, Seen

if TYPE_CHECKING:
    from orbitmq.store.log_files import LogFiles


def find_end(files: LogFiles) -> int:
    """The offset after the last whole record; where the log starts if there is none.

    Only the last file in use is walked, and of its bodies only the last are read: a record that is torn or being
    written can only be at the end, and what is damaged before it is no end.
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
    """Where the last record ends of those that are really whole."""
    for position in reversed(chunk.position.tolist()):
        seen = chunk.view.look(position)
        if isinstance(seen, Seen) and seen.body_is_intact and not chunk.view.is_torn(seen):
            return seen.offset + seen.size
    return None
