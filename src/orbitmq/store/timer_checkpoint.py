"""The file ``config/timercheck``: how far the messages that wait for their time were entered and delivered."""

from __future__ import annotations

import dataclasses
import os
import struct
from typing import TYPE_CHECKING

from orbitmq.store.unit_files import write_fully

if TYPE_CHECKING:
    from orbitmq.store.disk import Disk

FILE_SIZE = 4096

_SHARED = struct.Struct(">7q")
_OWN = struct.Struct(">3q")
"""Stands behind what RocketMQ writes, where it neither looks nor writes."""


@dataclasses.dataclass(slots=True)
class TimerCheckpoint:
    """The longs of the file. Zero is the beginning; a number that cannot be is read as that."""

    read_time_ms: int = 0
    """Everything in slots before this was delivered."""
    log_end: int = 0
    """The timer log up to here is on the disk."""
    queue_offset: int = 0
    """Messages before this offset of the timer's queue are in the timer log, or were delivered."""
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0
    slot_time_ms: int = 0
    """A slot that was delivered in part,"""
    slot_position: int = 0
    """up to and with the unit at this position of the timer log."""
    own_counter: int = 0
    """``version_counter`` as it was when OrbitMQ wrote the file; RocketMQ's broker would have gone on counting."""

    @property
    def is_own(self) -> bool:
        """Whether all of it is OrbitMQ's. RocketMQ's may name an end of the log that is behind the queue offset."""
        return 0 < self.own_counter == self.version_counter

    @classmethod
    def load(cls, disk: Disk, path: str) -> TimerCheckpoint:
        """Read the file; what is missing of it is zero. Raises OSError."""
        data = disk.pread(path, 0, _SHARED.size + _OWN.size).ljust(_SHARED.size + _OWN.size, b"\0")
        values = _SHARED.unpack_from(data) + _OWN.unpack_from(data, _SHARED.size)
        return cls(*(max(value, 0) for value in values))

    def encode(self) -> bytes:
        """What RocketMQ has in the file, and what slaves are told."""
        return _SHARED.pack(
            self.read_time_ms, self.log_end, self.queue_offset, self.master_queue_offset,
            self.state_version, self.version_timestamp, self.version_counter,
        )  # fmt: skip

    def store(self, disk: Disk, path: str, *, is_first: bool = True) -> None:
        """Write the file and make it durable. Blocks. All of it lies in one sector, so it is the old or the new.

        ``is_first``: nobody has made the file's name durable yet since the store was opened.
        """
        found = disk.stat(path)
        if found is None or found.size < FILE_SIZE:
            disk.create(path, FILE_SIZE)
        own = _OWN.pack(self.slot_time_ms, self.slot_position, self.own_counter)
        write_fully(disk, path, 0, self.encode() + own)
        disk.sync(path)
        if is_first:
            disk.sync_dir(os.path.dirname(path) or ".")
