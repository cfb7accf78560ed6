"""Reading the log by the thousand: every record and its CRC checked, fields as columns.

``scan`` asks one record after the other and costs microseconds for each. Here only the chain of sizes and the CRCs
are followed in a loop; everything else is done for a chunk of records at once. At the first record that is not
whole ``scan`` is asked, so both always agree on what is damage and where the log goes on behind it.
"""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.protocol.record import BLANK_SIZE, CRC_PROPERTY, CRC_PROPERTY_SIZE, MAGIC_BLANK, crc_property_of
from orbitmq.protocol.record_columns import RecordColumns, follow_sizes
from orbitmq.store.scan import Damage, LogView, Seen, walk_past_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.record_columns import Flags, Ints
    from orbitmq.store.log_files import LogFiles

CHUNK = 32768
"""Records taken together: some 15 MB of columns and strings."""

_START = struct.Struct(">iI")
_CRC_START = np.frombuffer(CRC_PROPERTY + b"\x01", np.uint8)


class Chunk(RecordColumns):
    """Records that follow each other in one log file; their positions are those in the file."""

    def __init__(self, view: LogView, position: Ints, *, is_whole: bool = True) -> None:
        super().__init__(view.buffer, position)
        self.view = view
        self.is_whole = is_whole
        """Whether the bodies match their CRCs; a record for which they do not is in a chunk of its own."""

    def _at(self, position: Ints) -> Chunk:
        return Chunk(self.view, position, is_whole=self.is_whole)

    @property
    def offset(self) -> Ints:
        return self.position + self.view.base

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self.view.base + int(self.position[-1] + self.size[-1])

    def topics(self) -> list[bytes]:
        buffer = self.buffer
        ends = (self.properties_at - 2).tolist()
        return [bytes(buffer[start:end]) for start, end in zip(self.topic_at.tolist(), ends, strict=True)]

    def properties(self) -> list[bytes]:
        buffer = self.buffer
        ends = self.ends.tolist()
        return [bytes(buffer[start:end]) for start, end in zip(self.properties_at.tolist(), ends, strict=True)]

    def failed_property_crcs(self) -> list[int]:
        """Which records carry the ``__CRC32#`` property and are not what it was made of."""
        ends = self.ends
        at = np.flatnonzero(self.properties_size >= CRC_PROPERTY_SIZE)
        starts = ends[at] - CRC_PROPERTY_SIZE
        carries = (self.data[starts[:, None] + np.arange(len(_CRC_START))] == _CRC_START).all(axis=1)
        view = self.view.view
        failed = []
        for number in at[carries].tolist():
            end = int(ends[number])
            cut = end - CRC_PROPERTY_SIZE
            if view[cut:end] != crc_property_of(view[int(self.position[number]) : cut]):
                failed.append(number)
        return failed


def scan_log(
    files: LogFiles,
    start: int | None = None,
    end: int | None = None,
    *,
    most: int = CHUNK,
    window: int | None = None,
    check_crc: bool = True,
    check_property_crc: bool = False,
    torn_from: int | None = None,
    search_unwritten: bool = False,
) -> Iterator[Chunk | Damage]:
    """Everything from the start of the log to its end, which is a ``Damage`` of size 0 or the last file.

    ``start`` and ``end`` are offsets at which records begin, if not all are wanted. A chunk has at most so many
    records, which begin in so many bytes. The other options are those of ``walk_past_damage``.
    """
    bases = files.bases
    newest: int | None = None
    at = files.start if start is None else start
    stop = files.limit if end is None else end
    number = max(bisect.bisect_right(bases, at) - 1, 0)
    while number < len(bases):
        base = bases[number]
        view = LogView(base, files.mapped(base).buffer)
        at = max(at, base)
        while at < stop and at - base < view.size:
            before = min(stop, at + (window or view.size)) - base
            chunk = whole_records(view, at - base, most, before, torn_from, check_crc=check_crc)
            if chunk is None:
                break
            yield chunk
            newest, at = base + int(chunk.position[-1]), chunk.end
        if at >= stop:
            return
        if at - base >= view.size or is_blank(view, at - base):
            number += 1
            continue
        steps = walk_past_damage(
            files,
            # From the last whole record on, whose time tells old bytes behind damage from new ones.
            at if newest is None else newest,
            check_crc=check_crc,
            check_property_crc=check_property_crc,
            torn_from=torn_from,
            search_unwritten=search_unwritten,
        )
        for step in steps:
            if step.offset < at:
                continue
            if step.offset >= stop:
                return
            if isinstance(step, Damage):
                yield step
                if not step.size:
                    return
                continue
            yield _alone(files, step)
            if step.body_is_intact:
                newest, at = step.offset, step.offset + step.size
                break
        else:
            return
        number = bisect.bisect_right(bases, at) - 1


def _alone(files: LogFiles, seen: Seen) -> Chunk:
    base = seen.offset - seen.offset % files.file_size
    view = LogView(base, files.mapped(base).buffer)
    return Chunk(view, np.array([seen.offset - base], np.int64), is_whole=seen.body_is_intact)


def is_blank(view: LogView, position: int) -> bool:
    """Whether the blank that ends a file begins here."""
    return view.size - position >= BLANK_SIZE and _START.unpack_from(view.buffer, position)[1] == MAGIC_BLANK


def whole_records(
    view: LogView, position: int, most: int, before: int, torn_from: int | None, *, check_crc: bool
) -> Chunk | None:
    """The whole records from here on, at most so many, that begin before a position; None if there is none."""
    positions = follow_sizes(view.buffer, position, most, before)
    if not len(positions):
        return None
    chunk = Chunk(view, positions)
    count = _first_false(chunk.is_consistent() & (chunk.physical_offset == chunk.offset))
    if check_crc:
        count = _first_false((chunk if count == len(chunk) else chunk.take(slice(count))).is_intact())
    if torn_from is not None:
        for number in np.flatnonzero(chunk.store_timestamp[:count] >= torn_from).tolist():
            seen = view.look(int(chunk.position[number]), check_crc=False)
            if isinstance(seen, Seen) and view.is_torn(seen):
                count = number
                break
    if count == len(chunk):
        return chunk
    return chunk.take(slice(count)) if count else None


def _first_false(flags: Flags) -> int:
    return len(flags) if bool(flags.all()) else int(np.argmin(flags))
