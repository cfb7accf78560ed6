"""Pop offsets and in-flight counts: the next offset of a group in a queue, and its unacknowledged messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.offsets.processor import begins_in_memory
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pop.order_info import PopOrders
    from orbitmq.store import Clock, MessageStore

FROM_MIN = 0
"""The ``initMode`` of a group that begins with the oldest message; any other begins with the newest."""


class PopOffsets:
    """Pops use the offsets of ``OffsetTable``; a group that has none gets its first one here."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, offsets: OffsetTable, orders: PopOrders, clock: Clock
    ) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._started_ms = clock.now_ms()
        self._in_flight: dict[tuple[str, str], dict[int, int]] = {}

    def next_of(self, topic: str, group: str, queue_id: int, init_mode: int, client: str = "") -> int:
        """The next offset. Initializes that of a new group, and applies a pending offset reset."""
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._first(topic, queue_id, init_mode)
            self._offsets.commit(group, topic, queue_id, offset, client)
        if self._offsets.pending_resets:
            moved = self._offsets.take_reset(group, topic, queue_id)
            if moved is not None:
                self._orders.clear(topic, group, queue_id)
                self._offsets.commit(group, topic, queue_id, moved)
                return moved
        return offset

    def peek(self, topic: str, group: str, queue_id: int) -> int:
        """The next offset, without initializing or resetting it."""
        offset = self._offsets.query(group, topic, queue_id)
        return self._store.min_offset(topic, queue_id) if offset < 0 else offset

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        low = self._store.min_offset(topic, queue_id)
        if init_mode == FROM_MIN or topic.startswith(RETRY_PREFIX):
            return low
        if (
            self._config.init_pop_offset_by_check_msg_in_mem
            and low <= 0
            and begins_in_memory(self._store, topic, queue_id)
        ):
            return 0
        return max(self._store.max_offset(topic, queue_id) - 1, 0)

    # In flight

    def handed_out(self, topic: str, group: str, queue_id: int, count: int) -> None:
        queues = self._in_flight.setdefault((topic, group), {})
        queues[queue_id] = queues.get(queue_id, 0) + count

    def completed(self, topic: str, group: str, queue_id: int, count: int, pop_time: int) -> None:
        """Messages were acknowledged or redelivered. Those popped before the broker started were not counted."""
        queues = self._in_flight.get((topic, group))
        if queues is None or pop_time < self._started_ms:
            return
        left = queues.get(queue_id, 0) - count
        if left > 0:
            queues[queue_id] = left
        elif queues.pop(queue_id, None) is not None and not queues:
            del self._in_flight[topic, group]

    def reset(self, topic: str, group: str, queue_id: int) -> None:
        """Reset the count of an orderly queue."""
        queues = self._in_flight.get((topic, group))
        if queues is not None and queues.pop(queue_id, None) is not None and not queues:
            del self._in_flight[topic, group]

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        return self._in_flight.get((topic, group), {}).get(queue_id, 0)

    def has_too_many_somewhere(self, topic: str, group: str) -> bool:
        """True if a pop of some queue of the topic gets nothing because too many messages are in flight."""
        config = self._config
        if not config.enable_pop_message_threshold:
            return False
        in_flight = self._in_flight.get((topic, group))
        return in_flight is not None and max(in_flight.values(), default=0) > config.pop_inflight_message_threshold

    def has_too_many(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._config
        return (
            config.enable_pop_message_threshold
            and self.in_flight(topic, group, queue_id) > config.pop_inflight_message_threshold
        )
