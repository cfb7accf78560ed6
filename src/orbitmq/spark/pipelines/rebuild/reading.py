"""What a task makes of its piece of the log: units by queue and entries of the index, in files for other tasks."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.protocol.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.spark.pipelines.rebuild.parts import EntryColumns, UnitColumns, write_entries, write_units
from orbitmq.spark.pipelines.rebuild.pieces import Piece, PieceRead
from orbitmq.spark.pipelines.rebuild.topics import NotedQueues, Topics
from orbitmq.store.bulk_scan import is_blank, whole_records
from orbitmq.store.disk import LocalDisk
from orbitmq.store.dispatch import MULTI_DISPATCH, NOT_QUEUED, Dispatcher
from orbitmq.store.log_files import LogFiles
from orbitmq.store.record_keys import keys_of
from orbitmq.store.scan import LogView, Seen

if TYPE_CHECKING:
    from orbitmq.protocol.record_columns import Flags, Ints
    from orbitmq.store.bulk_scan import Chunk
    from orbitmq.store.config import StoreConfig

CHUNK = 8192
"""Records handled at once: their properties and what is made of them stay in the processor's caches."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How pieces of a log are read. Goes from the driver to the tasks."""

    config: StoreConfig
    batch_topics: frozenset[str]
    torn_from: int
    """Records stored from then on may be torn: behind the checkpoint there is no telling what reached the disk."""
    parts: str
    """The directory for what was made of the pieces."""

    def read(self, piece: Piece) -> PieceRead:
        """Read a piece. Raises StoreError and OSError."""
        config = self.config
        files = LogFiles(LocalDisk(), config.commit_log_dirs, config.mapped_file_size_commit_log, writable=False)
        files.load()
        try:
            view = LogView(piece.base, files.mapped(piece.base).buffer)
            return _PieceReader(self, piece, view).read()
        finally:
            files.close()


