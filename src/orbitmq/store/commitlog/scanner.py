"""Commit log scanner: is there a whole record at this offset, and where is the next one?

The only parser of log files for recovery, dispatch, verification and rebuild.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.protocol.message.crc import MASK, crc32
from orbitmq.protocol.message.record import (
    BLANK_SIZE,
    CRC_PROPERTY,
    CRC_PROPERTY_SIZE,
    HEADS,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_SIZE,
    MAX_TOPIC_SIZE_V1,
    MAX_TOPIC_SIZE_V2,
    MIN_RECORD_SIZE,
    crc_property_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.native.buffer import Buffer
    from orbitmq.store.commitlog.mapped_files import LogFiles

SECTOR = 512
"""The smallest unit that a disk writes atomically."""

SEARCH_STEP = 1024 * 1024

# Size, magic, CRC, queue id, queue offset, physical offset, sysFlag, store timestamp, body size: the fields of
# the fixed part that a scan needs, by `sysFlag >> 4 & 3`.
_PARTS = tuple(
    struct.Struct(f">iIIi4xqqi{16 + born}xq{20 + store}xi") for born, store in ((0, 0), (12, 0), (0, 12), (12, 12))
)
assert all(part.size == head.size for part, head in zip(_PARTS, HEADS, strict=True))
_START = struct.Struct(">iI")
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")
_CRC_START = CRC_PROPERTY + b"\x01"
_MAGIC_PREFIX = MAGIC_V1.to_bytes(4, "big")[:3]


class Seen(NamedTuple):
    """A scanned record."""

    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    properties: bytes
    body_is_intact: bool


class Blank(NamedTuple):
    """The blank at the end of a file."""

    offset: int
    size: int


class Damage(NamedTuple):
    """Bytes that are not a record, and the reason."""

    offset: int
    size: int
    """Distance to the next record or the end of the file; 0 if unknown."""
    reason: str


class LogView:
    """Bytes of one log file, prepared for scanning."""

    __slots__ = ("base", "buffer", "size", "view")

    def __init__(self, base: int, buffer: Buffer) -> None:
        self.base = base
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.size = len(buffer)

    def look(
        self, position: int, *, check_crc: bool = True, check_property_crc: bool = False
    ) -> Seen | Blank | Damage:
        """Parse the bytes at this position."""
        offset = self.base + position
        room = self.size - position
        if room < BLANK_SIZE:
            return Damage(offset, 0, f"only {room} bytes left in the file")
        size, magic = _START.unpack_from(self.buffer, position)
        if magic == MAGIC_BLANK:
            return Blank(offset, room)
        if magic not in {MAGIC_V1, MAGIC_V2}:
            return Damage(offset, 0, "no record starts here" if magic or size else "no record was written here")
        if size < MIN_RECORD_SIZE or size > room:
            return Damage(offset, 0, f"record size {size} is impossible with {room} bytes left")
        end = position + size
        fields = _PARTS[0].unpack_from(self.buffer, position)
        hosts = fields[6] >> 4 & 3
        head_size = _PARTS[hosts].size
        if hosts:
            if head_size > size:
                return Damage(offset, 0, f"record size {size} is less than its fixed part")
            fields = _PARTS[hosts].unpack_from(self.buffer, position)
        _, _, crc, queue_id, queue_offset, physical, sys_flag, store_timestamp, body_size = fields
        if physical != offset:
            return Damage(offset, size, f"the record says it belongs at offset {physical}")
        body_at = position + head_size
        topic_at = body_at + body_size + (1 if magic == MAGIC_V1 else 2)
        if body_size < 0 or topic_at > end:
            return Damage(offset, size, f"body size {body_size} does not fit the record")
        buffer = self.buffer
        if magic == MAGIC_V1:
            topic_size = buffer[topic_at - 1]
            most = MAX_TOPIC_SIZE_V1
        else:
            topic_size = buffer[topic_at - 2] << 8 | buffer[topic_at - 1]
            most = MAX_TOPIC_SIZE_V2
        properties_at = topic_at + topic_size + 2
        if topic_size > most or properties_at > end:
            return Damage(offset, size, f"topic size {topic_size} is impossible")
        properties_size = buffer[properties_at - 2] << 8 | buffer[properties_at - 1]
        if properties_at + properties_size != end or properties_size > MAX_PROPERTIES_SIZE:
            return Damage(offset, size, "the fields do not add up to the record's size")
        intact = not check_crc or crc32(self.view[body_at : body_at + body_size]) & MASK == crc
        properties = bytes(buffer[properties_at:end])
        # A record is checked by what its writer added: one without the property was stored while
        # enabledAppendPropCRC was off, and has the CRC of its body only.
        if check_property_crc and properties[-CRC_PROPERTY_SIZE:].startswith(_CRC_START):
            intact = intact and self._property_crc_matches(position, end)
        return Seen(
            offset, size, bytes(buffer[topic_at : properties_at - 2]), queue_id, queue_offset, sys_flag,
            store_timestamp, properties, intact,
        )  # fmt: skip

    def _property_crc_matches(self, position: int, end: int) -> bool:
        cut = end - CRC_PROPERTY_SIZE
        written = self.view[cut:end]
        return bool(written == crc_property_of(self.view[position:cut]))

    def is_torn(self, seen: Seen) -> bool:
        """True if a part of the record behind its body was never written.

        The body has a CRC; topic and properties have none. After a power cut, a sector that did not reach the disk
        reads as zeros (recovery zeroes everything behind the end of the log, so there is no older data), and no
        client writes a topic with NUL or properties with a whole sector of zeros.
        """
        # A process killed while it copied the record leaves zeros from any byte to its end.
        if b"\x00" in seen.topic or seen.properties.endswith(b"\x00"):
            return True
        end = seen.offset - self.base + seen.size
        start = end - len(seen.properties)
        while start < end:
            stop = min(end, start - start % SECTOR + SECTOR)
            piece = seen.properties[start - end : (stop - end) or None]
            if piece.count(0) == len(piece):
                return True
            start = stop
        return False

    def next_record(self, position: int, not_before: int, ranges: Sequence[tuple[int, int]]) -> int | None:
        """The position of the next whole record behind damage, or None.

        ``ranges`` are the written parts of the file: reading the rest would only take time. A record must carry its
        own offset and must not be older than what came before the damage: bytes from a previous use of the file can
        satisfy one of these conditions, not both.
        """
        for start in self._magic_positions(position + 1, ranges):
            found = self.look(start)
            if (
                isinstance(found, Seen)
                and found.body_is_intact
                and found.store_timestamp >= not_before
                and not self.is_torn(found)
            ):
                return start
        return None

    def blank_before(self, position: int, reach: int) -> bool:
        """True if the blank that ends the file may begin before a position, at most ``reach`` bytes from the end.

        Behind a blank there may be whole records from a previous use of the file.
        """
        at = max(self.size - reach, 0)
        piece = bytes(self.view[at:position])
        found = piece.find(_BLANK_MAGIC, 4)
        while found >= 0:
            if int.from_bytes(piece[found - 4 : found], "big") == self.size - at - found + 4:
                return True
            found = piece.find(_BLANK_MAGIC, found + 1)
        return False

    def _magic_positions(self, start: int, ranges: Sequence[tuple[int, int]]) -> Iterator[int]:
        """Positions from ``start`` on with the magic of a record."""
        overlap = len(_MAGIC_PREFIX) - 1
        for begin, end in ranges:
            at = max(begin - overlap, start + 4)
            while at < end:
                # In copied chunks: bytes.find is several times faster than mmap.find.
                piece = bytes(self.view[at : at + SEARCH_STEP + overlap])
                found = piece.find(_MAGIC_PREFIX)
                while 0 <= found < SEARCH_STEP:
                    yield at + found - 4
                    found = piece.find(_MAGIC_PREFIX, found + 1)
                at += SEARCH_STEP


def walk(
    files: LogFiles, start: int, end: int | None = None, *, check_crc: bool = True, check_property_crc: bool = False
) -> Iterator[Seen | Damage]:
    """Records from ``start`` on, across files; damage ends the scan. Blanks are skipped silently."""
    for base in files.bases:
        if base + files.file_size <= start:
            continue
        if end is not None and base >= end:
            return
        view = LogView(base, files.mapped(base).buffer)
        position = max(start - base, 0)
        while position < view.size:
            if end is not None and base + position >= end:
                return
            found = view.look(position, check_crc=check_crc, check_property_crc=check_property_crc)
            if isinstance(found, Blank):
                break
            yield found
            if isinstance(found, Damage):
                return
            position += found.size


def scan_past_damage(
    files: LogFiles,
    start: int,
    *,
    check_crc: bool = True,
    check_property_crc: bool = False,
    torn_from: int | None = None,
    search_unwritten: bool = False,
    newest: int = 0,
) -> Iterator[Seen | Damage]:
    """Records from ``start`` to the end of the log; damage with whole records behind it is skipped.

    Such damage is yielded with its size. The scan ends with a ``Damage`` of size 0 if nothing follows, or with the
    last file. A record whose body fails its CRC is yielded if others follow it; otherwise it is the end. Records
    stored from ``torn_from`` on are checked for torn writes, which only a crash makes necessary;
    ``search_unwritten`` looks for records behind zeros too, which reads the whole file. ``newest`` is the store
    timestamp of the last record before ``start``, if there is one.
    """
    bases = [base for base in files.bases if base + files.file_size > start]
    for number, base in enumerate(bases):
        view = LogView(base, files.mapped(base).buffer)
        position = max(start - base, 0)
        while position < view.size:
            found = view.look(position, check_crc=check_crc, check_property_crc=check_property_crc)
            if isinstance(found, Blank):
                break
            if isinstance(found, Seen):
                if torn_from is not None and found.store_timestamp >= torn_from and view.is_torn(found):
                    found = Damage(found.offset, found.size, "part of the record was never written")
                elif found.body_is_intact:
                    newest = found.store_timestamp or newest
                    yield found
                    position += found.size
                    continue
            unwritten = isinstance(found, Damage) and not any(view.view[position : position + BLANK_SIZE])
            resume = None
            if not unwritten or search_unwritten:
                ranges = files.disk.written_ranges(files.path(base), position)
                resume = view.next_record(position, newest, ranges)
            if resume is None:
                if not _starts_a_file(files, bases[number + 1 :], newest):
                    reason = found.reason if isinstance(found, Damage) else "the body fails its CRC"
                    yield Damage(found.offset, 0, reason)
                    return
                resume = view.size
            if isinstance(found, Seen):
                yield found
                position += found.size
                continue
            yield Damage(found.offset, resume - position, found.reason)
            position = resume


def _starts_a_file(files: LogFiles, bases: list[int], not_before: int) -> bool:
    """True if one of these files begins with a whole record that is not older than what came before."""
    for base in bases:
        first = LogView(base, files.mapped(base).buffer).look(0)
        if isinstance(first, Seen) and first.body_is_intact and first.store_timestamp >= not_before:
            return True
    return False
