"""Brings popped messages back that nobody acknowledged in time.

The records of a revive queue come in the order of time: a check point, then the acknowledgements of its messages.
When enough time has passed behind a check point, its messages that have none are appended to the retry topic of
their group. The offset of the last check point that was dealt with is kept like that of any consumer.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.pop_checkpoints import ACK_TAG, BATCH_ACK_TAG, CK_TAG, REVIVE_GROUP
from orbitmq.broker.rebuilding import rebuild
from orbitmq.protocol import property_names as names
from orbitmq.protocol.bodies import AckMsg, BatchAckMsg, PopCheckPoint
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import PERM_READ_WRITE
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.pop import normal_topic, pop_retry_topic
from orbitmq.protocol.properties import find, with_property
from orbitmq.protocol.record import iter_records
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store import AppendRefusedError, GetStatus, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flush_soon import FlushSoon
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.pop_checkpoints import PopJournal, Timer
    from orbitmq.broker.pop_offsets import PopOffsets
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.record import Record
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

WAIT_MS = 2000
"""So much has to have happened in the queue behind the end of a check point's time before it is looked at."""

IDLE_MS = 3000
"""After so long without a record, and with nothing due in the timer, time itself counts."""

TURN_RECORDS = 32
TURN_MESSAGES = 64
"""What is read and brought back in one turn of the loop."""

MOST_EARLY = 10_000
"""Pops of which acknowledgements are remembered without their check points; of more the oldest are forgotten."""

