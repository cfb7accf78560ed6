"""Dispatcher (RocketMQ's reput): enters appended records into consume queues and the index."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from orbitmq.protocol.command.fields import INT64_MAX
from orbitmq.protocol.java import decode_utf8, tags_code
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.protocol.message.properties import find, index_fields
from orbitmq.protocol.names import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from orbitmq.store.append.batch_encoder import properties_of_items, units_of, values_in
from orbitmq.store.commitlog.scanner import Seen, walk
from orbitmq.store.config import delay_levels
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue
from orbitmq.store.errors import AppendRefusedError, DiskFaultError
from orbitmq.store.index.batch_keys import MANY, BatchKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.native.results import Entered, Replayed
    from orbitmq.store.append.batch_decoder import BatchItems, Ints
    from orbitmq.store.commitlog.mapped_files import LogFiles
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.table import Queue, QueueTable, Topic
    from orbitmq.store.index.key_index import KeyIndex
    from orbitmq.store.index.pending import Pending

logger = logging.getLogger(__name__)

_UNNUMBERED = (RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SCHEDULE_TOPIC)
"""Messages of these topics get no LMQ offsets when they are appended: any that they carry come from a client."""

MAX_OFFSET_DIGITS = 18

NOT_QUEUED = 0x4
"""The sysFlag bit that transaction types prepared and rollback share: such records are in no queue."""

MAX_INNER_BATCH = 32767
"""A queue unit counts the messages of an inner batch in a signed short."""

_DELAY = names.DELAY_LEVEL.encode()
_INNER_NUM = names.INNER_NUM.encode()
MULTI_DISPATCH = names.INNER_MULTI_DISPATCH.encode()
_MULTI_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()


class Dispatcher:
    """Dispatches records to their consume queues and the index."""

    def __init__(self, table: QueueTable, index: KeyIndex | None, config: StoreConfig) -> None:
        self.position = 0
        """Records of the log before this offset are dispatched."""
        self.last_offset = 0
        self.last_store_timestamp = 0
        """Offset and store timestamp of the last dispatched record."""
        self.table = table
        self.index = index
        self.unwritten: list[Queue] = []
        """Queues with units that are not in their files yet, without duplicates."""
        self.fault: DiskFaultError | None = None
        """Why queue or index files cannot be written; None once they can."""
        self.index_missing_from: int | None = None
        """First record that the index lacks, because its files could not be written; None if it lacks none."""
        self.on_arrival: Callable[[Queue, int, int], None] | None = None
        """Called with queue, tags code and store timestamp after a queue has grown."""
        self.delays = delay_levels(config.message_delay_level)
        self.deleted: dict[str, int] = {}
        """By topic, the offset before which records are in no queue: it was deleted. See ``DeletedTopics``."""
        self.has_lmqs = config.enable_lmq and config.enable_multi_dispatch
        """True if a record may be in LMQs beside its own queue."""

    def dispatch(
        self,
        topic: Topic,
        queue: Queue,
        queue_offset: int,
        offset: int,
        size: int,
        sys_flag: int,
        store_timestamp: int,
        properties: bytes,
        to_index: bool = True,
    ) -> None:
        """Enter one record. Disk errors are stored in ``fault``, because the record is in the log already."""
        self.last_offset = offset
        self.last_store_timestamp = store_timestamp
        tags, keys, unique_key = index_fields(properties)
        if not sys_flag & NOT_QUEUED:
            code = tags_code(tags) if tags else 0
            if topic.is_schedule:
                code = self.delivery_time(properties, store_timestamp, code)
            if isinstance(queue, ConsumeQueue):
                is_new = queue.put(queue_offset, offset, size, code)
            else:
                count = _batch_count(properties) if sys_flag & INNER_BATCH else 1
                is_new = queue.put(queue_offset, offset, size, code, store_timestamp, count)
            if is_new and (not queue.is_queued or queue.tail_size >= queue.full_at or self.on_arrival is not None):
                self._note(queue, code, store_timestamp)
            if self.has_lmqs and MULTI_DISPATCH in properties and not topic.name.startswith(_UNNUMBERED):
                self._dispatch_lmq(properties, offset, size, code, store_timestamp)
        if to_index and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._add_to_index(topic.name, offset, store_timestamp, unique_key, keys, tags)

    def takes_batch(self, topic: Topic, queue: Queue, queue_offset: int, offset: int, batch: bytes) -> bool:
        """True if the records of a batch, the first at ``offset``, can be dispatched at once."""
        return (
            isinstance(queue, ConsumeQueue)
            and queue_offset == queue.end
            and offset >= queue.max_physical
            and not topic.is_schedule
            and not (self.has_lmqs and MULTI_DISPATCH in batch)
        )

    def dispatch_batch(
        self,
        topic: Topic,
        queue: Queue,
        queue_offset: int,
        offsets: Ints,
        sizes: Ints,
        store_timestamp: int,
        items: BatchItems,
    ) -> None:
        """Enter the records of a batch accepted by ``takes_batch``. Disk errors are stored, as by ``dispatch``."""
        assert isinstance(queue, ConsumeQueue)
        keys = BatchKeys.of(items) if len(items) >= MANY and topic.name.isascii() else None
        properties = properties_of_items(items) if keys is None else []
        tags = values_in(items.batch, properties, b"TAGS") if keys is None else []
        codes = _tags_codes(tags) if keys is None else keys.tags_codes()
        self.last_offset = int(offsets[-1])
        self.last_store_timestamp = store_timestamp
        queue.put_many(queue_offset, units_of(offsets, sizes, codes), int(offsets[-1] + sizes[-1]))
        self._note(queue, int(codes[-1]), store_timestamp)
        if self.index is None or self.index_missing_from is not None:
            return
        place = int(offsets[0])
        try:
            if keys is not None:
                rows, hashes = keys.index_entries(topic.name)
                self.index.add_hashes(hashes, offsets[rows], store_timestamp)
                return
            unique_keys = values_in(items.batch, properties, b"UNIQ_KEY")
            texts = zip(unique_keys, values_in(items.batch, properties, b"KEYS"), tags, strict=True)
            for place, (unique_key, key, tag) in zip(offsets.tolist(), texts, strict=True):
                self.index.add(topic.name, place, store_timestamp, unique_key, key, tag)
        except DiskFaultError as error:
            self.fault = error
            self.index_missing_from = place

    def enter_run(
        self, queue: ConsumeQueue, queue_offset: int, units: bytes, stop: int, code: int, store_timestamp: int
    ) -> None:
        """Enter records that continue a queue; the last ends at ``stop`` and has this tags code."""
        queue.put_many(queue_offset, units, stop)
        self._note(queue, code, store_timestamp)

    def on_entered(self, entered: Entered[ConsumeQueue], store_timestamp: int) -> None:
        """Native code entered a batch into its queues: record queues to write, and notify arrival listeners."""
        if entered.dirtied:
            self.unwritten += entered.dirtied
        if entered.full:
            self.write_queues(entered.full)
        if self.on_arrival is not None:
            for queue, code in entered.arrived:
                self.on_arrival(queue, code, store_timestamp)

    def index_many(self, records: list[Pending]) -> None:
        """Enter records into the index: all that are in the log since the last one that was entered."""
        _, self.last_offset, self.last_store_timestamp, *_ = records[-1]
        if self.index is None or self.index_missing_from is not None:
            return
        try:
            self.index.add_many(records)
        except DiskFaultError as error:
            self.fault = error
            self.index_missing_from = records[0][1]

    def index_hashed(
        self, first: int, last: int, store_timestamp: int, count: int, hashes: bytes, offsets: bytes
    ) -> None:
        """The same for records between these offsets whose keys are hashed already; see ``KeyIndex.add_hashed``."""
        self.last_offset = last
        self.last_store_timestamp = store_timestamp
        if self.index is None or self.index_missing_from is not None:
            return
        try:
            self.index.add_hashed(count, hashes, offsets, store_timestamp)
        except DiskFaultError as error:
            self.fault = error
            self.index_missing_from = first

    def enter_replayed(self, replayed: Replayed, *, is_queued: bool) -> None:
        """Enter records of a native replay, perhaps into the index only; see ``NativeReput``.

        Errors of the disk are kept, as by ``dispatch``.
        """
        if is_queued:
            self.last_offset, self.last_store_timestamp = replayed.last, replayed.store_timestamp
        self.on_entered(replayed.entered, replayed.store_timestamp)
        if not replayed.hashes or self.index is None or self.index_missing_from is not None:
            return
        try:
            self.index.add_columns(replayed.record_count, replayed.hashes, replayed.offsets, replayed.timestamps)
        except DiskFaultError as error:
            self.fault = error
            self.index_missing_from = int.from_bytes(replayed.offsets[:8], sys.byteorder)

    def dispatch_scanned(self, seen: Seen, *, to_index: bool = True) -> None:
        """Enter a record found by a scan of the log."""
        if seen.sys_flag & NOT_QUEUED:
            self.last_offset, self.last_store_timestamp = seen.offset, seen.store_timestamp
            if to_index:
                self.index_scanned(seen)
            return
        name = decode_utf8(seen.topic)
        if seen.offset < self.deleted.get(name, 0):
            self.dispatch_deleted(seen.offset, seen.size, seen.store_timestamp, seen.properties)
            if to_index:
                self.index_scanned(seen)
            return
        try:
            queue = self.table.get(name, seen.queue_id)
        except AppendRefusedError:
            return  # stored by a master with another configuration of the topic; no queue here can hold it
        self.dispatch(
            self.table.topics[name], queue, seen.queue_offset, seen.offset, seen.size, seen.sys_flag,
            seen.store_timestamp, seen.properties, to_index,
        )  # fmt: skip

    def dispatch_deleted(self, offset: int, size: int, store_timestamp: int, properties: bytes) -> None:
        """Skip a record of a deleted topic. LMQs that it is in are not part of that topic."""
        self.last_offset, self.last_store_timestamp = offset, store_timestamp
        if self.has_lmqs and MULTI_DISPATCH in properties:
            tags, _, _ = index_fields(properties)
            self._dispatch_lmq(properties, offset, size, tags_code(tags) if tags else 0, store_timestamp)

    def _note(self, queue: Queue, code: int, store_timestamp: int) -> None:
        if not queue.is_queued:
            queue.is_queued = True
            self.unwritten.append(queue)
        if queue.tail_size >= queue.full_at:
            self.write_queues((queue,))
        if self.on_arrival is not None:
            self.on_arrival(queue, code, store_timestamp)

    def mark_unsynced(self, queue: Queue) -> None:
        """Add a queue to the next flush whose files were changed otherwise than by a record."""
        if queue.is_unsynced and not queue.is_queued:
            queue.is_queued = True
            self.unwritten.append(queue)

    def write_queues(self, queues: Sequence[Queue]) -> None:
        """Write the tails of these queues to their files."""
        try:
            self.table.write_out(queues)
        except OSError as error:
            self.record_fault("written", error)
        else:
            if self.index_missing_from is None:
                self.fault = None

    def record_fault(self, what: str, error: OSError) -> None:
        """Store a queue I/O error: the store refuses messages until a retry succeeds."""
        if self.fault is None:
            logger.error("consume queues of %s: cannot be %s, refusing messages: %s", self.table.root, what, error)
        self.fault = DiskFaultError(
            f"the consume queues of {self.table.root} cannot be {what} ({error.strerror}): "
            "free space or check the disk"
        )

    def _add_to_index(
        self, topic: str, offset: int, time: int, unique_key: bytes | None, keys: bytes | None, tags: bytes | None
    ) -> None:
        if self.index is None or self.index_missing_from is not None:
            return
        try:
            self.index.add(topic, offset, time, unique_key, keys, tags)
        except DiskFaultError as error:
            self.fault = error
            self.index_missing_from = offset

    def repair(self, files: LogFiles) -> None:
        """Retry what the disk refused: queue files, and the records missing in the index."""
        self.fault = None
        self.write_queues(self.unwritten)
        if self.fault is None:
            self.repair_index(files)

    def repair_index(self, files: LogFiles) -> None:
        """Put pending records and those that are missing into the index.

        If the disk refuses again, the rest stays missing and ``fault`` has the reason.
        """
        if self.index is None:
            return
        gap, self.index_missing_from = self.index_missing_from, None
        try:
            self.index.flush_pending()
        except DiskFaultError as error:
            self.fault, self.index_missing_from = error, gap
            return
        if gap is not None:
            self._index_from(gap, files)

    def _index_from(self, start: int, files: LogFiles) -> None:
        try:
            for seen in walk(files, start, self.position, check_crc=False):
                if isinstance(seen, Seen):
                    self.index_scanned(seen)
                    start = seen.offset + seen.size
                if self.index_missing_from is not None:
                    return
        except OSError as error:
            self.index_missing_from = start
            self.fault = DiskFaultError(
                f"the log cannot be read for the index, which lacks a part of it ({error.strerror}): check the disk"
            )

    def index_scanned(self, seen: Seen) -> None:
        """Enter a record found by a scan into the index only."""
        if seen.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            tags, keys, unique_key = index_fields(seen.properties)
            self._add_to_index(decode_utf8(seen.topic), seen.offset, seen.store_timestamp, unique_key, keys, tags)

    def delivery_time(self, properties: bytes, store_timestamp: int, code: int) -> int:
        """The delivery time of a delayed message; its unit has it in the place of the tags code."""
        level = find(properties, _DELAY)
        # Any number of digits above the highest level counts as the highest: no conversion of endless digits.
        number = int(level.lstrip(b"0")[:10] or b"0") if level is not None and level.isdigit() else 0
        if number <= 0:
            return code
        delay = self.delays.get(min(number, max(self.delays, default=0)))
        # A time from a damaged record must fit into a unit.
        return min(store_timestamp + (1000 if delay is None else delay), INT64_MAX)

    def _dispatch_lmq(self, properties: bytes, offset: int, size: int, code: int, store_timestamp: int) -> None:
        light = (find(properties, MULTI_DISPATCH) or b"").split(b",")
        offsets = (find(properties, _MULTI_OFFSET) or b"").split(b",")
        if len(light) != len(offsets):
            return
        for encoded, queue_offset in zip(light, offsets, strict=True):
            name = decode_utf8(encoded)
            if not name.startswith(LMQ_PREFIX) or "/" in name or not queue_offset.isdigit():
                continue
            if len(queue_offset) > MAX_OFFSET_DIGITS or offset < self.deleted.get(name, 0):
                continue
            try:
                queue = self.table.get(name, 0)
            except AppendRefusedError:
                continue
            if isinstance(queue, ConsumeQueue) and queue.put(int(queue_offset), offset, size, code):
                self._note(queue, code, store_timestamp)


def _tags_codes(tags: list[bytes | None]) -> list[int]:
    codes = {tag: tags_code(tag) if tag else 0 for tag in set(tags)}
    return [codes[tag] for tag in tags]


def _batch_count(properties: bytes) -> int:
    """Number of messages in an inner batch; 1 if the property is invalid."""
    digits = find(properties, _INNER_NUM) or b""
    count = int(digits) if digits.isdigit() and len(digits) <= 5 else 0
    return count if 0 < count <= MAX_INNER_BATCH else 1
