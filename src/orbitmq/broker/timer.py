"""Messages for any time: where they wait, and how they come out when their time has come.

Such a message is appended under ``rmq_sys_wheel_timer`` first. From there it is entered into the timer log and the
wheel, and appended where it belongs when the slot of its time is over, so never early. All of that is done in
slices on one loop. How far it came is saved after the flush that covers it: a crash repeats messages, but loses
none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.flush_soon import FlushSoon
from orbitmq.broker.real_place import topic_in, with_one_and_place
from orbitmq.broker.timer_counts import waiting_by_topic
from orbitmq.broker.timer_messages import DELIVERED_AT_ONCE, TimerMessages, takes_back
from orbitmq.broker.timer_parking import delivery_time, illegal, refuse_if_crowded, rolling_slot
from orbitmq.broker.timer_rates import TimerRates
from orbitmq.broker.timer_runs import TimerRuns
from orbitmq.broker.timer_slot import DueSlot
from orbitmq.kernel import Deliveries
from orbitmq.protocol import property_names as names
from orbitmq.protocol.java import string_hash
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import find, values_of
from orbitmq.store import FlushFailedError, StoreError
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from orbitmq.store.timer_files import TimerFiles
from orbitmq.store.timer_log import DEFAULT, DELETE, NO_UNIT, ROLL
from orbitmq.store.timer_wheel import MOST_IN_SLOT, SLOTS, WINDOW

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer_counts import TimerCounts
    from orbitmq.protocol.record import Record
    from orbitmq.store import Clock, MessageStore
    from orbitmq.store.service import RunBlocking
    from orbitmq.store.timer_checkpoint import TimerCheckpoint
    from orbitmq.store.timer_log import TimerUnit

log = logging.getLogger("orbitmq.broker")

TURN_RECORDS = 128
TURN_BYTES = 256 * 1024
"""What is entered, and what is delivered, in one turn of the loop: about a millisecond each, so that a million
messages that are due at once come out as fast as the machine can, between the requests of clients."""

TURN_UNITS = 1000
"""Units of the timer log that are looked at in one turn."""

RETRY_MS = 100
"""After a refusal, and while a parked message is not yet visible."""

LONGEST_WAIT_MS = 1000
"""The clock is looked at so often at least: it may be set, and then the timer is not."""

CLEAN_MS = 30_000
BLANK_SLOTS = 60
"""So many slots are left free where the wheel's end meets its beginning."""

_OUT = names.TIMER_OUT_MS.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()
_hash_of = functools.lru_cache(maxsize=8192)(string_hash)


