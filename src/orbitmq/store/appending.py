"""Appending messages: the checks RocketMQ makes, queue offsets, and the way into the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from orbitmq.protocol import property_names as names
from orbitmq.protocol.batch import ITEM_SIZE, item_bounds, iter_batch
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import INNER_BATCH, NEED_UNWRAP, TRANSACTION_MASK
from orbitmq.protocol.names import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from orbitmq.protocol.properties import find, with_property, without
from orbitmq.protocol.record import CRC_PROPERTY, CRC_PROPERTY_SIZE, HEADS, MAX_PROPERTIES_SIZE
from orbitmq.store.batch_items import BatchItems
from orbitmq.store.batch_records import FEW, encode_records, properties_of_items
from orbitmq.store.bulk_append import Bulk, BulkAppender
from orbitmq.store.config import FlushDiskType
from orbitmq.store.dispatch import MAX_INNER_BATCH, MULTI_DISPATCH, NOT_QUEUED
from orbitmq.store.errors import AppendRefusedError, PutStatus
from orbitmq.store.run_append import RunAppender

if TYPE_CHECKING:
    from orbitmq.store.batch_items import Ints
    from orbitmq.store.bulk_append import Message
    from orbitmq.store.clock import Clock
    from orbitmq.store.commit_log import CommitLog
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.dispatch import Dispatcher
    from orbitmq.store.queue_table import Queue, QueueTable, Topic

LOCAL_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))

SMALL = 4096
"""Shorter batches are read item by item: they may have a few items only, for which columns cost more."""

_MULTI_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()
_INNER_NUM = names.INNER_NUM.encode()
_INNER_BASE = names.INNER_BASE.encode()


class Appended(NamedTuple):
    """Where a message went."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp: int


class AppendedBatch(Sequence[Appended]):
    """Where the messages of a batch went. Thousands of objects are made only if somebody looks at them."""

    __slots__ = ("_queue_offset", "_sizes", "_store_timestamp", "places")

    def __init__(
        self, places: Sequence[int] | Ints, sizes: Sequence[int] | Ints, queue_offset: int, store_timestamp: int
    ) -> None:
        self.places = places
        """Their offsets, as they were given."""
        self._sizes = sizes
        self._queue_offset = queue_offset
        self._store_timestamp = store_timestamp

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Appended: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Appended]: ...

    def __getitem__(self, index: int | slice) -> Appended | Sequence[Appended]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        return Appended(int(self.places[at]), int(self._sizes[at]), self._queue_offset + at, self._store_timestamp)

    @property
    def offsets(self) -> list[int]:
        return [int(place) for place in self.places]

    @property
    def size(self) -> int:
        """What all of them take: they lie side by side."""
        return int(self.places[-1] + self._sizes[-1] - self.places[0])


class Gate:
    """Whether the store takes messages, and if not, why. Each reason is opened by whoever closed it."""

    __slots__ = ("_reasons", "reason")

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self.reason: str | None = None

    def close(self, name: str, reason: str) -> None:
        self._reasons[name] = reason
        self.reason = next(iter(self._reasons.values()))

    def open(self, name: str) -> None:
        self._reasons.pop(name, None)
        self.reason = next(iter(self._reasons.values()), None)


