"""Reading a store: by queue offset, physical offset, message id, key and time. Slices out, no copies."""

from __future__ import annotations

import dataclasses
import enum
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.protocol.names import LMQ_PREFIX, SCHEDULE_TOPIC
from orbitmq.store.commitlog.cold_data import NEAR, ColdData
from orbitmq.store.commitlog.scanner import LogView, Seen
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE, ConsumeQueue
from orbitmq.store.consumequeue.ext import is_ext_address, read_ext
from orbitmq.store.consumequeue.known_tags import MAX_DOUBTS, KnownTags
from orbitmq.store.recovery.topic_repair import restore_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store.commitlog.cold_data import Range
    from orbitmq.store.commitlog.commit_log import CommitLog
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.batch_consume_queue import BatchConsumeQueue
    from orbitmq.store.consumequeue.repair import QueueRepairs
    from orbitmq.store.consumequeue.table import Queue, QueueTable
    from orbitmq.store.index.key_index import KeyIndex

logger = logging.getLogger(__name__)
_gather_records = native.load().gather_records

MAX_PULL_BYTES = 128 * 1024 * 1024

MAX_COPIED = 65536
"""Records that are not contiguous in the log are copied together up to this many bytes."""

MAX_IN_BULK = 2048
"""Maximum number of records in one response of a bulk read: the loop's work for them takes a millisecond."""
COPIED_IN_BULK = 4096
"""Bulk reads copy records that are smaller than this on average."""


FILTER_SECONDS = 0.01
"""Time limit of a read with a property filter; the next read continues behind what was examined."""
MIN_FILTERED = 16
"""Minimum number of records that such a read examines, however long they take."""
MAX_LOGGED = 100
"""Damaged records that reads log one by one; after that, every 100th."""

_HEAD = struct.Struct(">i8xi4xqq")
"""The fields of a record that identify it: size, queue id, queue offset, physical offset."""


class GetStatus(enum.Enum):
    """RocketMQ's outcomes of a read by queue offset (``GetMessageStatus``)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class Boundary(enum.Enum):
    """Which of the messages around a point in time is requested."""

    LOWER = "LOWER"
    """The first one stored at or after it."""
    UPPER = "UPPER"
    """The last one stored at or before it."""


@dataclasses.dataclass(slots=True)
class GetResult:
    """Result of a read by queue offset."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview] = dataclasses.field(default_factory=list)
    """Records as they lie in the log; contiguous records share a slice. Scattered small ones are copied into
    one."""
    count: int = 0
    size: int = 0
    behind: int = 0
    """Lag of this reader: bytes of log between the last record read and the end."""
    cold_ranges: list[Range] | None = None
    """Ranges of the log to fetch into memory first; if set, nothing was read."""


@dataclasses.dataclass(slots=True)
class QueryResult:
    """Result of a look-up by key."""

    records: list[memoryview]
    last_update_timestamp: int
    last_update_offset: int


Candidate = tuple[int, int, int, int, int]
"""Queue offset, number of messages, physical offset, size and tags code of a unit."""


