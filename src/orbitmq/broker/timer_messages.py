"""The messages of the timer: how they are read where they are parked, and appended where they go next."""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING

from orbitmq.broker.parked import ParkedMessages, append_one
from orbitmq.broker.real_place import place_in, topic_in
from orbitmq.broker.rebuilding import read_parked
from orbitmq.protocol import property_names as names
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import find, with_property
from orbitmq.protocol.record import properties_of
from orbitmq.store.bulk_append import Message
from orbitmq.store.timer_log import ROLL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer_counts import TimerCounts
    from orbitmq.broker.timer_rates import TimerRates
    from orbitmq.protocol.record import Record
    from orbitmq.store import AppendRefusedError, Clock, MessageStore
    from orbitmq.store.timer_log import TimerUnit

log = logging.getLogger("orbitmq.broker")

_USUAL_END = re.compile(rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01[0-9]+\x02")
"""How the record of a message ends as parking leaves it: behind its time with the last of its properties."""
_LONGEST_USUAL_END = 300

DELIVERED_AT_ONCE = (1 << 63) - 1
"""Stands for the time of entering in messages that were due before they could be entered."""

_OUT = names.TIMER_OUT_MS.encode()
_ENQUEUED = names.TIMER_ENQUEUE_MS.encode()
_DEQUEUED = names.TIMER_DEQUEUE_MS.encode()
_ROLLED = names.TIMER_ROLL_TIMES.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()


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
        self._parked = ParkedMessages(store, TIMER_TOPIC)

    def read(self, physical: int, size: int = 0) -> Record | None:
        """A parked message, whose record has this size if one is given; None if it cannot be read any more."""
        message = read_parked(self._store, physical, size)
        if message is None or message.topic != TIMER_TOPIC:
            log.error("the message for a certain time at %d cannot be read: it is skipped", physical)
            return None
        return message

    def wish_at(self, physical: int, size: int) -> tuple[int, str, bool] | None:
        """Of a message of the timer's queue the slot, the topic, and whether it is there to take another one back.

        None if it cannot be read.
        """
        store = self._store
        # What this process wrote itself need not be looked at before it is read.
        is_own = physical >= store.reader.checked_from
        record = store.log.slice(physical, size) if is_own else store.record(physical)
        if record is None:
            return None
        data = bytes(record)
        out, _, end = data.rpartition(b"\x02TIMER_OUT_MS\x01")[2].partition(b"\x02")
        topic = _topic_at_end(end) if len(end) <= _LONGEST_USUAL_END else None
        if topic is not None and out.isdigit() and len(out) <= 18 and _DELETES not in data:
            return int(out), topic, False
        properties = properties_of(record)
        text = find(properties, _OUT) or b""
        if not text.isdigit() or len(text) > 18:
            return None
        return int(text), topic_in(properties), takes_back(properties)

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
        size, refusal = append_one(
            self._store,
            Message(
                topic, queue_id, message.body, properties, message.flag, message.sys_flag, message.born_timestamp,
                message.born_host, message.reconsume_times,
            ),
        )  # fmt: skip
        if refusal is not None:
            _log_refusal(topic, refusal)
            return
        self._rates.delivered += 1
        self._stats.put(topic, queue_id, 1, size)
        if entered_ms != DELIVERED_AT_ONCE and real_topic:
            # What takes another message back was counted the other way round, and will be again.
            self._counts.add(real_topic, 1 if takes_back(properties) else -1)

    def plain_ones(
        self, units: Iterable[tuple[int, TimerUnit | None]], most_bytes: int
    ) -> tuple[list[Message], list[tuple[int, int]]]:
        """The messages of the first of these units as they are to be appended, up to one that is not plain.

        Plain is what goes where it belongs and takes nothing back. There are no more than it takes to reach so many
        bytes. Of each the position of its unit is told as well, and what all up to it take.
        """
        now = self._clock.now_ms()
        messages: list[Message] = []
        places: list[tuple[int, int]] = []
        size = 0
        for position, unit in units:
            if unit is None or unit.magic & ROLL or size >= most_bytes:
                break
            message = self._plain(unit.offset, unit.size, unit.written_ms, now)
            if message is None:
                break
            messages.append(message)
            size += unit.size
            places.append((position, size))
        return messages, places

    def _plain(self, physical: int, size: int, entered_ms: int, now_ms: int) -> Message | None:
        parked = self._parked.read(physical, size)
        if parked is None:
            return None
        body, properties, *more = parked
        place = place_in(properties)
        if place is None or _DELETES in properties:
            return None
        if _ENQUEUED in properties or _DEQUEUED in properties or properties[-1] != 2:
            stamped = _stamped(properties, entered_ms, now_ms)
        else:
            stamped = properties + _stamp(entered_ms, now_ms)
        return tuple.__new__(Message, (*place, body, stamped, *more, 0))

    def append_plain(self, messages: Sequence[Message]) -> int:
        """Append messages where they belong; returns how many were, of which some may have been given up.

        Raises StoreError if that has to be tried again with the first one.
        """
        bulk = self._store.append_many(messages)
        for share in bulk.shares:
            self.note(share.topic, share.queue_id, share.count, share.size)
        if bulk.count:
            return bulk.count
        message = messages[0]
        size, refusal = append_one(self._store, message)
        if refusal is None:
            self.note(message.topic, message.queue_id, 1, size)
        else:
            _log_refusal(message.topic, refusal)
        return 1

    def note(self, topic: str, queue_id: int, count: int, size: int) -> None:
        """So many messages came out of the timer and went there, with records of so many bytes."""
        self._rates.delivered += count
        self._stats.put(topic, queue_id, count, size, count)
        self._counts.add(topic, -count, count)


def _log_refusal(topic: str, refusal: AppendRefusedError) -> None:
    log.error("a message for a certain time is refused by %s, and given up: %s", topic, refusal)


@functools.lru_cache(maxsize=8192)
def _topic_at_end(end: bytes) -> str | None:
    """The topic in the usual end of a record; None if it is another one. There are few places and many messages."""
    usual = _USUAL_END.fullmatch(end)
    return None if usual is None else decode_utf8(usual[1])


def takes_back(properties: bytes) -> bool:
    """Whether a message is there to take another one back; few are."""
    return _DELETES in properties and find(properties, _DELETES) is not None


def _stamped(properties: bytes, entered_ms: int, now_ms: int) -> bytes:
    """With the times when a message was entered and came out, also if it has such from before."""
    properties = with_property(properties, _ENQUEUED, b"%d" % entered_ms)
    return with_property(properties, _DEQUEUED, b"%d" % now_ms)


@functools.lru_cache(maxsize=8)
def _stamp(entered_ms: int, now_ms: int) -> bytes:
    """The same for one that comes out the first time; those of one turn have few times."""
    return b"%b\x01%d\x02%b\x01%d\x02" % (_ENQUEUED, entered_ms, _DEQUEUED, now_ms)
