"""Which queues the compiled kernel may fill with messages that waited elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.crc import crc32
from orbitmq.protocol.names import ROCKSDB_TRANSACTION_HALF_TOPIC, TRANSACTION_HALF_TOPIC
from orbitmq.protocol.record import MAGIC_V1, MAGIC_V2, MAX_PROPERTIES_SIZE
from orbitmq.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.kernel._native import Deliveries
    from orbitmq.store import MessageStore

NEVER_DELIVERED = frozenset({TRANSACTION_HALF_TOPIC, ROCKSDB_TRANSACTION_HALF_TOPIC})
"""Half messages do not wait for a time; one that says so was made by somebody else."""


class DeliveryLanes:
    """A kernel for deliveries, which fills queues that are there until any is removed."""

    def __init__(self, kernel: type[Deliveries], store: MessageStore) -> None:
        self.kernel = kernel(
            store_host=store.log.store_host,
            max_body=store.config.max_message_size,
            max_properties=MAX_PROPERTIES_SIZE,
            is_indexing=store.index is not None,
            crc32=crc32,
        )
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
        known = self._queues.topics.get(topic)
        queue = None if known is None else known.queues.get(queue_id)
        if known is None or known.is_schedule or topic in NEVER_DELIVERED or not isinstance(queue, ConsumeQueue):
            return False
        magic = MAGIC_V2 if known.version_2 else MAGIC_V1
        self.kernel.add_lane(topic, known.field, queue_id, magic, queue, False)
        return True
