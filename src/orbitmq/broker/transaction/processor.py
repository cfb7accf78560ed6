"""Transactions: stores half messages, which only the broker reads, and commits or rolls them back on
END_TRANSACTION.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC with its real topic in its properties. A commit appends it
there; a rollback appends nothing. Both are recorded in the op queue, or the half message would be checked.
"""

from __future__ import annotations

import dataclasses
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.flush_trigger import FlushTrigger
from orbitmq.broker.deferred.property_room import REAL_QUEUE_PROPERTIES, fitted, property_limit
from orbitmq.broker.deferred.real_topic import (
    real_queue_of,
    real_topic_of,
    with_property_and_real_topic,
    with_real_topic,
    without_real_topic,
)
from orbitmq.broker.deferred.record_copy import copied, decode_for_append, read_deferred
from orbitmq.broker.deferred.target_queue import TargetQueues, target_problem
from orbitmq.broker.errors import append_remark
from orbitmq.broker.transaction.counts import HalfCounts
from orbitmq.broker.transaction.half_state import COMMITTED, ENDED, PENDING, ROLLED_BACK, HalfQueueState
from orbitmq.broker.transaction.op_queue import OpQueue
from orbitmq.broker.transaction.outcomes import TransactionOutcomes
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import end_fields
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.protocol.message.properties import find, with_property
from orbitmq.protocol.names import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from orbitmq.protocol.remarks import switched_off
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of, refusal, success_with
from orbitmq.store import AppendRefusedError
from orbitmq.store.consumequeue.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.schedule.service import ScheduleService
    from orbitmq.protocol.command.fast_decode import EndFields
    from orbitmq.protocol.command.header import Header
    from orbitmq.protocol.message.record import Record
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Appended

log = logging.getLogger("orbitmq.broker")

HALF_QUEUE = 0
"""Queue of new half messages."""

MAX_RECENT = 8192
"""Half messages that are found without reading their queue. Most are ended while they are among these."""

NO_CODE_SET = "not set any response code"
"""RocketMQ's remark where no response code was set."""

NOT_FOUND = "Find prepared transaction message failed"

CHECK_TIMES = names.TRANSACTION_CHECK_TIMES.encode()
IMMUNITY = names.CHECK_IMMUNITY_SECONDS.encode()
PRODUCER_GROUP = names.PRODUCER_GROUP.encode()
_TRANSACTION_ID = names.TRANSACTION_ID.encode()
_TIMERS = (names.TIMER_DELAY_SEC.encode(), names.TIMER_DELAY_MS.encode(), names.TIMER_DELIVER_MS.encode())

_SIZE = struct.Struct(">I")
_STATES = {TRANSACTION_COMMIT: COMMITTED, TRANSACTION_ROLLBACK: ROLLED_BACK}
_DONE = {COMMITTED: "committed", ROLLED_BACK: "rolled back"}


@dataclasses.dataclass(slots=True)
class OpBacklog:
    """Unread op messages of the previous run, from ``begin`` to ``end``, for half messages before ``half_end``.

    An op message that names a later half message is for one that was lost in a power failure.
    """

    begin: int
    end: int
    half_end: int


