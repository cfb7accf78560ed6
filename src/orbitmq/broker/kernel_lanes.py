"""What every part of the compiled kernel is told of the store, and how it gets queues to fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from orbitmq.protocol.crc import crc32
from orbitmq.protocol.record import MAGIC_V1, MAGIC_V2, MAX_PROPERTIES_SIZE
from orbitmq.store.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.kernel import Count
    from orbitmq.kernel._native import Lanes
    from orbitmq.store import MessageStore
    from orbitmq.store.queue_table import QueueTable


class StoreFacts(TypedDict):
    """What records look like in a store, and how large they may be."""

    store_host: bytes
    max_body: int
    max_properties: int
    is_indexing: bool
    crc32: Callable[..., int]


def facts_of(store: MessageStore) -> StoreFacts:
    return StoreFacts(
        store_host=store.log.store_host,
        max_body=store.config.max_message_size,
        max_properties=MAX_PROPERTIES_SIZE,
        is_indexing=store.index is not None,
        crc32=crc32,
    )


def open_lane(
    kernel: Lanes,
    queues: QueueTable,
    topic: str,
    queue_id: int,
    *,
    is_parking: bool = False,
    counter: Callable[[str, int], Count] | None = None,
) -> bool:
    """Let the kernel fill a queue; False if it is not open, or is none that takes single messages.

    ``counter`` finds what its messages are counted by. Without one, what it gets is told.
    """
    known = queues.topics.get(topic)
    queue = None if known is None else known.queues.get(queue_id)
    if known is None or not isinstance(queue, ConsumeQueue):
        return False
    magic = MAGIC_V2 if known.version_2 else MAGIC_V1
    count = None if counter is None else counter(topic, queue_id)
    kernel.add_lane(topic, known.field, queue_id, magic, queue, is_parking, count)
    return True