class TimerService:
    """Parks, enters and delivers. ``flushed`` gives what is done when the log up to an offset is on the disk."""

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        stats: BrokerStats,
        flushed: Callable[[int], Awaitable[None]],
        run_blocking: RunBlocking,
        counts: TimerCounts,
    ) -> None:
        self._store = store
        self._config = config = store.config
        self._clock = clock
        self._flushed = flushed
        self._run_blocking = run_blocking
        self.counts = counts
        self.rates = TimerRates(clock)
        self._messages = TimerMessages(store, clock, stats, counts, self.rates)
        self._flush_soon = FlushSoon(store, flushed)
        self._precision_ms = config.timer_precision_ms
        roll_slots = config.timer_roll_window_slot
        if not 2 <= roll_slots <= WINDOW - BLANK_SLOTS:
            roll_slots = WINDOW - BLANK_SLOTS
        self._roll_slots = roll_slots
        self.files = TimerFiles(store.disk, config)
        self._runs = self._kernel_runs()
        self.read_time_ms = 0
        """Everything in slots before this was delivered."""
        self.write_time_ms = 0
        """The slot of now, which messages are still entered into."""
        self.queue_offset = 0
        """Of the timer's queue: what is before it was entered."""
        self._enter_first = self._enter_for = 0
        """Before slots up to a time are delivered, the queue has to be entered up to where it ended when they were
        due: what is there may take back what is in them."""
        self._deliver_to = 0
        """The time up to which that was done."""
        self.waiting = 0
        """Messages that wait for their time."""
        self._due: DueSlot | None = None
        """The slot at ``read_time_ms``, if there is something in it."""
        self._in_part: dict[int, int] = {}
        """Times of slots that were delivered in part, and the positions up to which they were: that of
        ``read_time_ms``, and if the clock was set back meanwhile also others."""
        self._is_changed = False
        self._complaint = ""
        self._last_save_ms = self._last_clean_ms = clock.now_ms()
        self._is_running = False
        self._wakes_at = 0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._saving: asyncio.Task[None] | None = None

    def _kernel_runs(self) -> TimerRuns | None:
        """What delivers by the run; None if the kernel was not built, or this store needs more."""
        if Deliveries is None or not self._store.appender.runs.takes_all:
            return None
        return TimerRuns(Deliveries, self._store, self.files.log, self._messages.note)

    # Parking

    def park(
        self, properties: bytes, topic: str, queue_id: int, values: Mapping[bytes, bytes] | None = None
    ) -> tuple[str, int, bytes] | None:
        """Where a message with these properties waits, and with which properties; None if it does not wait.

        ``values`` are the properties taken apart, for those who have done that. Raises AppendRefusedError.
        """
        try:
            deliver_ms = delivery_time(values or values_of(properties), self._clock.now_ms())
        except ValueError:
            raise illegal(self._config) from None
        if deliver_ms is None:
            return None
        out_ms = self.out_time(deliver_ms)
        if out_ms is None:
            if takes_back(properties):
                raise illegal(self._config)
            return None
        return TIMER_TOPIC, 0, with_one_and_place(properties, _OUT, b"%d" % out_ms, topic, queue_id)

    def out_time(self, deliver_ms: int) -> int | None:
        """The slot of a message for this time; None if its time has come. Raises AppendRefusedError."""
        now = self._clock.now_ms()
        if deliver_ms <= now:
            return None
        if deliver_ms - now > self._config.timer_max_delay_sec * 1000:
            raise illegal(self._config)
        precision = self._precision_ms
        # A slot is delivered when it is over; what is for its very beginning belongs to the one before.
        out_ms = (deliver_ms - 1) // precision * precision
        # Mostly there is no limit but that of the number itself, and no need to look into the wheel.
        if not self.has_no_limits:
            slot = self.files.wheel.slot(out_ms)
            refuse_if_crowded(0 if slot is None else slot.waiting, self._config)
        self.note_parked()
        return out_ms

    @property
    def has_no_limits(self) -> bool:
        """Whether slots take as many messages as there are."""
        return self._config.timer_congest_num_each_slot >= MOST_IN_SLOT

    def note_parked(self) -> None:
        """Messages came, or are about to: they are entered soon."""
        soon = self._clock.now_ms() + RETRY_MS
        if self._is_running and self._wakes_at > soon:
            self._wake_at(soon)

    # What is known of those that wait

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that is due has been delivered, to the slot."""
        queue = self._queue()
        return self._clock.now_ms() - self.read_time_ms < 2 * self._precision_ms and (
            queue is None or queue.next_offset <= self.queue_offset
        )

    @property
    def behind_ms(self) -> int:
        """How long ago the slot was due that is delivered now."""
        return self._clock.now_ms() - self.read_time_ms

    @property
    def behind_messages(self) -> int:
        """Messages that were parked and are not entered yet."""
        queue = self._queue()
        return 0 if queue is None else max(queue.end - self.queue_offset, 0)

    def checkpoint(self) -> TimerCheckpoint:
        """How far everything came."""
        return dataclasses.replace(
            self.files.saved,
            read_time_ms=self.read_time_ms,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
            slot_time_ms=self.read_time_ms if self.read_time_ms in self._in_part else 0,
            slot_position=self._in_part.get(self.read_time_ms, 0),
        )

    # Starting and stopping

    def load(self) -> None:
        """Take over what waits. Raises StoreError."""
        self.counts.load()
        files = self.files
        files.open(self._place_of)
        saved = files.saved
        now = self._now()
        # Slots further back could be those of times that are still to come, as the wheel is round.
        oldest = now - (SLOTS - self._roll_slots - BLANK_SLOTS) * self._precision_ms
        self.write_time_ms = now
        self.read_time_ms = max(saved.read_time_ms // self._precision_ms * self._precision_ms, oldest)
        if saved.slot_time_ms:
            self._in_part[saved.slot_time_ms] = saved.slot_position
        self.queue_offset = self._first_lost() if files.is_damaged else saved.queue_offset
        queue = self._queue()
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.end)
        self.queue_offset = min(max(self.queue_offset, low), high)
        self._enter_for, self._enter_first = now, high
        self.waiting = files.wheel.waiting(self.read_time_ms)
        if self._in_part or not self._store.recovery.clean:
            self._revise_counts()

    def _revise_counts(self) -> None:
        self.counts.revise(
            waiting_by_topic(
                self.files.log, self._precision_ms, self.read_time_ms, self._in_part, self._messages.real_topic
            )
        )

    def _place_of(self, queue_offset: int) -> int:
        queue = self._queue()
        if queue is None or queue_offset >= queue.end:
            return self._store.log.end
        unit = queue.unit(max(queue_offset, queue.min_offset))
        return self._store.log.start if unit is None or unit[1] == FILLER_SIZE else unit[0]

    def _first_lost(self) -> int:
        """The offset behind the newest message that is still in the timer log."""
        last = self.files.log.last()
        message = None if last is None else self._messages.read(last.offset)
        return 0 if message is None else message.queue_offset + 1

    def start(self) -> None:
        """Deliver from now on, beginning with what came due while the broker was away."""
        self._is_running = True
        self._wake_at(0)

    async def stop(self) -> None:
        """Deliver no more, and keep how far it came. ``flushed`` and ``run_blocking`` must still work."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._saving is not None:
            await self._saving
        if self.queue_offset or self._is_changed:
            await self._save()
        self.counts.persist()
        self.files.close()

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
            next_time = self.turn()
        except Exception:
            # Whatever it was, what is due after it still has to come.
            log.exception("messages for certain times could not be delivered: it is tried again")
            next_time = self._clock.now_ms() + LONGEST_WAIT_MS
        now = self._clock.now_ms()
        self.rates.sample(now)
        is_idle = self._saving is None or self._saving.done()
        is_time = not 0 <= now - self._last_save_ms < self._config.timer_flush_interval_ms
        if self._is_changed and is_idle and is_time:
            self._last_save_ms = now
            self._saving = asyncio.get_running_loop().create_task(self._save())
        if self._is_running:
            self._wake_at(next_time)

    # Working

    def turn(self) -> int:
        """Enter what came and deliver what is due, up to a turn's worth; returns when there is something to do."""
        now = self._clock.now_ms()
        self.write_time_ms = self._now()
        queue = self._queue()
        if self.queue_offset >= self._enter_first:
            # Also what is not on the disk yet, and not shown before.
            self._enter_for, self._enter_first = self.write_time_ms, 0 if queue is None else queue.next_offset
        log_end = self._store.log.end
        try:
            is_done = self._enter_new()
            if queue is None or self.queue_offset >= queue.next_offset or self._config.timer_stop_enqueue:
                self._deliver_to = self.write_time_ms
            elif self.queue_offset >= self._enter_first:
                self._deliver_to = self._enter_for
            is_done &= self._deliver_due()
            self._complaint = ""
        except (StoreError, OSError) as error:
            complaint = f"messages for certain times wait: {error}"
            if complaint != self._complaint:
                log.warning("%s", complaint)
                self._complaint = complaint
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

    def _enter_new(self) -> bool:
        """Enter messages of the timer's queue; False if there are more."""
        queue = self._queue()
        if queue is None or self._config.timer_stop_enqueue:
            return True
        if not queue.min_offset <= self.queue_offset <= queue.end:
            self.queue_offset = queue.min_offset  # the oldest have expired, or the queue began anew
        entered: dict[str, list[int]] = {}
        try:
            for physical, size, _ in UNIT.iter_unpack(queue.read(self.queue_offset, TURN_RECORDS)):
                if size != FILLER_SIZE:
                    self._enter(physical, size, entered)
                self.queue_offset += 1
                self._is_changed = True
        finally:
            self.counts.add_all(entered)
        return self.queue_offset >= queue.end

    def _enter(self, physical: int, size: int, entered: dict[str, list[int]]) -> None:
        """Enter a message, and note by its topic how many more wait then."""
        wish = self._messages.wish_at(physical, size)
        if wish is None:
            log.error("the message for a certain time at %d cannot be read: it is skipped", physical)
            return
        due, topic, is_taking_back = wish
        self.rates.entered += 1
        now = self.write_time_ms
        if due < now and (due < self.read_time_ms or (due == self.read_time_ms and self._due is not None)):
            self._deliver_at_once(physical)
            return
        magic = DEFAULT
        slot_time = due
        if due - now >= self._roll_slots * self._precision_ms:
            magic |= ROLL
            slot_time = rolling_slot(due, now, self._roll_slots, self._precision_ms)
        if is_taking_back:
            magic |= DELETE
        if slot_time < self.read_time_ms:
            self.counts.add_all(entered)  # what is in the log is counted there
            self._go_back_to(slot_time)
        self.files.add(slot_time, magic, now, physical, size, _hash_of(topic))
        weight = -1 if magic & DELETE else 1
        self.waiting += weight
        if topic:
            entered.setdefault(topic, []).append(weight)

    def _go_back_to(self, time_ms: int) -> None:
        """The clock was set back: slots that were over are to come, and what was delivered of them is taken out."""
        self.files.wheel.clear_between(time_ms, self.read_time_ms)
        self.read_time_ms = time_ms // self._precision_ms * self._precision_ms
        self.waiting = self.files.wheel.waiting(self.read_time_ms)
        if self._due is not None:
            self._due = None
            self._revise_counts()

    def _deliver_at_once(self, physical: int) -> None:
        """Its time has come while it waited to be entered."""
        message = self._messages.read(physical)
        if message is not None and find(message.properties, _DELETES) is None:
            self._messages.append(message, DELIVERED_AT_ONCE, is_rolling=False)

    # Delivering

    def _deliver_due(self) -> bool:
        """Deliver what is due; False if there is more."""
        if self._config.timer_stop_dequeue:
            return True
        end = min(self._deliver_to, self.write_time_ms)
        records, size = TURN_RECORDS, TURN_BYTES
        while self.read_time_ms < end:
            due = self._due
            if due is None:
                self.read_time_ms = self.files.wheel.next_busy(self.read_time_ms, end)
                if self.read_time_ms < end:
                    self._begin_slot()
                continue
            if not due.collect(TURN_UNITS):
                return False
            while due.markers and records > 0:
                self._take_back(due)
                records -= 1
            while len(due) and records > 0 and size > 0:
                delivered, delivered_size = self._deliver_some(due, records, size)
                records -= delivered
                size -= delivered_size
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

    def _take_back(self, due: DueSlot) -> None:
        message = self._messages.read(due.markers[-1].offset)
        properties = b"" if message is None else message.properties
        key = find(properties, _DELETES)
        if key is not None:
            due.take_back(key, topic_in(properties))
        due.markers.pop()

    def _deliver_some(self, due: DueSlot, most: int, most_bytes: int) -> tuple[int, int]:
        """Deliver the oldest messages; returns how many, and the sizes of their records. Raises StoreError."""
        if self._runs is not None and not due.takes_back:
            positions = due.next_positions(most)
            count, size = self._runs.deliver(positions, most_bytes)
            if count:
                due.drop_oldest(count)
                self._in_part[due.time_ms] = positions[count - 1]
                self._is_changed = True
                return count, size
        units = () if due.takes_back else due.oldest_many(most)
        messages, places = self._messages.plain_ones(units, most_bytes)
        if not messages:
            return 1, self._deliver_oldest(due)
        count = self._messages.append_plain(messages)
        due.drop_oldest(count)
        self._in_part[due.time_ms], size = places[count - 1]
        self._is_changed = True
        return count, size

    def _deliver_oldest(self, due: DueSlot) -> int:
        """Deliver one message; returns the size of its record. Raises StoreError, and it stays the oldest then."""
        position, unit = due.oldest()
        message = None if unit is None else self._messages.read(unit.offset, unit.size)
        if unit is not None and message is not None and not due.is_taken_back(message.properties):
            is_rolling = bool(unit.magic & ROLL)
            if not is_rolling or not self._roll_on(due.time_ms, unit, message):
                self._messages.append(message, unit.written_ms, is_rolling=is_rolling)
        due.drop_oldest()
        self._in_part[due.time_ms] = position
        self._is_changed = True
        return 0 if unit is None else unit.size

    def _roll_on(self, time_ms: int, unit: TimerUnit, message: Record) -> bool:
        """Put a message that rolls into its own slot if that is due as well, because the broker was away for long.

        Parked once more it would come too late to take another one back.
        """
        out = find(message.properties, _OUT) or b""
        if not out.isdigit() or not time_ms < int(out) < self.write_time_ms:
            return False
        self.files.add(int(out), unit.magic & ~ROLL, self.write_time_ms, unit.offset, unit.size, unit.topic_hash)
        self.waiting += unit.weight
        return True

    # How far it came

    async def _save(self) -> None:
        """Make durable how far it came, once what was delivered is on the disk as well.

        The other way round, a power cut could leave a message that is neither waiting nor delivered.
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
            log.warning("how far messages for certain times came is not kept: %s", error)
            return
        files.note_saved(unsaved)
        self.counts.persist()
