"""Which queues the compiled kernel may fill with messages that waited elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.kernel_lanes import facts_of, open_lane
from orbitmq.protocol.names import ROCKSDB_TRANSACTION_HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC

if TYPE_CHECKING:
    from orbitmq.kernel._native import Deliveries
    from orbitmq.store import MessageStore

NEVER_DELIVERED = frozenset({TRANSACTION_HALF_TOPIC, ROCKSDB_TRANSACTION_HALF_TOPIC})
"""Half messages do not wait for a time; one that says so was made by somebody else."""


class DeliveryLanes:
    """A kernel for deliveries, which fills queues that are there until any is removed."""

    def __init__(self, kernel: type[Deliveries], store: MessageStore) -> None:
        self.kernel = kernel(**facts_of(store))
        self._queues = store.queues
        self._removals = store.queues.removals

    def check(self) -> None:
        """To be called before anything is delivered."""
        if self._queues.removals != self._removals:
            self._removals = self._queues.removals
            self.kernel.clear_lanes()

    def open_missing(self) -> bool:
        """Let the kernel fill the queue for which it ended; False if it ended for something else, or may not."""
        if self.kernel.missing is None:
            return False
        topic, queue_id, _, _ = self.kernel.missing
        if topic == SCHEDULE_TOPIC or topic in NEVER_DELIVERED:
            return False
        return open_lane(self.kernel, self._queues, topic, queue_id)
