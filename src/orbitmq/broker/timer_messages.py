"""The messages of the timer: how they are read where they are parked, and appended where they go next."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.rebuilding import rebuild
from orbitmq.protocol import property_names as names
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import find, with_property
from orbitmq.store import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from orbitmq.broker.rebuilding import Rebuilt
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer_counts import TimerCounts
    from orbitmq.broker.timer_rates import TimerRates
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

DELIVERED_AT_ONCE = (1 << 63) - 1
"""Stands for the time of entering in messages that were due before they could be entered."""

_MAX_QUEUE_ID = (1 << 31) - 1
_ENQUEUED = names.TIMER_ENQUEUE_MS.encode()
_DEQUEUED = names.TIMER_DEQUEUE_MS.encode()
_ROLLED = names.TIMER_ROLL_TIMES.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()
_REAL_TOPIC = names.REAL_TOPIC.encode()
_REAL_QUEUE_ID = names.REAL_QUEUE_ID.encode()

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

    def read(self, physical: int) -> Rebuilt | None:
        """A parked message; None if it cannot be read any more."""
        record = self._store.record(physical)
        try:
            message = None if record is None else rebuild(record)
        except ProtocolError:
            message = None
        if message is None or message.topic != TIMER_TOPIC:
            log.error("the message for a certain time at %d cannot be read: it is skipped", physical)
            return None
        return message

    def real_topic(self, physical: int) -> str | None:
        """Where a parked message belongs; None if it cannot be read any more."""
        message = self.read(physical)
        return None if message is None else decode_utf8(find(message.properties, _REAL_TOPIC) or b"")

    def append(self, message: Rebuilt, entered_ms: int, *, is_rolling: bool) -> None:
        """Append a message where it belongs, or park it once more. Raises StoreError if that has to be repeated."""
        properties = message.properties
        real_topic = decode_utf8(find(properties, _REAL_TOPIC) or b"")
        if is_rolling:
            topic, queue_id = TIMER_TOPIC, message.queue_id
            rolled = find(properties, _ROLLED) or b""
            times = int(rolled) + 1 if rolled.isdigit() and len(rolled) < 10 else 1
            properties = with_property(properties, _ROLLED, b"%d" % times)
        else:
            number = find(properties, _REAL_QUEUE_ID) or b""
            topic, queue_id = real_topic, int(number) if number.isdigit() and len(number) <= 10 else -1
            if not topic or not 0 <= queue_id <= _MAX_QUEUE_ID:
                log.error("the message at %d does not say where it belongs: it is skipped", message.offset)
                return
        properties = with_property(properties, _ENQUEUED, b"%d" % entered_ms)
        try:
            appended = self._store.append(
                topic,
                queue_id,
                message.body,
                # Also where it was parked for, as in RocketMQ: consumers see it.
                with_property(properties, _DEQUEUED, b"%d" % self._clock.now_ms()),
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
            log.error("the message at %d is refused by %s, and given up: %s", message.offset, topic, error)
            return
        self._rates.delivered += 1
        self._stats.put(topic, queue_id, 1, appended.size)
        if entered_ms != DELIVERED_AT_ONCE and real_topic:
            # What takes another message back was counted the other way round, and will be again.
            self._counts.add(real_topic, -1 if find(properties, _DELETES) is None else 1)
