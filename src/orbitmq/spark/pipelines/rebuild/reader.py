"""The reader task of a rebuild: units by queue and index entries of a chunk, in shuffle files."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.protocol.message.flags import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.spark.pipelines.rebuild.log_chunks import ChunkResult, LogChunk
from orbitmq.spark.pipelines.rebuild.shuffle_files import EntryColumns, UnitColumns, write_entries, write_units
from orbitmq.spark.pipelines.rebuild.topics import NotedQueues, Topics
from orbitmq.store.commitlog.column_scanner import is_blank, whole_records
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.commitlog.scanner import LogView, Seen
from orbitmq.store.dispatch.dispatcher import MULTI_DISPATCH, NOT_QUEUED, Dispatcher
from orbitmq.store.index.record_keys import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.message.record_columns import Flags, Ints
    from orbitmq.store.commitlog.column_scanner import Chunk
    from orbitmq.store.config import StoreConfig

CHUNK = 8192
"""Records handled at once: their properties and what is made of them stay in the processor's caches."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """Reads chunks of a log. It is pickled at the driver and used in the tasks."""

    config: StoreConfig
    batch_topics: frozenset[str]
    torn_from: int
    """Records stored from then on may be torn: the checkpoint does not confirm them as flushed."""
    parts: str
    """The directory for what was made of the chunks."""
    deleted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Records of a topic before this offset are those of a deleted one."""

    def read(self, chunk: LogChunk) -> ChunkResult:
        """Read a chunk. Raises StoreError and OSError."""
        config = self.config
        files = LogFiles(LocalDisk(), config.commit_log_dirs, config.mapped_file_size_commit_log, writable=False)
        files.load()
        try:
            view = LogView(chunk.base, files.mapped(chunk.base).buffer)
            return _ChunkReader(self, chunk, view).read()
        finally:
            files.close()


class _ChunkReader:
    """One scan of a chunk."""

    def __init__(self, reading: Reading, chunk: LogChunk, view: LogView) -> None:
        config = reading.config
        self._reading = reading
        self._chunk = chunk
        self._view = view
        # Below a directory in which there are no queues: what is there does not count here.
        beside = dataclasses.replace(config, store_path_root_dir=os.path.join(reading.parts, "none"))
        self._queues = NotedQueues(beside, reading.batch_topics)
        self._topics = Topics(self._queues)
        self._dispatcher = Dispatcher(self._queues, None, beside)
        self._dispatcher.deleted = dict(reading.deleted)
        self._has_light = config.enable_lmq and config.enable_multi_dispatch
        self._has_index = config.message_index_enable
        self._units = UnitColumns()
        self._entries = EntryColumns()
        self._records = 0
        self._last, self._end = -1, -1
        self._newest = 0
        self._dispatched, self._dispatched_ms = -1, 0

    def read(self) -> ChunkResult:
        chunk, view = self._chunk, self._view
        first = self._first()
        if first is None:
            return self._result(None, chunk.end - chunk.base, is_file_done=False, stop=None)
        at, end = first, chunk.end - chunk.base
        while at < end:
            columns = whole_records(view, at, CHUNK, end, None, check_crc=True)
            whole = None if columns is None else self._whole(columns)
            if whole is None:
                if at >= view.size or is_blank(view, at):
                    return self._result(first, at, is_file_done=True, stop=None)
                return self._result(first, at, is_file_done=False, stop="no whole record begins there")
            at = whole
        return self._result(first, at, is_file_done=at >= view.size, stop=None)

    def _first(self) -> int | None:
        """The position of the first record that begins in this chunk, as far as the chunk alone shows it."""
        chunk = self._chunk
        position = chunk.start - chunk.base
        if chunk.is_exact:
            return position
        # Four bytes further: the size of a record is in front of what it is found by.
        stop = min(chunk.written, chunk.end + 4) - chunk.base
        found = self._view.next_record(position - 1, 0, [(position, stop)])
        return None if found is None or found >= chunk.end - chunk.base else found

    def _result(self, first: int | None, at: int, *, is_file_done: bool, stop: str | None) -> ChunkResult:
        chunk, number = self._chunk, self._chunk.number
        has_records = self._records > 0
        self._units.add_puts(self._queues.puts)
        runs = write_units(self._reading.parts, number, self._units, self._queues) if has_records else ()
        entries = write_entries(self._reading.parts, number, self._entries) if has_records else 0
        return ChunkResult(
            chunk=chunk,
            first=None if first is None else chunk.base + first,
            next=chunk.base + at,
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

    def _whole(self, columns: Chunk) -> int | None:
        """Take in the records of a columns, and say where the one after them begins; None if the first is torn."""
        buffer = columns.buffer
        bounds = map(slice, columns.properties_at.tolist(), columns.ends.tolist())
        properties: list[bytes] = list(map(buffer.__getitem__, bounds))  # type: ignore[arg-type]
        topic = self._topics.numbers(columns)
        count = self._before_torn(columns, topic, properties)
        if count < len(columns):
            if not count:
                return None
            columns, topic, properties = columns.take(slice(count)), topic[:count], properties[:count]
        self._take(columns, topic, properties)
        return int(columns.ends[-1])

    def _before_torn(self, columns: Chunk, topic: Ints, properties: list[bytes]) -> int:
        """The number of records before the first that recovery would refuse."""
        may_be_torn = columns.store_timestamp >= self._reading.torn_from
        if bool(may_be_torn.any()):
            # Nothing else than zeros shows it, and mostly there are none.
            has_nul = np.array([b"\0" in each for each in properties], np.bool_) | self._topics.have_nul(topic)
            for number in np.flatnonzero(may_be_torn & has_nul).tolist():
                seen = self._view.look(int(columns.position[number]), check_crc=False)
                if isinstance(seen, Seen) and self._view.is_torn(seen):
                    return int(number)
        if self._reading.config.force_verify_prop_crc:
            for number, position in enumerate(columns.position.tolist()):
                seen = self._view.look(position, check_crc=False, check_property_crc=True)
                if not isinstance(seen, Seen) or not seen.body_is_intact:
                    return number
        return len(columns)

    def _take(self, columns: Chunk, topic: Ints, properties: list[bytes]) -> None:
        offset, times = columns.offset, columns.store_timestamp
        queued: Flags = columns.sys_flag & NOT_QUEUED == 0
        deleted = queued & self._are_deleted(topic, offset)
        queued &= ~deleted
        queue = np.full(len(columns), -1, np.int64)
        queue[queued] = self._topics.queues(topic[queued], columns.queue_id[queued])
        # A record that no queue can hold here is not indexed either.
        is_known = ~queued | (queue >= 0)
        is_indexed = is_known & (columns.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK) & self._has_index
        keys = keys_of(properties, topic, self._topics.prefixes, is_indexed)
        self._entries.add(keys.key_hash, offset[keys.record], times[keys.record])
        alone = self._topics.are_alone(topic)
        if self._has_light:
            alone |= np.array([MULTI_DISPATCH in each for each in properties], np.bool_)
        alone &= queue >= 0
        together = (queue >= 0) & ~alone
        which: Ints | slice = slice(None) if bool(together.all()) else np.flatnonzero(together)
        self._units.add(
            queue[which], columns.queue_offset[which], offset[which], columns.size[which], keys.tags_code[which]
        )
        for number in np.flatnonzero(alone).tolist():
            self._dispatch(columns, number, self._topics.name(int(topic[number])), properties[number])
        for number in np.flatnonzero(deleted).tolist():
            self._dispatcher.dispatch_deleted(
                int(offset[number]), int(columns.size[number]), int(times[number]), properties[number]
            )
        self._note(columns, is_known)

    def _are_deleted(self, topic: Ints, offset: Ints) -> Flags:
        ends = self._reading.deleted
        if not ends:
            return np.zeros(len(topic), np.bool_)
        places = zip(topic.tolist(), offset.tolist(), strict=True)
        return np.array([at < ends.get(self._topics.name(number), 0) for number, at in places], np.bool_)

    def _dispatch(self, columns: Chunk, number: int, topic: str, properties: bytes) -> None:
        self._dispatcher.dispatch(
            self._queues.topic(topic),
            self._queues.get(topic, int(columns.queue_id[number])),
            int(columns.queue_offset[number]),
            int(columns.offset[number]),
            int(columns.size[number]),
            int(columns.sys_flag[number]),
            int(columns.store_timestamp[number]),
            properties,
            to_index=False,
        )

    def _note(self, columns: Chunk, is_known: Flags) -> None:
        self._records += len(columns)
        self._last, self._end = int(columns.offset[-1]), columns.end
        times = columns.store_timestamp
        nonzero = np.flatnonzero(times)
        if len(nonzero):
            self._newest = int(times[nonzero[-1]])
        known = np.flatnonzero(is_known)
        if len(known):
            self._dispatched, self._dispatched_ms = int(columns.offset[known[-1]]), int(times[known[-1]])
