"""Timer service: defers messages for an arbitrary delivery time and delivers them when their slot is over.

Such a message is first appended under ``rmq_sys_wheel_timer``. From there it is entered into the timer log and the
timer wheel (``enqueue``), and appended to its real topic once the slot of its time is over, so never early
(``dequeue``). All of that is done in slices on the event loop. The progress is saved after the flush that covers
it: a crash may repeat messages but loses none.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import (
    RETRY_MS,
    DeliveryLoop,
    RepeatedWarning,
)
from orbitmq.broker.deferred.flush_trigger import FlushTrigger
from orbitmq.broker.deferred.real_topic import with_property_and_real_topic
from orbitmq.broker.timer.deliver_time import BLANK_SLOTS, check_slot_limit, delivery_time, illegal, roll_window
from orbitmq.broker.timer.delivery import TimerMessages, is_recall_marker
from orbitmq.broker.timer.dequeue import TimerDequeue
from orbitmq.broker.timer.enqueue import TimerEnqueue, timer_queue
from orbitmq.broker.timer.progress import TimerProgress
from orbitmq.broker.timer.rates import TimerRates
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import values_of
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import FlushFailedError, StoreError
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE
from orbitmq.store.timer.files import TimerFiles
from orbitmq.store.timer.timer_wheel import MAX_IN_SLOT, SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.counts import TimerCounts
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.store.timer.checkpoint import TimerCheckpoint

log = logging.getLogger("orbitmq.broker")

CLEAN_MS = 30_000

_OUT = names.TIMER_OUT_MS.encode()


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
        store, clock = runtime.store, runtime.clock
        self._store = store
        self._config = config = store.config
        self._clock = clock
        self._random = runtime.random
        self._role = runtime.role
        self._flushed = runtime.flushed
        self._run_blocking = run_blocking
        self.counts = counts
        self.rates = TimerRates(clock)
        self._messages = messages = TimerMessages(runtime, counts, self.rates, targets)
        self._flush_soon = FlushTrigger(store, runtime.flushed)
        self._precision_ms = config.timer_precision_ms
        self.files = files = TimerFiles(store.disk, config)
        self.progress = progress = TimerProgress()
        self._enter_first = self._enter_for = 0
        """Slots up to ``_enter_for`` may be delivered once the queue was entered up to ``_enter_first``, its end
        when they were due: messages up to there may recall messages in these slots."""
        self._deliver_to = 0
        """The time up to which that is done."""
        self._warning = RepeatedWarning()
        self._enqueue = TimerEnqueue(runtime, progress, files, messages, counts, self.rates)
        self._dequeue = TimerDequeue(runtime, progress, files, messages, counts, targets, self._warning)
        self._last_save_ms = self._last_clean_ms = clock.now_ms()
        self._loop = DeliveryLoop("timer", clock, self._run_slice)
        self._saving: asyncio.Task[None] | None = None

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
    def read_time_ms(self) -> int:
        """All slots before this time were delivered."""
        return self.progress.read_time_ms

    @property
    def queue_offset(self) -> int:
        """Offset in the timer queue: messages before it were entered."""
        return self.progress.queue_offset

    @property
    def waiting(self) -> int:
        """Number of deferred messages."""
        return self.progress.waiting

    @property
    def is_caught_up(self) -> bool:
        """True if all due messages were delivered, up to the current slot."""
        progress = self.progress
        queue = timer_queue(self._store)
        return self._clock.now_ms() - progress.read_time_ms < 2 * self._precision_ms and (
            queue is None or queue.next_offset <= progress.queue_offset
        )

    @property
    def behind_ms(self) -> int:
        """Delivery lag in milliseconds: the age of the slot that is delivered now."""
        return self._clock.now_ms() - self.progress.read_time_ms

    @property
    def behind_messages(self) -> int:
        """Entry lag in messages: deferred but not entered yet."""
        queue = timer_queue(self._store)
        return 0 if queue is None else max(queue.end - self.progress.queue_offset, 0)

    def checkpoint(self) -> TimerCheckpoint:
        """Current progress."""
        progress = self.progress
        return dataclasses.replace(
            self.files.saved,
            read_time_ms=progress.read_time_ms,
            queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
            slot_time_ms=progress.read_time_ms if progress.read_time_ms in progress.in_part else 0,
            slot_position=progress.in_part.get(progress.read_time_ms, 0),
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
        progress = self.progress
        self.counts.load()
        files = self.files
        files.open(self._log_offset_of)
        saved = files.saved
        now = self._now()
        # The wheel is a ring: slots further back are reused for times to come.
        oldest = now - (SLOTS - roll_window(self._config) - BLANK_SLOTS) * self._precision_ms
        progress.write_time_ms = now
        progress.read_time_ms = max(saved.read_time_ms // self._precision_ms * self._precision_ms, oldest)
        if saved.slot_time_ms:
            progress.in_part[saved.slot_time_ms] = saved.slot_position
        progress.queue_offset = self._offset_after_log() if files.is_damaged else saved.queue_offset
        queue = timer_queue(self._store)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.end)
        progress.queue_offset = min(max(progress.queue_offset, low), high)
        self._enter_for, self._enter_first = now, high
        progress.waiting = files.wheel.waiting(progress.read_time_ms)
        if progress.in_part or not self._store.recovery.clean:
            self._enqueue.recount()

    def _log_offset_of(self, queue_offset: int) -> int:
        queue = timer_queue(self._store)
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
        if self._enqueue.master is not None:
            self._enqueue.master = None
            queue = timer_queue(self._store)
            self._enter_for, self._enter_first = self._now(), 0 if queue is None else queue.next_offset
            self.progress.waiting = self.files.wheel.waiting(self.progress.read_time_ms)
        self._loop.start()

    async def stop(self) -> None:
        """Stop delivering and save the progress. ``flushed`` and ``run_blocking`` must still work."""
        progress = self.progress
        self._loop.stop()
        if self._saving is not None:
            await self._saving
        if progress.queue_offset or progress.is_changed:
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
        progress = self.progress
        self._enqueue.master = master
        progress.read_time_ms = master.read_time_ms // self._precision_ms * self._precision_ms
        progress.due = None
        progress.in_part.clear()
        progress.is_changed = True
        self._loop.start()

    def pause(self) -> None:
        """Stop delivering; ``start`` and ``follow`` continue."""
        self._loop.stop()

    def roll_back(self) -> None:
        """Return to the progress on disk: what was delivered since then did not arrive."""
        progress = self.progress
        progress.read_time_ms = self.files.saved.read_time_ms // self._precision_ms * self._precision_ms
        progress.due = None
        progress.in_part.clear()

    async def take_over(self, other: TimerCheckpoint) -> None:
        """Pass over what a slave has delivered that acted for this master; before ``start``."""
        self.follow(other)
        self._loop.stop()
        while self._follow_slice(other) <= self._clock.now_ms():  # noqa: ASYNC110  # a slice of work each
            await asyncio.sleep(0)

    def _follow_slice(self, master: TimerCheckpoint) -> int:
        now = self._clock.now_ms()
        self.progress.write_time_ms = self._now()
        try:
            is_done = self._enqueue.enter_new(master.master_queue_offset)
            self._warning.clear()
        except (StoreError, OSError) as error:
            self._warning.log(f"timer: entering failed, will retry in {RETRY_MS} ms: {error}", error)
            return now + RETRY_MS
        return now + self._precision_ms if is_done else now

    def _sample_and_save(self) -> None:
        progress = self.progress
        now = self._clock.now_ms()
        self.rates.sample(now)
        is_idle = self._saving is None or self._saving.done()
        is_time = not 0 <= now - self._last_save_ms < self._config.timer_flush_interval_ms
        if progress.is_changed and is_idle and is_time:
            self._last_save_ms = now
            self._saving = asyncio.get_running_loop().create_task(self._save())

    # Slices

    def run_slice(self) -> int:
        """Enter new messages and deliver due ones, up to the limits of a slice; returns the time of the next
        slice."""
        progress = self.progress
        if self._enqueue.master is not None:
            return self._follow_slice(self._enqueue.master)
        now = self._clock.now_ms()
        progress.write_time_ms = self._now()
        queue = timer_queue(self._store)
        if progress.queue_offset >= self._enter_first:
            # Includes messages that are not flushed yet and not visible before.
            self._enter_for, self._enter_first = progress.write_time_ms, 0 if queue is None else queue.next_offset
        log_end = self._store.log.end
        try:
            is_done = self._enqueue.enter_new()
            if queue is None or progress.queue_offset >= queue.next_offset or self._config.timer_stop_enqueue:
                self._deliver_to = progress.write_time_ms
            elif progress.queue_offset >= self._enter_first:
                self._deliver_to = self._enter_for
            is_done &= self._dequeue.deliver_due(self._deliver_to)
            self._warning.clear()
        except (StoreError, OSError) as error:
            self._warning.log(f"timer: delivery failed, will retry in {RETRY_MS} ms: {error}", error)
            return now + RETRY_MS
        finally:
            if self._store.log.end > log_end:
                self._flush_soon()
        if not is_done:
            return now
        if queue is not None and queue.next_offset > progress.queue_offset:
            return now + RETRY_MS
        return progress.write_time_ms + self._precision_ms

    def _now(self) -> int:
        return self._clock.now_ms() // self._precision_ms * self._precision_ms

    # Progress

    async def _save(self) -> None:
        """Save the progress after a flush of the delivered messages.

        In the other order a power failure could leave a message that is neither deferred nor delivered.
        """
        progress = self.progress
        files = self.files
        now = self._clock.now_ms()
        progress.is_changed = False
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
            progress.is_changed = not isinstance(error, FlushFailedError)
            log.warning("timer: failed to save progress: %s", error)
            return
        files.on_saved(unsaved)
        self.counts.persist()
