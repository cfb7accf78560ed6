"""Appender: RocketMQ's checks of a message, queue offsets, and the write to the commit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import ITEM_SIZE, item_bounds, iter_batch
from orbitmq.protocol.message.flags import INNER_BATCH, NEED_UNWRAP, TRANSACTION_MASK
from orbitmq.protocol.message.properties import find, with_property, without
from orbitmq.protocol.message.record import CRC_PROPERTY, CRC_PROPERTY_SIZE, HEADS, MAX_PROPERTIES_SIZE
from orbitmq.protocol.names import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_TOPIC_PREFIX
from orbitmq.store.append.batch_decoder import BatchItems
from orbitmq.store.append.batch_encoder import FEW, encode_records, properties_of_items
from orbitmq.store.append.bulk_appender import Bulk, BulkAppender
from orbitmq.store.append.native_appender import NativeAppender
from orbitmq.store.append.stored_message import StoredMessage
from orbitmq.store.config import FlushDiskType
from orbitmq.store.dispatch.dispatcher import MAX_INNER_BATCH, MULTI_DISPATCH, NOT_QUEUED
from orbitmq.store.errors import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from orbitmq.platform.clock import Clock
    from orbitmq.store.append.batch_decoder import Ints
    from orbitmq.store.commitlog.commit_log import CommitLog
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.consumequeue.table import Queue, QueueTable, Topic
    from orbitmq.store.dispatch.dispatcher import Dispatcher

SMALL = 4096
"""Shorter batches are parsed item by item: with few items, columns cost more."""

_MULTI_OFFSET = names.INNER_MULTI_QUEUE_OFFSET.encode()
_INNER_NUM = names.INNER_NUM.encode()
_INNER_BASE = names.INNER_BASE.encode()


class Appended(NamedTuple):
    """Position of an appended message."""

    offset: int
    size: int
    queue_offset: int
    store_timestamp: int


class AppendedBatch(Sequence[Appended]):
    """Positions of the messages of a batch; ``Appended`` objects are made on access, there may be thousands."""

    __slots__ = ("_queue_offset", "_sizes", "_store_timestamp", "places")

    def __init__(
        self, places: Sequence[int] | Ints, sizes: Sequence[int] | Ints, queue_offset: int, store_timestamp: int
    ) -> None:
        self.places = places
        """Physical offsets, in the sequence type that was given."""
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
        """Total size of the records, which are contiguous."""
        return int(self.places[-1] + self._sizes[-1] - self.places[0])


REPLICA = "replica"
"""Name of the gate's reason on a slave: its log takes the bytes of the master's, and nothing else."""


class Gate:
    """Admission gate: refuses appends while at least one named reason is set."""

    __slots__ = ("_reasons", "raw_reason", "reason")

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self.reason: str | None = None
        self.raw_reason: str | None = None
        """The same for log bytes of a master, which a slave accepts."""

    def close(self, name: str, reason: str) -> None:
        self._reasons[name] = reason
        self._update()

    def open(self, name: str) -> None:
        self._reasons.pop(name, None)
        self._update()

    def _update(self) -> None:
        self.reason = next(iter(self._reasons.values()), None)
        self.raw_reason = next((why for name, why in self._reasons.items() if name != REPLICA), None)


class Appender:
    """Appends messages to the store. A message refused with ``AppendRefusedError`` leaves no trace."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        *,
        dispatches_later: bool = False,
    ) -> None:
        self.gate = Gate()
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._dispatches_at_once = (
            config.flush_disk_type is FlushDiskType.ASYNC_FLUSH
            and not config.transient_store_pool_enable
            and not dispatches_later
        )
        self._multi_dispatch = config.enable_lmq and config.enable_multi_dispatch
        self._crc_size = CRC_PROPERTY_SIZE if config.enabled_append_prop_crc else 0
        self._max_body = config.max_message_size
        self._max_properties = MAX_PROPERTIES_SIZE - self._crc_size
        self._bulk = BulkAppender(
            log, queues, dispatcher, self._make_room, max_body=self._max_body,
            max_properties=self._max_properties, dispatches_at_once=self._dispatches_at_once,
            multi_dispatch=self._multi_dispatch,
        )  # fmt: skip
        self.native = NativeAppender(
            log, dispatcher, clock, self.gate,
            accepts_sends=not self._crc_size and not self._multi_dispatch,
            dispatches_at_once=self._dispatches_at_once,
        )  # fmt: skip

    @overload
    def append(self, message: StoredMessage, /, *, is_stored: bool = False) -> Appended: ...

    @overload
    def append(
        self, topic: str, queue_id: int, body: bytes, properties: bytes = b"", /, **more: Any
    ) -> Appended: ...

    def append(
        self, message: StoredMessage | str, /, *fields: Any, is_stored: bool = False, **more: Any
    ) -> Appended:
        """Append one message, given as ``StoredMessage`` or as its fields in the same order.

        Under SYNC_FLUSH it counts as stored only after a flush that covers it.

        ``is_stored``: a copy of a message that is in the log already. ``maxMessageSize`` does not bind it: it
        may have been lowered since the message was accepted, which would then never be delivered.
        """
        if isinstance(message, str):
            message = StoredMessage(message, *fields, **more)
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_repair()
        topic, queue_id, body, properties = message.topic, message.queue_id, message.body, message.properties
        try:
            known = self._queues.topics[topic]
            queue = known.queues[queue_id]
        except KeyError:
            queue = self._queues.get(topic, queue_id)
            known = self._queues.topics[topic]
        if self._crc_size:
            properties = self._ready_for_crc(properties)
            message = message._replace(properties=properties)
        if (len(body) > self._max_body and not is_stored) or len(properties) > self._max_properties:
            self._refuse_size(0 if is_stored else len(body), len(properties))
        if message.sys_flag & INNER_BATCH:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, "an inner batch needs a topic with queue.type=BatchCQ"
            )
        if self._multi_dispatch and MULTI_DISPATCH in properties and not message.sys_flag & NOT_QUEUED:
            lmqs, properties = self._assign_lmq_offsets(topic, properties)
            numbers = [lmq.next_offset for lmq in lmqs]
            message = message._replace(properties=properties)
        else:
            lmqs = None
        appended = self._write(known, queue, message, self._clock.now_ms())
        if lmqs is not None:
            for lmq, number in zip(lmqs, numbers, strict=True):
                lmq.next_offset = number + 1
        return appended

    def append_many(self, messages: Sequence[StoredMessage]) -> Bulk:
        """Append messages of any queues in this order, up to the first that needs ``append``.

        That is a message which is special or will be refused; ``append`` handles it or raises the error.
        """
        if self.gate.reason is not None or self._dispatcher.fault is not None or self._crc_size:
            return Bulk(0, [])
        return self._bulk.append(messages, self._clock.now_ms())

    def append_batch(self, batch: StoredMessage) -> AppendedBatch:
        """Append the messages of a client's batch, each as its own record, contiguously and all or none.

        The body of ``batch`` is the encoded batch; flag and properties are those of the messages in it.
        """
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_repair()
        _, many = self._read_batch(batch)
        has_lmq = self._multi_dispatch and MULTI_DISPATCH in bytes(batch.body)
        if not self._crc_size and not has_lmq and many is not None:
            return self._append_at_once(batch, many)
        items = self._batch_items(batch.body)
        ends: dict[Queue, int] = {}
        if has_lmq:
            items = [
                (flag, body, self._assign_lmq_offsets(batch.topic, properties, ends)[1])
                for flag, body, properties in items
            ]
        queue = self._queues.get(batch.topic, batch.queue_id)
        known = self._queues.topics[batch.topic]
        for _, body, properties in items:
            if len(body) > self._max_body or len(properties) > self._max_properties:
                self._refuse_size(len(body), len(properties))
        hosts = (len(batch.born_host) == 20) + 2 * (len(self._log.store_host) == 20)
        fixed = HEADS[hosts].size + len(known.field) + 2 + self._crc_size
        self._make_room(sum(fixed + len(body) + len(properties) for _, body, properties in items))
        now = self._clock.now_ms()
        stored = [
            self._write(known, queue, batch._replace(body=body, properties=properties, flag=flag), now)
            for flag, body, properties in items
        ]
        for lmq, end in ends.items():
            lmq.next_offset = end
        offsets, sizes = [one.offset for one in stored], [one.size for one in stored]
        return AppendedBatch(offsets, sizes, stored[0].queue_offset, now)

    def _append_at_once(self, batch: StoredMessage, items: BatchItems) -> AppendedBatch:
        """Append a batch of many messages as columns, at a tenth of the cost per message."""
        log, dispatcher = self._log, self._dispatcher
        queue = self._queues.get(batch.topic, batch.queue_id)
        known = self._queues.topics[batch.topic]
        largest = int((items.ends - items.properties_starts).max())
        if largest > self._max_properties:
            self._refuse_size(0, largest)
        hosts = (len(batch.born_host) == 20) + 2 * (len(log.store_host) == 20)
        # An item has four fields that a record lacks; both have the lengths of body and properties.
        fixed = HEADS[hosts].size + len(known.field) - ITEM_SIZE + 2
        self._make_room(len(items.batch) + len(items) * fixed)
        is_caught_up = self._dispatches_at_once and dispatcher.position == log.end
        now = self._clock.now_ms()
        queue_offset, offset = queue.next_offset, log.end
        records, offsets, sizes = encode_records(
            items, topic_field=known.field, version_2=known.version_2, queue_id=queue.queue_id,
            queue_offset=queue_offset, physical_offset=offset, sys_flag=batch.sys_flag,
            born_timestamp=batch.born_timestamp, born_host=batch.born_host, store_timestamp=now,
            store_host=log.store_host, reconsume_times=batch.reconsume_times,
        )  # fmt: skip
        log.append_raw(records)
        log.last_store_timestamp = now
        stored = AppendedBatch(offsets, sizes, queue_offset, now)
        queue.next_offset = queue_offset + len(stored)
        if not is_caught_up:
            return stored
        if dispatcher.takes_batch(known, queue, queue_offset, offset, items.batch):
            dispatcher.dispatch_batch(known, queue, queue_offset, offsets, sizes, now, items)
            dispatcher.position = log.end
            return stored
        try:
            for one, text in zip(stored, properties_of_items(items), strict=True):
                dispatcher.dispatch(known, queue, one.queue_offset, one.offset, one.size, batch.sys_flag, now, text)
                dispatcher.position = one.offset + one.size
        except OSError as error:
            dispatcher.record_fault("read", error)  # as for a single message
        return stored

    def append_inner_batch(self, batch: StoredMessage) -> Appended:
        """Append a client's batch as one record of a topic with ``queue.type=BatchCQ``."""
        if self.gate.reason is not None or self._dispatcher.fault is not None:
            self._refuse_or_repair()
        count, _ = self._read_batch(batch)
        if count > MAX_INNER_BATCH:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, f"a batch of {count} messages is over the limit {MAX_INNER_BATCH}"
            )
        queue = self._queues.get(batch.topic, batch.queue_id)
        known = self._queues.topics[batch.topic]
        if not known.is_batch:
            raise AppendRefusedError(PutStatus.MESSAGE_ILLEGAL, f"topic {batch.topic} has no queue.type=BatchCQ")
        properties = batch.properties
        if self._crc_size:
            properties = self._ready_for_crc(properties)
        if self._multi_dispatch and _MULTI_OFFSET in properties:
            properties = without(properties, (_MULTI_OFFSET,))
        properties = with_property(properties, _INNER_NUM, str(count).encode())
        properties = with_property(properties, _INNER_BASE, str(queue.next_offset).encode())
        if len(properties) > self._max_properties:
            self._refuse_size(0, len(properties))
        message = batch._replace(
            properties=properties, flag=0, sys_flag=batch.sys_flag | INNER_BATCH | NEED_UNWRAP,
            prepared_transaction_offset=0,
        )  # fmt: skip
        return self._write(known, queue, message, self._clock.now_ms(), count)

    def _make_room(self, size: int) -> None:
        log, dispatcher = self._log, self._dispatcher
        is_caught_up = self._dispatches_at_once and dispatcher.position == log.end
        try:
            log.make_room(size)
        finally:
            if is_caught_up:
                dispatcher.position = log.end  # perhaps past the blank of a file that ended here

    def append_raw(self, data: bytes | memoryview, offset: int) -> None:
        """Append log bytes of a master. ``offset`` is theirs in its log and must be the end of this one."""
        if offset != self._log.end:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL,
                f"log bytes for offset {offset} came while the log ends at {self._log.end}",
            )
        if self.gate.raw_reason is not None:
            raise AppendRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, self.gate.raw_reason)
        if self._dispatcher.fault is not None:
            self._repair()
        self._log.append_raw(data)

    def _write(
        self, known: Topic, queue: Queue, message: StoredMessage, store_timestamp: int, count: int = 1
    ) -> Appended:
        """Append a record and dispatch it. ``count``: the queue offsets that it occupies."""
        log, dispatcher = self._log, self._dispatcher
        is_caught_up = self._dispatches_at_once and dispatcher.position == log.end
        is_queued = not message.sys_flag & NOT_QUEUED
        queue_offset = queue.next_offset if is_queued else 0
        try:
            offset, size = log.append(known.field, queue_offset, message, store_timestamp, known.version_2)
        except AppendRefusedError:
            if is_caught_up:
                # The file may have ended with a blank before creating the next one failed.
                dispatcher.position = log.end
            raise
        if is_queued:
            queue.next_offset = queue_offset + count
        if is_caught_up:
            try:
                dispatcher.dispatch(
                    known, queue, queue_offset, offset, size, message.sys_flag, store_timestamp, message.properties
                )
                dispatcher.position = offset + size
            except OSError as error:
                dispatcher.record_fault("read", error)  # the record is in the log, and dispatched after a repair
        # tuple.__new__ saves the Python call of a NamedTuple's constructor.
        return tuple.__new__(Appended, (offset, size, queue_offset, store_timestamp))

    # Refusals

    def _refuse_or_repair(self) -> None:
        if self.gate.reason is not None:
            raise AppendRefusedError(PutStatus.SERVICE_NOT_AVAILABLE, self.gate.reason)
        self._repair()

    def _repair(self) -> None:
        self._dispatcher.repair(self._log.files)
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

    def _read_batch(self, message: StoredMessage) -> tuple[int, BatchItems | None]:
        """The number of items of a valid batch, and the items themselves if there are many."""
        if message.topic.startswith(RETRY_PREFIX) or message.sys_flag & TRANSACTION_MASK:
            raise AppendRefusedError(
                PutStatus.MESSAGE_ILLEGAL, "a batch cannot be a retry nor part of a transaction: send one by one"
            )
        batch = message.body
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
        """Properties without a CRC property and with a final separator, so that the log can append one."""
        if CRC_PROPERTY in properties:
            properties = without(properties, (CRC_PROPERTY,))
        return properties + b"\x02" if properties and properties[-1] != 2 else properties

    def _assign_lmq_offsets(
        self, topic: str, properties: bytes, ends: dict[Queue, int] | None = None
    ) -> tuple[list[Queue], bytes]:
        """The LMQs that a message names, and its properties with their next offsets.

        ``ends`` has the next offsets of LMQs that earlier messages of the batch are in, and is updated. Offsets
        sent by a client are dropped, because the dispatcher would trust them.
        """
        if MULTI_DISPATCH not in properties:
            return [], properties
        if topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX)) or topic == SCHEDULE_TOPIC:
            return [], properties
        lmq_names = (find(properties, MULTI_DISPATCH) or b"").decode("utf-8", "replace").split(",")
        if not all(name.startswith(LMQ_PREFIX) and "/" not in name for name in lmq_names):
            return [], without(properties, (_MULTI_OFFSET,))
        limit = self._config.max_lmq_consume_queue_num
        new = {name for name in lmq_names if self._queues.find(name, 0) is None}
        # Before any of them is created, or refused names would fill the table.
        if new and self._queues.count_lmq() + len(new) > limit:
            raise AppendRefusedError(
                PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                f"there would be more than maxLmqConsumeQueueNum={limit} queues",
            )
        lmqs = [self._queues.get(name, 0) for name in lmq_names]
        numbers = [queue.next_offset for queue in lmqs]
        if ends is not None:
            numbers = [ends.get(queue, number) for queue, number in zip(lmqs, numbers, strict=True)]
            ends.update((queue, number + 1) for queue, number in zip(lmqs, numbers, strict=True))
        numbered = with_property(properties, _MULTI_OFFSET, ",".join(map(str, numbers)).encode())
        if len(numbered) > self._max_properties:
            self._refuse_size(0, len(numbered))
        return lmqs, numbered