REWRITE_SECONDS = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""How much later a message is tried again that could not be brought back, by how often that was tried."""

_DELIVER = names.TIMER_DELIVER_MS.encode()
_TAGS = names.TAGS.encode()
_FIRST_POP = names.FIRST_POP_TIME.encode()
_ORIGIN_GROUP = b"ORIGIN_GROUP"

Key = tuple[str, str, int, int, int, str]


@dataclasses.dataclass(slots=True)
class ReviveQueue:
    """One queue while it is read. What it holds was popped within some seconds."""

    queue_id: int
    offset: int
    """Where to read next."""
    end_time_ms: int = 0
    """What was to be delivered until then was read."""
    pending: collections.OrderedDict[Key, PopCheckPoint] = dataclasses.field(
        default_factory=collections.OrderedDict
    )
    """Check points that wait for acknowledgements, in the order of the queue. They leave from the front, which a
    plain dict has to look for behind the places of all that have left."""
    early: collections.OrderedDict[Key, set[int]] = dataclasses.field(default_factory=collections.OrderedDict)
    """Offsets that were acknowledged and whose check point was not read: a timer that lags lets it come behind."""
    complaint: str = ""


class ReviveService:
    """Reads the revive queues in slices of one loop."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        places: PopOffsets,
        journal: PopJournal,
        timer: Timer,
        stats: BrokerStats,
        clock: Clock,
        flush_soon: FlushSoon,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._places = places
        self._journal = journal
        self._timer = timer
        self._stats = stats
        self._clock = clock
        self._flush_soon = flush_soon
        self._topic = journal.revive_topic
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
            # Whatever it was, it must not keep the messages of others from coming back.
            log.exception("popped messages could not be brought back: it is tried again")
        if self._is_running:
            loop = asyncio.get_running_loop()
            wait = self._config.revive_interval / 1000
            self._call = loop.call_later(wait, self._wake) if is_done else loop.call_soon(self._wake)

    def turn(self) -> bool:
        """Read what came and bring back what is due, up to a turn's worth; False if there is more."""
        end = self._store.log.end
        is_done = True
        for queue_id in range(len(self.queues), self._journal.queue_count):
            # Where it was is the last one that was dealt with.
            offset = self._offsets.query(REVIVE_GROUP, self._topic, queue_id) + 1
            self.queues.append(ReviveQueue(queue_id, offset))
        for queue in self.queues:
            try:
                is_done &= self._read(queue) and self._settle(queue)
                queue.complaint = ""
            except StoreError as error:
                if queue.complaint != str(error):
                    log.warning("revive queue %d waits: %s", queue.queue_id, error)
                queue.complaint = str(error)
        if self._store.log.end > end:
            self._flush_soon()
        return is_done

    # Reading

    def _read(self, queue: ReviveQueue) -> bool:
        """Take note of further records; False if there are more."""
        result = self._store.get(self._topic, queue.queue_id, queue.offset, TURN_RECORDS)
        if result.status is GetStatus.FOUND:
            for piece in result.slices:
                for record in iter_records(piece):
                    self._note(queue, record)
            queue.offset = result.next_begin_offset
            self._stats.got(REVIVE_GROUP, self._topic, queue.queue_id, result.count, result.size)
            return queue.offset >= result.max_offset
        if result.status in {
            GetStatus.OFFSET_TOO_SMALL,
            GetStatus.MESSAGE_WAS_REMOVING,
            GetStatus.OFFSET_FOUND_NULL,
        }:
            log.error("revive queue %d goes on at %d", queue.queue_id, result.next_begin_offset)
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
                # In the log already, and shown after a flush.
                self._flush_soon()
            else:
                queue.end_time_ms = now
        return True

    def _note(self, queue: ReviveQueue, record: Record) -> None:
        tag = (find(record.properties, _TAGS) or b"").decode("utf-8", "replace")
        deliver = find(record.properties, _DELIVER) or b""
        if deliver.isdigit() and len(deliver) < 19:
            queue.end_time_ms = max(queue.end_time_ms, int(deliver))
        try:
            if tag == CK_TAG:
                point = PopCheckPoint.decode(record.body)
                point.revive_offset = record.queue_offset
                if point.topic and point.cid:
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
                        # The timer may repeat itself after a crash. What was acknowledged is.
                        point.bit_map |= before.bit_map
                    _mark(point, queue.early.pop(key, ()))
                    queue.pending[key] = point
            elif tag == ACK_TAG:
                ack = AckMsg.decode(record.body)
                self._acknowledge(queue, ack, (ack.ack_offset,))
            elif tag == BATCH_ACK_TAG:
                many = BatchAckMsg.decode(record.body)
                self._acknowledge(queue, many, many.ack_offset_list)
        except ProtocolError as error:
            log.error("record %d of revive queue %d is skipped: %s", record.queue_offset, queue.queue_id, error)

    def _acknowledge(self, queue: ReviveQueue, ack: AckMsg, offsets: tuple[int, ...]) -> None:
        key = self._key(
            ack.topic, ack.consumer_group, ack.queue_id, ack.start_offset, ack.pop_time, ack.broker_name
        )
        point = queue.pending.get(key)
        if point is None:
            queue.early.setdefault(key, set()).update(offsets)
            if len(queue.early) > MOST_EARLY:
                queue.early.popitem(last=False)
            return
        _mark(point, offsets)

    def _key(self, topic: str, group: str, queue_id: int, start: int, pop_time: int, broker: str | None) -> Key:
        return topic, group, queue_id, start, pop_time, broker or self._config.broker_name

    # Bringing back

    def _settle(self, queue: ReviveQueue) -> bool:
        """Deal with check points whose time is over; False if there are more."""
        count = 0
        while queue.pending:
            key, point = next(iter(queue.pending.items()))
            if queue.end_time_ms - point.revive_time <= WAIT_MS:
                return True
            if count >= TURN_MESSAGES:
                return False
            count += self._revive(queue, point)
            del queue.pending[key]
            self._offsets.commit(REVIVE_GROUP, self._topic, queue.queue_id, point.revive_offset)
        return True

    def _revive(self, queue: ReviveQueue, point: PopCheckPoint) -> int:
        """Bring back what was not acknowledged; returns how much there was to do."""
        if self._topics.get(normal_topic(point.topic, point.cid)) is None or self._groups.find(point.cid) is None:
            log.warning("messages of %s do not come back to %s: one of them is gone", point.topic, point.cid)
            return 1
        count = 1
        for index in range(point.num):
            if point.bit_map >> index & 1:
                continue
            count += 1
            offset = _offset_at(point, index)
            try:
                self._put_again(point, offset)
            except (AppendRefusedError, RequestRefusedError) as error:
                log.warning("message %d of %s comes back later: %s", offset, point.topic, error)
                self._write_again(queue, point, offset)
            # Should one of the others fail, this one is not brought back twice.
            point.bit_map |= 1 << index
        return count

    def _put_again(self, point: PopCheckPoint, offset: int) -> None:
        result = self._store.get(point.topic, point.queue_id, offset, 1)
        found = result.slices[0] if result.status is GetStatus.FOUND else None
        try:
            message = None if found is None else rebuild(found)
        except ProtocolError:
            message = None
        if message is None or message.queue_offset != offset:
            log.info("message %d of %s@%d is gone", offset, point.topic, point.queue_id)
            return
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(topic, point.cid, v2=self._config.enable_retry_topic_v2)
        if self._topics.get(topic) is None:
            self._topics.create_for_send_back(topic, 1, PERM_READ_WRITE)
            if self._offsets.query(point.cid, topic, 0) < 0:
                self._offsets.commit(point.cid, topic, 0, 0)
        properties = message.properties
        if message.reconsume_times == 0 or find(properties, _FIRST_POP) is None:
            properties = with_property(properties, _FIRST_POP, b"%d" % point.pop_time)
        properties = with_property(properties, _ORIGIN_GROUP, point.cid.encode("utf-8", "replace"))
        appended = self._store.append(
            topic,
            0,
            message.body,
            properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=self._store.log.store_host,
            reconsume_times=message.reconsume_times + (not point.suspend),
        )
        self._journal.end = appended.offset + appended.size
        self._places.settled(point.topic, point.cid, point.queue_id, 1, point.pop_time)
        self._stats.put(topic, 0, 1, appended.size)

    def _write_again(self, queue: ReviveQueue, point: PopCheckPoint, offset: int) -> None:
        """Leave a check point for a message that could not be brought back. Raises AppendRefusedError."""
        said = point.re_put_times or ""
        times = int(said) if said.isdigit() and len(said) < 10 else 0
        if times >= len(REWRITE_SECONDS) and self._config.skip_when_ck_re_put_reach_max_times:
            log.error("message %d of %s@%d is given up for %s", offset, point.topic, point.queue_id, point.cid)
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
        self._journal.check_point(later, queue.queue_id)


def _mark(point: PopCheckPoint, offsets: Iterable[int]) -> None:
    """Note that messages of a check point were acknowledged."""
    for offset in offsets:
        index = _index_of(point, offset)
        if index is not None:
            point.bit_map |= 1 << index


def _index_of(point: PopCheckPoint, offset: int) -> int | None:
    """Which of a check point's messages this is; None if it is none of them."""
    distance = offset - point.start_offset
    if point.queue_offset_diff:
        return point.queue_offset_diff.index(distance) if distance in point.queue_offset_diff else None
    return distance if 0 <= distance < point.num else None


def _offset_at(point: PopCheckPoint, index: int) -> int:
    if point.queue_offset_diff and index < len(point.queue_offset_diff):
        return point.start_offset + point.queue_offset_diff[index]
    return point.start_offset + index
