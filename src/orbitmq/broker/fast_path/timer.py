"""Timer fast path: delivers due timer messages in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.fast_path.delivery import DeliveryRoutes
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE

if TYPE_CHECKING:
    import array
    from collections.abc import Callable

    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.store import MessageStore
    from orbitmq.store.timer.timer_log import TimerLog


class TimerFastPath:
    """Appends due timer messages to their real queues, up to the first that needs the Python path."""

    def __init__(
        self,
        store: MessageStore,
        timer_log: TimerLog,
        count: Callable[[str, int, int, int], None],
        places: TargetQueues | None,
    ) -> None:
        """``count`` is called with topic, queue id, number of delivered messages and bytes of their records."""
        self._store = store
        self._deliver = store.appender.native.deliver
        self._timer_log = timer_log
        self._count = count
        self._routes = DeliveryRoutes(store, places, is_timer=True)

    def deliver(self, positions: array.array[int], max_bytes: int) -> tuple[int, int]:
        """Deliver the first messages at these timer log positions; their number and the bytes of their records.

        Ends at the first message for the Python path, so ``(0, 0)`` if that is the first one.
        """
        store = self._store
        self._routes.refresh()
        count = size = 0
        while count < len(positions) and size < max_bytes:
            position = positions[count]
            file, unit = self._timer_log.file_at(position), self._timer_log.unit(position)
            if file is None or unit is None:
                break
            # Records that this process wrote itself need no check before they are read.
            first = store.reader.checked_from
            rest = positions[count:].tobytes()
            done = self._deliver(self._routes.native, rest, *file, unit.offset, first, max_bytes - size)
            if done is None:
                break
            for share in done.entered.shares:
                self._count(share.topic, share.queue_id, len(share.units) // UNIT_SIZE, share.size)
            count += done.message_count
            size += done.source_size
            if not done.message_count and not self._routes.open_missing():
                break
        return count, size
