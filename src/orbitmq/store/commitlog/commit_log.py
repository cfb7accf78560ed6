"""The commit log: records of all topics in the order of arrival.

An append copies a record into the mapped file and advances a position; it never waits for the disk. ``flushed``,
the durable end, advances by ``mark_flushed`` after a sync of ``flush_targets``.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.platform.local_mapped_file import LARGE_PAGE
from orbitmq.protocol.message.crc import MASK, crc32
from orbitmq.protocol.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.protocol.message.record import (
    BLANK_SIZE,
    CRC_PROPERTY_SIZE,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    blank,
    crc_property_of,
)
from orbitmq.store.commitlog.allocate_mapped_file import RESERVE_STEP, NextFile
from orbitmq.store.consumequeue.unit_file import write_fully
from orbitmq.store.errors import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.native.buffer import Buffer
    from orbitmq.platform.disk import MappedFile
    from orbitmq.store.append.stored_message import StoredMessage
    from orbitmq.store.commitlog.allocate_mapped_file import Allocated
    from orbitmq.store.commitlog.mapped_files import LogFiles

logger = logging.getLogger(__name__)

AHEAD_STEP = 48 * 1024 * 1024
"""Bytes preallocated by a worker thread when less than that is left. On the append path this would block: on the
disk, which may be syncing other records, and on the kernel, which has to find and zero pages. How long that takes
depends on the memory of the machine."""

BUSY_BYTES = 4 * 1024 * 1024
"""Nothing is preallocated until a file has this many bytes: brokers of tests rarely reach it."""

WRITTEN_FROM = 64 * 1024
"""From this size on bytes are written with a system call instead of stored into the map.

