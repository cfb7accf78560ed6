"""Transactions: half messages, which only the broker reads, and END_TRANSACTION, which brings them out or not.

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC and says where it belongs. To commit it is to append it there; to
roll it back is to do nothing. Either way it is noted in the op queue, or its producer would be asked about it.
"""

from __future__ import annotations

import dataclasses
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.flush_soon import FlushSoon
from orbitmq.broker.real_place import place_in, topic_in, with_one_and_place, with_place, without_place
from orbitmq.broker.rebuilding import read_parked, rebuild
from orbitmq.broker.transaction_counts import HalfCounts
from orbitmq.broker.transaction_ledger import COMMITTED, ENDED, PENDING, ROLLED_BACK, HalfLedger
from orbitmq.broker.transaction_ops import OpQueue
from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from orbitmq.protocol.hot import end_fields
from orbitmq.protocol.names import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from orbitmq.protocol.properties import find, with_property
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of, refusal, success_with
from orbitmq.store import AppendRefusedError, PutStatus
from orbitmq.store.config import BrokerRole
from orbitmq.store.consume_queue import UNIT, ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.schedule import ScheduleService
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.header import Header
    from orbitmq.protocol.hot import EndFields
    from orbitmq.protocol.record import Record
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Appended, Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

HALF_QUEUE = 0
"""Where new half messages go."""

MOST_FRESH = 8192
"""Half messages that are known without a look at their queue. Most are ended while they are among these."""

NO_CODE_SET = "not set any response code"
"""What RocketMQ's broker says where it has nothing to say."""

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
class Journal:
    """Op messages of an earlier life, from ``begin`` to ``end``, about half messages before ``half_end``.

    An op message that names a later one is about a message that a power cut took.
    """

    begin: int
    end: int
    half_end: int


