"""Timer service: defers messages for an arbitrary delivery time and delivers them when their slot is over.

Such a message is first appended under ``rmq_sys_wheel_timer``. From there it is entered into the timer log and the
timer wheel, and appended to its real topic once the slot of its time is over, so never early. All of that is done
in slices on the event loop. The progress is saved after the flush that covers it: a crash may repeat messages but
loses none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import (
    RETRY_MS,
    SLICE_RECORDS,
    DeliveryLoop,
    RepeatedWarning,
    SliceBudget,
)
from orbitmq.broker.deferred.flush_trigger import FlushTrigger
from orbitmq.broker.deferred.real_topic import real_topic_of, with_property_and_real_topic
from orbitmq.broker.fast_path.timer import TimerFastPath
from orbitmq.broker.quarantine import TIMER, is_transient
from orbitmq.broker.timer.counts import waiting_by_topic
from orbitmq.broker.timer.deliver_time import check_slot_limit, delivery_time, illegal, rolling_slot
from orbitmq.broker.timer.delivery import DELIVERED_AT_ONCE, TimerMessages, is_recall_marker
from orbitmq.broker.timer.rates import TimerRates
from orbitmq.broker.timer.slot import DueSlot
from orbitmq.protocol.java import string_hash
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find, values_of
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import FlushFailedError, StoreError
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from orbitmq.store.timer.files import TimerFiles
from orbitmq.store.timer.timer_log import DEFAULT, DELETE, NO_UNIT, ROLL
from orbitmq.store.timer.timer_wheel import MAX_IN_SLOT, SLOTS, WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.counts import TimerCounts
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.protocol.message.record import Record
    from orbitmq.store.timer.checkpoint import TimerCheckpoint
    from orbitmq.store.timer.timer_log import TimerUnit

log = logging.getLogger("orbitmq.broker")

SLICE_UNITS = 1000
"""Units of the timer log that are followed in one slice."""

CLEAN_MS = 30_000
BLANK_SLOTS = 60
"""Slots left free between the end of the wheel and its beginning."""

_OUT = names.TIMER_OUT_MS.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()
_hash_of = functools.lru_cache(maxsize=8192)(string_hash)


class TimerService:
    """Defers, enters and delivers messages with a delivery time."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        run_blocking: RunBlocking,
        counts: TimerCounts,
        targets: TargetQueues | None = None,
    ) -> None:
        """``targets`` maps messages to queues that exist; without it, all are accepted as they are."""
        store, clock, stats = runtime.store, runtime.clock, runtime.stats
        self._store = store
        self._config = config = store.config
        self._clock = clock
        self._random = runtime.random
        self._role = runtime.role
        self._flushed = runtime.flushed
        self._run_blocking = run_blocking
        self.counts = counts
        self.rates = TimerRates(clock)
        self._messages = TimerMessages(runtime, counts, self.rates, targets)
        self._targets = targets
        self._quarantine = stats.quarantine
        self._flush_soon = FlushTrigger(store, runtime.flushed)
        self._precision_ms = config.timer_precision_ms
        roll_slots = config.timer_roll_window_slot
        if not 2 <= roll_slots <= WINDOW - BLANK_SLOTS:
            roll_slots = WINDOW - BLANK_SLOTS
        self._roll_slots = roll_slots
        self.files = TimerFiles(store.disk, config)
        self._fast_path = self._build_fast_path()
        self.read_time_ms = 0
        """All slots before this time were delivered."""
        self.write_time_ms = 0
        """The current slot, into which messages are still entered."""
        self.queue_offset = 0
        """Offset in the timer queue: messages before it were entered."""
        self._enter_first = self._enter_for = 0
        """Slots up to ``_enter_for`` may be delivered once the queue was entered up to ``_enter_first``, its end
        when they were due: messages up to there may recall messages in these slots."""
        self._deliver_to = 0
        """The time up to which that is done."""
        self.waiting = 0
        """Number of deferred messages."""
        self._due: DueSlot | None = None
        """The slot at ``read_time_ms``, if it has units."""
        self._in_part: dict[int, int] = {}
        """Partially delivered slots by time, with the positions up to which they were delivered: the one at
        ``read_time_ms``, and others if the clock was set back meanwhile."""
        self._master: TimerCheckpoint | None = None
        """On a slave, how far the timer of the master has come."""
        self._is_changed = False
        self._warning = RepeatedWarning()
        self._last_save_ms = self._last_clean_ms = clock.now_ms()
        self._loop = DeliveryLoop("timer", clock, self._run_slice)
        self._saving: asyncio.Task[None] | None = None

    def _build_fast_path(self) -> TimerFastPath | None:
        """The fast path of delivery; None if this store needs the Python path."""
        if not self._store.appender.native.accepts_all or self._messages.is_escaping:
            return None
        return TimerFastPath(self._store, self.files.log, self._messages.record_delivered, self._targets)

    # Deferring

    def defer(
        self, properties: bytes, topic: str, queue_id: int, values: Mapping[bytes, bytes] | None = None
    ) -> tuple[str, int, bytes] | None:
        """System topic, queue and properties to store the message under; None if it is not deferred.

        ``values``: the parsed properties, if the caller has them. Raises AppendRefusedError.
        """
        try:
            deliver_ms = delivery_time(values or values_of(properties), self._clock.now_ms())
        except ValueError:
            raise illegal(self._config) from None
        if deliver_ms is None:
            return None
        out_ms = self.out_time(deliver_ms)
        if out_ms is None:
            if is_recall_marker(properties):
                raise illegal(self._config)
            return None
        return TIMER_TOPIC, 0, with_property_and_real_topic(properties, _OUT, b"%d" % out_ms, topic, queue_id)

    def out_time(self, deliver_ms: int) -> int | None:
        """The slot of a message with this delivery time; None if the time has come. Raises AppendRefusedError."""
        now = self._clock.now_ms()
        if deliver_ms <= now:
            return None
        if deliver_ms - now > self._config.timer_max_delay_sec * 1000:
            raise illegal(self._config)
        precision = self._precision_ms
        # A slot is delivered when it is over; a time on its very beginning belongs to the one before.
        out_ms = (deliver_ms - 1) // precision * precision
        # Without a configured limit there is no need to look up the slot.
        if not self.has_no_limits:
            slot = self.files.wheel.slot(out_ms)
            check_slot_limit(0 if slot is None else slot.waiting, self._config, self._random)
        self.on_deferred()
        return out_ms

    @property
    def has_no_limits(self) -> bool:
        """True if the number of messages in a slot is not limited."""
        return self._config.timer_congest_num_each_slot >= MAX_IN_SLOT

    def on_deferred(self) -> None:
        """Plan the next slice: messages were or are about to be deferred."""
        self._loop.wake_by(self._clock.now_ms() + RETRY_MS)

    # State

    @property
    def is_caught_up(self) -> bool:
        """True if all due messages were delivered, up to the current slot."""
        queue = self._queue()
        return self._clock.now_ms() - self.read_time_ms < 2 * self._precision_ms and (
            queue is None or queue.next_offset <= self.queue_offset
        )

    @property
    def behind_ms(self) -> int:
        """Delivery lag in milliseconds: the age of the slot that is delivered now."""
        return self._clock.now_ms() - self.read_time_ms

    @property
    def behind_messages(self) -> int:
        """Entry lag in messages: deferred but not entered yet."""
        queue = self._queue()
        return 0 if queue is None else max(queue.end - self.queue_offset, 0)

    def checkpoint(self) -> TimerCheckpoint:
        """Current progress."""
        return dataclasses.replace(
            self.files.saved,
            read_time_ms=self.read_time_ms,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
            slot_time_ms=self.read_time_ms if self.read_time_ms in self._in_part else 0,
            slot_position=self._in_part.get(self.read_time_ms, 0),
        )

    def shared_checkpoint(self) -> TimerCheckpoint:
        """Progress for other replicas; of an acting slave without what is still to be stored by other masters."""
        if not (self._messages.is_escaping and self._role.acts_as_master):
            return self.checkpoint()
        saved = self.files.saved
        return dataclasses.replace(saved, master_queue_offset=saved.queue_offset)

    # Start and stop

    def load(self) -> None:
        """Load files, progress and counts. Raises StoreError."""
        self.counts.load()
        files = self.files
        files.open(self._log_offset_of)
        saved = files.saved
        now = self._now()
        # The wheel is a ring: slots further back are reused for times to come.
        oldest = now - (SLOTS - self._roll_slots - BLANK_SLOTS) * self._precision_ms
        self.write_time_ms = now
        self.read_time_ms = max(saved.read_time_ms // self._precision_ms * self._precision_ms, oldest)
        if saved.slot_time_ms:
            self._in_part[saved.slot_time_ms] = saved.slot_position
        self.queue_offset = self._offset_after_log() if files.is_damaged else saved.queue_offset
        queue = self._queue()
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.end)
        self.queue_offset = min(max(self.queue_offset, low), high)
        self._enter_for, self._enter_first = now, high
        self.waiting = files.wheel.waiting(self.read_time_ms)
        if self._in_part or not self._store.recovery.clean:
            self._recount()

    def _recount(self) -> None:
        self.counts.revise(
            waiting_by_topic(
                self.files.log, self._precision_ms, self.read_time_ms, self._in_part, self._messages.real_topic
            )
        )

    def _log_offset_of(self, queue_offset: int) -> int:
        queue = self._queue()
        if queue is None or queue_offset >= queue.end:
            return self._store.log.end
        unit = queue.unit(max(queue_offset, queue.min_offset))
        return self._store.log.start if unit is None or unit[1] == FILLER_SIZE else unit[0]

    def _offset_after_log(self) -> int:
        """The queue offset after the newest message in the timer log."""
        last = self.files.log.last()
        message = None if last is None else self._messages.read(last.offset)
        return 0 if message is None else message.queue_offset + 1

    def start(self) -> None:
        """Start delivering, with messages that came due while the broker was down, or its master."""
        if self._master is not None:
            self._master = None
            queue = self._queue()
            self._enter_for, self._enter_first = self._now(), 0 if queue is None else queue.next_offset
            self.waiting = self.files.wheel.waiting(self.read_time_ms)
        self._loop.start()

    async def stop(self) -> None:
        """Stop delivering and save the progress. ``flushed`` and ``run_blocking`` must still work."""
        self._loop.stop()
        if self._saving is not None:
            await self._saving
        if self.queue_offset or self._is_changed:
            await self._save()
        self.counts.persist()
        self.files.close()

    def _run_slice(self) -> int:
        try:
            return self.run_slice()
        finally:
            self._sample_and_save()

    # Slaves

    def follow(self, master: TimerCheckpoint) -> None:
        """Follow the timer of the master: enter what it has entered, and pass over what it has delivered.

        This slave has all messages that the checkpoint counts as delivered.
        """
        self._master = master
        self.read_time_ms = master.read_time_ms // self._precision_ms * self._precision_ms
        self._due = None
        self._in_part.clear()
        self._is_changed = True
        self._loop.start()

    def pause(self) -> None:
        """Stop delivering; ``start`` and ``follow`` continue."""
        self._loop.stop()

    def roll_back(self) -> None:
        """Return to the progress on disk: what was delivered since then did not arrive."""
        self.read_time_ms = self.files.saved.read_time_ms // self._precision_ms * self._precision_ms
        self._due = None
        self._in_part.clear()

    async def take_over(self, other: TimerCheckpoint) -> None:
        """Pass over what a slave has delivered that acted for this master; before ``start``."""
        self.follow(other)
        self._loop.stop()
        while self._follow_slice(other) <= self._clock.now_ms():  # noqa: ASYNC110  # a slice of work each
            await asyncio.sleep(0)

    def _follow_slice(self, master: TimerCheckpoint) -> int:
        now = self._clock.now_ms()
        self.write_time_ms = self._now()
        try:
            is_done = self._enter_new(master.master_queue_offset)
            self._warning.clear()
        except (StoreError, OSError) as error:
            self._warning.log(f"timer: entering failed, will retry in {RETRY_MS} ms: {error}", error)
            return now + RETRY_MS
        return now + self._precision_ms if is_done else now

    def _sample_and_save(self) -> None:
        now = self._clock.now_ms()
        self.rates.sample(now)
        is_idle = self._saving is None or self._saving.done()
        is_time = not 0 <= now - self._last_save_ms < self._config.timer_flush_interval_ms
        if self._is_changed and is_idle and is_time:
            self._last_save_ms = now
            self._saving = asyncio.get_running_loop().create_task(self._save())

    # Slices

    def run_slice(self) -> int:
        """Enter new messages and deliver due ones, up to the limits of a slice; returns the time of the next
        slice."""
        if self._master is not None:
            return self._follow_slice(self._master)
        now = self._clock.now_ms()
        self.write_time_ms = self._now()
        queue = self._queue()
        if self.queue_offset >= self._enter_first:
            # Includes messages that are not flushed yet and not visible before.
            self._enter_for, self._enter_first = self.write_time_ms, 0 if queue is None else queue.next_offset
        log_end = self._store.log.end
        try:
            is_done = self._enter_new()
            if queue is None or self.queue_offset >= queue.next_offset or self._config.timer_stop_enqueue:
                self._deliver_to = self.write_time_ms
            elif self.queue_offset >= self._enter_first:
                self._deliver_to = self._enter_for
            is_done &= self._deliver_due()
            self._warning.clear()
        except (StoreError, OSError) as error:
            self._warning.log(f"timer: delivery failed, will retry in {RETRY_MS} ms: {error}", error)
            return now + RETRY_MS
        finally:
            if self._store.log.end > log_end:
                self._flush_soon()
        if not is_done:
            return now
        if queue is not None and queue.next_offset > self.queue_offset:
            return now + RETRY_MS
        return self.write_time_ms + self._precision_ms

    def _now(self) -> int:
        return self._clock.now_ms() // self._precision_ms * self._precision_ms

    def _queue(self) -> ConsumeQueue | None:
        queue = self._store.queues.find(TIMER_TOPIC, 0)
        return queue if isinstance(queue, ConsumeQueue) else None

    # Entering

    def _enter_new(self, end: int | None = None) -> bool:
        """Enter messages of the timer queue, up to ``end``; False if there are more."""
        queue = self._queue()
        if queue is None or self._config.timer_stop_enqueue:
            return True
        if not queue.min_offset <= self.queue_offset <= queue.end:
            self.queue_offset = queue.min_offset  # the oldest messages have expired, or the queue was recreated
        end = queue.end if end is None else min(end, queue.end)
        if self.queue_offset >= end:
            return True
        entered: dict[str, list[int]] = {}
        try:
            units = queue.read(self.queue_offset, min(SLICE_RECORDS, end - self.queue_offset))
            if not units and self.queue_offset < queue.end:
                raise StoreError(f"unit {self.queue_offset} of {queue.directory} cannot be read")
            for physical, size, _ in UNIT.iter_unpack(units):
                if size != FILLER_SIZE:
                    self._enter_or_skip(physical, size, entered)
                self.queue_offset += 1
                self._is_changed = True
        finally:
            # A slave takes the counts over from its master.
            if self._master is None:
                self.counts.add_all(entered)
        return self.queue_offset >= end

    def _enter_or_skip(self, physical: int, size: int, entered: dict[str, list[int]]) -> None:
        """Enter a message, or skip it if that is impossible. Raises StoreError if it has to be retried."""
        try:
            self._enter(physical, size, entered)
        except Exception as error:
            if is_transient(error):
                raise
            record = f"the record at {physical} of {TIMER_TOPIC}"
            if not self._quarantine.failed(TIMER, "enter", self.queue_offset, record, error):
                raise StoreError(f"{record} could not be entered: {error}") from error

    def _enter(self, physical: int, size: int, entered: dict[str, list[int]]) -> None:
        """Enter a message into the timer log and wheel; ``entered`` collects count changes by topic."""
        deferral = self._messages.read_deferral(physical, size)
        if deferral is None:
            self._messages.skip(physical, "no intact record with a delivery time there")
            return
        due, topic, is_recall = deferral
        self.rates.entered += 1
        now = self.write_time_ms
        if self._master is not None:
            # When the master entered it: a message that is rolling must get about the same slot here.
            now = (self._store.reader.store_timestamp(physical) or now) // self._precision_ms * self._precision_ms
        elif due < now and (due < self.read_time_ms or (due == self.read_time_ms and self._due is not None)):
            self._deliver_at_once(physical)
            return
        magic = DEFAULT
        slot_time = due
        if due - now >= self._roll_slots * self._precision_ms:
            magic |= ROLL
            slot_time = rolling_slot(due, now, self._roll_slots, self._precision_ms)
        if is_recall:
            magic |= DELETE
        if self._master is not None and slot_time < self.read_time_ms:
            return  # the master has delivered it
        if slot_time < self.read_time_ms:
            self.counts.add_all(entered)  # the recount reads them from the timer log
            # Back to the present at once: the next message may be for an earlier slot than this one.
            self._go_back_to(min(slot_time, now))
        self.files.add(slot_time, magic, now, physical, size, _hash_of(topic))
        weight = -1 if magic & DELETE else 1
        self.waiting += weight
        if topic:
            entered.setdefault(topic, []).append(weight)
            self.counts.observe_delay(topic, due - now)

    def _go_back_to(self, time_ms: int) -> None:
        """Handle a clock that was set back: clear slots that are due again, without their delivered messages."""
        self.files.wheel.clear_between(time_ms, self.read_time_ms)
        self.read_time_ms = time_ms // self._precision_ms * self._precision_ms
        self.waiting = self.files.wheel.waiting(self.read_time_ms)
        if self._due is not None:
            self._due = None
            self._recount()

    def _deliver_at_once(self, physical: int) -> None:
        """Deliver a message whose time came before it was entered."""
        message = self._messages.read(physical)
        if message is not None and find(message.properties, _DELETES) is None:
            self._messages.append(message, DELIVERED_AT_ONCE, is_rolling=False)

    # Delivery

    def _deliver_due(self) -> bool:
        """Deliver due slots; False if there is more."""
        if self._config.timer_stop_dequeue:
            return True
        end = min(self._deliver_to, self.write_time_ms)
        budget = SliceBudget()
        while self.read_time_ms < end:
            due = self._due
            if due is None:
                self.read_time_ms = self.files.wheel.next_busy(self.read_time_ms, end)
                if self.read_time_ms < end:
                    self._begin_slot()
                continue
            if not due.collect(SLICE_UNITS):
                return False
            while due.markers and budget.records > 0:
                self._recall_or_skip(due)
                budget.spend(1, 0)
            while len(due) and not budget.is_spent:
                budget.spend(*self._deliver_some(due, budget.records, budget.size))
            if due.markers or len(due):
                return False
            for topic, count in due.miscounted():
                if count:
                    self.counts.add(topic, count)
            self._due = None
            slot = self.files.wheel.slot(self.read_time_ms)
            self.waiting -= 0 if slot is None else slot.waiting
            self._in_part.pop(self.read_time_ms, None)
            self.read_time_ms += self._precision_ms
            self._is_changed = True
        return True

    def _begin_slot(self) -> None:
        slot = self.files.wheel.slot(self.read_time_ms)
        skip_to = self._in_part.get(self.read_time_ms, NO_UNIT)
        self._due = DueSlot(self.files.log, self.read_time_ms, NO_UNIT if slot is None else slot.last, skip_to)

    def _recall_or_skip(self, due: DueSlot) -> None:
        try:
            self._recall(due)
        except Exception as error:
            if is_transient(error):
                raise
            offset = due.markers[-1].offset
            record = f"the recall at {offset} of {TIMER_TOPIC}"
            if not self._quarantine.failed(TIMER, "recall", offset, record, error):
                raise StoreError(f"{record} could not be processed: {error}") from error
            due.markers.pop()

    def _recall(self, due: DueSlot) -> None:
        message = self._messages.read(due.markers[-1].offset)
        properties = b"" if message is None else message.properties
        key = find(properties, _DELETES)
        if key is not None:
            due.add_recall(key, real_topic_of(properties))
        due.markers.pop()

    def _deliver_some(self, due: DueSlot, most: int, most_bytes: int) -> tuple[int, int]:
        """Deliver the oldest messages; returns their number and the total size of their records. Raises
        StoreError."""
        try:
            return self._deliver_many(due, most, most_bytes)
        except Exception as error:
            if is_transient(error):
                raise
            self._warning.log("timer: batch delivery failed, falling back to single messages", error)
        return 1, self._deliver_or_skip(due)

    def _deliver_many(self, due: DueSlot, most: int, most_bytes: int) -> tuple[int, int]:
        if self._fast_path is not None and not due.has_recalls:
            positions = due.next_positions(most)
            count, size = self._fast_path.deliver(positions, most_bytes)
            if count:
                due.drop_oldest(count)
                self._in_part[due.time_ms] = positions[count - 1]
                self._is_changed = True
                return count, size
        units = () if due.has_recalls else due.oldest_many(most)
        messages, ends = self._messages.read_plain(units, most_bytes)
        if not messages:
            return 1, self._deliver_or_skip(due)
        count = self._messages.append_plain(messages)
        due.drop_oldest(count)
        self._in_part[due.time_ms], size = ends[count - 1]
        self._is_changed = True
        return count, size

    def _deliver_or_skip(self, due: DueSlot) -> int:
        """Deliver one message, or skip it if that is impossible. Returns the size of its record."""
        try:
            return self._deliver_oldest(due)
        except Exception as error:
            if is_transient(error):
                raise
            position, unit = due.oldest()
            record = f"the record at {'?' if unit is None else unit.offset} of {TIMER_TOPIC}"
            if not self._quarantine.failed(TIMER, "deliver", position, record, error):
                raise StoreError(f"{record} could not be delivered: {error}") from error
            self._drop_oldest(due, position)
            return 0 if unit is None else unit.size

    def _deliver_oldest(self, due: DueSlot) -> int:
        """Deliver one message; returns the size of its record. If it raises StoreError the message stays the
        oldest."""
        position, unit = due.oldest()
        message = None if unit is None else self._messages.read(unit.offset, unit.size)
        if unit is not None and message is not None and not due.is_recalled(message.properties):
            is_rolling = bool(unit.magic & ROLL)
            is_rolled = is_rolling and self._roll_on(due.time_ms, unit, message)
            if not is_rolled and not self._messages.append(message, unit.written_ms, is_rolling=is_rolling):
                self._roll_in_place(unit, message)
        self._drop_oldest(due, position)
        return 0 if unit is None else unit.size

    def _drop_oldest(self, due: DueSlot, position: int) -> None:
        due.drop_oldest()
        self._in_part[due.time_ms] = position
        self._is_changed = True

    def _roll_on(self, time_ms: int, unit: TimerUnit, message: Record) -> bool:
        """Enter a rolling message into its final slot if that is due too, after a long downtime.

        Appended to the timer queue again it would be too late to recall another message.
        """
        out = find(message.properties, _OUT) or b""
        if not out.isdigit() or len(out) > 18 or not time_ms < int(out) < self.write_time_ms:
            return False
        self.files.add(int(out), unit.magic & ~ROLL, self.write_time_ms, unit.offset, unit.size, unit.topic_hash)
        self.waiting += unit.weight
        return True

    def _roll_in_place(self, unit: TimerUnit, message: Record) -> None:
        """Roll a message without appending it: it does not fit into a record with one more property."""
        out = find(message.properties, _OUT) or b""
        now = self.write_time_ms
        due = int(out) if out.isdigit() and len(out) <= 18 else now
        magic = unit.magic
        if due - now >= self._roll_slots * self._precision_ms:
            due = rolling_slot(due, now, self._roll_slots, self._precision_ms)
        else:
            magic &= ~ROLL
        self.files.add(max(due, now), magic, now, unit.offset, unit.size, unit.topic_hash)
        self.waiting += unit.weight

    # Progress

    async def _save(self) -> None:
        """Save the progress after a flush of the delivered messages.

        In the other order a power failure could leave a message that is neither deferred nor delivered.
        """
        files = self.files
        now = self._clock.now_ms()
        self._is_changed = False
        point = self.checkpoint()
        point.version_timestamp = now
        point.version_counter = point.own_counter = point.version_counter + 1
        unsaved = files.take_unsaved(point)
        try:
            await self._flushed(self._store.log.end)
            await self._run_blocking(lambda: files.save(unsaved))
            if not 0 <= now - self._last_clean_ms < CLEAN_MS:
                self._last_clean_ms = now
                files.log.delete_before(self._store.log.start)
        except (StoreError, OSError) as error:
            files.give_back(unsaved)
            self._is_changed = not isinstance(error, FlushFailedError)
            log.warning("timer: failed to save progress: %s", error)
            return
        files.on_saved(unsaved)
        self.counts.persist()
