"""The commit log: every record of every topic, in the order of arrival.

Appending copies a record into the mapped file and moves a position; it never waits for the disk. What is durable
(``flushed``) follows when ``flush_targets`` were synced and ``mark_flushed`` was told.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.protocol.crc import MASK, crc32
from orbitmq.protocol.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.protocol.record import (
    BLANK_SIZE,
    CRC_PROPERTY_SIZE,
    HEADS,
    MAGIC_V1,
    MAGIC_V2,
    blank,
    crc_property_of,
)
from orbitmq.store.disk import LARGE_PAGE
from orbitmq.store.errors import AppendRefusedError, PutStatus
from orbitmq.store.unit_files import write_fully

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.store.disk import Buffer, MappedFile
    from orbitmq.store.log_files import LogFiles

RESERVE_STEP = 16 * 1024 * 1024
"""Disk space is taken in steps of this size ahead of the write position.

A whole file at once would be simpler, but a test that opens a broker would then take a gigabyte.
"""

AHEAD_STEP = 48 * 1024 * 1024
"""So much is taken at once, when less than that is left, by whoever has a thread to wait for it. Where messages are
taken it would hold them up: by the disk, which may just be making others durable, and by the kernel, which has to
find pages and fill them with zeros. How long that takes depends on the machine's memory."""

BUSY_BYTES = 4 * 1024 * 1024
"""So much has to be written to a file before anything is taken ahead: most brokers of tests never come to it."""

WRITTEN_FROM = 64 * 1024
"""From this size on bytes are written to the file and not stored into its map.

The first store to a page of the map lets the kernel read it and its neighbours, as zeros; to write whole pages it
does not. That takes a third off the cost of a long batch, but two system calls more.
"""

Spare: TypeAlias = "tuple[int, MappedFile, int]"
"""A file made ahead of time: its first offset in the log, itself, and how much of it is owned."""
Owned: TypeAlias = "tuple[MappedFile, int]"
"""A file, and up to where it is owned."""

_GONE_HOSTS = ~(BORN_HOST_V6 | STORE_HOST_V6)
_V6_BITS = {8: 0, 20: BORN_HOST_V6}