class Transactions:
    """Takes half messages and ends them. ``flushed`` is done when the log up to an offset is on the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        schedule: ScheduleService,
        offsets: OffsetTable,
        stats: BrokerStats,
        writer: ConfigWriter,
        clock: Clock,
        flushed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._schedule = schedule
        self._offsets = offsets
        self._stats = stats
        self._clock = clock
        self.ops = OpQueue(config, store, stats, clock, flushed)
        self.counts = HalfCounts(writer, clock)
        self.flush_soon = FlushSoon(store, flushed)
        self._fresh: dict[int, int] = {}
        """By their offsets in the log, those in their queue of half messages that came last and were not ended."""
        self._ledgers: dict[int, HalfLedger] = {}
        self.journals: dict[int, Journal] = {}
        """By queue id, what is still to be read."""

    # What is known of half messages

    def load(self) -> None:
        """Take over what lies on the disk, before anything new comes. Raises StoreError."""
        self.counts.load()
        for queue_id in self.queue_ids():
            self.ledger(queue_id)

    def queue_ids(self) -> range:
        """The queues of half messages; one, unless somebody gave the topic more."""
        topic = self._topics.get(TRANSACTION_HALF_TOPIC)
        return range(1 if topic is None else max(topic.read_queue_nums, 1))

    def ledger(self, queue_id: int) -> HalfLedger:
        """What became of the half messages of a queue."""
        ledger = self._ledgers.get(queue_id)
        if ledger is None:
            ledger = self._ledgers[queue_id] = HalfLedger(self._begin(TRANSACTION_HALF_TOPIC, queue_id))
            half, ops = self.queue(TRANSACTION_HALF_TOPIC, queue_id), self.queue(TRANSACTION_OP_TOPIC, queue_id)
            begin = self._begin(TRANSACTION_OP_TOPIC, queue_id)
            self.ops.begin_at(queue_id, begin)
            if half is not None and ops is not None:
                self.journals[queue_id] = Journal(begin, ops.next_offset, half.next_offset)
        return ledger

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queue = self._store.queues.find(topic, queue_id)
        return queue if isinstance(queue, ConsumeQueue) else None

    def _begin(self, topic: str, queue_id: int) -> int:
        """How far a queue was dealt with. One that begins anew is looked at from its beginning."""
        offset = self._offsets.query(TRANSACTION_GROUP, topic, queue_id)
        queue = self.queue(topic, queue_id)
        if queue is None:
            return 0
        return offset if queue.min_offset <= offset <= queue.next_offset else queue.min_offset

    # Half messages

    def prepare(self, topic: str, queue_id: int, properties: bytes, unique_key: bytes) -> tuple[str, int, bytes]:
        """Where a half message is put, and with which properties. Raises RequestRefusedError."""
        if self._config.reject_transaction_message:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden",
                ResponseCode.NO_PERMISSION,
            )
        if b"TIMER_DEL" in properties and any(find(properties, name) is not None for name in _TIMERS):
            raise RequestRefusedError(
                "a message of a transaction cannot have a time of delivery as well", ResponseCode.MESSAGE_ILLEGAL
            )
        if not unique_key:
            return TRANSACTION_HALF_TOPIC, HALF_QUEUE, with_place(properties, topic, queue_id)
        half = with_one_and_place(properties, _TRANSACTION_ID, unique_key, topic, queue_id)
        return TRANSACTION_HALF_TOPIC, HALF_QUEUE, half

    def prepared(self, properties: bytes, appended: Appended) -> None:
        """A half message was stored."""
        self.counts.add(topic_in(properties), 1)
        if len(self._fresh) >= MOST_FRESH:
            self._fresh.clear()
        self._fresh[appended[0]] = appended[2]

    def note_prepared(self, by_topic: Iterable[tuple[str, int]], first: int, units: bytes) -> None:
        """Half messages were stored: how many for which topic, and their units in the queue from an offset on."""
        for topic, count in by_topic:
            self.counts.add(topic, count, count)
        if len(self._fresh) >= MOST_FRESH:
            self._fresh.clear()
        for number, (physical, _, _) in enumerate(UNIT.iter_unpack(units), first):
            self._fresh[physical] = number

    # Requests

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: handler_of(self.resume),
        }

    def end(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """END_TRANSACTION, which is not answered if the producer does not know what became of its transaction."""
        try:
            fields = end_fields(header[6])
            if self._store.config.broker_role is BrokerRole.SLAVE:
                raise RequestRefusedError(NO_CODE_SET, ResponseCode.SLAVE_NOT_AVAILABLE)
            wanted = _STATES.get(fields[3])
            if wanted is None:
                log.info(
                    "%s does not know yet what became of the transaction %s: %s",
                    connection.remote_address,
                    fields[5],
                    header[5] or "it is asked later",
                )
                return b""
            self._end(wanted, fields)
        except (RequestRefusedError, ProtocolError) as error:
            return refusal(Command.of((serialize_type, b"", body), header), error).encode()
        if wanted == COMMITTED:
            return success_with(b"", header[1], serialize_type)
        request = Command.of((serialize_type, b"", body), header)
        return request.response(ResponseCode.SUCCESS, remark=NO_CODE_SET).encode()

    def _end(self, wanted: int, fields: EndFields) -> None:
        group, queue_offset, offset, _, is_asked, _ = fields
        half = self._half(offset)
        if not is_asked and self._is_late(half):
            # It will be asked, or was and has to answer that: by now its end may be known from a copy.
            raise RequestRefusedError(NO_CODE_SET, ResponseCode.ILLEGAL_OPERATION)
        if find(half.properties, PRODUCER_GROUP) != group.encode("utf-8", "replace"):
            raise RequestRefusedError("The producer group wrong")
        if half.queue_offset != queue_offset:
            raise RequestRefusedError("The transaction state table offset wrong")
        ledger = self.ledger(half.queue_id)
        places = ledger.places(half.queue_offset)
        known = ledger.state(places[-1])
        if known in {wanted, ENDED}:
            return
        if known != PENDING:
            raise RequestRefusedError(f"the transaction is {_DONE[known]} already, and stays so")
        if not self.ops.has_room(half.queue_id):
            raise RequestRefusedError("Service not available now.", ResponseCode.SERVICE_NOT_AVAILABLE)
        topic, queue_id = place_of(half)
        if wanted == COMMITTED:
            self._commit(half, topic, queue_id)
        self._fresh.pop(offset, None)
        ledger.end(places[-1], wanted, has_copies=len(places) > 1 or is_asked)
        self.ops.add(half.queue_id, places)
        self.counts.add(topic, -1)

    def _half(self, offset: int) -> Record:
        """The half message at a place in the log. Raises RequestRefusedError."""
        if offset >= self._store.log.committed:
            self._store.log.commit()  # its producer is fast, and it lies in a buffer still
        half = self._at(offset)
        if half is None or half.topic != TRANSACTION_HALF_TOPIC:
            raise RequestRefusedError(NOT_FOUND)
        queue = self.queue(TRANSACTION_HALF_TOPIC, half.queue_id)
        # What looks like a half message may be the body of another one.
        if queue is None or not 0 <= half.queue_offset < queue.next_offset:
            raise RequestRefusedError(NOT_FOUND)
        if self._fresh.get(offset) != half.queue_offset and queue.min_offset <= half.queue_offset < queue.end:
            unit = queue.unit(half.queue_offset)
            if unit is not None and unit[0] != offset:
                raise RequestRefusedError(NOT_FOUND)
        return half

    def _at(self, offset: int) -> Record | None:
        """The record at a place in the log that a client named; None if there is none."""
        size = self._store.log.slice(offset, _SIZE.size) if offset >= self._store.reader.checked_from else None
        return read_parked(self._store, offset, 0 if size is None else _SIZE.unpack(size)[0])

    def _is_late(self, half: Record) -> bool:
        """Whether the time is over for which a producer wanted not to be asked."""
        text = find(half.properties, IMMUNITY) if IMMUNITY in half.properties else None
        if text is None:
            return False
        immunity = max(immunity_ms(text) or 0, self._config.transaction_time_out)
        return self._clock.now_ms() - half.born_timestamp > immunity

    def _commit(self, half: Record, topic: str, queue_id: int) -> None:
        properties = without_place(half.properties, topic, queue_id)
        # Java's clients send no delayed half messages. RocketMQ's broker loses those of others.
        parked = self._schedule.park(properties, topic, queue_id) if b"DELAY\x01" in properties else None
        topic, queue_id, properties = parked or (topic, queue_id, properties)
        try:
            appended = self._store.append(
                topic,
                queue_id,
                half.body,
                properties,
                flag=half.flag,
                sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
                born_timestamp=half.born_timestamp,
                born_host=half.born_host,
                reconsume_times=half.reconsume_times,
                prepared_transaction_offset=half.physical_offset,
            )
        except AppendRefusedError as error:
            self._stats.put_failed()
            raise RequestRefusedError(self._why(error), error.status.response_code) from error
        self._stats.put(topic, queue_id, 1, appended.size)
        self.flush_soon()

    def _why(self, error: AppendRefusedError) -> str:
        if error.status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}:
            return (
                "The message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{self._store.config.max_message_size}B, msg properties length limit 32KB."
            )
        if error.status is PutStatus.SERVICE_NOT_AVAILABLE:
            return "Service not available now."
        return str(error)

    def resume(self, request: Command, _: Connection) -> Command:
        """RESUME_CHECK_HALF_MESSAGE: ask about a message again, of which nobody wanted to know for long."""
        record = self._store.reader.by_message_id(fields_of(request)["msgId"] or "")
        failed = f"Put message back to {TRANSACTION_HALF_TOPIC} failed."
        if record is None:
            raise RequestRefusedError(f"{failed} There is no such message (any more).")
        message = rebuild(record)
        topic = place_of(message)[0]
        properties = with_property(message.properties, CHECK_TIMES, b"0")
        try:
            self.put_half(message, HALF_QUEUE, properties)
        except AppendRefusedError as error:
            raise RequestRefusedError(f"{failed} {error}") from error
        self.counts.add(topic, 1)
        return request.response(ResponseCode.SUCCESS)

    def put_half(self, message: Record, queue_id: int, properties: bytes) -> tuple[int, int]:
        """Put a half message at the end of its queue; its offset there and in the log. Raises StoreError."""
        appended = self._store.append(
            TRANSACTION_HALF_TOPIC,
            queue_id,
            message.body,
            properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
        )
        self._stats.put(TRANSACTION_HALF_TOPIC, queue_id, 1, appended.size)
        return appended.queue_offset, appended.offset


def place_of(half: Record) -> tuple[str, int]:
    """The topic and queue of a half message. Raises RequestRefusedError if it does not say."""
    place = place_in(half.properties)
    if place is None:
        raise RequestRefusedError("the message does not say where it belongs: it is no half message")
    return place


def immunity_ms(text: bytes) -> int | None:
    """For how long a producer wants not to be asked; None if it does not say so properly."""
    return int(text) * 1000 if text.isdigit() and len(text) <= 12 else None
