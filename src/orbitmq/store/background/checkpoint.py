"""The ``checkpoint`` file: times up to which log, queues and index are known to be on disk."""

from __future__ import annotations

import dataclasses
import os
import struct
import threading
from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.unit_file import write_fully
from orbitmq.store.errors import DiskFaultError, FlushFailedError

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

FILE_SIZE = 4096

GRACE_MS = 3000
"""Recovery begins this much earlier than the checkpoint, because its times are not taken at one instant."""

LATEST_TIMESTAMP = 253_402_300_799_999
"""The last millisecond of the year 9999; a later time in the file is damage, not a time."""

_FIELDS = struct.Struct(">6q")
_LONG = struct.Struct(">q")


@dataclasses.dataclass(slots=True)
class Checkpoint:
    """The six longs of the file. Zero means unknown, which makes recovery read everything.

    An impossible value (negative, or after the year 9999) is read as zero: a checkpoint that is too low costs time
    at the next start, one that is too high would skip records that were never indexed or queued.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0
    _storing: threading.Lock = dataclasses.field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )
    """Serialises writes; otherwise a worker could write old values over a later reset."""

    @classmethod
    def load(cls, disk: Disk, path: str) -> Checkpoint:
        """Read the file. Missing longs are zero: RocketMQ before 5.5 wrote five, before 5.0 three."""
        try:
            data = disk.pread(path, 0, _FIELDS.size)
        except OSError as error:
            raise DiskFaultError(
                f"cannot read {path}: {error.strerror or error}; make it readable, or delete it to have the "
                "next start check the whole store"
            ) from error
        return cls.decode(data)

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Decode the first bytes of the file; a truncated long counts as missing."""
        whole = len(data) // _LONG.size * _LONG.size
        fields = _FIELDS.unpack(data[: min(whole, _FIELDS.size)].ljust(_FIELDS.size, b"\0"))
        timestamps = [value if 0 <= value <= LATEST_TIMESTAMP else 0 for value in fields[:3]]
        return cls(*timestamps, *(max(0, value) for value in fields[3:]))

    def encode(self) -> bytes:
        """The bytes the file begins with; the rest of its 4096 is not used."""
        return _FIELDS.pack(
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
            self.logics_physical_offset,
        )

    @property
    def min_timestamp(self) -> int:
        """Every record stored before this is in the log and in its queue on disk."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - GRACE_MS)

    @property
    def min_timestamp_with_index(self) -> int:
        """The same including the index (RocketMQ's ``messageIndexSafe``)."""
        return min(self.min_timestamp, self.index_msg_timestamp)

    def store(self, disk: Disk, path: str) -> None:
        """Write the file and make it durable. Blocks; may be called from a worker thread.

        Only the bytes of the six longs are written: they are in one sector, so a power cut leaves the old or the
        new values.
        """
        with self._storing:
            self._store(disk, path)

    def _store(self, disk: Disk, path: str) -> None:
        try:
            found = disk.stat(path)
            if found is None or found.size < FILE_SIZE:
                disk.create(path, FILE_SIZE)
            write_fully(disk, path, 0, self.encode())
        except OSError as error:
            raise DiskFaultError(
                f"cannot write {path}: {error.strerror or error}; free space or make it writable, the next "
                "start reads more of the log until then"
            ) from error
        try:
            disk.sync(path)
            if found is None:
                disk.sync_dir(os.path.dirname(path) or ".")
        except OSError as error:
            raise FlushFailedError(
                f"cannot sync {path}: {error.strerror or error}; check the disk, the next start may read "
                "more of the log"
            ) from error