class CommitLog:
    """The append end of the log files, and slices of what they hold."""

    def __init__(
        self,
        files: LogFiles,
        store_host: bytes,
        *,
        append_crc_property: bool = False,
        pool_size: int = 0,
        is_synced_often: bool = False,
    ) -> None:
        """``is_synced_often``: after a few records each time, because somebody waits for it."""
        self.files = files
        self.file_size = files.file_size
        self.store_host = store_host
        self._store_host_bit = STORE_HOST_V6 if len(store_host) == 20 else 0
        self._append_crc_property = append_crc_property
        self._is_synced_often = is_synced_often
        self._base = 0
        self._position = 0
        self._limit = 0
        """Records must end here at the latest: less than the file or its reserved part, by one blank."""
        self._reserved = 0
        self._entered = 0
        """Where writing to the current file began."""
        self._buffer: Buffer = bytearray()
        self._file: MappedFile | None = None
        self._spare: Spare | None = None
        self.flushed = 0
        self.last_store_timestamp = 0
        # Transient pool: records wait in anonymous memory and reach the page cache in `commit`.
        self._pool_size = pool_size
        self._uncommitted: list[tuple[MappedFile, Buffer, int, int]] = []
        self._committed = 0

    # Positions

    @property
    def start(self) -> int:
        """The oldest offset."""
        return self.files.start

    @property
    def end(self) -> int:
        """The offset at which the next record goes."""
        return self._base + self._position

    @property
    def committed(self) -> int:
        """What readers can reach. Less than ``end`` only while a transient pool holds records back."""
        return self._committed if self._pool_size else self._base + self._position

    @property
    def room(self) -> int:
        """What records may take that are appended next, without ``make_room``; negative if there is no file."""
        return self._limit - self._position

    def open_at(self, end: int) -> None:
        """Let appending go on at ``end``; files beyond it are removed. Called once, after recovery."""
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
        queue_id: int,
        queue_offset: int,
        body: bytes | memoryview,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
        version_2: bool = False,
    ) -> tuple[int, int]:
        """Encode a record into the log; returns its offset and size."""
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
                    prepared_transaction_offset,
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
        """Where records may be stored by somebody else: the file's bytes, from and to which position, and the
        offset that its first byte has in the log. ``advance`` then says how far it went.
        """
        return self._buffer, self._position, self._limit, self._base

    def advance(self, position: int, store_timestamp: int) -> None:
        """Count records that somebody else has stored up to a position of the file."""
        self._position = position
        self.last_store_timestamp = store_timestamp

    def append_raw(self, data: bytes | memoryview) -> int:
        """Append bytes that are records and blanks already, as a replica receives them; returns their offset.

        The bytes must not cross the end of a file other than at a blank that fills it.
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
        """Write a piece to the file, where the map shows it; False if it still has to be stored there."""
        assert self._file is not None
        try:
            write_fully(self.files.disk, self._file.path, self._position, piece)
        except OSError:
            # Storing cannot fail, because the space is owned. A disk that is in trouble shows it when it is synced.
            return False
        return True

    def make_room(self, size: int) -> None:
        """Make sure that the next ``size`` bytes of records land in one file without a gap."""
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
        """Own disk space up to this position of the current file, so that storing cannot fail later."""
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
                    raise _refused(self._file.path, error) from error
                self._own(self._file, end)
        self._limit = self._reserved - BLANK_SIZE

    def _own(self, file: MappedFile, end: int) -> None:
        try:
            file.reserve(self._reserved, end)
        except OSError as error:
            raise _refused(file.path, error) from error
        self._reserved = end

    def _roll(self) -> None:
        """Go on in the next file. The old one is closed by a blank only once the new one is there."""
        is_first = self._file is None and self._position < self.file_size
        base = self._base if is_first else self._base + self.file_size
        if self._pool_size and len(self._uncommitted) >= self._pool_size - 1:
            self.commit()
        rest = self.file_size - self._position
        # No further than the blank, whose space is owned: what is behind it are holes.
        stop = self._position + min(BLANK_SIZE, rest)
        if self._file is not None and stop > self._reserved:
            self._own(self._file, stop)
        _, mapped, reserved = self._take_spare(base)
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

    def _take_spare(self, base: int) -> Spare:
        if self._spare is not None and self._spare[0] == base:
            spare, self._spare = self._spare, None
            return spare
        try:
            return base, self.files.create(base), 0
        except OSError as error:
            raise _refused(self.files.directory_for(base), error) from error

    # Space and the file after this one, taken ahead of time by whoever has a thread for it

    def wants_space(self) -> Callable[[], Owned] | None:
        """A blocking call that owns more of the current file, or None if that is not needed yet."""
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
        """Count what ``wants_space`` took."""
        file, stop = owned
        if file is self._file and stop > self._reserved:
            self._reserved = stop
            self._limit = stop - BLANK_SIZE

    def wants_spare(self) -> Callable[[], Spare] | None:
        """A blocking call that creates the next file, or None if it is there or not needed yet."""
        if self._spare is not None or self._file is None or self._position < self.file_size // 2:
            return None
        base = self._base + self.file_size

        def create() -> Spare:
            mapped = self.files.create(base)
            first = min(RESERVE_STEP, self.file_size)
            try:
                mapped.reserve(0, first)
                mapped.warm(0, first, is_synced_often=self._is_synced_often)
            except OSError:
                # There is time until it is needed, and who needs it then tells those whom it concerns.
                first = 0
            return base, mapped, first

        return create

    def keep_spare(self, spare: Spare) -> None:
        if self._spare is None and spare[0] == self._base + self.file_size:
            self._spare = spare
        elif spare[0] not in self.files:
            self._discard(spare[1])

    def _discard(self, mapped: MappedFile) -> None:
        self.files.disk.remove(mapped.path)
        mapped.close()

    # Making durable

    def commit(self) -> int:
        """Move what the transient pool holds into the page cache; returns the new committed offset."""
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
        """What to sync to make the log durable as far as it is now: end, its store time, and the files."""
        end = self.committed
        first = self.flushed - self.flushed % self.file_size
        bases = range(first, end, self.file_size)
        return end, self.last_store_timestamp, [self.files.mapped(base) for base in bases if base in self.files]

    def mark_flushed(self, end: int) -> None:
        self.flushed = max(self.flushed, end)

    # Reading

    def slice(self, offset: int, size: int) -> memoryview | None:
        """The bytes at ``offset`` as they lie in the file, without a copy; None if they are not there."""
        buffer = self.files.buffer_at(offset)
        position = offset % self.file_size
        if buffer is None or offset + size > self.committed or position + size > self.file_size:
            return None
        return memoryview(buffer)[position : position + size]

    def drop_spare(self) -> None:
        """Remove the file made ahead of time, as RocketMQ does on a clean stop."""
        if self._spare is not None:
            self._discard(self._spare[1])
            self._spare = None

    def close(self) -> None:
        """Forget the files."""
        if self._spare is not None:
            self._spare[1].close()
            self._spare = None
        self._buffer = bytearray()
        self._file = None
        self.files.close()


def _refused(path: str, error: OSError) -> AppendRefusedError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        reason = f"the disk that holds {path} is full: free space or shorten fileReservedTime"
    else:
        reason = f"no log file could be made in {path}: {error.strerror}"
    return AppendRefusedError(PutStatus.CREATE_MAPPED_FILE_FAILED, reason)
