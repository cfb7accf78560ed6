"""Redelivery of popped messages that were not acknowledged in time (RocketMQ: PopReviveService).

The records of a revive queue are in the order of time: a check point, then the acknowledgements of its messages.
When enough time has passed behind a check point, its unacknowledged messages are appended to the retry topic of
their group. The offset of the last processed check point is persisted like that of any consumer.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.flush_trigger import FlushTrigger
from orbitmq.broker.deferred.property_room import fitted, property_limit
from orbitmq.broker.deferred.record_copy import copied, decode_for_append
from orbitmq.broker.pop.checkpoint import ACK_TAG, BATCH_ACK_TAG, CK_TAG
from orbitmq.broker.quarantine import REVIVE, is_transient
from orbitmq.protocol.bodies import AckMsg, BatchAckMsg, PopCheckPoint
from orbitmq.protocol.command.fields import INT32_MAX
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.message.pop_receipt import normal_topic, pop_retry_topic
from orbitmq.protocol.message.properties import find, with_property
from orbitmq.protocol.message.record import decode_record, iter_records
from orbitmq.protocol.names import RETRY_PREFIX, REVIVE_GROUP
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store import AppendRefusedError, GetStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.pop.checkpoint import CheckpointWriter, Timer
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.message.record import Record
    from orbitmq.store import GetResult, StoredMessage

log = logging.getLogger("orbitmq.broker")

WAIT_MS = 2000
"""A check point is processed when the queue has records of so much later than the end of its invisible time."""

IDLE_MS = 3000
"""After so long without a record, and with nothing due in the timer, the clock counts instead."""

SLICE_RECORDS = 32
SLICE_MESSAGES = 64
"""Records read and messages redelivered in one iteration of the event loop."""

MAX_EARLY = 10_000
"""Pops whose acknowledgements arrived before their check points; beyond that the oldest are dropped."""

REWRITE_SECONDS = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Backoff by attempt for a message whose redelivery fails."""

AHEAD_MS = 60_000
"""The timer stores a record of a revive queue when it is due. A time so much later than that is wrong, and ignored:
it would block every check point behind it, or redeliver messages before they can be acknowledged."""

MAX_MESSAGES = 127
"""Messages of one check point: RocketMQ counts them in a signed byte."""

_INT64_MAX = (1 << 63) - 1

_DELIVER = names.TIMER_DELIVER_MS.encode()
_TAGS = names.TAGS.encode()
_FIRST_POP = names.FIRST_POP_TIME.encode()
_ORIGIN_GROUP = names.ORIGIN_GROUP.encode()
_CK, _ACK, _BATCH_ACK = CK_TAG.encode(), ACK_TAG.encode(), BATCH_ACK_TAG.encode()

Key = tuple[str, str, int, int, int, str]


@dataclasses.dataclass(slots=True)
class ReviveQueue:
    """The state of one revive queue: check points and acknowledgements of some seconds."""

    queue_id: int
    offset: int
    """The next offset to read."""
    end_time_ms: int = 0
    """All records due until then have been read."""
    pending: collections.OrderedDict[Key, PopCheckPoint] = dataclasses.field(
        default_factory=collections.OrderedDict
    )
    """Check points that wait for acknowledgements, in the order of the queue. They leave from the front, where a
    plain dict would scan the slots of all removed ones."""
    early: collections.OrderedDict[Key, set[int]] = dataclasses.field(default_factory=collections.OrderedDict)
    """Acknowledged offsets whose check point was not read yet: it comes later if the timer lags."""
    complaint: str = ""


