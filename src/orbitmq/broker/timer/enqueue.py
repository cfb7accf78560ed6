"""Timer enqueue: from the timer queue into the timer log and the wheel (RocketMQ: TimerEnqueueGetService and
TimerEnqueuePutService)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import SLICE_RECORDS
from orbitmq.broker.quarantine import TIMER, is_transient
from orbitmq.broker.timer.counts import waiting_by_topic
from orbitmq.broker.timer.deliver_time import roll_window, rolling_slot
from orbitmq.broker.timer.delivery import DELIVERED_AT_ONCE
from orbitmq.protocol.java import string_hash
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import StoreError
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from orbitmq.store.timer.timer_log import DEFAULT, DELETE, ROLL

if TYPE_CHECKING:
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.counts import TimerCounts
    from orbitmq.broker.timer.delivery import TimerMessages
    from orbitmq.broker.timer.progress import TimerProgress
    from orbitmq.broker.timer.rates import TimerRates
    from orbitmq.store import MessageStore
    from orbitmq.store.timer.checkpoint import TimerCheckpoint
    from orbitmq.store.timer.files import TimerFiles

_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()
_hash_of = functools.lru_cache(maxsize=8192)(string_hash)


def timer_queue(store: MessageStore) -> ConsumeQueue | None:
    """The queue of ``rmq_sys_wheel_timer``; None before the first deferred message."""
    queue = store.queues.find(TIMER_TOPIC, 0)
    return queue if isinstance(queue, ConsumeQueue) else None


class TimerEnqueue:
    """Enters deferred messages into the slots of their times."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        progress: TimerProgress,
        files: TimerFiles,
        messages: TimerMessages,
        counts: TimerCounts,
        rates: TimerRates,
    ) -> None:
        self._store = runtime.store
        self._config = config = runtime.store.config
        self._quarantine = runtime.stats.quarantine
        self._progress = progress
        self._files = files
        self._messages = messages
        self._counts = counts
        self._rates = rates
        self._precision_ms = config.timer_precision_ms
        self._roll_slots = roll_window(config)
        self.master: TimerCheckpoint | None = None
        """On a slave, how far the timer of the master has come."""

    def recount(self) -> None:
        """Count the deferred messages of each topic again, from the timer log."""
        progress = self._progress
        self._counts.revise(
            waiting_by_topic(
                self._files.log,
                self._precision_ms,
                progress.read_time_ms,
                progress.in_part,
                self._messages.real_topic,
            )
        )

    def enter_new(self, end: int | None = None) -> bool:
        """Enter messages of the timer queue, up to ``end``; False if there are more."""
        progress = self._progress
        queue = timer_queue(self._store)
        if queue is None or self._config.timer_stop_enqueue:
            return True
        if not queue.min_offset <= progress.queue_offset <= queue.end:
            progress.queue_offset = queue.min_offset  # the oldest messages have expired, or the queue was recreated
        end = queue.end if end is None else min(end, queue.end)
        if progress.queue_offset >= end:
            return True
        entered: dict[str, list[int]] = {}
        try:
            units = queue.read(progress.queue_offset, min(SLICE_RECORDS, end - progress.queue_offset))
            if not units and progress.queue_offset < queue.end:
                raise StoreError(f"unit {progress.queue_offset} of {queue.directory} cannot be read")
            for physical, size, _ in UNIT.iter_unpack(units):
                if size != FILLER_SIZE:
                    self._enter_or_skip(physical, size, entered)
                progress.queue_offset += 1
                progress.is_changed = True
        finally:
            # A slave takes the counts over from its master.
            if self.master is None:
                self._counts.add_all(entered)
        return progress.queue_offset >= end

    def _enter_or_skip(self, physical: int, size: int, entered: dict[str, list[int]]) -> None:
        """Enter a message, or skip it if that is impossible. Raises StoreError if it has to be retried."""
        progress = self._progress
        try:
            self._enter(physical, size, entered)
        except Exception as error:
            if is_transient(error):
                raise
            record = f"the record at {physical} of {TIMER_TOPIC}"
            if not self._quarantine.failed(TIMER, "enter", progress.queue_offset, record, error):
                raise StoreError(f"{record} could not be entered: {error}") from error

    def _enter(self, physical: int, size: int, entered: dict[str, list[int]]) -> None:
        """Enter a message into the timer log and wheel; ``entered`` collects count changes by topic."""
        progress = self._progress
        deferral = self._messages.read_deferral(physical, size)
        if deferral is None:
            self._messages.skip(physical, "no intact record with a delivery time there")
            return
        due, topic, is_recall = deferral
        self._rates.entered += 1
        now = progress.write_time_ms
        if self.master is not None:
            # When the master entered it: a message that is rolling must get about the same slot here.
            now = (self._store.reader.store_timestamp(physical) or now) // self._precision_ms * self._precision_ms
        elif due < now and (
            due < progress.read_time_ms or (due == progress.read_time_ms and progress.due is not None)
        ):
            self._deliver_at_once(physical)
            return
        magic = DEFAULT
        slot_time = due
        if due - now >= self._roll_slots * self._precision_ms:
            magic |= ROLL
            slot_time = rolling_slot(due, now, self._roll_slots, self._precision_ms)
        if is_recall:
            magic |= DELETE
        if self.master is not None and slot_time < progress.read_time_ms:
            return  # the master has delivered it
        if slot_time < progress.read_time_ms:
            self._counts.add_all(entered)  # the recount reads them from the timer log
            # Back to the present at once: the next message may be for an earlier slot than this one.
            self._go_back_to(min(slot_time, now))
        self._files.add(slot_time, magic, now, physical, size, _hash_of(topic))
        weight = -1 if magic & DELETE else 1
        progress.waiting += weight
        if topic:
            entered.setdefault(topic, []).append(weight)
            self._counts.observe_delay(topic, due - now)

    def _go_back_to(self, time_ms: int) -> None:
        """Handle a clock that was set back: clear slots that are due again, without their delivered messages."""
        progress = self._progress
        self._files.wheel.clear_between(time_ms, progress.read_time_ms)
        progress.read_time_ms = time_ms // self._precision_ms * self._precision_ms
        progress.waiting = self._files.wheel.waiting(progress.read_time_ms)
        if progress.due is not None:
            progress.due = None
            self.recount()

    def _deliver_at_once(self, physical: int) -> None:
        """Deliver a message whose time came before it was entered."""
        message = self._messages.read(physical)
        if message is not None and find(message.properties, _DELETES) is None:
            self._messages.append(message, DELIVERED_AT_ONCE, is_rolling=False)
