"""Compares consume queues with the log: a unit for every record, a record for every unit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orbitmq.store.consumequeue.column_reader import BATCH, PLAIN, UnitReader, Units, is_record
from orbitmq.store.consumequeue.ext import is_ext_address, read_ext
from orbitmq.store.tools.findings import Findings, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record_columns import Flags, Ints
    from orbitmq.store.config import StoreConfig

_EXT_LIMIT = -(1 << 31) - 1
assert is_ext_address(_EXT_LIMIT)
assert not is_ext_address(_EXT_LIMIT + 1)
_HIGHEST = np.iinfo(np.int64).max


class Expected(NamedTuple):
    """Records of one queue in log order, and the expected contents of their units."""

    queue_offset: Ints
    offset: Ints
    size: Ints
    code: Ints
    store_timestamp: Ints
    messages: Ints

    def take(self, which: Ints | Flags) -> Expected:
        return Expected(*(column[which] for column in self))


class _Run(NamedTuple):
    """Consecutive records of a queue that have no unit."""

    start: int
    """Queue offset of the first record."""
    offset: int
    """Physical offset of the first record."""
    last_offset: int
    length: int


class QueueCheck:
    """The units of one queue, and the records matched with them."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        topic: str,
        queue_id: int,
        recovered_from: int,
        *,
        is_batch: bool,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._disk = disk
        self._config = config
        self._recovered_from = recovered_from
        folder, kind = ("batchconsumequeue", BATCH) if is_batch else ("consumequeue", PLAIN)
        size = config.mapper_file_size_batch_consume_queue if is_batch else config.mapped_file_size_consume_queue
        directory = config.path(folder, topic, str(queue_id))
        self.reader = UnitReader(disk, directory, kind, size)
        self._batch: Units | None = self.reader.read(self.reader.first, self.reader.end) if is_batch else None
        self._matched: list[tuple[int, int]] = []
        self._missing: list[_Run] = []
        self.checked = 0

    @property
    def is_absent(self) -> bool:
        return not self.reader.bases

    def feed(self, records: Expected, findings: Findings, *, are_whole: bool) -> None:
        """Match records of this queue. Damaged ones may have a unit or not."""
        numbers, rows = self._locate(records.queue_offset)
        hit: Flags = (rows["offset"] == records.offset) & is_record(rows)
        self.checked += len(numbers)
        self._note_matched(numbers[hit])
        if not bool(hit.all()) and are_whole:
            self._note_missing(records, hit)
        wrong = hit & ((rows["size"] != records.size) | ~self._codes_match(records, rows))
        if self._batch is not None:
            wrong |= hit & (rows["count"] != records.messages)
            wrong |= hit & (rows["store_timestamp"] != records.store_timestamp)
            wrong |= hit & ((rows["compacted"] != -1) | (rows["reserved"] != 0))
        for at in np.flatnonzero(wrong & (records.offset < self._recovered_from)).tolist():
            self._report_wrong(int(numbers[at]), rows[at], records, at, findings)

    def _locate(self, queue_offsets: Ints) -> tuple[Ints, Units]:
        """Numbers of the units for these queue offsets, and the units; zeros where there are none."""
        if self._batch is None:
            return queue_offsets, self.reader.at(queue_offsets)
        bases = self._batch["base"].astype(np.int64)
        at = np.searchsorted(bases, queue_offsets)
        rows = np.zeros(len(queue_offsets), BATCH)
        inside = np.flatnonzero(at < len(bases))
        inside = inside[bases[at[inside]] == queue_offsets[inside]]
        rows[inside] = self._batch[at[inside]]
        return at + self.reader.first, rows

    def _codes_match(self, records: Expected, rows: Units) -> Flags:
        matches: Flags = rows["code"] == records.code
        for at in np.flatnonzero(~matches & (rows["code"] <= _EXT_LIMIT)).tolist():
            unit = read_ext(
                self._disk, self._config.store_path_root_dir, self.topic, self.queue_id,
                self._config.mapped_file_size_consume_queue_ext, int(rows["code"][at]),
            )  # fmt: skip
            matches[at] = (
                unit is not None
                and unit.tags_code == records.code[at]
                and unit.store_timestamp == records.store_timestamp[at]
            )
        return matches

    def _report_wrong(self, number: int, row: Units, records: Expected, at: int, findings: Findings) -> None:
        path, within = self.reader.place(number)
        parts = []
        if row["size"] != records.size[at]:
            parts.append(f"size {row['size']} where the record has {records.size[at]}")
        if is_ext_address(int(row["code"])):
            if not parts:
                parts.append("an extension unit that is gone or belongs to another record")
        elif row["code"] != records.code[at]:
            parts.append(f"tags code {row['code']} where the record has {records.code[at]}")
        if self._batch is not None and not parts:
            parts.append("a number of messages, a time or a last field that it cannot have")
        findings.add(
            Kind.UNIT_WRONG,
            f"the unit at byte {within} has " + " and ".join(parts),
            path,
            physical_offset=int(records.offset[at]),
            topic=self.topic,
            queue_id=self.queue_id,
            queue_offset=int(records.queue_offset[at]),
        )

    def _note_matched(self, numbers: Ints) -> None:
        if not len(numbers):
            return
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1):
            start, stop = int(run[0]), int(run[-1]) + 1
            if self._matched and self._matched[-1][1] == start:
                start = self._matched.pop()[0]
            self._matched.append((start, stop))
        # If a later record has the same or a smaller queue offset, a record without unit belonged to a topic that
        # was deleted and recreated.
        low = int(numbers.min())
        if self._batch is None and any(run.start + run.length > low for run in self._missing):
            shortened = [run._replace(length=min(run.length, low - run.start)) for run in self._missing]
            self._missing = [run for run in shortened if run.length > 0]

    def _note_missing(self, records: Expected, hit: Flags) -> None:
        later = np.minimum.accumulate(np.where(hit, records.queue_offset, _HIGHEST)[::-1])[::-1]
        lost = records.take(np.flatnonzero(~hit & (later > records.queue_offset)))
        if not len(lost.offset):
            return
        is_recovered = lost.offset >= self._recovered_from
        breaks = (np.diff(lost.queue_offset) != 1) | (np.diff(is_recovered) != 0)
        for run in np.split(np.arange(len(lost.offset)), np.flatnonzero(breaks) + 1):
            first, last = int(run[0]), int(run[-1])
            start, offset, length = int(lost.queue_offset[first]), int(lost.offset[first]), len(run)
            before = self._missing[-1] if self._missing else None
            if (
                before is not None
                and before.start + before.length == start
                and (before.offset >= self._recovered_from) == bool(is_recovered[first])
            ):
                self._missing.pop()
                start, offset, length = before.start, before.offset, length + before.length
            self._missing.append(_Run(start, offset, int(lost.offset[last]), length))

    def missing(self) -> tuple[list[_Run], int]:
        """Records without a unit that recovery will not enter, and the number of those that it will."""
        lost = [run for run in self._missing if run.offset < self._recovered_from]
        return lost, sum(run.length for run in self._missing) - sum(run.length for run in lost)

    def strays(self, log_start: int) -> list[tuple[int, int]]:
        """Numbers and physical offsets of units without a matching record."""
        found: list[tuple[int, int]] = []
        matched = sorted(self._matched)
        starts = np.array([start for start, _ in matched], np.int64)
        stops = np.array([stop for _, stop in matched], np.int64)
        end = max(self.reader.end, int(stops.max(initial=0)))
        for start, rows in self.reader.blocks(end):
            numbers = np.arange(start, start + len(rows))
            run = np.searchsorted(starts, numbers, side="right") - 1
            is_matched = (run >= 0) & (numbers < stops[np.maximum(run, 0)]) if len(starts) else numbers < start
            stray = np.flatnonzero(is_record(rows) & (rows["offset"] >= log_start) & ~is_matched)
            found += [(start + at, int(rows["offset"][at])) for at in stray.tolist()]
        return found


