"""Format of an index file, a hash table from keys to offsets in the commit log, as RocketMQ writes it.

All integers are big-endian.

==============  =====  ====================================================================================
area            bytes  contents
==============  =====  ====================================================================================
header          40     begin and end timestamp, begin and end physical offset (8 bytes each), number of slots
                       in use, number of the next entry (4 bytes each)
slots           4 x s  number of the newest entry of the slot, 0 for none
entries         20 x n  key hash (4), physical offset (8), seconds since the begin timestamp (4), number of the
                       entry before it in the same slot (4)
==============  =====  ====================================================================================

Entries are numbered from 1; entry 0 is never used. A link always points to a smaller number, so that following
links ends whatever the bytes are. The keys themselves are not stored: different keys may have the same hash, and
the caller compares.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import NamedTuple

from orbitmq.store.errors import StoreDamagedError

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20

MAX_TIME_DIFF = 0x7FFFFFFF

HEADER = struct.Struct(">qqqqIi")
SLOT = struct.Struct(">i")
ENTRY = struct.Struct(">iqii")
SLOT_TYPE = ">i4"
ENTRY_TYPE = [("hash", ">i4"), ("offset", ">i8"), ("diff", ">i4"), ("prev", ">i4")]


def file_size(slots: int, entries: int) -> int:
    """Size of every index file with these numbers of slots and entries."""
    return HEADER_SIZE + slots * SLOT_SIZE + entries * ENTRY_SIZE


def check_size(path: str, size: int, slots: int, entries: int) -> None:
    """Raise StoreDamagedError for a file of another size than the settings make."""
    if size != file_size(slots, entries):
        raise StoreDamagedError(
            f"index file {path} has {size} bytes, but maxHashSlotNum={slots} and maxIndexNum={entries} make "
            f"{file_size(slots, entries)}; set them as they were when it was written, or delete the index "
            "directory to have it built again"
        )


@dataclasses.dataclass(slots=True)
class IndexHeader:
    """The first 40 bytes of the file."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_entry: int = 1

    @classmethod
    def decode(cls, data: bytes | bytearray) -> IndexHeader:
        """Decode the header; an unused file has a next entry of 0, which means 1."""
        header = cls(*HEADER.unpack(data))
        header.next_entry = max(1, header.next_entry)
        return header

    def encode(self) -> bytes:
        return HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots & 0xFFFFFFFF,
            self.next_entry,
        )

    def inherit(self, previous: IndexHeader) -> None:
        """Take over the end of the previous file as begin, until the first entry sets it."""
        if previous.end_offset > 0:
            self.begin_offset = self.end_offset = previous.end_offset
        if previous.end_timestamp > 0:
            self.begin_timestamp = self.end_timestamp = previous.end_timestamp

    def overlaps(self, begin: int, end: int) -> bool:
        """True if an entry of this file may have been stored between ``begin`` and ``end``."""
        return begin <= self.end_timestamp and end >= self.begin_timestamp


class IndexEntry(NamedTuple):
    """An entry for tools. The timestamp is exact to a second only."""

    number: int
    key_hash: int
    offset: int
    timestamp: int
    previous: int