class Reader:
    """All reads of a store."""

    def __init__(
        self,
        disk: Disk,
        config: StoreConfig,
        log: CommitLog,
        table: QueueTable,
        index: KeyIndex | None,
        memory_size: int,
        repairs: QueueRepairs,
        clock: Clock,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._config = config
        self._log = log
        self._table = table
        self._index = index
        self._repairs = repairs
        self.damaged = 0
        """Reads that came to a record that is damaged in the log; none was served."""
        self.memory_window = memory_size * config.access_message_in_memory_max_ratio // 100
        """Records this close to the end of the log are assumed to be in memory."""
        self._known_tags = KnownTags()
        self.cold = ColdData(log, clock)
        self.checked_from = 0
        """Records from this offset on were written by this process; older ones are checked when read."""

    # By physical offset

    def record(self, offset: int) -> memoryview | None:
        """The record at a physical offset; None if there is none or it is damaged."""
        if offset < self._log.start or offset >= self._log.committed:
            return None
        seen = self._look(offset)
        return None if seen is None else self._log.slice(offset, seen.size)

    def _look(self, offset: int, *, check_crc: bool = True) -> Seen | None:
        buffer = self._log.files.buffer_at(offset)
        if buffer is None:
            return None
        base = offset - offset % self._log.file_size
        found = LogView(base, buffer).look(offset - base, check_crc=check_crc and offset < self.checked_from)
        return found if isinstance(found, Seen) and found.body_is_intact else None

    def store_timestamp(self, offset: int) -> int | None:
        """When the record at a physical offset was stored."""
        seen = self._look(offset) if self._log.start <= offset < self._log.committed else None
        return None if seen is None else seen.store_timestamp

    def by_message_id(self, message_id: str) -> memoryview | None:
        """The record of an offset message id, whatever host the id names."""
        return self.record(decode_offset_id(message_id)[1])

    # By queue offset

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        max_bytes: int = MAX_PULL_BYTES,
        *,
        matches_code: Callable[[int], bool] | None = None,
        matches_record: Callable[[memoryview], bool] | None = None,
        in_bulk: bool = False,
        may_wait: bool = False,
    ) -> GetResult:
        """Records of a queue from ``offset`` on, within RocketMQ's limits for one answer.

        ``in_bulk`` is for readers of whole queues: their limit is in bytes, also where records are not in memory.
        With ``may_wait`` nothing is read from the disk: if that is necessary, the result has ``cold_ranges``.
        """
        for _ in range(2):
            result = self._get(
                topic, queue_id, offset, max_count, max_bytes, matches_code, matches_record, in_bulk, may_wait
            )
            if not self._repairs.is_wanted or self._repairs.is_deferred:
                break
            self._repairs.repair_all()
            if result.count:
                break
        return result

    def _get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        matches_code: Callable[[int], bool] | None,
        matches_record: Callable[[memoryview], bool] | None,
        in_bulk: bool,
        may_wait: bool,
    ) -> GetResult:
        queue = self._table.find(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, high)
        if isinstance(queue, ConsumeQueue):
            if (
                matches_code is None
                and matches_record is None
                and self._collect_plainly(queue, result, offset, max_count, max_bytes, in_bulk, may_wait)
            ):
                return result
            # The client gives the count: it must not make one read scan a whole queue.
            limit = max(self._config.max_filter_message_size // UNIT_SIZE, min(max_count, MAX_IN_BULK))
            units = queue.read(offset, limit)
            if not units:
                result.status = GetStatus.OFFSET_FOUND_NULL
                per_file = queue.file_size // UNIT_SIZE
                behind = min(high, offset - offset % per_file + per_file)
                # The file is missing or truncated. Readers skip it only if it cannot be repaired.
                if not self._repairs.report(queue, offset, behind):
                    result.next_begin_offset = behind
                return result
            if may_wait and self._has_gap(result, units[: max(max_count, 1) * UNIT_SIZE]):
                return result
            candidates: Iterator[Candidate] = (
                (offset + number, 1, *unit) for number, unit in enumerate(UNIT.iter_unpack(units))
            )
        else:
            candidates = self._batch_candidates(queue, offset, max_count)
        self._collect(
            queue, result, candidates, max_count, max(max_bytes, 1), matches_code, matches_record, in_bulk
        )
        return result

    def _collect_plainly(
        self,
        queue: ConsumeQueue,
        result: GetResult,
        offset: int,
        max_count: int,
        max_bytes: int,
        in_bulk: bool,
        may_wait: bool,
    ) -> bool:
        """Fast path without a loop over the records: no filter, written by this process, in memory and in one file.

        Returns False if this does not apply, with ``result`` unchanged. Physical offsets grow along a queue, so
        what holds for the first and the last record holds for those between.
        """
        config, log = self._config, self._log
        limit = MAX_IN_BULK if in_bulk else config.max_transfer_count_on_message_in_memory
        most = max(min(max_count, limit), 1)
        units = queue.read(offset, most)
        if not units:
            return False
        first = int.from_bytes(units[:8], "big")
        end = log.committed
        if may_wait and self._has_gap(result, units):
            return True
        if first < self.checked_from or first < log.start or (end - first > self.memory_window and not in_bulk):
            return False
        base = first - first % log.file_size
        buffer = log.files.buffer_at(first)
        if buffer is None:
            return False
        most_bytes = min(max_bytes, config.max_transfer_bytes_on_message_in_memory)
        # Many small slices are cheaper copied once than passed on one by one.
        copied, each = (0, COPIED_IN_BULK) if in_bulk else (MAX_COPIED, 0)
        number = -1 if queue.topic.startswith(LMQ_PREFIX) else offset
        gathered = _gather_records(units, buffer, base, end, most_bytes, copied, each, queue.queue_id, number)
        if gathered is None:
            return False
        count = gathered.record_count
        if gathered.records is not None:
            result.slices = [memoryview(gathered.records)]
        elif gathered.size == gathered.stop - first:
            result.slices = [memoryview(buffer)[first - base : gathered.stop - base]]
        else:
            view = memoryview(buffer)
            found = UNIT.iter_unpack(units[: count * UNIT_SIZE])
            result.slices = [view[at - base : at - base + size] for at, size, _ in found]
        result.status = GetStatus.FOUND
        result.count = count
        result.size = gathered.size
        result.next_begin_offset = offset + count
        result.behind = end - gathered.last
        return True

    def _has_gap(self, result: GetResult, units: bytes) -> bool:
        first = int.from_bytes(units[:8], "big")
        if self._log.committed - first > NEAR or first < self.checked_from:
            result.cold_ranges = self.cold.cold_ranges(units) or None
        return result.cold_ranges is not None

    @staticmethod
    def _batch_candidates(queue: BatchConsumeQueue, offset: int, max_count: int) -> Iterator[Candidate]:
        for _ in range(max(max_count, 1)):
            unit = queue.unit(offset)
            if unit is None:
                return
            yield unit.base_offset, unit.message_count, unit.physical_offset, unit.size, unit.tags_code
            offset = unit.base_offset + unit.message_count

    def _collect(
        self,
        queue: ConsumeQueue | BatchConsumeQueue,
        result: GetResult,
        candidates: Iterator[Candidate],
        max_count: int,
        max_bytes: int,
        matches_code: Callable[[int], bool] | None,
        matches_record: Callable[[memoryview], bool] | None,
        in_bulk: bool,
    ) -> None:
        config, log, topic = self._config, self._log, queue.topic
        end, log_start = log.committed, log.start
        start = stop = -1
        examined, doubts, deadline = 0, 0, self._clock.monotonic() + FILTER_SECONDS
        requested, is_wrong = result.next_begin_offset, False
        # Units of an LMQ point to records that name other queues; those of inner batches are numbered differently.
        is_plain = not queue.is_batch and not queue.topic.startswith(LMQ_PREFIX)
        for queue_offset, count, physical, size, code in candidates:
            if size == FILLER_SIZE:
                result.next_begin_offset = queue_offset + count
                continue
            in_memory = in_bulk or end - physical <= self.memory_window
            most_bytes = (
                config.max_transfer_bytes_on_message_in_memory
                if in_memory
                else config.max_transfer_bytes_on_message_in_disk
            )
            most = (
                MAX_IN_BULK
                if in_bulk
                else config.max_transfer_count_on_message_in_memory
                if in_memory
                else config.max_transfer_count_on_message_in_disk
            )
            if result.count and (
                result.count + count > max_count
                or result.size + size > min(max_bytes, most_bytes)
                or result.count >= most
            ):
                break
            if matches_record is not None:
                if examined >= MIN_FILTERED and self._clock.monotonic() >= deadline:
                    count_refusal(Limit.FILTER_TIME)
                    break
                examined += 1
            if is_plain and self._is_impossible(queue, size, physical, code):
                is_wrong = self._repairs.report(queue, queue_offset, queue_offset + 1)
                if is_wrong:
                    break
            result.next_begin_offset = queue_offset + count
            if matches_code is not None:
                if is_ext_address(code):
                    code = self._resolve(queue, code)  # noqa: PLW2901
                if not matches_code(code):
                    if is_plain and physical < self.checked_from and self._known_tags.is_doubtful(topic, code):
                        doubts += 1
                        is_over = doubts > MAX_DOUBTS
                        is_wrong = not is_over and self._has_wrong_code(queue, queue_offset, physical, size, code)
                        if is_wrong or is_over:
                            result.next_begin_offset = queue_offset
                            break
                    continue
            if is_plain and (
                self._leads_elsewhere(queue, queue_offset, physical, size)
                or (
                    physical < self.checked_from and self._has_wrong_code(queue, queue_offset, physical, size, code)
                )
            ):
                is_wrong = self._repairs.report(queue, queue_offset, queue_offset + 1)
                if is_wrong:
                    result.next_begin_offset = queue_offset
                    break
            if physical < log_start or not self._is_readable(queue, physical, size):
                if not result.count:
                    result.status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            if matches_record is not None and not matches_record(self._slice(physical, size)):
                continue
            result.status = GetStatus.FOUND
            result.count += count
            result.size += size
            result.behind = end - physical
            if physical == stop and physical % log.file_size:
                stop += size
            else:
                if start >= 0:
                    result.slices.append(self._slice(start, stop - start))
                start, stop = physical, physical + size
        if start >= 0:
            result.slices.append(self._slice(start, stop - start))
        if is_wrong and not result.count and result.next_begin_offset == requested:
            # Not skipped: its message is in the log, and the repaired unit will point to it.
            result.status = GetStatus.OFFSET_FOUND_NULL

    def _is_impossible(self, queue: Queue, size: int, physical: int, code: int) -> bool:
        """True for a unit that no record can have, whatever the log holds."""
        if size <= 0 or physical < 0 or physical + size > self._log.committed:
            return True
        # The tags code is a 32-bit hash; other values are delivery times and addresses of extension units.
        return not (-(1 << 31) <= code < 1 << 31 or is_ext_address(code) or queue.topic == SCHEDULE_TOPIC)

    def _leads_elsewhere(self, queue: Queue, queue_offset: int, physical: int, size: int) -> bool:
        """True if a unit does not point to a record of its queue with its queue offset."""
        start = self._log.start
        if physical < start:
            before = queue.unit(queue_offset - 1) if isinstance(queue, ConsumeQueue) else None
            # The record has expired and the queue was not truncated yet; unless an earlier unit points further.
            return before is not None and before[0] >= start
        buffer, at = self._log.files.buffer_at(physical), physical % self._log.file_size
        if buffer is None or at + _HEAD.size > len(buffer):
            return False  # the file is missing, which is not the queue's fault
        head: tuple[int, ...] = _HEAD.unpack_from(buffer, at)
        return head != (size, queue.queue_id, queue_offset, physical)

    def _has_wrong_code(self, queue: Queue, queue_offset: int, physical: int, size: int, code: int) -> bool:
        """True if a unit has a tags code that its record does not have, and will be repaired."""
        seen = self._look(physical, check_crc=False) if physical >= self._log.start else None
        if seen is None or is_ext_address(code) or self._leads_elsewhere(queue, queue_offset, physical, size):
            return False
        if self._repairs.code_of(queue, seen) == code:
            self._known_tags.confirm(queue.topic, code)
            return False
        return self._repairs.report(queue, queue_offset, queue_offset + 1)

    def _is_readable(self, queue: Queue, physical: int, size: int) -> bool:
        if physical >= self.checked_from:
            return physical + size <= self._log.committed
        seen = self._look(physical)
        is_lmq = queue.topic.startswith(LMQ_PREFIX)
        if seen is not None and seen.size == size and (is_lmq or self._has_topic(seen, queue.topic)):
            return True
        self.damaged += 1
        if self.damaged <= MAX_LOGGED or not self.damaged % MAX_LOGGED:
            logger.error(
                "commit log: skipped record at %d of %s queue %d: damaged or of another topic (%d so far)",
                physical, queue.topic, queue.queue_id, self.damaged,
            )  # fmt: skip
        return False

    def _has_topic(self, seen: Seen, topic: str) -> bool:
        """True if a record is of a topic. No CRC covers the name: a flipped bit is repaired if everything else
        matches."""
        expected = topic.encode("utf-8", "replace")
        return seen.topic == expected or restore_topic(self._log.files, seen, expected)

    def _slice(self, offset: int, size: int) -> memoryview:
        view = self._log.slice(offset, size)
        assert view is not None, f"records at {offset} disappeared during a read"
        return view

    def _resolve(self, queue: ConsumeQueue | BatchConsumeQueue, code: int) -> int:
        unit = read_ext(
            self._disk,
            self._config.store_path_root_dir,
            queue.topic,
            queue.queue_id,
            self._config.mapped_file_size_consume_queue_ext,
            code,
        )
        return code if unit is None else unit.tags_code

    # By time

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int | None:
        """The queue offset at a point in time, within the queue's range; None if there is no such queue."""
        queue = self._table.find(topic, queue_id)
        if queue is None:
            return None
        low, high = queue.min_offset, queue.max_offset
        after = 1 if boundary is Boundary.UPPER else 0
        # The first offset stored at or after `timestamp` (LOWER), or after it (UPPER).
        while low < high:
            middle = (low + high) // 2
            time, known_from, known_to = self._time_around(queue, middle)
            if time is not None and time >= timestamp + after:
                high = min(middle, known_from)
            else:
                low = max(middle + 1, known_to)
        if boundary is Boundary.LOWER:
            return low
        at = max(low - 1, queue.min_offset)
        if isinstance(queue, ConsumeQueue):
            return at
        batch = queue.unit(at)
        return at if batch is None else max(batch.base_offset, queue.min_offset)

    def _time_around(
        self, queue: ConsumeQueue | BatchConsumeQueue, queue_offset: int
    ) -> tuple[int | None, int, int]:
        """Store time at or next after a queue offset, and the range of offsets it stands for."""
        if not isinstance(queue, ConsumeQueue):
            batch = queue.unit(queue_offset)
            if batch is None:
                return None, queue_offset, queue.max_offset
            after = batch.base_offset + batch.message_count
            return batch.store_timestamp, min(queue_offset, batch.base_offset), after
        at = queue_offset
        while at < queue.end:
            unit = queue.unit(at)
            time = None if unit is None or unit[1] == FILLER_SIZE else self.store_timestamp(unit[0])
            if time is not None:
                return time, queue_offset, at + 1
            at += 1
        return None, queue_offset, queue.end

    def earliest_time(self, topic: str, queue_id: int) -> int | None:
        """When the oldest readable message of a queue was stored."""
        queue = self._table.find(topic, queue_id)
        if queue is None or queue.min_offset >= queue.max_offset:
            return None
        return self._time_around(queue, queue.min_offset)[0]

    # By key

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = 64,
        begin: int = 0,
        end: int = 1 << 62,
        index_type: str | None = None,
    ) -> QueryResult:
        """Records whose key hashes like ``key``, oldest first. A client compares the keys themselves."""
        if self._index is None:
            return QueryResult([], 0, 0)
        self._repairs.repair_index()
        hits = self._index.query(topic, key, max_count, begin, end, index_type)
        found = (self.record(offset) for offset in sorted(hits.offsets))
        records = [record for record in found if record is not None]
        return QueryResult(records, hits.last_update_timestamp, hits.last_update_offset)