class QueueChecks:
    """All queues of a store."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        batch_topics: set[str],
        findings: Findings,
        recovered_from: int,
    ) -> None:
        """Differences of records from ``recovered_from`` on are not damage: recovery will rewrite their units."""
        self._disk = disk
        self._config = config
        self._recovered_from = recovered_from
        self._findings = findings
        self.batch_topics = batch_topics
        self.units = 0
        self.to_write = 0
        self.to_drop = 0
        self.of_deleted_topics = 0
        self._checks: dict[tuple[str, int], QueueCheck] = {}

    def __len__(self) -> int:
        return len(self._checks)

    def get(self, topic: str, queue_id: int) -> QueueCheck:
        check = self._checks.get((topic, queue_id))
        if check is None:
            is_batch = topic in self.batch_topics
            check = QueueCheck(self._disk, self._config, topic, queue_id, self._recovered_from, is_batch=is_batch)
            self._checks[topic, queue_id] = check
            for path, reason in check.reader.faults:
                self._findings.add(Kind.QUEUE_FILE, reason, path, topic=topic, queue_id=queue_id)
        return check

    def feed(self, topic: str, queue_id: int, records: Expected, *, are_whole: bool) -> None:
        self.get(topic, queue_id).feed(records, self._findings, are_whole=are_whole)

    def finish(self, log_start: int, log_end: int, is_deleted: Callable[[str, int], bool]) -> None:
        """Report units without a record, and records without a unit."""
        for folder in ("consumequeue", "batchconsumequeue"):
            root = self._config.path(folder)
            for topic in self._disk.list(root):
                for queue_id in self._disk.list(os.path.join(root, topic)):
                    if queue_id.isdigit():
                        self.get(topic, int(queue_id))
        for check in self._checks.values():
            self.units += check.reader.end - check.reader.first
            self._report_missing(check, is_deleted)
            self._report_strays(check, log_start, log_end)

    def _report_missing(self, check: QueueCheck, is_deleted: Callable[[str, int], bool]) -> None:
        lost, recovered = check.missing()
        self.to_write += recovered
        if check.is_absent and is_deleted(check.topic, check.queue_id):
            self.of_deleted_topics += sum(run.length for run in lost)
            return
        for run in lost:
            path, _ = check.reader.place(run.start) if not check.is_absent else (check.reader.directory, 0)
            if run.length == 1:
                message = f"the record at offset {run.offset} has no unit at queue offset {run.start}"
            else:
                message = (
                    f"{run.length} records from offset {run.offset} to {run.last_offset} have no units at queue "
                    f"offsets {run.start} to {run.start + run.length - 1}"
                )
            self._findings.add(
                Kind.UNIT_MISSING, message, path, run.length, physical_offset=run.offset, topic=check.topic,
                queue_id=check.queue_id, queue_offset=run.start,
            )  # fmt: skip

    def _report_strays(self, check: QueueCheck, log_start: int, log_end: int) -> None:
        for number, offset in check.strays(log_start):
            if offset >= self._recovered_from:
                self.to_drop += 1
                continue
            path, within = check.reader.place(number)
            is_past = offset >= log_end
            self._findings.add(
                Kind.UNIT_PAST_END if is_past else Kind.UNIT_STRAY,
                f"the unit at byte {within} leads to offset {offset}, "
                + (f"but the log ends at {log_end}" if is_past else "where no record of this queue begins"),
                path,
                physical_offset=offset,
                topic=check.topic,
                queue_id=check.queue_id,
                queue_offset=number,
            )
