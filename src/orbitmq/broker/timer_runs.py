"""Messages whose time has come, many at a time: what the compiled kernel is given, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.delivery_lanes import DeliveryLanes
from orbitmq.store.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    import array
    from collections.abc import Callable

    from orbitmq.kernel._native import Deliveries
    from orbitmq.store import MessageStore
    from orbitmq.store.timer_log import TimerLog


class TimerRuns:
    """Takes messages out of the timer and puts them where they belong, as long as nothing about them is special."""

    def __init__(
        self,
        kernel: type[Deliveries],
        store: MessageStore,
        timer_log: TimerLog,
        note: Callable[[str, int, int, int], None],
    ) -> None:
        """``note`` hears the topic, the queue, how many messages it got and the bytes of their records."""
        self._store = store
        self._deliver = store.appender.runs.deliver
        self._timer_log = timer_log
        self._note = note
        self._lanes = DeliveryLanes(kernel, store)

    def deliver(self, positions: array.array[int], most_bytes: int) -> tuple[int, int]:
        """Deliver the first of the messages at these positions; returns how many, and the sizes of their records.

        None at all if the first one has to be looked at.
        """
        store = self._store
        self._lanes.check()
        count = size = 0
        while count < len(positions) and size < most_bytes:
            position = positions[count]
            file, unit = self._timer_log.file_at(position), self._timer_log.unit(position)
            if file is None or unit is None:
                break
            # What this process wrote itself need not be looked at before it is read.
            first = store.reader.checked_from
            waiting = positions[count:].tobytes()
            done = self._deliver(self._lanes.kernel, waiting, *file, unit.offset, first, most_bytes - size)
            if done is None:
                break
            delivered, delivered_size, _, (runs, *_), _, _, _ = done
            for topic, queue_id, _, units, stored, _ in runs:
                self._note(topic, queue_id, len(units) // UNIT_SIZE, stored)
            count += delivered
            size += delivered_size
            if not delivered and not self._lanes.open_missing():
                break
        return count, size
