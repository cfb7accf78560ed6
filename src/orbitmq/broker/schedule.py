"""Delay levels: where a delayed message is parked, and how it comes back when its time has come.

A message with a delay level waits in the queue of its level under SCHEDULE_TOPIC_XXXX. Its unit there carries the
time of delivery instead of the hash of its tags, so what is due is known without reading the log. The units of a
level are in the order of their times, so one timer, set to the earliest of the first ones, is enough for all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.delivery_lanes import NEVER_DELIVERED, DeliveryLanes
from orbitmq.broker.flush_soon import FlushSoon
from orbitmq.broker.parked import ParkedMessages, append_one
from orbitmq.broker.real_place import place_in, with_place
from orbitmq.kernel import Deliveries
from orbitmq.protocol import property_names as names
from orbitmq.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.properties import find, with_property, without
from orbitmq.remoting.processing import handler_of
from orbitmq.store import StoreError
from orbitmq.store.bulk_append import Message
from orbitmq.store.config import delay_levels
from orbitmq.store.config_json import DELAY_OFFSETS
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE, ConsumeQueue
from orbitmq.store.queue_ext import is_ext_address, read_ext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

TURN_RECORDS = 128
TURN_BYTES = 256 * 1024
"""What is delivered in one turn of the loop: about a millisecond, so that a million messages that are due at once
come out as fast as the machine can, between the requests of clients."""

RETRY_MS = 100
"""After a refusal, and while a parked message is not yet visible."""

LONGEST_WAIT_MS = 1000
"""The clock is looked at so often at least: it may be set, and then the timer is not."""

_DELAY = names.DELAY_LEVEL.encode()
_TIMERS = (names.TIMER_DELIVER_MS.encode(), names.TIMER_DELAY_SEC.encode(), names.TIMER_DELAY_MS.encode())


@dataclasses.dataclass(slots=True)
class Level:
    """A delay level while the broker runs."""

    number: int
    delay_ms: int
    offset: int = 0
    """The first unit of the queue that was not delivered."""
    look_at: int | None = 0
    """When to look at the queue: when its first message is due. None if nothing waits."""
    complaint: str = ""


class ScheduleService:
    """Parks and delivers. ``flushed`` gives a future that is done when the log up to an offset is on the disk."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        writer: ConfigWriter,
        clock: Clock,
        stats: BrokerStats,
        flushed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._store = store
        self._writer = writer
        self._clock = clock
        self._stats = stats if store.config.enable_schedule_message_stats else None
        self._parked = ParkedMessages(store, SCHEDULE_TOPIC)
        self._lanes: DeliveryLanes | None = None
        if Deliveries is not None and store.appender.runs.takes_all:
            self._lanes = DeliveryLanes(Deliveries, store)
        self._flushed = flushed
        self._version_step = max(config.delay_offset_update_version_step, 1)
        self._persist_seconds = store.config.flush_delay_offset_interval / 1000
        self._flush_soon = FlushSoon(store, flushed)
        self.levels = {
            number: Level(number, delay_ms)
            for number, delay_ms in delay_levels(store.config.message_delay_level).items()
        }
        self.offsets: dict[int, int] = {}
        """By level, the first queue offset that was not delivered; levels that never had a message are not here."""
        self.data_version = DataVersion(timestamp=clock.now_ms())
        self._updates = 0
        self._persisted: dict[int, int] = {}
        self._is_loaded = self._is_running = False
        self._wakes_at = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._persist_timer: asyncio.TimerHandle | None = None
        self._persisting: asyncio.Task[None] | None = None

    # Parking

    def park(self, properties: bytes, topic: str, queue_id: int) -> tuple[str, int, bytes] | None:
        """Where a message with these properties waits, and with which properties; None if it is not delayed."""
        text = find(properties, _DELAY)
        digits = b"" if text is None or not text.isdigit() else text.lstrip(b"0")
        if not digits or not self.levels:
            return None
        # Digits without end need not be converted to be over the highest level.
        wanted = int(digits[:10])
        level = self.levels[min(wanted, len(self.levels))]
        if level.number != wanted:
            properties = with_property(properties, _DELAY, b"%d" % level.number)
        if b"TIMER_DEL" in properties:
            properties = without(properties, _TIMERS)
        self.note_parked(level.number)
        return SCHEDULE_TOPIC, level.number - 1, with_place(properties, topic, queue_id)

    def note_parked(self, number: int) -> None:
        """Messages of a level came, or are about to: it is looked at when the first one is due."""
        level = self.levels[number]
        self.offsets.setdefault(number, level.offset)
        if level.look_at is None:
            level.look_at = self._clock.now_ms() + level.delay_ms
            if self._is_running and level.look_at < self._wakes_at:
                self._wake_at(level.look_at)

    # Starting and stopping

    def load(self) -> None:
        """Read how far the levels were delivered. Raises StoreError."""
        table = self._writer.load(DELAY_OFFSETS)
        self.offsets = dict(table.offset_table)
        if table.data_version is not None:
            self.data_version = table.data_version
        for level in self.levels.values():
            if level.number in self.offsets:
                queue = self._queue(level)
                low, high = (0, 0) if queue is None else (queue.min_offset, queue.end)
                level.offset = self.offsets[level.number] = min(max(self.offsets[level.number], low), high)
        self._persisted = dict(self.offsets)
        self._is_loaded = True

    def start(self) -> None:
        """Deliver from now on, beginning with what came due while the broker was away."""
        assert self._is_loaded, "without its offsets it would deliver everything again"
        self._is_running = True
        for level in self.levels.values():
            level.look_at = 0
        self._wake_at(0)
        self._persist_later()

    async def stop(self) -> None:
        """Deliver no more, and keep how far it came. ``writer`` and ``flushed`` must still work."""
        self._is_running = False
        for timer in (self._timer, self._persist_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._persist_timer = None
        if self._persisting is not None:
            await self._persisting
        if self._is_loaded:
            await self._persist()

    def _wake_at(self, time_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock.now_ms()
        self._wakes_at = min(time_ms, now + LONGEST_WAIT_MS)
        loop = asyncio.get_running_loop()
        wait = self._wakes_at - now
        self._timer = loop.call_later(wait / 1000, self._wake) if wait > 0 else loop.call_soon(self._wake)

    def _wake(self) -> None:
        try:
            next_time = self.deliver_due()
        except Exception:
            # Whatever it was, the messages after it still have to come.
            log.exception("delayed messages could not be delivered: it is tried again")
            next_time = self._clock.now_ms() + LONGEST_WAIT_MS
        if self._is_running:
            self._wake_at(next_time)

    # Delivering

    def deliver_due(self) -> int:
        """Deliver what is due, up to a turn's worth; returns when there is something to do again."""
        now = self._clock.now_ms()
        records, size = TURN_RECORDS, TURN_BYTES
        next_time = now + LONGEST_WAIT_MS
        log_end = self._store.log.end
        # Those that were served come last the next time, or a long queue would keep the others waiting.
        for level in sorted(self.levels.values(), key=_looked_at):
            if self._is_time(level, now):
                if records <= 0 or size <= 0:
                    next_time = now
                    break
                delivered, delivered_size = self._deliver_level(level, now, records, size)
                records -= delivered
                size -= delivered_size
            if level.look_at is not None:
                next_time = min(next_time, level.look_at)
        if self._store.log.end > log_end:
            self._flush_soon()
        return next_time

    def _is_time(self, level: Level, now: int) -> bool:
        if level.look_at is None:
            queue = self._queue(level)
            return queue is not None and queue.end > level.offset
        # Further away than anything that was waited for: the clock was set back.
        return level.look_at <= now or level.look_at > now + max(level.delay_ms, RETRY_MS)

    def _queue(self, level: Level) -> ConsumeQueue | None:
        queue = self._store.queues.find(SCHEDULE_TOPIC, level.number - 1)
        return queue if isinstance(queue, ConsumeQueue) else None

    def _deliver_level(self, level: Level, now: int, most: int, most_bytes: int) -> tuple[int, int]:
        """Deliver from the queue of a level; returns how many records and bytes. Sets when to look again."""
        queue = self._queue(level)
        level.look_at = None
        if queue is None:
            return 0, 0
        if not queue.min_offset <= level.offset <= queue.end:
            level.offset = queue.min_offset  # the oldest have expired, or the queue began anew
        offset = level.offset
        count = size = 0
        try:
            if offset < queue.end:
                units = queue.read(offset, most)
                if not units:
                    raise StoreError(f"unit {offset} of {queue.directory} cannot be read")
                run: list[tuple[int, int, int]] = []
                for physical, record_size, code in UNIT.iter_unpack(units):
                    if record_size != FILLER_SIZE:
                        due = self._due(level, physical, code) if is_ext_address(code) else code
                        if now < due <= now + level.delay_ms:
                            level.look_at = due
                            break
                        if size >= most_bytes:
                            level.look_at = now
                            break
                        run.append((offset, physical, record_size))
                        size += record_size
                    offset += 1
                else:
                    level.look_at = now if offset < queue.end else None
                count = len(run)
                self._deliver(level, run, offset)
                level.complaint = ""
        except (StoreError, OSError) as error:
            self._complain(level, f"level {level.number} of delayed messages waits at {level.offset}: {error}")
            level.look_at = now + RETRY_MS
        if level.look_at is None and queue.next_offset > queue.end:
            level.look_at = now + RETRY_MS  # in the log already, and shown after a flush
        if level.look_at is not None:
            self.offsets.setdefault(level.number, level.offset)
        if level.offset != self.offsets.get(level.number, 0):
            self._note_offset(level)
        return count, size

    def _due(self, level: Level, physical: int, code: int) -> int:
        config = self._store.config
        unit = read_ext(
            self._store.disk, config.store_path_root_dir, SCHEDULE_TOPIC, level.number - 1,
            config.mapped_file_size_consume_queue_ext, code,
        )  # fmt: skip
        if unit is not None:
            return unit.tags_code
        return (self._store.reader.store_timestamp(physical) or 0) + level.delay_ms

    def _deliver(self, level: Level, run: list[tuple[int, int, int]], end: int) -> None:
        """Append the messages that these units lead to where they belong; the level then stands at ``end``.

        Raises StoreError if that has to be tried again, from where the level stands then.
        """
        run = run[self._deliver_run(level, run) :]
        messages, numbers = [], []
        failure: StoreError | OSError | None = None
        for number, physical, size in run:
            try:
                message = self._message(physical, size)
            except (StoreError, OSError) as error:
                failure, end = error, number
                break
            if message is not None:
                messages.append(message)
                numbers.append(number)
        at = 0
        while at < len(messages):
            bulk = self._store.append_many(messages[at:])
            at += bulk.count
            for share in bulk.shares:
                self._count(level, share.topic, share.queue_id, share.count, share.size)
            if at < len(messages):
                level.offset = numbers[at]
                self._append(level, messages[at])
                at += 1
        level.offset = end
        if failure is not None:
            raise failure

    def _deliver_run(self, level: Level, run: list[tuple[int, int, int]]) -> int:
        """Let the kernel append the first of these messages, up to one that it does not take; returns how many."""
        lanes, store = self._lanes, self._store
        if lanes is None:
            return 0
        lanes.check()
        count = 0
        while count < len(run):
            units = b"".join([UNIT.pack(physical, size, 0) for _, physical, size in run[count:]])
            # What this process wrote itself need not be looked at before it is read.
            first = store.reader.checked_from
            done = store.appender.runs.deliver_units(lanes.kernel, units, run[count][1], first)
            if done is None:
                break
            delivered, _, _, (queues, *_), _, _, _ = done
            for topic, queue_id, _, given, stored, _ in queues:
                self._count(level, topic, queue_id, len(given) // UNIT_SIZE, stored)
            count += delivered
            if count:
                level.offset = run[count - 1][0] + 1
            if not delivered and not lanes.open_missing():
                break
        return count

    def _message(self, physical: int, size: int) -> Message | None:
        """A parked message as it is to be appended; None if it is skipped."""
        parked = self._parked.read(physical, size)
        if parked is None:
            log.error("the delayed message at %d cannot be read: it is skipped", physical)
            return None
        place = place_in(parked[1])
        if place is None:
            log.error("the delayed message at %d does not say where it belongs: it is skipped", physical)
            return None
        if place[0] in NEVER_DELIVERED:
            log.error("the delayed message at %d is a half message: it is skipped", physical)
            return None
        # Also DELAY and where it was parked for, as in RocketMQ: consumers see them.
        return tuple.__new__(Message, (*place, *parked, 0))

    def _append(self, level: Level, message: Message) -> None:
        size, refusal = append_one(self._store, message)
        if refusal is not None:
            log.error("a delayed message is refused by %s, and given up: %s", message.topic, refusal)
            return
        self._count(level, message.topic, message.queue_id, 1, size)

    def _count(self, level: Level, topic: str, queue_id: int, count: int, size: int) -> None:
        if self._stats is not None:
            self._stats.delivered(level.number - 1, count, size)
            self._stats.put(topic, queue_id, count, size, count)

    def _complain(self, level: Level, complaint: str) -> None:
        if complaint != level.complaint:
            log.warning("%s", complaint)
            level.complaint = complaint

    # How far it came

    def _note_offset(self, level: Level) -> None:
        self._updates += abs(level.offset - self.offsets.get(level.number, 0))
        self.offsets[level.number] = level.offset
        if self._updates >= self._version_step:
            self._updates %= self._version_step
            self.data_version.counter += 1
            self.data_version.timestamp = self._clock.now_ms()

    def _table(self) -> DelayOffsetSerializeWrapper:
        return DelayOffsetSerializeWrapper(dict(self.offsets), dataclasses.replace(self.data_version))

    def _persist_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._persist_timer = loop.call_later(self._persist_seconds, self._begin_persist)

    def _begin_persist(self) -> None:
        self._persist_later()
        if self._persisting is None or self._persisting.done():
            self._persisting = asyncio.get_running_loop().create_task(self._persist())

    async def _persist(self) -> None:
        """Hand the offsets to the writer, once what was delivered is on the disk as well.

        The other way round, a power cut could leave a message that is neither waiting nor delivered.
        """
        if self.offsets == self._persisted:
            return
        table = self._table()
        try:
            await self._flushed(self._store.log.end)
        except StoreError as error:
            log.warning("the offsets of delayed messages are not kept: %s", error)
            return
        self._writer.mark(DELAY_OFFSETS, lambda: table)
        self._persisted = table.offset_table

    # Requests

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: handler_of(self.all_offsets)}

    def all_offsets(self, request: Command, _: Connection) -> Command:
        """For slaves, which go on from there should they become masters."""
        return request.response(ResponseCode.SUCCESS, body=self._table().encode())


def _looked_at(level: Level) -> int:
    return 0 if level.look_at is None else level.look_at
