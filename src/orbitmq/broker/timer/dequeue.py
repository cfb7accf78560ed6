"""Timer dequeue: delivers the slots that are over (RocketMQ: TimerDequeueGetService and the put services)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import SliceBudget
from orbitmq.broker.deferred.real_topic import real_topic_of
from orbitmq.broker.fast_path.timer import TimerFastPath
from orbitmq.broker.quarantine import TIMER, is_transient
from orbitmq.broker.timer.deliver_time import roll_window, rolling_slot
from orbitmq.broker.timer.slot import DueSlot
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import StoreError
from orbitmq.store.timer.timer_log import NO_UNIT, ROLL

if TYPE_CHECKING:
    from orbitmq.broker.deferred.delivery_loop import RepeatedWarning
    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.timer.counts import TimerCounts
    from orbitmq.broker.timer.delivery import TimerMessages
    from orbitmq.broker.timer.progress import TimerProgress
    from orbitmq.protocol.message.record import Record
    from orbitmq.store.timer.files import TimerFiles
    from orbitmq.store.timer.timer_log import TimerUnit

SLICE_UNITS = 1000
"""Units of the timer log that are followed in one slice."""

_OUT = names.TIMER_OUT_MS.encode()
_DELETES = names.TIMER_DELETE_UNIQUE_KEY.encode()


class TimerDequeue:
    """Delivers due messages, slot by slot, without those that were recalled."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        progress: TimerProgress,
        files: TimerFiles,
        messages: TimerMessages,
        counts: TimerCounts,
        targets: TargetQueues | None,
        warning: RepeatedWarning,
    ) -> None:
        """``targets`` maps messages to queues that exist; without it, all are accepted as they are."""
        self._config = config = runtime.store.config
        self._quarantine = runtime.stats.quarantine
        self._progress = progress
        self._files = files
        self._messages = messages
        self._counts = counts
        self._warning = warning
        self._precision_ms = config.timer_precision_ms
        self._roll_slots = roll_window(config)
        self._fast_path: TimerFastPath | None = None
        """None if this store needs the Python path."""
        if runtime.store.appender.native.accepts_all and not messages.is_escaping:
            self._fast_path = TimerFastPath(runtime.store, files.log, messages.record_delivered, targets)

    def deliver_due(self, to_ms: int) -> bool:
        """Deliver due slots before ``to_ms``; False if there is more."""
        progress = self._progress
        if self._config.timer_stop_dequeue:
            return True
        end = min(to_ms, progress.write_time_ms)
        budget = SliceBudget()
        while progress.read_time_ms < end:
            due = progress.due
            if due is None:
                progress.read_time_ms = self._files.wheel.next_busy(progress.read_time_ms, end)
                if progress.read_time_ms < end:
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
                    self._counts.add(topic, count)
            progress.due = None
            slot = self._files.wheel.slot(progress.read_time_ms)
            progress.waiting -= 0 if slot is None else slot.waiting
            progress.in_part.pop(progress.read_time_ms, None)
            progress.read_time_ms += self._precision_ms
            progress.is_changed = True
        return True

    def _begin_slot(self) -> None:
        progress = self._progress
        slot = self._files.wheel.slot(progress.read_time_ms)
        skip_to = progress.in_part.get(progress.read_time_ms, NO_UNIT)
        progress.due = DueSlot(
            self._files.log, progress.read_time_ms, NO_UNIT if slot is None else slot.last, skip_to
        )

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
        progress = self._progress
        if self._fast_path is not None and not due.has_recalls:
            positions = due.next_positions(most)
            count, size = self._fast_path.deliver(positions, most_bytes)
            if count:
                due.drop_oldest(count)
                progress.in_part[due.time_ms] = positions[count - 1]
                progress.is_changed = True
                return count, size
        units = () if due.has_recalls else due.oldest_many(most)
        messages, ends = self._messages.read_plain(units, most_bytes)
        if not messages:
            return 1, self._deliver_or_skip(due)
        count = self._messages.append_plain(messages)
        due.drop_oldest(count)
        progress.in_part[due.time_ms], size = ends[count - 1]
        progress.is_changed = True
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
        progress = self._progress
        due.drop_oldest()
        progress.in_part[due.time_ms] = position
        progress.is_changed = True

    def _roll_on(self, time_ms: int, unit: TimerUnit, message: Record) -> bool:
        """Enter a rolling message into its final slot if that is due too, after a long downtime.

        Appended to the timer queue again it would be too late to recall another message.
        """
        progress = self._progress
        out = find(message.properties, _OUT) or b""
        if not out.isdigit() or len(out) > 18 or not time_ms < int(out) < progress.write_time_ms:
            return False
        self._files.add(
            int(out), unit.magic & ~ROLL, progress.write_time_ms, unit.offset, unit.size, unit.topic_hash
        )
        progress.waiting += unit.weight
        return True

    def _roll_in_place(self, unit: TimerUnit, message: Record) -> None:
        """Roll a message without appending it: it does not fit into a record with one more property."""
        progress = self._progress
        out = find(message.properties, _OUT) or b""
        now = progress.write_time_ms
        due = int(out) if out.isdigit() and len(out) <= 18 else now
        magic = unit.magic
        if due - now >= self._roll_slots * self._precision_ms:
            due = rolling_slot(due, now, self._roll_slots, self._precision_ms)
        else:
            magic &= ~ROLL
        self._files.add(max(due, now), magic, now, unit.offset, unit.size, unit.topic_hash)
        progress.waiting += unit.weight