The first store to a page of the map makes the kernel read it and its neighbours, as zeros; writing whole pages does
not. This saves a third of the cost of a long batch, at two more system calls.
"""

Owned: TypeAlias = "tuple[MappedFile, int]"
"""A file, and the end of its reserved part."""

_GONE_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_V6_BITS = {8: 0, 20: BORN_HOST_V6}


class CommitLog:
    """The write end of the commit log, and zero-copy slices of its contents."""

    def __init__(
        self,
        files: LogFiles,
        store_host: bytes,
        *,
        append_crc_property: bool = False,
        pool_size: int = 0,
        is_synced_often: bool = False,
    ) -> None:
        """``is_synced_often``: synced after every few records, because producers wait for it."""
        self.files = files
        self.file_size = files.file_size
        self.store_host = store_host
        self._store_host_bit = STORE_HOST_V6 if len(store_host) == 20 else 0
        self._append_crc_property = append_crc_property
        self._is_synced_often = is_synced_often
        self._base = 0
        self._position = 0
        self._limit = 0
        """Records must end before this position: a blank less than the reserved part of the file."""
        self._reserved = 0
        self._entered = 0
        """Position at which writing to the current file began."""
        self._buffer: Buffer = bytearray()
        self._file: MappedFile | None = None
        self._next = NextFile(files, is_synced_often=is_synced_often)
        self._logged_refusal = ""
        self.flushed = 0
        self.last_store_timestamp = 0
        # Transient pool: records are in anonymous memory and reach the page cache in `commit`.
        self._pool_size = pool_size
        self._uncommitted: list[tuple[MappedFile, Buffer, int, int]] = []
        self._committed = 0

    # Positions

    @property
    def start(self) -> int:
        """Offset of the oldest byte."""
        return self.files.start

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self._base + self._position

    @property
    def committed(self) -> int:
        """End of what readers can reach; less than ``end`` only while the transient pool holds records."""
        return self._committed if self._pool_size else self._base + self._position

    @property
    def room(self) -> int:
        """Bytes available to the next records without ``make_room``; negative without a file."""
        return self._limit - self._position

    def open_at(self, end: int) -> None:
        """Set the end and remove files beyond it. Called once, after recovery."""
        for base in reversed(self.files.bases):
            if base > end or (base == end and base != self.files.start):
                self.files.remove(base)
        self.flushed = self._committed = end
        if len(self.files) == 0:
            self._base = end - end % self.file_size
            self._position = end - self._base
            self._limit = 0
            return
        last = self.files.bases[-1]
        if end == last + self.file_size:
            self._base, self._position, self._limit, self._reserved = last, self.file_size, 0, self.file_size
            return
        self._enter(last, self.files.mapped(last), end - last)

    def begin_at(self, offset: int) -> None:
        """Begin an empty log at the start of a file other than the first."""
        assert not len(self.files), "the log is not empty"
        assert offset % self.file_size == 0, "no file begins there"
        self.flushed = self._committed = self._base = offset

    def _enter(self, base: int, mapped: MappedFile, position: int, reserved: int = 0) -> None:
        self._base = base
        self._position = self._entered = position
        self._file = mapped
        self._buffer = bytearray(self.file_size) if self._pool_size else mapped.buffer
        self._reserved = max(position, reserved)
        self._limit = 0

    # Appending

    def append(
        self,
        topic_field: bytes,
        queue_offset: int,
        message: StoredMessage,
        store_timestamp: int,
        version_2: bool = False,
    ) -> tuple[int, int]:
        """Encode a record into the log; returns its offset and size."""
        (
            _, queue_id, body, properties, flag, sys_flag, born_timestamp, born_host, reconsume_times, prepared,
        ) = message  # fmt: skip
        sys_flag = sys_flag & _GONE_HOSTS | _V6_BITS[len(born_host)] | self._store_host_bit
        head = HEADS[sys_flag >> 4 & 3]
        crc_size = 0
        if self._append_crc_property:
            crc_size = CRC_PROPERTY_SIZE
            if properties and properties[-1] != 2:
                properties += b"\x02"
        properties_size = len(properties) + crc_size
        size = head.size + len(body) + len(topic_field) + 2 + properties_size
        if self._position + size > self._limit:
            self.make_room(size)
        position = self._position
        offset = self._base + position
        record = b"".join(
            (
                head.pack(
                    size,
                    MAGIC_V2 if version_2 else MAGIC_V1,
                    crc32(body) & MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    self.store_host,
                    reconsume_times,
                    prepared,
                    len(body),
                ),
                body,
                topic_field,
                properties_size.to_bytes(2, "big"),
                properties,
            )
        )
        if crc_size:
            record += crc_property_of(record)
        self._buffer[position : position + size] = record
        self._position = position + size
        self.last_store_timestamp = store_timestamp
        return offset, size

    def writable_part(self) -> tuple[Buffer, int, int, int]:
        """The part of the file that native code may append to: buffer, current position, limit, and the offset of
        the buffer in the log. ``advance`` records how far it got.
        """
        return self._buffer, self._position, self._limit, self._base

    def advance(self, position: int, store_timestamp: int) -> None:
        """Account for records that native code wrote up to a position of the file."""
        self._position = position
        self.last_store_timestamp = store_timestamp

    def append_raw(self, data: bytes | memoryview) -> int:
        """Append encoded records and blanks, as a replica receives them; returns their offset.

        The bytes must not cross the end of a file except at a blank that fills it.
        """
        start = self.end
        rest = memoryview(data)
        while rest:
            room = self.file_size - self._position
            if room == 0:
                self._roll()
                room = self.file_size
            piece = rest[:room]
            self._reserve(self._position + len(piece))
            if len(piece) < WRITTEN_FROM or self._pool_size or not self._is_written(piece):
                self._buffer[self._position : self._position + len(piece)] = piece
            self._position += len(piece)
            rest = rest[len(piece) :]
        return start

    def _is_written(self, piece: memoryview) -> bool:
        """Write bytes to the file with a system call, which the map shows; False if they must be stored into the
        map."""
        assert self._file is not None
        try:
            write_fully(self.files.disk, self._file.path, self._position, piece)
        except OSError:
            # Storing cannot fail, because the space is reserved. A failing disk shows at the next sync.
            return False
        return True

    def make_room(self, size: int) -> None:
        """Ensure that the next ``size`` bytes of records are contiguous in one file."""
        if self._position + size <= self._limit:
            return
        if size + BLANK_SIZE > self.file_size:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"a record of {size} bytes does not fit a log file of {self.file_size}",
            )
        if self._position + size + BLANK_SIZE > self.file_size:
            self._roll()
        self._reserve(self._position + size + BLANK_SIZE)

    def _reserve(self, end: int) -> None:
        """Reserve disk space up to this position of the current file, so that storing cannot fail later."""
        if self._file is None:
            self._roll()
        if end > self._reserved:
            assert self._file is not None
            upto = min(self.file_size, max(end, self._reserved + RESERVE_STEP))
            try:
                self._file.reserve(self._reserved, upto)
                self._reserved = upto
            except OSError as error:
                if upto == end or error.errno != errno.ENOSPC:
                    raise self._refused(self._file.path, error) from error
                self._own(self._file, end)
        self._limit = self._reserved - BLANK_SIZE

    def _own(self, file: MappedFile, end: int) -> None:
        try:
            file.reserve(self._reserved, end)
        except OSError as error:
            raise self._refused(file.path, error) from error
        self._reserved = end

    def _roll(self) -> None:
        """Switch to the next file. The old one is ended by a blank only once the new one exists."""
        is_first = self._file is None and self._position < self.file_size
        base = self._base if is_first else self._base + self.file_size
        if self._pool_size and len(self._uncommitted) >= self._pool_size - 1:
            self.commit()
        rest = self.file_size - self._position
        # No further than the blank, whose space is reserved: behind it the file is sparse.
        stop = self._position + min(BLANK_SIZE, rest)
        if self._file is not None and stop > self._reserved:
            self._own(self._file, stop)
        _, mapped, reserved = self._take_next(base)
        if self._file is not None and rest:
            self._buffer[self._position : stop] = blank(rest)
            self._position = self.file_size
        if self._pool_size and self._file is not None:
            start = max(self._committed - self._base, 0)
            self._uncommitted.append((self._file, self._buffer, start, stop))
        self.files.adopt(base, mapped)
        if self._file is not None:
            self._file.expect_reading()
        self._enter(base, mapped, self._position if base == self._base else 0, reserved)

    def _take_next(self, base: int) -> Allocated:
        allocated = self._next.take(base)
        if allocated is not None:
            return allocated
        try:
            return base, self.files.create(base), 0
        except OSError as error:
            raise self._refused(self.files.directory_for(base), error) from error

    # Preallocation of space and of the next file, by a worker thread

    def wants_space(self) -> Callable[[], Owned] | None:
        """A blocking call that reserves more of the current file; None if that is not necessary yet."""
        file, start = self._file, self._reserved
        if (
            file is None
            or start - self._position >= AHEAD_STEP
            or self._position - self._entered < BUSY_BYTES
            or start >= self.file_size
        ):
            return None
        stop = min((start + AHEAD_STEP) // LARGE_PAGE * LARGE_PAGE, self.file_size)

        def own() -> Owned:
            file.reserve(start, stop)
            file.warm(start, stop, is_synced_often=self._is_synced_often)
            return file, stop

        return own

    def keep_space(self, owned: Owned) -> None:
        """Account for the space that ``wants_space`` reserved."""
        file, stop = owned
        if file is self._file and stop > self._reserved:
            self._reserved = stop
            self._limit = stop - BLANK_SIZE

    def wants_next_file(self) -> Callable[[], Allocated] | None:
        """A blocking call that creates the next file; None if it exists or is not necessary yet."""
        if self._next.is_allocated or self._file is None or self._position < self.file_size // 2:
            return None
        return self._next.allocating(self._base + self.file_size)

    def keep_next_file(self, allocated: Allocated) -> None:
        self._next.keep(allocated, self._base + self.file_size)

    def drop_next_file(self) -> None:
        """Remove the preallocated file, as RocketMQ does on a clean stop."""
        self._next.drop()

    # Flushing

    def commit(self) -> int:
        """Copy the transient pool into the page cache; returns the new committed offset."""
        if not self._pool_size:
            return self.end
        for mapped, buffer, start, stop in self._uncommitted:
            mapped.buffer[start:stop] = buffer[start:stop]
        self._uncommitted.clear()
        if self._file is not None:
            start = max(self._committed - self._base, 0)
            self._file.buffer[start : self._position] = self._buffer[start : self._position]
        self._committed = self.end
        return self._committed

    def flush_targets(self) -> tuple[int, int, Sequence[MappedFile]]:
        """The current end of the log, its store timestamp, and the files to sync to make it durable."""
        end = self.committed
        first = self.flushed - self.flushed % self.file_size
        bases = range(first, end, self.file_size)
        return end, self.last_store_timestamp, [self.files.mapped(base) for base in bases if base in self.files]

    def mark_flushed(self, end: int) -> None:
        self.flushed = max(self.flushed, end)

    # Reading

    def slice(self, offset: int, size: int) -> memoryview | None:
        """The bytes at ``offset`` in the file, without a copy; None if they are not available."""
        buffer = self.files.buffer_at(offset)
        position = offset % self.file_size
        if buffer is None or offset + size > self.committed or position + size > self.file_size:
            return None
        return memoryview(buffer)[position : position + size]

    def close(self) -> None:
        """Release the files."""
        self._next.close()
        self._buffer = bytearray()
        self._file = None
        self.files.close()

    def _refused(self, path: str, error: OSError) -> AppendRefusedError:
        line = f"{path}: {error.strerror or error}"
        if line != self._logged_refusal:
            # Once and not for every message: clients retry again and again.
            self._logged_refusal = line
            logger.error("commit log: cannot reserve disk space, refusing messages: %s", line)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            reason = "the disk that holds the commit log is full: free space or shorten fileReservedTime"
        else:
            reason = f"no log file could be made: {error.strerror}"
        return AppendRefusedError(PutStatus.CREATE_MAPPED_FILE_FAILED, reason)
