"""Queue routes: store parameters of the native batch types, and binding of consume queues to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from orbitmq.protocol.message.crc import crc32
from orbitmq.protocol.message.record import MAGIC_V1, MAGIC_V2, MAX_PROPERTIES_SIZE
from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.native import Counter
    from orbitmq.native._native import RouteTable
    from orbitmq.store import MessageStore
    from orbitmq.store.consumequeue.table import QueueTable


class StoreParameters(TypedDict):
    """Constructor arguments that all batch types which append share."""

    store_host: bytes
    max_body: int
    max_properties: int
    is_indexing: bool
    crc32: Callable[..., int]


def store_parameters(store: MessageStore) -> StoreParameters:
    return StoreParameters(
        store_host=store.log.store_host,
        max_body=store.config.max_message_size,
        max_properties=MAX_PROPERTIES_SIZE,
        is_indexing=store.index is not None,
        crc32=crc32,
    )


def open_route(
    native: RouteTable,
    queues: QueueTable,
    topic: str,
    queue_id: int,
    *,
    is_deferral: bool = False,
    counter: Callable[[str, int], Counter] | None = None,
) -> bool:
    """Bind a consume queue to the native code; False if the queue is not open or not one for single messages.

    ``counter`` returns the queue's stats counter. Without it the native code counts nothing and reports the queue's
    share of each batch instead.
    """
    known = queues.topics.get(topic)
    queue = None if known is None else known.queues.get(queue_id)
    if known is None or not isinstance(queue, ConsumeQueue):
        return False
    magic = MAGIC_V2 if known.version_2 else MAGIC_V1
    counts = None if counter is None else counter(topic, queue_id)
    native.add_route(topic, known.field, queue_id, magic, queue, is_deferral, counts)
    return True