class _PieceReader:
    """One walk through a piece."""

    def __init__(self, reading: Reading, piece: Piece, view: LogView) -> None:
        config = reading.config
        self._reading = reading
        self._piece = piece
        self._view = view
        # Below a directory in which there are no queues: what is there does not count here.
        beside = dataclasses.replace(config, store_path_root_dir=os.path.join(reading.parts, "none"))
        self._queues = NotedQueues(beside, reading.batch_topics)
        self._topics = Topics(self._queues)
        self._dispatcher = Dispatcher(self._queues, None, beside)
        self._has_light = config.enable_lmq and config.enable_multi_dispatch
        self._has_index = config.message_index_enable
        self._units = UnitColumns()
        self._entries = EntryColumns()
        self._records = 0
        self._last, self._end = -1, -1
        self._newest = 0
        self._dispatched, self._dispatched_ms = -1, 0

    def read(self) -> PieceRead:
        piece, view = self._piece, self._view
        first = self._first()
        if first is None:
            return self._told(None, piece.end - piece.base, is_file_done=False, stop=None)
        at, end = first, piece.end - piece.base
        while at < end:
            chunk = whole_records(view, at, CHUNK, end, None, check_crc=True)
            whole = None if chunk is None else self._whole(chunk)
            if whole is None:
                if at >= view.size or is_blank(view, at):
                    return self._told(first, at, is_file_done=True, stop=None)
                return self._told(first, at, is_file_done=False, stop="no whole record begins there")
            at = whole
        return self._told(first, at, is_file_done=at >= view.size, stop=None)

    def _first(self) -> int | None:
        """The position of the first record that begins in this piece, as far as that can be told from here."""
        piece = self._piece
        position = piece.start - piece.base
        if piece.is_exact:
            return position
        # Four bytes further: the size of a record is in front of what it is found by.
        stop = min(piece.written, piece.end + 4) - piece.base
        found = self._view.next_record(position - 1, 0, [(position, stop)])
        return None if found is None or found >= piece.end - piece.base else found

    def _told(self, first: int | None, at: int, *, is_file_done: bool, stop: str | None) -> PieceRead:
        piece, number = self._piece, self._piece.number
        has_records = self._records > 0
        self._units.add_puts(self._queues.puts)
        runs = write_units(self._reading.parts, number, self._units, self._queues) if has_records else ()
        entries = write_entries(self._reading.parts, number, self._entries) if has_records else 0
        return PieceRead(
            piece=piece,
            first=None if first is None else piece.base + first,
            next=piece.base + at,
            is_file_done=is_file_done,
            stop=stop,
            records=self._records,
            last=self._last,
            end=self._end,
            newest_ms=self._newest,
            dispatched=self._dispatched,
            dispatched_ms=self._dispatched_ms,
            entries=entries,
            runs=runs,
        )

    def _whole(self, chunk: Chunk) -> int | None:
        """Take in the records of a chunk, and say where the one after them begins; None if the first is torn."""
        buffer = chunk.buffer
        bounds = map(slice, chunk.properties_at.tolist(), chunk.ends.tolist())
        properties: list[bytes] = list(map(buffer.__getitem__, bounds))  # type: ignore[arg-type]
        topic = self._topics.numbers(chunk)
        count = self._before_torn(chunk, topic, properties)
        if count < len(chunk):
            if not count:
                return None
            chunk, topic, properties = chunk.take(slice(count)), topic[:count], properties[:count]
        self._take(chunk, topic, properties)
        return int(chunk.ends[-1])

    def _before_torn(self, chunk: Chunk, topic: Ints, properties: list[bytes]) -> int:
        """How many records are before the first that recovery would not take for whole."""
        may_be_torn = chunk.store_timestamp >= self._reading.torn_from
        if bool(may_be_torn.any()):
            # Nothing else than zeros shows it, and mostly there are none.
            has_nul = np.array([b"\0" in each for each in properties], np.bool_) | self._topics.have_nul(topic)
            for number in np.flatnonzero(may_be_torn & has_nul).tolist():
                seen = self._view.look(int(chunk.position[number]), check_crc=False)
                if isinstance(seen, Seen) and self._view.is_torn(seen):
                    return int(number)
        if self._reading.config.force_verify_prop_crc:
            for number, position in enumerate(chunk.position.tolist()):
                seen = self._view.look(position, check_crc=False, check_property_crc=True)
                if not isinstance(seen, Seen) or not seen.body_is_intact:
                    return number
        return len(chunk)

    def _take(self, chunk: Chunk, topic: Ints, properties: list[bytes]) -> None:
        offset, times = chunk.offset, chunk.store_timestamp
        queued: Flags = chunk.sys_flag & NOT_QUEUED == 0
        queue = np.full(len(chunk), -1, np.int64)
        queue[queued] = self._topics.queues(topic[queued], chunk.queue_id[queued])
        # A record that no queue can hold here is not indexed either.
        is_known = ~queued | (queue >= 0)
        is_indexed = is_known & (chunk.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK) & self._has_index
        keys = keys_of(properties, topic, self._topics.prefixes, is_indexed)
        self._entries.add(keys.key_hash, offset[keys.record], times[keys.record])
        alone = self._topics.are_alone(topic)
        if self._has_light:
            alone |= np.array([MULTI_DISPATCH in each for each in properties], np.bool_)
        alone &= queue >= 0
        together = (queue >= 0) & ~alone
        which: Ints | slice = slice(None) if bool(together.all()) else np.flatnonzero(together)
        self._units.add(
            queue[which], chunk.queue_offset[which], offset[which], chunk.size[which], keys.tags_code[which]
        )
        for number in np.flatnonzero(alone).tolist():
            self._dispatch(chunk, number, self._topics.name(int(topic[number])), properties[number])
        self._note(chunk, is_known)

    def _dispatch(self, chunk: Chunk, number: int, topic: str, properties: bytes) -> None:
        self._dispatcher.dispatch(
            self._queues.topic(topic),
            self._queues.get(topic, int(chunk.queue_id[number])),
            int(chunk.queue_offset[number]),
            int(chunk.offset[number]),
            int(chunk.size[number]),
            int(chunk.sys_flag[number]),
            int(chunk.store_timestamp[number]),
            properties,
            to_index=False,
        )

    def _note(self, chunk: Chunk, is_known: Flags) -> None:
        self._records += len(chunk)
        self._last, self._end = int(chunk.offset[-1]), chunk.end
        times = chunk.store_timestamp
        said = np.flatnonzero(times)
        if len(said):
            self._newest = int(times[said[-1]])
        known = np.flatnonzero(is_known)
        if len(known):
            self._dispatched, self._dispatched_ms = int(chunk.offset[known[-1]]), int(times[known[-1]])