class ReviveService:
    """Reads the revive queues in slices on the event loop."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        pop_offsets: PopOffsets,
        checkpoints: CheckpointWriter,
        timer: Timer,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._pop_offsets = pop_offsets
        self._checkpoints = checkpoints
        self._timer = timer
        self._stats = runtime.stats
        self._clock = runtime.clock
        self._flush_soon = FlushTrigger(runtime.store, runtime.flushed)
        self.topic = self._topic = checkpoints.revive_topic
        self.queues: list[ReviveQueue] = []
        self._call: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_running = False

    def start(self) -> None:
        self._is_running = True
        self._call = asyncio.get_running_loop().call_later(self._config.revive_interval / 1000, self._wake)

    def stop(self) -> None:
        self._is_running = False
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _wake(self) -> None:
        is_done = True
        try:
            is_done = self.turn()
        except Exception:
            log.exception("revive: a pass failed, will retry in %d ms", self._config.revive_interval)
        if self._is_running:
            loop = asyncio.get_running_loop()
            wait = self._config.revive_interval / 1000
            self._call = loop.call_later(wait, self._wake) if is_done else loop.call_soon(self._wake)

    def turn(self) -> bool:
        """Read new records and redeliver what is due, for one slice; False if there is more."""
        end = self._store.log.end
        is_done = True
        for queue_id in range(len(self.queues), self._checkpoints.queue_count):
            # The persisted offset is that of the last processed check point.
            offset = self._offsets.query(REVIVE_GROUP, self._topic, queue_id) + 1
            self.queues.append(ReviveQueue(queue_id, offset))
        for queue in self.queues:
            try:
                is_done &= self._read(queue) and self._process_due(queue)
                queue.complaint = ""
            except Exception as error:
                # A queue that fails must not stop the redelivery from the others.
                if queue.complaint != str(error):
                    log.warning(
                        "revive: queue %d failed, will retry: %s",
                        queue.queue_id,
                        error,
                        exc_info=None if is_transient(error) else error,
                    )
                queue.complaint = str(error)
        if self._store.log.end > end:
            self._flush_soon()
        return is_done

    # Reading

    def _read(self, queue: ReviveQueue) -> bool:
        """Read further records; False if there are more."""
        result = self._store.get(self._topic, queue.queue_id, queue.offset, SLICE_RECORDS)
        if result.status is GetStatus.FOUND:
            for record in self._records(queue, result):
                self._process(queue, record)
            queue.offset = result.next_begin_offset
            self._stats.got(REVIVE_GROUP, self._topic, queue.queue_id, result.count, result.size)
            return queue.offset >= result.max_offset
        if result.status in {
            GetStatus.OFFSET_TOO_SMALL,
            GetStatus.MESSAGE_WAS_REMOVING,
            GetStatus.OFFSET_FOUND_NULL,
        }:
            if result.next_begin_offset == queue.offset:
                return True  # its units are being written again from the log; the next pass finds them
            log.error("revive: queue %d continues at offset %d", queue.queue_id, result.next_begin_offset)
            queue.offset = result.next_begin_offset
            self._offsets.commit(REVIVE_GROUP, self._topic, queue.queue_id, queue.offset - 1)
            return False
        if result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
            # The log lost its end, and the queue with it.
            queue.offset = result.next_begin_offset
            self._offsets.commit(REVIVE_GROUP, self._topic, queue.queue_id, queue.offset - 1)
        now = self._clock.now_ms()
        if queue.pending and now - queue.end_time_ms > IDLE_MS and self._timer.is_caught_up:
            found = self._store.queues.find(self._topic, queue.queue_id)
            if found is not None and found.next_offset > found.max_offset:
                # In the log already, and visible after a flush.
                self._flush_soon()
            else:
                queue.end_time_ms = now
        return True

    def _records(self, queue: ReviveQueue, result: GetResult) -> list[Record]:
        try:
            return [record for piece in result.slices for record in iter_records(piece)]
        except (ProtocolError, struct.error, ValueError):
            pass
        # One of them is damaged: read one by one, so that the others are not lost.
        records = []
        for offset in range(queue.offset, result.next_begin_offset):
            try:
                one = self._store.get(self._topic, queue.queue_id, offset, 1)
                records += [decode_record(piece) for piece in one.slices]
            except (ProtocolError, struct.error, ValueError) as error:
                self._skip(queue, offset, error)
        return records

    def _skip(self, queue: ReviveQueue, offset: int, reason: object) -> None:
        record = f"record {offset} of {self._topic} queue {queue.queue_id}"
        self._stats.quarantine.skip(REVIVE, record, reason)

    def _process(self, queue: ReviveQueue, record: Record) -> None:
        """Process a record; a malformed one is skipped."""
        try:
            if not record.body_is_intact:
                raise ProtocolError("the CRC of its body is wrong")
            self._read_time(queue, record)
            tag = find(record.properties, _TAGS) or b""
            if tag == _CK:
                self._add_point(queue, record)
            elif tag == _ACK:
                ack = AckMsg.decode(record.body)
                self._acknowledge(queue, ack, (ack.ack_offset,))
            elif tag == _BATCH_ACK:
                many = BatchAckMsg.decode(record.body)
                self._acknowledge(queue, many, many.ack_offset_list)
            # Records with other tags are ignored, as RocketMQ does: they say nothing about a pop.
        except Exception as error:
            # Caused by the bytes of this record.
            self._skip(queue, record.queue_offset, error)

    def _read_time(self, queue: ReviveQueue, record: Record) -> None:
        deliver = find(record.properties, _DELIVER) or b""
        if deliver.isdigit() and len(deliver) < 19 and int(deliver) <= record.store_timestamp + AHEAD_MS:
            queue.end_time_ms = max(queue.end_time_ms, int(deliver))

    def _add_point(self, queue: ReviveQueue, record: Record) -> None:
        point = PopCheckPoint.decode(record.body)
        point.revive_offset = record.queue_offset
        problem = _problem_of(point)
        if problem is not None:
            raise ProtocolError(problem)
        if point.revive_time > record.store_timestamp + AHEAD_MS:
            point.invisible_time = record.store_timestamp - point.pop_time
        key = self._key(
            point.topic,
            point.cid,
            point.queue_id,
            point.start_offset,
            point.pop_time,
            point.broker_name,
        )
        before = queue.pending.pop(key, None)
        if before is not None and before.invisible_time == point.invisible_time:
            # The timer may deliver twice after a crash; acknowledgements stay.
            point.bit_map |= before.bit_map
        _mark(point, queue.early.pop(key, ()))
        queue.pending[key] = point

    def _acknowledge(self, queue: ReviveQueue, ack: AckMsg, offsets: tuple[int, ...]) -> None:
        key = self._key_of(ack)
        point = queue.pending.get(key)
        if point is None:
            queue.early.setdefault(key, set()).update(offsets)
            if len(queue.early) > MAX_EARLY:
                queue.early.popitem(last=False)
            return
        _mark(point, offsets)

    def _key_of(self, ack: AckMsg) -> Key:
        return self._key(
            ack.topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time, ack.broker_name
        )

    def _key(self, topic: str, group: str, queue_id: int, start: int, pop_time: int, broker: str | None) -> Key:
        return topic, group, queue_id, start, pop_time, broker or self._config.broker_name

    # Redelivery

    def _process_due(self, queue: ReviveQueue) -> bool:
        """Process check points that are due; False if there are more."""
        count = 0
        while queue.pending:
            key, point = next(iter(queue.pending.items()))
            if queue.end_time_ms - point.revive_time <= WAIT_MS:
                return True
            if count >= SLICE_MESSAGES:
                return False
            count += self._revive(queue, point)
            del queue.pending[key]
            self._processed(queue, key, point)
        return True

    def _processed(self, queue: ReviveQueue, _: Key, point: PopCheckPoint) -> None:
        """Record that a check point, and all before it, were processed."""
        self._offsets.commit(REVIVE_GROUP, self._topic, queue.queue_id, point.revive_offset)

    def _revive(self, queue: ReviveQueue, point: PopCheckPoint) -> int:
        """Redeliver what was not acknowledged; returns the number of messages, for the slice."""
        if self._topics.get(normal_topic(point.topic, point.cid)) is None or self._groups.find(point.cid) is None:
            log.warning(
                "revive: no redelivery from %s to group %s: topic or group was deleted", point.topic, point.cid
            )
            return 1
        count = 1
        for index in range(point.num):
            if point.bit_map >> index & 1:
                continue
            count += 1
            offset = _offset_at(point, index)
            try:
                self._redeliver(point, offset)
            except (AppendRefusedError, RequestRefusedError) as error:
                log.warning("revive: message %d of %s failed, will retry: %s", offset, point.topic, error)
                self._reschedule(queue, point, offset)
            except Exception as error:
                record = (
                    f"message {offset} of {point.topic} queue {point.queue_id} for group {point.cid} "
                    f"(check point {point.revive_offset} of revive queue {queue.queue_id})"
                )
                key = point.revive_offset, index
                is_hopeless = not is_transient(error) and self._stats.quarantine.failed(
                    REVIVE, queue.queue_id, key, record, error
                )
                if not is_hopeless:
                    raise
            # If one of the others fails, this one is not redelivered twice.
            point.bit_map |= 1 << index
        return count

    def _redeliver(self, point: PopCheckPoint, offset: int) -> None:
        result = self._store.get(point.topic, point.queue_id, offset, 1)
        found = result.slices[0] if result.status is GetStatus.FOUND else None
        try:
            message = None if found is None else decode_for_append(found)
        except ProtocolError:
            message = None
        if message is None or message.queue_offset != offset:
            log.info("revive: message %d of %s queue %d was deleted", offset, point.topic, point.queue_id)
            return
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(topic, point.cid, v2=self._config.enable_retry_topic_v2)
        properties = message.properties
        if message.reconsume_times == 0 or find(properties, _FIRST_POP) is None:
            properties = with_property(properties, _FIRST_POP, b"%d" % point.pop_time)
        properties = with_property(properties, _ORIGIN_GROUP, point.cid.encode("utf-8", "replace"))
        limit = property_limit(self._store)
        if len(properties) > limit:
            properties = fitted(properties, limit)
        retry = copied(message, topic, 0, properties)._replace(
            born_host=self._store.log.store_host,
            reconsume_times=min(message.reconsume_times + (not point.suspend), INT32_MAX),
        )
        size = self._append(retry, point.cid)
        self._pop_offsets.completed(point.topic, point.cid, point.queue_id, 1, point.pop_time)
        self._stats.put_by_broker(topic, 0, 1, size)

    def _append(self, retry: StoredMessage, group: str) -> int:
        """Append a message to the retry topic of its group; returns its size. Raises StoreError."""
        topic = retry.topic
        if self._topics.get(topic) is None:
            self._topics.create_at_once(topic, 1, PERM_READ_WRITE)
            if self._offsets.query(group, topic, 0) < 0:
                self._offsets.commit(group, topic, 0, 0)
        appended = self._store.append(retry, is_stored=True)
        self._checkpoints.end = appended.offset + appended.size
        return appended.size

    def _reschedule(self, queue: ReviveQueue, point: PopCheckPoint, offset: int) -> None:
        """Write another check point for a message whose redelivery failed. Raises AppendRefusedError."""
        text = point.re_put_times or ""
        times = int(text) if text.isdigit() and len(text) < 10 else 0
        if times >= len(REWRITE_SECONDS) and self._config.skip_when_ck_re_put_reach_max_times:
            record = f"message {offset} of {point.topic} queue {point.queue_id} for group {point.cid}"
            self._stats.quarantine.skip(REVIVE, record, f"it could not be appended {times} times")
            return
        later = dataclasses.replace(
            point,
            bit_map=0,
            num=1,
            start_offset=offset,
            queue_offset_diff=(0,),
            re_put_times=str(times + 1),
            revive_offset=0,
        )
        if point.revive_time <= self._clock.now_ms():
            later.invisible_time += REWRITE_SECONDS[min(times, len(REWRITE_SECONDS) - 1)] * 1000
        self._checkpoints.check_point(later, queue.queue_id)


def _problem_of(point: PopCheckPoint) -> str | None:
    """The error of a check point with values that no pop writes; None if it is valid."""
    if not point.topic or not point.cid:
        return "it names no topic or no group"
    if not 0 <= point.num <= MAX_MESSAGES:
        return f"num={point.num} is out of range"
    diffs = point.queue_offset_diff or ()
    if len(diffs) > MAX_MESSAGES or not all(0 <= diff <= INT32_MAX for diff in diffs):
        return "an offset of queueOffsetDiff is out of range"
    if not 0 <= point.start_offset <= _INT64_MAX - INT32_MAX or not 0 <= point.queue_id <= INT32_MAX:
        return f"queueId={point.queue_id} or startOffset={point.start_offset} is out of range"
    if not 0 <= point.pop_time <= _INT64_MAX or abs(point.invisible_time) > _INT64_MAX:
        return f"popTime={point.pop_time} or invisibleTime={point.invisible_time} is out of range"
    return None


def _mark(point: PopCheckPoint, offsets: Iterable[int]) -> None:
    """Mark messages of a check point as acknowledged."""
    for offset in offsets:
        index = _index_of(point, offset)
        if index is not None:
            point.bit_map |= 1 << index


def _index_of(point: PopCheckPoint, offset: int) -> int | None:
    """The index of an offset among the messages of a check point; None if it is not one of them."""
    distance = offset - point.start_offset
    if point.queue_offset_diff:
        return point.queue_offset_diff.index(distance) if distance in point.queue_offset_diff else None
    return distance if 0 <= distance < point.num else None


def _offset_at(point: PopCheckPoint, index: int) -> int:
    if point.queue_offset_diff and index < len(point.queue_offset_diff):
        return point.start_offset + point.queue_offset_diff[index]
    return point.start_offset + index