class Transactions:
    """Stores half messages and ends them."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        topics: TopicTable,
        offsets: OffsetTable,
        schedule: ScheduleService,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._topics = topics
        self._targets = TargetQueues(topics)
        self._schedule = schedule
        self._offsets = offsets
        self._stats = runtime.stats
        self._clock = runtime.clock
        self.ops = OpQueue(runtime)
        self.counts = HalfCounts(runtime.writer, runtime.clock)
        self.outcomes = TransactionOutcomes()
        self.flush_soon = FlushTrigger(runtime.store, runtime.flushed)
        self._recent: dict[int, int] = {}
        """By commit log offset, the queue offset of the newest half messages that were not ended."""
        self._half_states: dict[int, HalfQueueState] = {}
        self.op_backlogs: dict[int, OpBacklog] = {}
        """By queue id, op messages that are still to be read."""

    # State of half messages

    def load(self) -> None:
        """Load the state from disk before new half messages arrive. Raises StoreError."""
        self.counts.load()
        for queue_id in self.queue_ids():
            self.half_state(queue_id)

    def queue_ids(self) -> range:
        """The queues of half messages; one, unless the topic was created with more."""
        topic = self._topics.get(TRANSACTION_HALF_TOPIC)
        return range(1 if topic is None else max(topic.read_queue_nums, 1))

    def half_state(self, queue_id: int) -> HalfQueueState:
        """The state of the half messages of a queue."""
        half_state = self._half_states.get(queue_id)
        if half_state is None:
            half_state = self._half_states[queue_id] = HalfQueueState(self._begin(TRANSACTION_HALF_TOPIC, queue_id))
            half, ops = self.queue(TRANSACTION_HALF_TOPIC, queue_id), self.queue(TRANSACTION_OP_TOPIC, queue_id)
            begin = self._begin(TRANSACTION_OP_TOPIC, queue_id)
            self.ops.begin_at(queue_id, begin)
            if half is not None and ops is not None:
                self.op_backlogs[queue_id] = OpBacklog(begin, ops.next_offset, half.next_offset)
        return half_state

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queue = self._store.queues.find(topic, queue_id)
        return queue if isinstance(queue, ConsumeQueue) else None

    def _begin(self, topic: str, queue_id: int) -> int:
        """The persisted progress of a queue. A recreated queue is read from its beginning."""
        offset = self._offsets.query(TRANSACTION_GROUP, topic, queue_id)
        queue = self.queue(topic, queue_id)
        if queue is None:
            return 0
        return offset if queue.min_offset <= offset <= queue.next_offset else queue.min_offset

    def take_over(self, queue_id: int, offset: int) -> None:
        """Take over how far a slave has come that acted for this master: others check what was pending before."""
        half_state, queue = self.half_state(queue_id), self.queue(TRANSACTION_HALF_TOPIC, queue_id)
        if queue is None or not half_state.base < offset <= queue.next_offset:
            return
        for one in range(half_state.base, offset):
            if half_state.state(one) == PENDING:
                # A producer that ends it here later is told that this is done.
                half_state.end(one, ENDED, has_copies=True)
        half_state.pass_over(offset)
        self._offsets.commit(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, queue_id, offset)

    # Half messages

    def prepare(self, topic: str, queue_id: int, properties: bytes, unique_key: bytes) -> tuple[str, int, bytes]:
        """System topic, queue and properties to store a half message under. Raises RequestRefusedError."""
        if self._config.reject_transaction_message:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden"
                f"{switched_off('rejectTransactionMessage', value='true')}",
                ResponseCode.NO_PERMISSION,
            )
        if b"TIMER_DEL" in properties and any(find(properties, name) is not None for name in _TIMERS):
            raise RequestRefusedError(
                "a transactional message cannot have a delivery time", ResponseCode.MESSAGE_ILLEGAL
            )
        if not unique_key:
            return TRANSACTION_HALF_TOPIC, HALF_QUEUE, with_real_topic(properties, topic, queue_id)
        half = with_property_and_real_topic(properties, _TRANSACTION_ID, unique_key, topic, queue_id)
        return TRANSACTION_HALF_TOPIC, HALF_QUEUE, half

    def prepared(self, properties: bytes, appended: Appended) -> None:
        """Record a half message that was stored."""
        self.counts.add(real_topic_of(properties), 1)
        if len(self._recent) >= MAX_RECENT:
            self._recent.clear()
        self._recent[appended[0]] = appended[2]

    def on_prepared_batch(self, by_topic: Iterable[tuple[str, int]], first: int, units: bytes) -> None:
        """Record half messages that were stored: their number by topic, and their units from queue offset ``first``
        on."""
        for topic, count in by_topic:
            self.counts.add(topic, count, count)
        if len(self._recent) >= MAX_RECENT:
            self._recent.clear()
        for number, (physical, _, _) in enumerate(UNIT.iter_unpack(units), first):
            self._recent[physical] = number

    # Requests

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: handler_of(self.resume),
        }

    def end(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """END_TRANSACTION; no response if the producer does not know the outcome yet."""
        _, opaque, _, _, _, remark, ext_fields = header
        try:
            fields = end_fields(ext_fields)
            if self._store.config.broker_role is BrokerRole.SLAVE:
                raise RequestRefusedError(NO_CODE_SET, ResponseCode.SLAVE_NOT_AVAILABLE)
            wanted = _STATES.get(fields[3])
            if wanted is None:
                log.info(
                    "transactions: %s does not know the outcome of transaction %s yet: %s",
                    connection.remote_address,
                    fields[5],
                    remark or "will check later",
                )
                return b""
            self._end(wanted, fields)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(Command.of((serialize_type, b"", body), header), error).encode()
        if wanted == COMMITTED:
            return success_with(b"", opaque, serialize_type)
        request = Command.of((serialize_type, b"", body), header)
        return request.response(ResponseCode.SUCCESS, remark=NO_CODE_SET).encode()

    def _end(self, wanted: int, fields: EndFields) -> None:
        group, queue_offset, offset, _, is_asked, _ = fields
        half = self._half(offset)
        if not is_asked and self._is_late(half):
            # A check was or will be sent, and its response counts: a copy may have been ended already.
            raise RequestRefusedError(NO_CODE_SET, ResponseCode.ILLEGAL_OPERATION)
        if find(half.properties, PRODUCER_GROUP) != group.encode("utf-8", "replace"):
            raise RequestRefusedError("The producer group wrong")
        if half.queue_offset != queue_offset:
            raise RequestRefusedError("The transaction state table offset wrong")
        half_state = self.half_state(half.queue_id)
        offsets = half_state.offsets_of(half.queue_offset)
        known = half_state.state(offsets[-1])
        if known in {wanted, ENDED}:
            return
        if known != PENDING:
            raise RequestRefusedError(f"the transaction was already {_DONE[known]}")
        if not self.ops.has_room(half.queue_id):
            raise RequestRefusedError("Service not available now.", ResponseCode.SERVICE_NOT_AVAILABLE)
        topic, queue_id = target_queue_of(half)
        if wanted == COMMITTED:
            self._commit(half, topic, queue_id)
            self.outcomes.committed(topic, self._clock.now_ms() - half.born_timestamp)
        else:
            self.outcomes.rolled_back(topic)
        self._recent.pop(offset, None)
        half_state.end(offsets[-1], wanted, has_copies=len(offsets) > 1 or is_asked)
        self.ops.add(half.queue_id, offsets)
        self.counts.add(topic, -1)

    def _half(self, offset: int) -> Record:
        """The half message at an offset of the log. Raises RequestRefusedError."""
        if offset >= self._store.log.committed:
            self._store.log.commit()  # its producer is fast, and it is still in a write buffer
        half = self._at(offset)
        if half is None or half.topic != TRANSACTION_HALF_TOPIC:
            raise RequestRefusedError(NOT_FOUND)
        queue = self.queue(TRANSACTION_HALF_TOPIC, half.queue_id)
        # Bytes that look like a half message may be the body of another message.
        if queue is None or not 0 <= half.queue_offset < queue.next_offset:
            raise RequestRefusedError(NOT_FOUND)
        if self._recent.get(offset) != half.queue_offset and queue.min_offset <= half.queue_offset < queue.end:
            unit = queue.unit(half.queue_offset)
            if unit is not None and unit[0] != offset:
                raise RequestRefusedError(NOT_FOUND)
        return half

    def _at(self, offset: int) -> Record | None:
        """The record at a client-supplied offset of the log; None if there is none."""
        size = self._store.log.slice(offset, _SIZE.size) if offset >= self._store.reader.checked_from else None
        return read_deferred(self._store, offset, 0 if size is None else _SIZE.unpack(size)[0])

    def _is_late(self, half: Record) -> bool:
        """True if the time is over during which a producer must not be checked."""
        text = find(half.properties, IMMUNITY) if IMMUNITY in half.properties else None
        if text is None:
            return False
        immunity = max(immunity_ms(text) or 0, self._config.transaction_time_out)
        return self._clock.now_ms() - half.born_timestamp > immunity

    def _commit(self, half: Record, topic: str, queue_id: int) -> None:
        properties = without_real_topic(half.properties, topic, queue_id)
        queue_id = self._targets.queue_for(topic, queue_id)
        # Java clients send no delayed half messages. RocketMQ's broker loses those of others.
        deferred = self._schedule.defer(properties, topic, queue_id) if b"DELAY\x01" in properties else None
        topic, queue_id, properties = deferred or (topic, queue_id, properties)
        message = copied(half, topic, queue_id, properties)._replace(
            sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
            prepared_transaction_offset=half.physical_offset,
        )
        try:
            appended = self._store.append(message, is_stored=True)
        except AppendRefusedError as error:
            self._stats.put_failed()
            remark = append_remark(error, self._store.config.max_message_size)
            # RocketMQ begins this sentence with a capital here, and in lower case for a send.
            raise RequestRefusedError(remark[:1].upper() + remark[1:], error.status.response_code) from error
        self._stats.put_by_broker(topic, queue_id, 1, appended.size)
        self.flush_soon()

    def resume(self, request: Command, _: Connection) -> Command:
        """RESUME_CHECK_HALF_MESSAGE: re-enable checks of a half message that exceeded ``transactionCheckMax``."""
        record = self._store.reader.by_message_id(fields_of(request)["msgId"] or "")
        failed = f"Put message back to {TRANSACTION_HALF_TOPIC} failed."
        if record is None:
            raise RequestRefusedError(f"{failed} Message not found.")
        message = decode_for_append(record)
        topic = target_queue_of(message)[0]
        properties = with_property(message.properties, CHECK_TIMES, b"0")
        try:
            self.put_half(message, HALF_QUEUE, properties)
        except AppendRefusedError as error:
            raise RequestRefusedError(f"{failed} {error}") from error
        self.counts.add(topic, 1)
        return request.response(ResponseCode.SUCCESS)

    def put_half(self, message: Record, queue_id: int, properties: bytes) -> tuple[int, int]:
        """Append a half message to its queue again; returns its queue offset and log offset. Raises StoreError."""
        limit = property_limit(self._store)
        if len(properties) > limit:
            properties = fitted(properties, limit, protected=REAL_QUEUE_PROPERTIES)
        copy = copied(message, TRANSACTION_HALF_TOPIC, queue_id, properties)
        appended = self._store.append(copy, is_stored=True)
        self._stats.put_by_broker(TRANSACTION_HALF_TOPIC, queue_id, 1, appended.size)
        return appended.queue_offset, appended.offset


def target_queue_of(half: Record) -> tuple[str, int]:
    """The real topic and queue of a half message. Raises RequestRefusedError if messages must not go there."""
    target = real_queue_of(half.properties)
    if target is None:
        raise RequestRefusedError("the message has no real topic: it is not a half message")
    problem = target_problem(target[0])
    if problem is not None:
        raise RequestRefusedError(f"the half message cannot be committed: {problem}", ResponseCode.NO_PERMISSION)
    return target


def immunity_ms(text: bytes) -> int | None:
    """Milliseconds during which a producer must not be checked; None if malformed."""
    return int(text) * 1000 if text.isdigit() and len(text) <= 12 else None
