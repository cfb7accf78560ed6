"""Filtered reads: a consumer's filter as the predicate that the store applies while it reads a queue.

A tag filter compares hash codes, without the records, as RocketMQ does: of tags with the same hash the client keeps
the right ones. An SQL92 filter evaluates the properties of each record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.message.record import properties_of
from orbitmq.store.reader import MAX_PULL_BYTES

if TYPE_CHECKING:
    from orbitmq.filter import CompiledFilter
    from orbitmq.store import GetResult, MessageStore


def read_filtered(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    wanted: CompiledFilter | None,
    *,
    max_bytes: int = MAX_PULL_BYTES,
    in_bulk: bool = False,
    may_wait: bool = False,
) -> GetResult:
    """Up to ``count`` messages from ``offset`` on that match ``wanted``; all match None."""
    if wanted is None:
        return store.get(topic, queue_id, offset, count, max_bytes, in_bulk=in_bulk, may_wait=may_wait)
    if wanted.matches_code is not None:
        return store.get(
            topic, queue_id, offset, count, max_bytes,
            matches_code=wanted.matches_code, in_bulk=in_bulk, may_wait=may_wait,
        )  # fmt: skip
    matches = wanted.matches_properties
    return store.get(
        topic, queue_id, offset, count, max_bytes,
        matches_record=lambda record: matches(properties_of(record)), in_bulk=in_bulk, may_wait=may_wait,
    )  # fmt: skip