class Appender:
    """The way of a message into the store. Of a message refused with ``AppendRefusedError`` nothing is written."""

    def __init__(
        self, config: StoreConfig, clock: Clock, log: CommitLog, queues: QueueTable, dispatcher: Dispatcher
    ) -> None:
        self.gate = Gate()
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._shows_at_once = (
            config.flush_disk_type is FlushDiskType.ASYNC_FLUSH and not config.transient_store_pool_enable
        )
        self._multi_dispatch = config.enable_lmq and config.enable_multi_dispatch
        self._crc_size = CRC_PROPERTY_SIZE if config.enabled_append_prop_crc else 0
        self._max_body = config.max_message_size
        self._max_properties = MAX_PROPERTIES_SIZE - self._crc_size
        self._bulk = BulkAppender(
            log, queues, dispatcher, self._make_room, max_body=self._max_body,
            max_properties=self._max_properties, shows_at_once=self._shows_at_once,
            multi_dispatch=self._multi_dispatch,
        )  # fmt: skip
        self.runs = RunAppender(
            log, dispatcher, clock, self.gate,
            takes_sends=not self._crc_size and not self._multi_dispatch, shows_at_once=self._shows_at_once,
        )  # fmt: skip

    def append(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: bytes = b"",
        *,
        flag: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = LOCAL_HOST,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
    ) -> Appended:
        """Append one message. Under SYNC_FLUSH it counts as stored only after a flush that covers it."""
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_mend()
        try:
            known = self._queues.topics[topic]
            queue = known.queues[queue_id]
        except KeyError:
            queue = self._queues.get(topic, queue_id)
            known = self._queues.topics[topic]
        if self._crc_size:
            properties = self._ready_for_crc(properties)
        if len(body) > self._max_body or len(properties) > self._max_properties:
            self._refuse_size(len(body), len(properties))
        if sys_flag & INNER_BATCH:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, "an inner batch needs a topic with queue.type=BatchCQ"
            )
        if self._multi_dispatch and MULTI_DISPATCH in properties and not sys_flag & NOT_QUEUED:
            light, properties = self._number_light_queues(topic, properties)
            numbers = [light_queue.next_offset for light_queue in light]
        else:
            light = None
        appended = self._write(
            known, queue, 1, body, properties, flag, sys_flag, born_timestamp, born_host, self._clock.now_ms(),
            reconsume_times, prepared_transaction_offset,
        )  # fmt: skip
        if light is not None:
            for light_queue, number in zip(light, numbers, strict=True):
                light_queue.next_offset = number + 1
        return appended

    def append_many(self, messages: Sequence[Message]) -> Bulk:
        """Append messages of any queues, in this order, up to the first that has to be appended by itself.

        That is one which is special or refused: ``append`` takes it or says why not.
        """
        if self.gate.reason is not None or self._dispatcher.fault is not None or self._crc_size:
            return Bulk(0, [])
        return self._bulk.append(messages, self._clock.now_ms())

    def append_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes | memoryview,
        *,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = LOCAL_HOST,
        reconsume_times: int = 0,
    ) -> AppendedBatch:
        """Append the messages of a client's batch, each as its own record, without a gap and all or none."""
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_mend()
        _, many = self._read_batch(topic, batch, sys_flag)
        if not self._crc_size and many is not None:
            return self._append_at_once(topic, queue_id, many, sys_flag, born_timestamp, born_host, reconsume_times)
        items = self._batch_items(batch)
        queue = self._queues.get(topic, queue_id)
        known = self._queues.topics[topic]
        for _, body, properties in items:
            if len(body) > self._max_body or len(properties) > self._max_properties:
                self._refuse_size(len(body), len(properties))
        hosts = (len(born_host) == 20) + 2 * (len(self._log.store_host) == 20)
        fixed = HEADS[hosts].size + len(known.field) + 2 + self._crc_size
        self._make_room(sum(fixed + len(body) + len(properties) for _, body, properties in items))
        now = self._clock.now_ms()
        stored = [
            self._write(
                known,
                queue,
                1,
                body,
                properties,
                flag,
                sys_flag,
                born_timestamp,
                born_host,
                now,
                reconsume_times,
                0,
            )
            for flag, body, properties in items
        ]
        offsets, sizes = [one.offset for one in stored], [one.size for one in stored]
        return AppendedBatch(offsets, sizes, stored[0].queue_offset, now)

    def _append_at_once(
        self,
        topic: str,
        queue_id: int,
        items: BatchItems,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> AppendedBatch:
        """The same for many messages, which costs a tenth for each."""
        log, dispatcher = self._log, self._dispatcher
        queue = self._queues.get(topic, queue_id)
        known = self._queues.topics[topic]
        largest = int((items.ends - items.properties_starts).max())
        if largest > self._max_properties:
            self._refuse_size(0, largest)
        hosts = (len(born_host) == 20) + 2 * (len(log.store_host) == 20)
        # An item has four fields of its own, and the lengths of its body and properties in common with a record.
        fixed = HEADS[hosts].size + len(known.field) - ITEM_SIZE + 2
        self._make_room(len(items.batch) + len(items) * fixed)
        in_step = self._shows_at_once and dispatcher.position == log.end
        now = self._clock.now_ms()
        queue_offset, offset = queue.next_offset, log.end
        records, offsets, sizes = encode_records(
            items, topic_field=known.field, version_2=known.version_2, queue_id=queue.queue_id,
            queue_offset=queue_offset, physical_offset=offset, sys_flag=sys_flag, born_timestamp=born_timestamp,
            born_host=born_host, store_timestamp=now, store_host=log.store_host, reconsume_times=reconsume_times,
        )  # fmt: skip
        log.append_raw(records)
        log.last_store_timestamp = now
        stored = AppendedBatch(offsets, sizes, queue_offset, now)
        queue.next_offset = queue_offset + len(stored)
        if not in_step:
            return stored
        if dispatcher.takes_batch(known, queue, queue_offset, offset, items.batch):
            dispatcher.dispatch_batch(known, queue, queue_offset, offsets, sizes, now, items)
            dispatcher.position = log.end
            return stored
        try:
            for one, text in zip(stored, properties_of_items(items), strict=True):
                dispatcher.dispatch(known, queue, one.queue_offset, one.offset, one.size, sys_flag, now, text)
                dispatcher.position = one.offset + one.size
        except OSError as error:
            dispatcher.note_fault("read", error)  # as for a single one
        return stored

    def append_inner_batch(
        self,
        topic: str,
        queue_id: int,
        batch: bytes | memoryview,
        properties: bytes = b"",
        *,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: bytes = LOCAL_HOST,
        reconsume_times: int = 0,
    ) -> Appended:
        """Append a client's batch as one record of a topic with ``queue.type=BatchCQ``."""
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_mend()
        count, _ = self._read_batch(topic, batch, sys_flag)
        if count > MAX_INNER_BATCH:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"a batch of {count} messages is over the limit {MAX_INNER_BATCH}"
            )
        queue = self._queues.get(topic, queue_id)
        known = self._queues.topics[topic]
        if not known.is_batch:
            raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, f"topic {topic} has no queue.type=BatchCQ")
        if self._crc_size:
            properties = self._ready_for_crc(properties)
        properties = with_property(properties, _INNER_NUM, str(count).encode())
        properties = with_property(properties, _INNER_BASE, str(queue.next_offset).encode())
        if len(properties) > self._max_properties:
            self._refuse_size(0, len(properties))
        return self._write(
            known, queue, count, batch, properties, 0, sys_flag | INNER_BATCH | NEED_UNWRAP, born_timestamp,
            born_host, self._clock.now_ms(), reconsume_times, 0,
        )  # fmt: skip

    def _make_room(self, size: int) -> None:
        log, dispatcher = self._log, self._dispatcher
        in_step = self._shows_at_once and dispatcher.position == log.end
        try:
            log.make_room(size)
        finally:
            if in_step:
                dispatcher.position = log.end  # perhaps past the blank of a file that ended here

    def append_raw(self, data: bytes | memoryview, offset: int) -> None:
        """Append log bytes of a master, which begin at ``offset`` there and must go to the same offset here."""
        if offset != self._log.end:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"log bytes for offset {offset} came while the log ends at {self._log.end}",
            )
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_mend()
        self._log.append_raw(data)

    def _write(
        self,
        known: Topic,
        queue: Queue,
        count: int,
        body: bytes | memoryview,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: bytes,
        store_timestamp: int,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> Appended:
        log, dispatcher = self._log, self._dispatcher
        in_step = self._shows_at_once and dispatcher.position == log.end
        is_queued = not sys_flag & NOT_QUEUED
        queue_offset = queue.next_offset if is_queued else 0
        try:
            offset, size = log.append(
                known.field, queue.queue_id, queue_offset, body, properties, flag, sys_flag, born_timestamp,
                born_host, store_timestamp, reconsume_times, prepared_transaction_offset, known.version_2,
            )  # fmt: skip
        except AppendRefusedError:
            if in_step:
                dispatcher.position = log.end  # the file may have ended with a blank before its successor failed
            raise
        if is_queued:
            queue.next_offset = queue_offset + count
        if in_step:
            try:
                dispatcher.dispatch(known, queue, queue_offset, offset, size, sys_flag, store_timestamp, properties)
                dispatcher.position = offset + size
            except OSError as error:
                dispatcher.note_fault("read", error)  # the record is in the log, and shown as soon as they can
        # Without the Python call that a NamedTuple's own constructor is.
        return tuple.__new__(Appended, (offset, size, queue_offset, store_timestamp))

    # Refusals

    def _refuse_or_mend(self) -> None:
        if self.gate.reason is not None:
            raise AppendRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, self.gate.reason)
        self._dispatcher.mend(self._log.files)
        if self._dispatcher.fault is not None:
            raise AppendRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, str(self._dispatcher.fault))

    def _refuse_size(self, body: int, properties: int) -> None:
        if body > self._max_body:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"a body of {body} bytes is over maxMessageSize={self._max_body}"
            )
        raise AppendRefusedError(
            PutStatus.PROPERTIES_SIZE_EXCEEDED,
            f"properties of {properties} bytes are over the limit of {self._max_properties}",
        )

    def _read_batch(self, topic: str, batch: bytes | memoryview, sys_flag: int) -> tuple[int, BatchItems | None]:
        """The number of items of a batch that can be taken, and if there are many, these."""
        if topic.startswith(RETRY_PREFIX) or sys_flag & TRANSACTION_MASK:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, "a batch cannot be a retry nor part of a transaction: send one by one"
            )
        if len(batch) > self._max_body:
            self._refuse_size(len(batch), 0)
        try:
            if len(batch) < SMALL:
                starts, body_ends = item_bounds(batch)
                if not starts:
                    raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, "the batch is empty")
                many = BatchItems.between(bytes(batch), starts, body_ends) if len(starts) >= FEW else None
                return len(starts), many
            items = BatchItems.of(bytes(batch))
        except ProtocolError as error:
            raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from error
        return len(items), items if len(items) >= FEW else None

    def _batch_items(self, batch: bytes | memoryview) -> list[tuple[int, memoryview, bytes]]:
        items = [(flag, body, bytes(properties)) for flag, body, properties in iter_batch(memoryview(batch))]
        if self._crc_size:
            items = [(flag, body, self._ready_for_crc(properties)) for flag, body, properties in items]
        return items

    @staticmethod
    def _ready_for_crc(properties: bytes) -> bytes:
        """Properties to which the log can append the CRC property: without one, and ended properly."""
        if CRC_PROPERTY in properties:
            properties = without(properties, (CRC_PROPERTY,))
        return properties + b"\x02" if properties and properties[-1] != 2 else properties

    def _number_light_queues(self, topic: str, properties: bytes) -> tuple[list[Queue], bytes]:
        """The light queues a message names, and its properties with their next offsets."""
        if topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX)) or topic == SCHEDULE_TOPIC:
            return [], properties
        light_names = (find(properties, MULTI_DISPATCH) or b"").decode("utf-8", "replace").split(",")
        if not all(name.startswith(LMQ_PREFIX) and "/" not in name for name in light_names):
            return [], properties
        limit = self._config.max_lmq_consume_queue_num
        new = {name for name in light_names if self._queues.find(name, 0) is None}
        # Asked before one is made, or names that were refused would fill the table.
        if new and self._queues.count_lmq() + len(new) > limit:
            raise AppendRefusedError(
                PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                f"there would be more than maxLmqConsumeQueueNum={limit} queues",
            )
        light = [self._queues.get(name, 0) for name in light_names]
        offsets = ",".join(str(queue.next_offset) for queue in light)
        numbered = with_property(properties, _MULTI_OFFSET, offsets.encode())
        if len(numbered) > self._max_properties:
            self._refuse_size(0, len(numbered))
        return light, numbered
