"""Timer delivery: reads deferred messages from the timer topic and appends them to their real topic, or rolls
them."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.reader import DeferredReader, append_one
from orbitmq.broker.deferred.real_topic import real_queue_of, real_topic_of
from orbitmq.broker.deferred.record_copy import copied, read_deferred
from orbitmq.broker.deferred.target_queue import target_problem
from orbitmq.broker.quarantine import TIMER
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find, with_property
from orbitmq.protocol.message.record import properties_of
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store.append.stored_message import StoredMessage
from orbitmq.store.timer.timer_log import ROLL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.counts import TimerCounts
    from orbitmq.broker.timer.rates import TimerRates
    from orbitmq.protocol.message.record import Record
    from orbitmq.store.timer.timer_log import TimerUnit

_USUAL_END = re.compile(rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01[0-9]+\x02")
"""End of a deferred record: its last properties, after TIMER_OUT_MS."""
_MAX_USUAL_END = 300

DELIVERED_AT_ONCE = (1 << 63) - 1
"""Entry time in messages that were due before they could be entered."""

_UNIQ_KEY = names.UNIQUE_KEY.encode()
_OUT = names.TIMER_OUT_MS.encode()
_ENQUEUED = names.TIMER_ENQUEUE_MS.encode()
_DEQUEUED = names.TIMER_DEQUEUE_MS.encode()
_ROLLED = names.TIMER_ROLL_TIMES.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()


class TimerMessages:
    """Reads deferred messages of the timer and appends them where they go next."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        counts: TimerCounts,
        rates: TimerRates,
        targets: TargetQueues | None,
    ) -> None:
        self._store = store = runtime.store
        self._deliveries = runtime.deliveries or store
        self.is_escaping = runtime.deliveries is not None
        """True on a slave, whose messages go to other masters."""
        self._clock = runtime.clock
        self._stats = runtime.stats
        self._counts = counts
        self._rates = rates
        self._targets = targets
        self._deferred = DeferredReader(store, TIMER_TOPIC)

    def read(self, physical: int, size: int = 0) -> Record | None:
        """Read a deferred message; None if it cannot be read any more. ``size``: its expected size; 0 if
        unknown."""
        message = read_deferred(self._store, physical, size)
        if message is None or message.topic != TIMER_TOPIC:
            self.skip(physical, "no intact record of the timer there")
            return None
        return message

    def skip(self, physical: int, reason: object) -> None:
        """Skip a record that cannot be entered or delivered."""
        self._stats.quarantine.skip(TIMER, f"the record at {physical} of {TIMER_TOPIC}", reason)

    def _target_of(self, properties: bytes) -> tuple[tuple[str, int] | None, str | None]:
        """The target queue of a message, or the reason why it cannot be delivered."""
        target = real_queue_of(properties)
        if target is None:
            return None, "it has no real topic"
        problem = target_problem(target[0], is_timer=True)
        if problem is not None:
            return None, problem
        if self._targets is not None:
            return (target[0], self._targets.queue_for(*target)), None
        return target, None

    def read_deferral(self, physical: int, size: int) -> tuple[int, str, bool] | None:
        """Slot time, topic and recall flag of a message of the timer queue; None if it cannot be read."""
        store = self._store
        # Records that this process wrote need no check before they are read.
        is_own = physical >= store.reader.checked_from
        record = store.log.slice(physical, size) if is_own else store.record(physical)
        if record is None:
            return None
        data = bytes(record)
        out, _, end = data.rpartition(b"\x02TIMER_OUT_MS\x01")[2].partition(b"\x02")
        topic = _topic_at_end(end) if len(end) <= _MAX_USUAL_END else None
        if topic is not None and out.isdigit() and len(out) <= 18 and _DELETES not in data:
            return int(out), topic, False
        properties = properties_of(record)
        text = find(properties, _OUT) or b""
        if not text.isdigit() or len(text) > 18:
            return None
        return int(text), real_topic_of(properties), is_recall_marker(properties)

    def real_topic(self, physical: int) -> str | None:
        """Real topic of a deferred message; None if it cannot be read any more."""
        message = self.read(physical)
        return None if message is None else real_topic_of(message.properties)

    def append(self, message: Record, entered_ms: int, *, is_rolling: bool) -> bool:
        """Append a message to its real queue, or to the timer queue again if it rolls.

        False if it does not fit into a record there. Raises StoreError if the append has to be retried.
        """
        properties = message.properties
        if is_rolling:
            if self.is_escaping:
                return False
            real_topic = real_topic_of(properties)
            topic, queue_id = TIMER_TOPIC, 0
            rolled = find(properties, _ROLLED) or b""
            times = int(rolled) + 1 if rolled.isdigit() and len(rolled) < 10 else 1
            properties = with_property(properties, _ROLLED, b"%d" % times)
        else:
            target, problem = self._target_of(properties)
            if target is None:
                self.skip(message.physical_offset, problem)
                return True
            topic, queue_id = target
            real_topic = topic
        # The real topic stays in the properties, as in RocketMQ: consumers see it.
        properties = _stamped(properties, entered_ms, self._clock.now_ms())
        size, refusal = append_one(self._deliveries, copied(message, topic, queue_id, properties))
        if refusal is not None:
            if is_rolling:
                return False
            self.skip(message.physical_offset, refusal)
            return True
        self._rates.delivered += 1
        self._stats.put_by_broker(topic, queue_id, 1, size)
        if entered_ms != DELIVERED_AT_ONCE and real_topic:
            # A recall marker was counted as -1 on entry, and is again.
            self._counts.add(real_topic, 1 if is_recall_marker(properties) else -1)
        return True

    def read_plain(
        self, units: Iterable[tuple[int, TimerUnit | None]], most_bytes: int
    ) -> tuple[list[StoredMessage], list[tuple[int, int]]]:
        """The messages of the first of these units, up to one that needs ``append``.

        Messages that roll or recall need it. Stops once ``most_bytes`` are reached. Also returns the position of
        each unit with the total size up to it.
        """
        now = self._clock.now_ms()
        messages: list[StoredMessage] = []
        ends: list[tuple[int, int]] = []
        size = 0
        for position, unit in units:
            if unit is None or unit.magic & ROLL or size >= most_bytes:
                break
            message = self._plain(unit.offset, unit.size, unit.written_ms, now)
            if message is None:
                break
            messages.append(message)
            size += unit.size
            ends.append((position, size))
        return messages, ends

    def _plain(self, physical: int, size: int, entered_ms: int, now_ms: int) -> StoredMessage | None:
        deferred = self._deferred.read(physical, size)
        if deferred is None:
            return None
        body, properties, *more = deferred
        target, _ = self._target_of(properties)
        if target is None or _DELETES in properties:
            return None
        if _ENQUEUED in properties or _DEQUEUED in properties or properties[-1] != 2:
            stamped = _stamped(properties, entered_ms, now_ms)
        else:
            stamped = properties + _stamp(entered_ms, now_ms)
        return tuple.__new__(StoredMessage, (*target, body, stamped, *more, 0))

    def append_plain(self, messages: Sequence[StoredMessage]) -> int:
        """Append messages to their real queues; returns how many were appended or skipped.

        Raises StoreError if the first one has to be retried.
        """
        bulk = self._deliveries.append_many(messages)
        for share in bulk.shares:
            self.record_delivered(share.topic, share.queue_id, share.count, share.size)
        if bulk.count:
            return bulk.count
        message = messages[0]
        size, refusal = append_one(self._deliveries, message)
        if refusal is None:
            self.record_delivered(message.topic, message.queue_id, 1, size)
        else:
            key = decode_utf8(find(message.properties, _UNIQ_KEY) or b"without a key")
            self._stats.quarantine.skip(TIMER, f"message {key} for topic {message.topic}", refusal)
        return 1

    def record_delivered(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """Count messages that the timer has delivered to a queue."""
        self._rates.delivered += count
        self._stats.put_by_broker(topic, queue_id, count, size, count)
        self._counts.add(topic, -count, count)


@functools.lru_cache(maxsize=8192)
def _topic_at_end(end: bytes) -> str | None:
    """The topic in the usual end of a record, else None. Cached: there are few targets and many messages."""
    usual = _USUAL_END.fullmatch(end)
    return None if usual is None else decode_utf8(usual[1])


def is_recall_marker(properties: bytes) -> bool:
    """True if a message is a recall marker; few are."""
    return _DELETES in properties and find(properties, _DELETES) is not None


def _stamped(properties: bytes, entered_ms: int, now_ms: int) -> bytes:
    """Properties with entry and delivery time, replacing older ones."""
    properties = with_property(properties, _ENQUEUED, b"%d" % entered_ms)
    return with_property(properties, _DEQUEUED, b"%d" % now_ms)


@functools.lru_cache(maxsize=8)
def _stamp(entered_ms: int, now_ms: int) -> bytes:
    """The same for a message without older ones. Cached: messages of a slice have few different times."""
    return b"%b\x01%d\x02%b\x01%d\x02" % (_ENQUEUED, entered_ms, _DEQUEUED, now_ms)
