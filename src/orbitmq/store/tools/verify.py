"""Verifies a store read-only: every CRC, every record, every queue unit and every index entry.

The log is read once from start to end and compared with queues and index on the way. What a crash or a running
broker leaves behind by design (queues and index that lag the log) is distinguished from damage: the report says
what the next start will do about it.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from typing import TYPE_CHECKING

import numpy as np

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8, tags_code
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.protocol.message.properties import find, index_fields
from orbitmq.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC
from orbitmq.store.background.checkpoint import Checkpoint
from orbitmq.store.commitlog.column_scanner import RIGHT_CRC, WRONG_CRC, Chunk, scan_log
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.config_tables import TOPICS
from orbitmq.store.consumequeue.close_snapshot import CloseSnapshot
from orbitmq.store.consumequeue.table import QueueTable
from orbitmq.store.dispatch.dispatcher import NOT_QUEUED, Dispatcher
from orbitmq.store.errors import StoreError
from orbitmq.store.recovery.abort_file import AbortFile
from orbitmq.store.recovery.deleted_topics import DeletedTopics
from orbitmq.store.recovery.recovery import FENCE_TOPIC, PreviousRun, Recovery
from orbitmq.store.tools.findings import Findings, Kind
from orbitmq.store.tools.verify_index import IndexCheck, Keys, sys_max
from orbitmq.store.tools.verify_queues import Expected, QueueChecks

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record_columns import Ints
    from orbitmq.store.commitlog.scanner import Damage
    from orbitmq.store.tools.detect_layout import Layout

_INNER_NUM = names.INNER_NUM.encode()
_MULTI_DISPATCH = names.INNER_MULTI_DISPATCH.encode()
_MULTI_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()
_SCHEDULE = SCHEDULE_TOPIC.encode()


class State(enum.StrEnum):
    """State in which a store was left."""

    CLOSED = "closed"
    CRASHED = "crashed"
    OPEN = "open"


@dataclasses.dataclass(slots=True)
class Report:
    """Result of a verification."""

    state: State
    log_start: int
    log_end: int = 0
    end_reason: str = ""
    log_files: int = 0
    records: int = 0
    record_bytes: int = 0
    fenced: int = 0
    """Damaged places that an earlier recovery fenced off."""
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    findings: Findings = dataclasses.field(default_factory=Findings)
    notes: list[str] = dataclasses.field(default_factory=list)
    """Facts worth knowing that are not damage."""
    recovery_start: int | None = None
    """Log offset at which the next start will begin its scan, if the store was not closed."""
    units_to_write: int = 0
    units_to_drop: int = 0
    keys_to_write: int = 0
    index_files_to_drop: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.findings.counts


def verify(
    disk: Disk, layout: Layout, *, is_open: bool = False, progress: Callable[[int, int], None] | None = None
) -> Report:
    """Check everything. ``progress`` receives the verified and the total bytes of the log."""
    return _Verification(disk, layout, is_open=is_open).run(progress or (lambda _done, _all: None))


class _Verification:
    def __init__(self, disk: Disk, layout: Layout, *, is_open: bool) -> None:
        self._disk = disk
        self._config = config = layout.config
        self._is_clean = not is_open and not AbortFile(disk, config).exists
        self._log = ReadOnlyLog(disk, config)
        self._log.load()
        self._checkpoint = Checkpoint.load(disk, config.path("checkpoint"))
        self._snapshot = CloseSnapshot.load(disk, config.store_path_root_dir)
        self._table = QueueTable(disk, config)
        self._table.load()
        self._dispatcher = Dispatcher(self._table, None, config)
        state = State.OPEN if is_open else State.CLOSED if self._is_clean else State.CRASHED
        self._report = Report(state, self._log.start)
        self._findings = self._report.findings
        recovery_start = None if self._is_clean else self._recovery_start()
        self._report.recovery_start = recovery_start
        self._queues = QueueChecks(
            disk,
            config,
            layout.batch_topics,
            self._findings,
            sys_max() if recovery_start is None else recovery_start,
        )
        self._index: IndexCheck | None = None
        if config.message_index_enable and layout.index_is_known:
            self._index = IndexCheck(disk, config, self._findings, self._checkpoint, trusted=self._is_clean)
        self._topics: dict[bytes, str] = {}
        self._appends_crc: bool | None = None
        """True if the last record with a correct CRC property or none has one; None before the first."""
        self._deleted = DeletedTopics(disk, config.path("config"), read_only=True).ends

    def _recovery_start(self) -> int:
        """Log offset from which recovery will dispatch records again."""
        is_own = AbortFile(self._disk, self._config).is_own
        recovery = Recovery(
            self._disk, self._config, self._log, self._table, self._dispatcher, self._checkpoint,
            PreviousRun(clean=False, is_own=is_own, snapshot=self._snapshot),
        )  # fmt: skip
        return recovery.starting_points()[0] if len(self._log) else 0

    def run(self, progress: Callable[[int, int], None]) -> Report:
        report, log = self._report, self._log
        try:
            for fault in log.faults:
                self._findings.add(Kind.LOG_FILE, fault.reason, fault.path, physical_offset=fault.offset)
            report.log_files = len(log)
            if self._index is not None:
                self._index.start_at(log.start)
            self._walk(progress)
            self._finish()
        finally:
            log.close()
            if self._index is not None:
                self._index.close()
        return report

    def _walk(self, progress: Callable[[int, int], None]) -> None:
        report, log = self._report, self._log
        end, total = log.start, log.limit - log.start
        steps = scan_log(
            log,
            check_property_crc=self._config.force_verify_prop_crc,
            torn_from=None if self._is_clean else self._checkpoint.physic_msg_timestamp,
            search_unwritten=True,
        )
        for step in steps:
            if report.state is State.OPEN and self._was_being_written(step):
                break
            if isinstance(step, Chunk):
                self._check(step)
                end = step.end
            elif step.size:
                self._findings.add(
                    Kind.LOG_DAMAGE,
                    f"{step.size} bytes from offset {step.offset} on are not a record: {step.reason}",
                    log.file_at(step.offset),
                    physical_offset=step.offset,
                )
                end = step.offset + step.size
            else:
                report.end_reason = step.reason
            progress(end - log.start, total)
        report.log_end = end
        progress(total, total)

    def _was_being_written(self, step: Chunk | Damage) -> bool:
        if isinstance(step, Chunk):
            return not step.is_whole and self._log.is_whole(int(step.offset[0]))
        return bool(step.size) and self._log.is_whole(step.offset)

    # One chunk of the log

    def _check(self, chunk: Chunk) -> None:
        report = self._report
        report.records += len(chunk)
        report.record_bytes += int(chunk.size.sum())
        offsets = chunk.offset
        if not chunk.is_whole:
            self._report_record(Kind.BODY_CRC, "the body fails its CRC", chunk, 0)
        self._check_property_crcs(chunk)
        topics, properties = chunk.topics(), chunk.properties()
        codes, keys = self._codes_and_keys(chunk, topics, properties, offsets)
        queued = np.flatnonzero(chunk.sys_flag & NOT_QUEUED == 0)
        present = self._without_deleted(queued, topics, offsets)
        self._check_queues(chunk, topics, properties, offsets, codes, present)
        if self._config.enable_lmq and self._config.enable_multi_dispatch:
            self._check_lmqs(chunk, properties, offsets, codes, queued)
        if self._index is not None:
            self._index.feed(keys, chunk.end, are_whole=chunk.is_whole)

    def _check_property_crcs(self, chunk: Chunk) -> None:
        """Report records that fail the CRC property that their writer appended.

        The items of a batch retain the properties of their client, one of which may be called ``__CRC32#``. A
        broker appends a correct one to every record or to none, so the neighbouring records show whose it is.
        """
        states = chunk.property_crcs()
        others = np.flatnonzero(states != WRONG_CRC)
        for number in np.flatnonzero(states == WRONG_CRC).tolist():
            before = int(np.searchsorted(others, number))
            if before or (self._appends_crc is None and len(others)):
                is_appended = bool(states[others[max(before - 1, 0)]] == RIGHT_CRC)
            else:
                is_appended = bool(self._appends_crc)
            if is_appended:
                self._report_record(Kind.PROPERTY_CRC, "the record fails the CRC in its properties", chunk, number)
        if len(others):
            self._appends_crc = bool(states[others[-1]] == RIGHT_CRC)

    def _without_deleted(self, queued: Ints, topics: list[bytes], offsets: Ints) -> Ints:
        """The queued records, without those of topics that were deleted afterwards."""
        if not self._deleted:
            return queued
        ends = np.array([self._deleted.get(self._topics[topics[at]], 0) for at in queued.tolist()], np.int64)
        present = queued[offsets[queued] >= ends]
        self._queues.of_deleted_topics += len(queued) - len(present)
        return present

    def _report_record(self, kind: Kind, what: str, chunk: Chunk, number: int) -> None:
        offset = int(chunk.offset[number])
        self._findings.add(
            kind,
            f"{what}: record of {chunk.size[number]} bytes at offset {offset}",
            self._log.file_at(offset),
            physical_offset=offset,
            topic=decode_utf8(chunk.topics()[number]),
            queue_id=int(chunk.queue_id[number]),
            queue_offset=int(chunk.queue_offset[number]),
        )

    def _codes_and_keys(
        self, chunk: Chunk, topics: list[bytes], properties: list[bytes], offsets: Ints
    ) -> tuple[Ints, Keys]:
        """The tags code of every record, and the keys that the index must have."""
        fields = [index_fields(one) for one in properties]
        codes = [tags_code(tags) if tags else 0 for tags, _, _ in fields]
        for topic in set(topics):
            if topic not in self._topics:
                self._topics[topic] = decode_utf8(topic)
            if topic == _SCHEDULE:
                for at in [at for at, one in enumerate(topics) if one == topic]:
                    timestamp = int(chunk.store_timestamp[at])
                    codes[at] = self._dispatcher.delivery_time(properties[at], timestamp, codes[at])
            elif topic == FENCE_TOPIC:
                self._report.fenced += topics.count(topic)
        is_rolled_back = chunk.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
        if self._index is None:
            return np.array(codes, np.int64), Keys.none()
        for at in np.flatnonzero(is_rolled_back).tolist():
            fields[at] = (None, None, None)
        return np.array(codes, np.int64), Keys.of(topics, fields, offsets, chunk.store_timestamp)

    def _check_queues(
        self,
        chunk: Chunk,
        topics: list[bytes],
        properties: list[bytes],
        offsets: Ints,
        codes: Ints,
        queued: Ints,
    ) -> None:
        numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
        topic_numbers = np.array([numbers[topic] for topic in topics], np.int64)
        queues = (topic_numbers << 32 | (chunk.queue_id & 0xFFFFFFFF))[queued]
        order = queued[np.argsort(queues, kind="stable")]
        queues = np.sort(queues)
        for part in np.split(np.arange(len(order)), np.flatnonzero(np.diff(queues)) + 1):
            if not len(part):
                continue
            these = order[part]
            name = self._topics[topics[int(these[0])]]
            messages = np.ones(len(these), np.int64)
            if name in self._queues.batch_topics:
                messages = np.array(
                    [_inner_count(properties[at], int(chunk.sys_flag[at])) for at in these.tolist()], np.int64
                )
            self._queues.feed(
                name,
                int(chunk.queue_id[these[0]]),
                Expected(
                    chunk.queue_offset[these],
                    offsets[these],
                    chunk.size[these],
                    codes[these],
                    chunk.store_timestamp[these],
                    messages,
                ),
                are_whole=chunk.is_whole,
            )

    def _check_lmqs(self, chunk: Chunk, properties: list[bytes], offsets: Ints, codes: Ints, queued: Ints) -> None:
        light: dict[str, list[tuple[int, int]]] = collections.defaultdict(list)
        for at in queued.tolist():
            if _MULTI_DISPATCH not in properties[at]:
                continue
            targets = (find(properties[at], _MULTI_DISPATCH) or b"").split(b",")
            places = (find(properties[at], _MULTI_OFFSET) or b"").split(b",")
            if len(targets) == len(places):
                for target, place in zip(targets, places, strict=True):
                    name = decode_utf8(target)
                    is_deleted = int(offsets[at]) < self._deleted.get(name, 0)
                    if name.startswith(LMQ_PREFIX) and "/" not in name and place.isdigit() and not is_deleted:
                        light[name].append((int(place), at))
        for name, records in light.items():
            these = np.array([at for _, at in records], np.int64)
            self._queues.feed(
                name,
                0,
                Expected(
                    np.array([place for place, _ in records], np.int64),
                    offsets[these],
                    chunk.size[these],
                    codes[these],
                    chunk.store_timestamp[these],
                    np.ones(len(these), np.int64),
                ),
                are_whole=chunk.is_whole,
            )

    # The end

    def _finish(self) -> None:
        report, log, queues, index = self._report, self._log, self._queues, self._index
        queues.finish(log.start, report.log_end, self._deleted_topics())
        report.queues, report.units = len(queues), queues.units
        report.units_to_write, report.units_to_drop = queues.to_write, queues.to_drop
        if index is not None:
            index.finish(report.log_end)
            report.index_files, report.index_entries = len(index.paths), index.entries
            report.keys_to_write, report.index_files_to_drop = index.to_write, index.dropped_files
        self._note()

    def _deleted_topics(self) -> Callable[[str, int], bool]:
        """Predicate: a queue without files belongs to a deleted topic, according to the existing tables."""
        topics: set[str] | None = None
        try:
            if self._disk.stat(self._config.path("config", TOPICS.name)) is not None:
                table = TOPICS.load(self._disk, self._config.path("config"), read_only=True)
                topics = set(table.topic_config_table)
        except (StoreError, ProtocolError):
            self._report.notes.append("config/topics.json cannot be read, so deleted topics are not known")
        snapshot = self._snapshot

        def is_deleted(topic: str, queue_id: int) -> bool:
            if topic.startswith(LMQ_PREFIX) or (topics is None and snapshot is None):
                return False
            return (topics is None or topic not in topics) and (
                snapshot is None or queue_id not in snapshot.ranges.get(topic, {})
            )

        return is_deleted

    def _note(self) -> None:
        notes, queues, index = self._report.notes, self._queues, self._index
        if queues.of_deleted_topics:
            notes.append(f"{queues.of_deleted_topics} records belong to topics that were deleted")
        if self._report.fenced:
            notes.append(f"{self._report.fenced} damaged places were closed off by an earlier recovery")
        if not self._config.message_index_enable:
            notes.append("the index was not checked, because the conf says messageIndexEnable=false")
        elif index is None:
            notes.append(
                "the index was not checked: its files do not show its numbers of slots and entries, give "
                "the broker.conf with --conf"
            )
        elif index.lacks_tags:
            notes.append("the index holds no tags of the oldest records, as RocketMQ before 5.5 leaves it")
        if index is not None and index.doubled:
            notes.append(f"{index.doubled} keys are in the index twice, which recovery after a crash may leave")


def _inner_count(properties: bytes, sys_flag: int) -> int:
    text = find(properties, _INNER_NUM) if sys_flag & INNER_BATCH else None
    return int(text) if text is not None and text.isdigit() else 1
