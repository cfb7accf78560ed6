"""From the log to the queues and the index: what makes an appended record visible."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orbitmq.protocol import property_names as names
from orbitmq.protocol.flags import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.protocol.java import decode_utf8, tags_code
from orbitmq.protocol.names import LMQ_PREFIX
from orbitmq.protocol.properties import find, index_fields
from orbitmq.store.batch_keys import MANY, BatchKeys
from orbitmq.store.batch_records import properties_of_items, units_of, values_in
from orbitmq.store.config import delay_levels
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.errors import AppendRefusedError, DiskFaultError
from orbitmq.store.scan import Seen, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.kernel import _native
    from orbitmq.store.batch_items import BatchItems, Ints
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.index_pending import Pending
    from orbitmq.store.key_index import KeyIndex
    from orbitmq.store.log_files import LogFiles
    from orbitmq.store.queue_table import Queue, QueueTable, Topic

NOT_QUEUED = 0x4
"""The sysFlag bit that transaction types prepared and rollback share: such records are in no queue."""

MAX_INNER_BATCH = 32767
"""A queue unit counts the messages of an inner batch in a signed short."""

_DELAY = names.DELAY_LEVEL.encode()
_INNER_NUM = names.INNER_NUM.encode()
MULTI_DISPATCH = names.INNER_MULTI_DISPATCH.encode()
_MULTI_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()


class Dispatcher:
    """Enters records into their consume queues and into the index."""

    def __init__(self, table: QueueTable, index: KeyIndex | None, config: StoreConfig) -> None:
        self.position = 0
        """Records of the log before this offset were dispatched."""
        self.last_offset = 0
        self.last_store_timestamp = 0
        """Where the last dispatched record begins, and when it was stored."""
        self.table = table
        self.index = index
        self.unwritten: list[Queue] = []
        """Queues with units that are not in their files, each once."""
        self.fault: DiskFaultError | None = None
        """Why the queues' or the index's files cannot be written; None as soon as they can."""
        self.index_gap: int | None = None
        """From here on records are missing in the index, because its files could not be written."""
        self.on_arrival: Callable[[Queue, int, int], None] | None = None
        """Called with queue, tags code and store timestamp when a queue has a new end."""
        self.delays = delay_levels(config.message_delay_level)
        self.has_light_queues = config.enable_lmq and config.enable_multi_dispatch
        """Whether a record may be in more queues than its own."""

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
        """Enter one record. Errors of the disk are kept in ``fault``, because the record is in the log already."""
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
            if self.has_light_queues and MULTI_DISPATCH in properties:
                self._dispatch_lmq(properties, offset, size, code, store_timestamp)
        if to_index and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            self._add_to_index(topic.name, offset, store_timestamp, unique_key, keys, tags)

    def takes_batch(self, topic: Topic, queue: Queue, queue_offset: int, offset: int, batch: bytes) -> bool:
        """Whether the records of a batch, the first of which is at ``offset``, can be dispatched all at once."""
        return (
            isinstance(queue, ConsumeQueue)
            and queue_offset == queue.end
            and offset >= queue.max_physical
            and not topic.is_schedule
            and not (self.has_light_queues and MULTI_DISPATCH in batch)
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
        """Enter the records of a batch, which ``takes_batch``. Errors of the disk are kept, as by ``dispatch``."""
        assert isinstance(queue, ConsumeQueue)
        keys = BatchKeys.of(items) if len(items) >= MANY and topic.name.isascii() else None
        properties = properties_of_items(items) if keys is None else []
        tags = values_in(items.batch, properties, b"TAGS") if keys is None else []
        codes = _tags_codes(tags) if keys is None else keys.tags_codes()
        self.last_offset = int(offsets[-1])
        self.last_store_timestamp = store_timestamp
        queue.put_many(queue_offset, units_of(offsets, sizes, codes), int(offsets[-1] + sizes[-1]))
        self._note(queue, int(codes[-1]), store_timestamp)
        if self.index is None or self.index_gap is not None:
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
            self.index_gap = place

    def enter_run(
        self, queue: ConsumeQueue, queue_offset: int, units: bytes, stop: int, code: int, store_timestamp: int
    ) -> None:
        """Enter records that continue a queue, the last of which ends at ``stop`` and has this tags code."""
        queue.put_many(queue_offset, units, stop)
        self._note(queue, code, store_timestamp)

    def note_entered(self, entered: _native.Entered, store_timestamp: int) -> None:
        """Records were entered into their queues by the kernel: what else is to be done about that."""
        _, dirtied, full, arrived, _, _ = entered
        if dirtied:
            self.unwritten += dirtied
        if full:
            self.write_queues(full)
        if self.on_arrival is not None:
            for queue, code in arrived:
                self.on_arrival(queue, code, store_timestamp)

    def index_many(self, records: list[Pending]) -> None:
        """Enter records into the index: all that are in the log since the last one that was entered."""
        _, self.last_offset, self.last_store_timestamp, *_ = records[-1]
        if self.index is None or self.index_gap is not None:
            return
        try:
            self.index.add_many(records)
        except DiskFaultError as error:
            self.fault = error
            self.index_gap = records[0][1]

    def index_hashed(
        self, first: int, last: int, store_timestamp: int, count: int, hashes: bytes, offsets: bytes
    ) -> None:
        """The same for records between these offsets whose keys are hashed already; see ``KeyIndex.add_hashed``."""
        self.last_offset = last
        self.last_store_timestamp = store_timestamp
        if self.index is None or self.index_gap is not None:
            return
        try:
            self.index.add_hashed(count, hashes, offsets, store_timestamp)
        except DiskFaultError as error:
            self.fault = error
            self.index_gap = first

    def enter_walked(self, walked: _native.Walked, *, is_queued: bool) -> None:
        """Enter records that were found together by walking the log, perhaps into the index only; see ``LogRuns``.

        Errors of the disk are kept, as by ``dispatch``.
        """
        _, count, _, last, store_timestamp, entered, hashes, offsets, timestamps = walked
        if is_queued:
            self.last_offset, self.last_store_timestamp = last, store_timestamp
        self.note_entered(entered, store_timestamp)
        if not hashes or self.index is None or self.index_gap is not None:
            return
        try:
            self.index.add_columns(count, hashes, offsets, timestamps)
        except DiskFaultError as error:
            self.fault = error
            self.index_gap = int.from_bytes(offsets[:8], sys.byteorder)

    def dispatch_seen(self, seen: Seen, *, to_index: bool = True) -> None:
        """Enter a record found by walking the log."""
        if seen.sys_flag & NOT_QUEUED:
            self.last_offset, self.last_store_timestamp = seen.offset, seen.store_timestamp
            if to_index:
                self.index_seen(seen)
            return
        name = decode_utf8(seen.topic)
        try:
            queue = self.table.get(name, seen.queue_id)
        except AppendRefusedError:
            return  # a master with other ideas of a topic has stored it; no queue can hold it here
        self.dispatch(
            self.table.topics[name], queue, seen.queue_offset, seen.offset, seen.size, seen.sys_flag,
            seen.store_timestamp, seen.properties, to_index,
        )  # fmt: skip

    def _note(self, queue: Queue, code: int, store_timestamp: int) -> None:
        if not queue.is_queued:
            queue.is_queued = True
            self.unwritten.append(queue)
        if queue.tail_size >= queue.full_at:
            self.write_queues((queue,))
        if self.on_arrival is not None:
            self.on_arrival(queue, code, store_timestamp)

    def note_unsynced(self, queue: Queue) -> None:
        """Let the next round of syncing include a queue whose files were changed otherwise than by a record."""
        if queue.is_unsynced and not queue.is_queued:
            queue.is_queued = True
            self.unwritten.append(queue)

    def write_queues(self, queues: Sequence[Queue]) -> None:
        """Put the tails of these queues into their files."""
        try:
            self.table.write_out(queues)
        except OSError as error:
            self.note_fault("written", error)
        else:
            if self.index_gap is None:
                self.fault = None

    def note_fault(self, what: str, error: OSError) -> None:
        """Remember that queues could not be written or read, so that no more messages are taken until they can."""
        self.fault = DiskFaultError(
            f"the consume queues of {self.table.root} cannot be {what} ({error.strerror}): "
            "free space or mend the disk"
        )

    def _add_to_index(
        self, topic: str, offset: int, time: int, unique_key: bytes | None, keys: bytes | None, tags: bytes | None
    ) -> None:
        if self.index is None or self.index_gap is not None:
            return
        try:
            self.index.add(topic, offset, time, unique_key, keys, tags)
        except DiskFaultError as error:
            self.fault = error
            self.index_gap = offset

    def mend(self, files: LogFiles) -> None:
        """Try again what the disk refused: queue files, and the records that the index lacks."""
        self.fault = None
        self.write_queues(self.unwritten)
        if self.fault is None:
            self.mend_index(files)

    def mend_index(self, files: LogFiles) -> None:
        """Enter what waits for the index and what it lacks.

        Where the disk refuses again the rest stays missing, and ``fault`` says why.
        """
        if self.index is None:
            return
        gap, self.index_gap = self.index_gap, None
        try:
            self.index.flush_pending()
        except DiskFaultError as error:
            self.fault, self.index_gap = error, gap
            return
        if gap is not None:
            self._index_from(gap, files)

    def _index_from(self, start: int, files: LogFiles) -> None:
        try:
            for seen in walk(files, start, self.position, check_crc=False):
                if isinstance(seen, Seen):
                    self.index_seen(seen)
                    start = seen.offset + seen.size
                if self.index_gap is not None:
                    return
        except OSError as error:
            self.index_gap = start
            self.fault = DiskFaultError(
                f"the log cannot be read for the index, which lacks a part of it ({error.strerror}): mend the disk"
            )

    def index_seen(self, seen: Seen) -> None:
        """Enter a record found by walking the log into the index only."""
        if seen.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
            tags, keys, unique_key = index_fields(seen.properties)
            self._add_to_index(decode_utf8(seen.topic), seen.offset, seen.store_timestamp, unique_key, keys, tags)

    def delivery_time(self, properties: bytes, store_timestamp: int, code: int) -> int:
        """Parked messages carry their delivery time where others carry the hash of their tags."""
        level = find(properties, _DELAY)
        if level is None or not level.isdigit() or int(level) <= 0:
            return code
        delay = self.delays.get(min(int(level), max(self.delays, default=0)))
        return store_timestamp + (1000 if delay is None else delay)

    def _dispatch_lmq(self, properties: bytes, offset: int, size: int, code: int, store_timestamp: int) -> None:
        light = (find(properties, MULTI_DISPATCH) or b"").split(b",")
        offsets = (find(properties, _MULTI_OFFSET) or b"").split(b",")
        if len(light) != len(offsets):
            return
        for encoded, queue_offset in zip(light, offsets, strict=True):
            name = decode_utf8(encoded)
            if not name.startswith(LMQ_PREFIX) or "/" in name or not queue_offset.isdigit():
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
    """The messages of an inner batch; 1 where a record of unknown origin says something impossible."""
    digits = find(properties, _INNER_NUM) or b""
    count = int(digits) if digits.isdigit() and len(digits) <= 5 else 0
    return count if 0 < count <= MAX_INNER_BATCH else 1
