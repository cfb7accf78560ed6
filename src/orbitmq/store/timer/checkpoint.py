"""The file ``config/timercheck``: progress of the timer, of entering messages and of delivering them."""

from __future__ import annotations

import dataclasses
import os
import struct
from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.unit_file import write_fully

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

FILE_SIZE = 4096

_SHARED = struct.Struct(">7q")
_OWN = struct.Struct(">3q")
"""Follows RocketMQ's fields, where RocketMQ neither reads nor writes."""


@dataclasses.dataclass(slots=True)
class TimerCheckpoint:
    """The longs of the file. Zero is the beginning; an impossible number is read as zero."""

    read_time_ms: int = 0
    """Everything in slots before this time is delivered."""
    log_end: int = 0
    """The timer log is on disk up to here."""
    queue_offset: int = 0
    """Messages before this offset of the timer's queue are in the timer log, or delivered."""
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0
    slot_time_ms: int = 0
    """A partly delivered slot,"""
    slot_position: int = 0
    """up to and including the unit at this position of the timer log."""
    own_counter: int = 0
    """``version_counter`` when OrbitMQ wrote the file; a broker of RocketMQ would have incremented it."""

    @property
    def is_own(self) -> bool:
        """True if OrbitMQ wrote the file last. RocketMQ's may name an end of the log behind the queue offset."""
        return 0 < self.own_counter == self.version_counter

    @classmethod
    def load(cls, disk: Disk, path: str) -> TimerCheckpoint:
        """Read the file; missing fields are zero. Raises OSError."""
        data = disk.pread(path, 0, _SHARED.size + _OWN.size).ljust(_SHARED.size + _OWN.size, b"\0")
        values = _SHARED.unpack_from(data) + _OWN.unpack_from(data, _SHARED.size)
        return cls(*(max(value, 0) for value in values))

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """The progress that a master sent. Raises ValueError."""
        if len(data) < _SHARED.size:
            raise ValueError(f"{len(data)} bytes instead of {_SHARED.size}")
        return cls(*(max(value, 0) for value in _SHARED.unpack_from(data)))

    def encode(self) -> bytes:
        """RocketMQ's part of the file, which is also sent to slaves."""
        return _SHARED.pack(
            self.read_time_ms, self.log_end, self.queue_offset, self.master_queue_offset,
            self.state_version, self.version_timestamp, self.version_counter,
        )  # fmt: skip

    def store(self, disk: Disk, path: str, *, is_first: bool = True) -> None:
        """Write the file and make it durable. Blocks. It lies in one sector, so a power cut leaves the old or the
        new.

        ``is_first``: the first write since the store was opened, which must also make the file's name durable.
        """
        found = disk.stat(path)
        if found is None or found.size < FILE_SIZE:
            disk.create(path, FILE_SIZE)
        own = _OWN.pack(self.slot_time_ms, self.slot_position, self.own_counter)
        write_fully(disk, path, 0, self.encode() + own)
        disk.sync(path)
        if is_first:
            disk.sync_dir(os.path.dirname(path) or ".")
