"""The messages of the timer: how they are read where they are parked, and appended where they go next."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.real_place import place_in, topic_in
from orbitmq.broker.rebuilding import read_parked
from orbitmq.protocol import property_names as names
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import find, with_property
from orbitmq.protocol.record import properties_of
from orbitmq.store import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer_counts import TimerCounts
    from orbitmq.broker.timer_rates import TimerRates
    from orbitmq.protocol.record import Record
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

DELIVERED_AT_ONCE = (1 << 63) - 1
"""Stands for the time of entering in messages that were due before they could be entered."""

_ENQUEUED = names.TIMER_ENQUEUE_MS.encode()
_DEQUEUED = names.TIMER_DEQUEUE_MS.encode()
_ROLLED = names.TIMER_ROLL_TIMES.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()

_HOPELESS = frozenset(
    {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}
)
"""Refusals of the message and not of the moment. Waiting for them would hold up everybody else."""


class TimerMessages:
    """Reads and appends."""

    def __init__(
        self, store: MessageStore, clock: Clock, stats: BrokerStats, counts: TimerCounts, rates: TimerRates
    ) -> None:
        self._store = store
        self._clock = clock
        self._stats = stats
        self._counts = counts
        self._rates = rates

    def read(self, physical: int, size: int = 0) -> Record | None:
        """A parked message, whose record has this size if one is given; None if it cannot be read any more."""
        message = read_parked(self._store, physical, size)
        if message is None or message.topic != TIMER_TOPIC:
            log.error("the message for a certain time at %d cannot be read: it is skipped", physical)
            return None
        return message

    def properties_at(self, physical: int, size: int) -> bytes:
        """The properties of a message of the timer's queue; nothing if it cannot be read."""
        store = self._store
        # What this process wrote itself need not be looked at before it is read.
        is_own = physical >= store.reader.checked_from
        record = store.log.slice(physical, size) if is_own else store.record(physical)
        return b"" if record is None else properties_of(record)

    def real_topic(self, physical: int) -> str | None:
        """Where a parked message belongs; None if it cannot be read any more."""
        message = self.read(physical)
        return None if message is None else topic_in(message.properties)

    def append(self, message: Record, entered_ms: int, *, is_rolling: bool) -> None:
        """Append a message where it belongs, or park it once more. Raises StoreError if that has to be repeated."""
        properties = message.properties
        place = place_in(properties)
        if is_rolling:
            real_topic = topic_in(properties)
            topic, queue_id = TIMER_TOPIC, message.queue_id
            rolled = find(properties, _ROLLED) or b""
            times = int(rolled) + 1 if rolled.isdigit() and len(rolled) < 10 else 1
            properties = with_property(properties, _ROLLED, b"%d" % times)
        elif place is None:
            log.error("the message at %d does not say where it belongs: it is skipped", message.physical_offset)
            return
        else:
            topic, queue_id = place
            real_topic = topic
        # Also where it was parked for, as in RocketMQ: consumers see it.
        properties = _stamped(properties, entered_ms, self._clock.now_ms())
        try:
            appended = self._store.append(
                topic,
                queue_id,
                message.body,
                properties,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_timestamp,
                born_host=message.born_host,
                reconsume_times=message.reconsume_times,
            )
        except AppendRefusedError as error:
            # A limit that was lowered since can be raised again; no sender could bring that about.
            if error.status not in _HOPELESS or len(message.body) > self._store.config.max_message_size:
                raise
            log.error("the message at %d is refused by %s, and given up: %s", message.physical_offset, topic, error)
            return
        self._rates.delivered += 1
        self._stats.put(topic, queue_id, 1, appended.size)
        if entered_ms != DELIVERED_AT_ONCE and real_topic:
            # What takes another message back was counted the other way round, and will be again.
            self._counts.add(real_topic, 1 if takes_back(properties) else -1)


def takes_back(properties: bytes) -> bool:
    """Whether a message is there to take another one back; few are."""
    return _DELETES in properties and find(properties, _DELETES) is not None


def _stamped(properties: bytes, entered_ms: int, now_ms: int) -> bytes:
    """With the times when a message was entered and came out."""
    if _ENQUEUED in properties or _DEQUEUED in properties or properties[-1:] != b"\x02":
        properties = with_property(properties, _ENQUEUED, b"%d" % entered_ms)
        return with_property(properties, _DEQUEUED, b"%d" % now_ms)
    # The first time that it comes out, in one piece.
    return properties + b"%b\x01%d\x02%b\x01%d\x02" % (_ENQUEUED, entered_ms, _DEQUEUED, now_ms)
