"""Column scanner: reads the log in chunks of thousands of records, with every CRC checked and fields as columns.

``scanner`` costs microseconds per record. Here only the chain of sizes and the CRCs are followed in a loop;
everything else is done for a chunk at once. At the first record that is not whole, ``scanner`` decides, so both
always agree on what is damaged and where the log continues.
"""

from __future__ import annotations

import bisect
import struct
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.protocol.message.record import (
    BLANK_SIZE,
    CRC_PROPERTY,
    CRC_PROPERTY_SIZE,
    MAGIC_BLANK,
    crc_property_of,
)
from orbitmq.protocol.message.record_columns import RecordColumns, follow_sizes
from orbitmq.store.commitlog.scanner import Damage, LogView, Seen, scan_past_damage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from orbitmq.protocol.message.record_columns import Flags, Ints
    from orbitmq.store.commitlog.mapped_files import LogFiles

CHUNK = 32768
"""Records per chunk: some 15 MB of columns and strings."""

NO_CRC, RIGHT_CRC, WRONG_CRC = range(3)

_START = struct.Struct(">iI")
_CRC_START = np.frombuffer(CRC_PROPERTY + b"\x01", np.uint8)


class Chunk(RecordColumns):
    """Contiguous records of one log file, with their positions in the file."""

    def __init__(self, view: LogView, position: Ints, *, is_whole: bool = True) -> None:
        super().__init__(view.buffer, position)
        self.view = view
        self.is_whole = is_whole
        """True if the bodies match their CRCs; a record whose body does not is in a chunk of its own."""

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

    def property_crcs(self) -> npt.NDArray[np.int8]:
        """For each record whether it has the ``__CRC32#`` property and the property matches."""
        states = np.full(len(self), NO_CRC, np.int8)
        ends = self.ends
        at = np.flatnonzero(self.properties_size >= CRC_PROPERTY_SIZE)
        starts = ends[at] - CRC_PROPERTY_SIZE
        carries = (self.data[starts[:, None] + np.arange(len(_CRC_START))] == _CRC_START).all(axis=1)
        view = self.view.view
        for number in at[carries].tolist():
            end = int(ends[number])
            cut = end - CRC_PROPERTY_SIZE
            is_right = view[cut:end] == crc_property_of(view[int(self.position[number]) : cut])
            states[number] = RIGHT_CRC if is_right else WRONG_CRC
        return states


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
    """The whole log from its start to its end, which is a ``Damage`` of size 0 or the last file.

    ``start`` and ``end`` are record offsets that limit the scan. A chunk is limited in records and in bytes. The
    other options are those of ``scan_past_damage``.
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
        steps = scan_past_damage(
            files,
            # From the last whole record on; its time distinguishes old bytes behind damage from new ones.
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
    """True if the blank that ends a file is at this position."""
    return view.size - position >= BLANK_SIZE and _START.unpack_from(view.buffer, position)[1] == MAGIC_BLANK


def whole_records(
    view: LogView, position: int, most: int, before: int, torn_from: int | None, *, check_crc: bool
) -> Chunk | None:
    """The whole records from a position on, up to a maximum count and a last start position; None if there is
    none."""
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
