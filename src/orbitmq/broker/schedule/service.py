"""Schedule service: stores messages with a delay level until they are due, then delivers them to their real topic.

A message with a delay level is stored in the queue of its level under SCHEDULE_TOPIC_XXXX. Its consume-queue unit
carries the delivery time instead of the tags code, so due messages are found without reading the log. The units of
a level are ordered by time, so one timer, set to the earliest first unit of all levels, is enough.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import MAX_WAIT_MS, RETRY_MS, DeliveryLoop, RepeatedWarning, SliceBudget
from orbitmq.broker.deferred.flush_trigger import FlushTrigger
from orbitmq.broker.deferred.reader import DeferredReader, append_one
from orbitmq.broker.deferred.real_topic import real_queue_of, with_real_topic
from orbitmq.broker.deferred.target_queue import target_problem
from orbitmq.broker.fast_path.delivery import DeliveryRoutes
from orbitmq.broker.quarantine import SCHEDULE, is_transient
from orbitmq.protocol.bodies import DataVersion, DelayOffsetSerializeWrapper
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find, with_property, without
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.remoting.processor import handler_of
from orbitmq.store import StoreError
from orbitmq.store.append.stored_message import StoredMessage
from orbitmq.store.config import delay_levels
from orbitmq.store.config_tables import DELAY_OFFSETS
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE, ConsumeQueue
from orbitmq.store.consumequeue.ext import is_ext_address, read_ext

if TYPE_CHECKING:
    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")

_DELAY = names.DELAY_LEVEL.encode()
_TIMERS = (names.TIMER_DELIVER_MS.encode(), names.TIMER_DELAY_SEC.encode(), names.TIMER_DELAY_MS.encode())


@dataclasses.dataclass(slots=True)
class Level:
    """Runtime state of one delay level."""

    number: int
    delay_ms: int
    offset: int = 0
    """First undelivered unit of the queue."""
    check_at_ms: int | None = 0
    """When to check the queue: when its first message is due. None if the queue is empty."""
    warning: RepeatedWarning = dataclasses.field(default_factory=RepeatedWarning)


class ScheduleService:
    """Defers messages by delay level and delivers them when they are due."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        targets: TargetQueues | None = None,
    ) -> None:
        """``targets`` maps messages to queues that exist; without it, all are accepted as they are."""
        self._store = store = runtime.store
        self._writer = runtime.writer
        self._clock = clock = runtime.clock
        stats = runtime.stats
        self._targets = targets
        self._quarantine = stats.quarantine
        self._stats = stats if store.config.enable_schedule_message_stats else None
        self._deferred = DeferredReader(store, SCHEDULE_TOPIC)
        self._routes: DeliveryRoutes | None = None
        self._deliveries = runtime.deliveries or store
        if store.appender.native.accepts_all and runtime.deliveries is None:
            self._routes = DeliveryRoutes(store, targets, is_timer=False)
        self._flushed = runtime.flushed
        self._role = runtime.role
        self._version_step = max(runtime.config.delay_offset_update_version_step, 1)
        self._persist_seconds = store.config.flush_delay_offset_interval / 1000
        self._flush_soon = FlushTrigger(store, runtime.flushed)
        self.levels = {
            number: Level(number, delay_ms)
            for number, delay_ms in delay_levels(store.config.message_delay_level).items()
        }
        self.offsets: dict[int, int] = {}
        """By level, the first undelivered queue offset; levels that never had a message are missing."""
        self.data_version = DataVersion(timestamp=clock.now_ms())
        self._updates = 0
        self._persisted: dict[int, int] = {}
        self._is_loaded = False
        self._loop = DeliveryLoop("schedule", clock, self.deliver_due)
        self._persist_timer: asyncio.TimerHandle | None = None
        self._persisting: asyncio.Task[None] | None = None

    # Deferring

    def defer(self, properties: bytes, topic: str, queue_id: int) -> tuple[str, int, bytes] | None:
        """System topic, queue and properties to store the message under; None if it is not delayed."""
        text = find(properties, _DELAY)
        digits = b"" if text is None or not text.isdigit() else text.lstrip(b"0")
        if not digits or not self.levels:
            return None
        # Ten digits are enough to be above the highest level.
        wanted = int(digits[:10])
        level = self.levels[min(wanted, len(self.levels))]
        if level.number != wanted:
            properties = with_property(properties, _DELAY, b"%d" % level.number)
        if b"TIMER_DEL" in properties:
            properties = without(properties, _TIMERS)
        self.on_deferred(level.number)
        return SCHEDULE_TOPIC, level.number - 1, with_real_topic(properties, topic, queue_id)

    def on_deferred(self, number: int) -> None:
        """Plan the next delivery of a level: messages were or are about to be stored in it."""
        level = self.levels[number]
        self.offsets.setdefault(number, level.offset)
        if level.check_at_ms is None:
            level.check_at_ms = self._clock.now_ms() + level.delay_ms
            self._loop.wake_by(level.check_at_ms)

    # Start and stop

    def load(self) -> None:
        """Load the delivery offsets of the levels. Raises StoreError."""
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

    async def follow(self, table: DelayOffsetSerializeWrapper) -> None:
        """Take over the delivery offsets of the master; all messages that they count as delivered are here."""
        self.offsets = dict(table.offset_table)
        for level in self.levels.values():
            level.offset = self.offsets.get(level.number, 0)
        if table.data_version is not None:
            self.data_version = table.data_version
        await self._persist()

    def start(self) -> None:
        """Start delivering, with messages that came due while the broker was down."""
        assert self._is_loaded, "without its offsets it would deliver everything again"
        for level in self.levels.values():
            level.check_at_ms = 0
            queue = self._queue(level)
            if queue is not None:
                # Of a slave whose queue is behind its master's: beyond the end, all would be delivered again.
                level.offset = min(level.offset, queue.end)
        self._loop.start()
        self._persist_later()

    def pause(self) -> None:
        """Stop delivering; ``start`` and ``follow`` continue."""
        self._loop.stop()
        if self._persist_timer is not None:
            self._persist_timer.cancel()
            self._persist_timer = None

    def roll_back(self) -> None:
        """Return to the offsets on disk: what was delivered since then did not arrive."""
        self.offsets = dict(self._persisted)
        for level in self.levels.values():
            level.offset = self.offsets.get(level.number, 0)

    async def stop(self) -> None:
        """Stop delivering and persist the offsets. ``writer`` and ``flushed`` must still work."""
        self._loop.stop()
        if self._persist_timer is not None:
            self._persist_timer.cancel()
            self._persist_timer = None
        if self._persisting is not None:
            await self._persisting
        if self._is_loaded:
            await self._persist()

    # Delivery

    def deliver_due(self) -> int:
        """Deliver due messages up to the limits of a slice; returns the time of the next slice."""
        now = self._clock.now_ms()
        budget = SliceBudget()
        next_time = now + MAX_WAIT_MS
        log_end = self._store.log.end
        # Levels served last go last in the next slice, so a long queue does not starve the others.
        for level in sorted(self.levels.values(), key=_check_time):
            if self._is_due(level, now):
                if budget.is_spent:
                    next_time = now
                    break
                self._deliver_level(level, now, budget)
            if level.check_at_ms is not None:
                next_time = min(next_time, level.check_at_ms)
        if self._store.log.end > log_end:
            self._flush_soon()
        return next_time

    def _is_due(self, level: Level, now: int) -> bool:
        if level.check_at_ms is None:
            queue = self._queue(level)
            return queue is not None and queue.end > level.offset
        # Later than any delay of this level: the clock was set back.
        return level.check_at_ms <= now or level.check_at_ms > now + max(level.delay_ms, RETRY_MS)

    def _queue(self, level: Level) -> ConsumeQueue | None:
        queue = self._store.queues.find(SCHEDULE_TOPIC, level.number - 1)
        return queue if isinstance(queue, ConsumeQueue) else None

    def _deliver_level(self, level: Level, now: int, budget: SliceBudget) -> None:
        """Deliver from the queue of a level and set ``check_at_ms`` to the time of its next check."""
        queue = self._queue(level)
        level.check_at_ms = None
        if queue is None:
            return
        if not queue.min_offset <= level.offset <= queue.end:
            level.offset = queue.min_offset  # the oldest messages have expired, or the queue was recreated
        offset = level.offset
        count = size = 0
        try:
            if offset < queue.end:
                units = queue.read(offset, budget.records)
                if not units:
                    raise StoreError(f"unit {offset} of {queue.directory} cannot be read")
                run: list[tuple[int, int, int]] = []
                for physical, record_size, code in UNIT.iter_unpack(units):
                    if record_size != FILLER_SIZE:
                        due = self._due(level, physical, code) if is_ext_address(code) else code
                        if now < due <= now + level.delay_ms:
                            level.check_at_ms = due
                            break
                        if size >= budget.size:
                            level.check_at_ms = now
                            break
                        run.append((offset, physical, record_size))
                        size += record_size
                    offset += 1
                else:
                    level.check_at_ms = now if offset < queue.end else None
                count = len(run)
                self._deliver(level, run, offset)
                level.warning.clear()
        except Exception as error:
            # A level that fails must not delay the others.
            level.warning.log(
                f"schedule: delivery of level {level.number} at offset {level.offset} failed, "
                f"will retry in {RETRY_MS} ms: {error}",
                error,
            )
            level.check_at_ms = now + RETRY_MS
        if level.check_at_ms is None and queue.next_offset > queue.end:
            level.check_at_ms = now + RETRY_MS  # in the log already, visible after a flush
        if level.check_at_ms is not None:
            self.offsets.setdefault(level.number, level.offset)
        if level.offset != self.offsets.get(level.number, 0):
            self._record_offset(level)
        budget.spend(count, size)

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
        """Append the messages of these units to their real queues; the offset of the level is then ``end``.

        Raises StoreError if delivery has to be retried from the offset that the level has then.
        """
        run = run[self._deliver_native(level, run) :]
        messages, numbers, log_offsets = [], [], []
        failure: Exception | None = None
        for number, physical, size in run:
            try:
                message = self._message(physical, size)
            except Exception as error:
                message = None
                if not self._should_skip(level, number, physical, error):
                    failure, end = error, number
                    break
            if message is not None:
                messages.append(message)
                numbers.append(number)
                log_offsets.append(physical)
        at = 0
        while at < len(messages):
            at += self._append_many(level, messages[at:])
            if at < len(messages):
                level.offset = numbers[at]
                try:
                    self._append(level, messages[at], log_offsets[at])
                except Exception as error:
                    if not self._should_skip(level, numbers[at], log_offsets[at], error):
                        raise
                at += 1
        level.offset = end
        if failure is not None:
            raise failure

    def _should_skip(self, level: Level, number: int, physical: int, error: Exception) -> bool:
        """True if a message that failed is to be skipped, False if it is to be retried."""
        record = f"message {number} of delay level {level.number} at {physical}"
        return not is_transient(error) and self._quarantine.failed(SCHEDULE, level.number, number, record, error)

    def _append_many(self, level: Level, messages: list[StoredMessage]) -> int:
        """Append messages in bulk; returns how many, up to the first that has to be appended alone."""
        try:
            bulk = self._deliveries.append_many(messages)
        except Exception as error:
            if is_transient(error):
                raise
            level.warning.log("schedule: bulk append failed, falling back to single appends", error)
            return 0
        for share in bulk.shares:
            self._count(level, share.topic, share.queue_id, share.count, share.size)
        return bulk.count

    def _deliver_native(self, level: Level, run: list[tuple[int, int, int]]) -> int:
        """Append the first of these messages natively; the number up to the first that needs the Python path."""
        routes, store = self._routes, self._store
        if routes is None:
            return 0
        routes.refresh()
        count = 0
        while count < len(run):
            units = b"".join([UNIT.pack(physical, size, 0) for _, physical, size in run[count:]])
            # Records that this process wrote need no check before they are read.
            first = store.reader.checked_from
            try:
                done = store.appender.native.deliver_units(routes.native, units, run[count][1], first)
            except Exception as error:
                if is_transient(error):
                    raise
                level.warning.log("schedule: native delivery failed, falling back to the Python path", error)
                break
            if done is None:
                break
            for share in done.entered.shares:
                self._count(level, share.topic, share.queue_id, len(share.units) // UNIT_SIZE, share.size)
            count += done.message_count
            if count:
                level.offset = run[count - 1][0] + 1
            if not done.message_count and not routes.open_missing():
                break
        return count

    def _message(self, physical: int, size: int) -> StoredMessage | None:
        """A deferred message as it is to be appended; None if it is skipped."""
        deferred = self._deferred.read(physical, size)
        target = None if deferred is None else real_queue_of(deferred[1])
        problem: str | None = "it has no real topic"
        if deferred is None:
            problem = "no intact record there"
        elif target is not None:
            problem = target_problem(target[0])
        if deferred is None or target is None or problem is not None:
            self._quarantine.skip(SCHEDULE, f"the delayed message at {physical}", problem)
            return None
        if self._targets is not None:
            target = target[0], self._targets.queue_for(*target)
        # DELAY and the real topic stay in the properties, as in RocketMQ: consumers see them.
        return tuple.__new__(StoredMessage, (*target, *deferred, 0))

    def _append(self, level: Level, message: StoredMessage, physical: int) -> None:
        size, refusal = append_one(self._deliveries, message)
        if refusal is not None:
            self._quarantine.skip(SCHEDULE, f"the delayed message at {physical}", refusal)
            return
        self._count(level, message.topic, message.queue_id, 1, size)

    def _count(self, level: Level, topic: str, queue_id: int, count: int, size: int) -> None:
        if self._stats is not None:
            self._stats.delivered(level.number - 1, count, size)
            self._stats.put_delayed(topic, queue_id, count, size)

    # Offsets

    def _record_offset(self, level: Level) -> None:
        self._updates += abs(level.offset - self.offsets.get(level.number, 0))
        self.offsets[level.number] = level.offset
        if self._updates >= self._version_step:
            self._updates %= self._version_step
            self.advance_version()

    def advance_version(self) -> None:
        """Mark the offsets as newer than those of other replicas, which compare versions."""
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
        """Persist the offsets after a flush of the delivered messages.

        In the other order a power failure could leave a message that is neither deferred nor delivered.
        """
        if self.offsets == self._persisted:
            return
        table = self._table()
        try:
            await self._flushed(self._store.log.end)
        except StoreError as error:
            log.warning("schedule: failed to persist delay offsets: %s", error)
            return
        self._writer.mark(DELAY_OFFSETS, lambda: table)
        self._persisted = table.offset_table

    # Requests

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_ALL_DELAY_OFFSET: handler_of(self.all_offsets)}

    def all_offsets(self, request: Command, _: Connection) -> Command:
        """GET_ALL_DELAY_OFFSET: for slaves, which continue from these offsets if they become master."""
        table = self._table()
        if self._deliveries is not self._store and self._role.acts_as_master:
            # Others may count only what another master has stored.
            table.offset_table = dict(self._persisted)
        return request.response(ResponseCode.SUCCESS, body=table.encode())


def _check_time(level: Level) -> int:
    return 0 if level.check_at_ms is None else level.check_at_ms
