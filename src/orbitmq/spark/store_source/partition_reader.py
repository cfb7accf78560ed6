"""The work of a task on its partition of a log: find whole records, filter them, and return Arrow batches."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.protocol.errors import ProtocolError
from orbitmq.spark.errors import DataLossError, SparkSourceError
from orbitmq.spark.records.records import Records, are_batches, taken_apart
from orbitmq.spark.records.to_arrow import BATCH_BYTES, BATCH_ROWS, arrow_batches, has_key, only_topic_of, topics_of
from orbitmq.spark.topic_source.pushdown import RowFilter
from orbitmq.spark.topic_source.single_use import check_single_use
from orbitmq.store.commitlog.column_scanner import Chunk, scan_log
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.commitlog.scanner import Damage, LogView
from orbitmq.store.dispatch.dispatcher import NOT_QUEUED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.message.record_columns import Flags, Ints, RecordColumns
    from orbitmq.spark.store_source.options import StoreOptions
    from orbitmq.spark.store_source.partitioning import StorePartition
    from orbitmq.store.config import StoreConfig

log = logging.getLogger("orbitmq.spark")


class DamagedLogError(SparkSourceError):
    """A log is damaged before its end."""


@dataclasses.dataclass(frozen=True, slots=True)
class StoreLogReader:
    """Reads partitions of a log. It is pickled at the driver and used in the tasks."""

    options: StoreOptions
    config: StoreConfig
    schema: pa.Schema
    broker: str | None = None
    row_filter: RowFilter = dataclasses.field(default_factory=RowFilter)
    plan_id: str | None = None
    """Set with a filter, for the guard of ``pushFilters=once``."""

    def opened(self) -> ReadOnlyLog:
        """The log, to be closed. Raises DamagedLogError if files are missing."""
        files = ReadOnlyLog(LocalDisk(), self.config)
        files.load()
        for fault in files.faults:
            self._met(f"{fault.path}: {fault.reason}")
        return files

    def read(self, part: StorePartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Raises SparkSourceError."""
        if self.plan_id is not None:
            check_single_use(self.plan_id)
        files = ReadOnlyLog(LocalDisk(), self.config)
        files.load()
        try:
            if part.base not in files:
                self._lost(files.file_at(part.base))
                return
            for records in _gathered(self._wanted(files, part)):
                for batch in arrow_batches(records, self.schema.names, broker=self.broker):
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        finally:
            files.close()

    def _wanted(self, files: ReadOnlyLog, part: StorePartition) -> Iterator[RecordColumns]:
        try:
            view = LogView(part.base, files.mapped(part.base).buffer)
        except FileNotFoundError:
            self._lost(files.file_at(part.base))
            return
        start, end = part.edges(view)
        steps = scan_log(
            files, start, end, most=BATCH_ROWS, window=BATCH_BYTES, check_crc=False, search_unwritten=True
        )
        for step in steps:
            if isinstance(step, Damage):
                self._met(
                    f"{files.file_at(step.offset)} has no whole record at offset {step.offset}: {step.reason}"
                )
            elif len(records := self._cut(files, step)):
                yield records

    def _cut(self, files: ReadOnlyLog, chunk: Chunk) -> RecordColumns:
        """The matching records, each with one message."""
        options = self.options
        mask = chunk.sys_flag & NOT_QUEUED == 0
        if options.starting_ms is not None:
            mask &= chunk.store_timestamp >= options.starting_ms
        if options.ending_ms is not None:
            mask &= chunk.store_timestamp < options.ending_ms
        records = _taken(chunk, mask)
        records = _taken(records, self._is_of_wanted_topic(records))
        is_batch = are_batches(records)
        if bool(is_batch.any()):
            records = self._taken_apart(files, records, is_batch)
        if self.row_filter and (filtered := self.row_filter.mask(records, broker=self.broker)) is not None:
            records = _taken(records, filtered)
        if options.keys is not None:
            records = _taken(records, has_key(records, options.keys))
        return self._intact(files, records)

    def _is_of_wanted_topic(self, records: RecordColumns) -> Flags:
        if len(records) and (only := only_topic_of(records)) is not None:
            return np.full(len(records), self.options.wants_topic(only))
        topics = topics_of(records).dictionary_encode()
        wanted = np.array([self.options.wants_topic(topic) for topic in topics.dictionary.to_pylist()], np.bool_)
        mask: Flags = wanted[topics.indices.to_numpy()]
        return mask

    def _taken_apart(self, files: ReadOnlyLog, records: RecordColumns, is_batch: Flags) -> RecordColumns:
        """The records with inner batches split into messages."""
        intact = np.ones(len(records), np.bool_)
        for number in np.flatnonzero(is_batch).tolist():
            one = records.take(slice(number, number + 1))
            try:
                intact[number] = len(self._intact(files, one)) and len(taken_apart(one)) > 0
            except ProtocolError as error:
                self._met(_named(files, one.physical_offset, f"is not a batch: {error}"))
                intact[number] = False
        return taken_apart(_taken(records, intact))

    def _intact(self, files: ReadOnlyLog, records: RecordColumns) -> RecordColumns:
        if not self.options.check_crc:
            return records
        intact = records.is_intact()
        if not bool(intact.all()):
            self._met(_named(files, records.physical_offset[~intact], "has a body that fails its CRC"))
        return _taken(records, intact)

    def _met(self, damage: str) -> None:
        if self.options.fail_on_damage:
            raise DamagedLogError(f"{damage}; with failOnDamage=false a query goes on with what is whole")
        log.warning("store reader: damaged record, skipping it: %s", damage)

    def _lost(self, path: str) -> None:
        lost = f"{path} was there when the query began and is not any more: its messages are too old to be kept"
        if self.options.fail_on_damage:
            raise DataLossError(f"{lost}; with failOnDamage=false a query goes on with what is left")
        log.warning("store reader: messages expired, skipping them: %s", lost)


def _named(files: ReadOnlyLog, offsets: Ints, what: str) -> str:
    offset = int(offsets[0])
    more = f" (and {len(offsets) - 1} after it)" if len(offsets) > 1 else ""
    return f"{files.file_at(offset)}: the record at offset {offset}{more} {what}"


def _taken(records: RecordColumns, mask: Flags) -> RecordColumns:
    return records if bool(mask.all()) else records.take(mask)


def _gathered(batches: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
    """Joins records until they fill a batch: few records of a log may match."""
    some: list[RecordColumns] = []
    rows = size = 0
    for batch in batches:
        some.append(batch)
        rows += len(batch)
        size += int(batch.size.sum())
        if rows >= BATCH_ROWS // 2 or size >= BATCH_BYTES // 2:
            yield _joined(some)
            some, rows, size = [], 0, 0
    if some:
        yield _joined(some)


def _joined(some: list[RecordColumns]) -> RecordColumns:
    if len(some) == 1:
        return some[0]
    parts: list[memoryview] = []
    for records in some:
        view = memoryview(records.buffer)
        pairs = zip(records.position.tolist(), records.ends.tolist(), strict=True)
        parts += [view[start:end] for start, end in pairs]
    return Records.joined(parts)
