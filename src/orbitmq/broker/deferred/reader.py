"""Deferred reader: reads messages from a system topic, for delivery to their real topic.

The cost of each counts when a million are due: of a record that this process wrote, only the fields for the next
append are unpacked, in one step, and many are appended in bulk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.broker.deferred.property_room import REAL_QUEUE_PROPERTIES, fitted, property_limit
from orbitmq.broker.deferred.record_copy import read_deferred
from orbitmq.protocol.message.properties import without
from orbitmq.protocol.message.record import CRC_PROPERTY, HEADS, MAGIC_V1, MIN_RECORD_SIZE, SYS_FLAG_AT, topic_field
from orbitmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.store import AppendRefusedError, PutStatus
from orbitmq.store.dispatch.dispatcher import MULTI_DISPATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.broker.escape.bridge import EscapeBridge
    from orbitmq.store import MessageStore
    from orbitmq.store.append.stored_message import StoredMessage

_HOPELESS = frozenset(
    {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}
)
"""Refusals that a retry does not change. Retrying them would block all other messages."""

_DEFERRAL_TOPICS = frozenset({TIMER_TOPIC, SCHEDULE_TOPIC})


class DeferredMessage(NamedTuple):
    """A deferred message without its position."""

    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int


class DeferredReader:
    """Reads the messages of one system topic."""

    def __init__(self, store: MessageStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._field = topic_field(topic.encode())

    def read(self, offset: int, size: int) -> DeferredMessage | None:
        """Read the message at this offset with this record size; None if it cannot be read any more."""
        store = self._store
        # Records that this process wrote need no check before they are decoded.
        view = store.log.slice(offset, size) if offset >= store.reader.checked_from else None
        if view is None or size < MIN_RECORD_SIZE:
            return self._read_otherwise(offset, size)
        data = bytes(view)
        head = HEADS[data[SYS_FLAG_AT + 3] >> 4 & 3]
        if size <= head.size:
            return self._read_otherwise(offset, size)
        (
            found_size, magic, _, _, flag, _, physical_offset, sys_flag, born_timestamp, born_host, _, _,
            reconsume_times, _, body_size,
        ) = head.unpack_from(data)  # fmt: skip
        body_end = head.size + body_size
        properties_at = body_end + len(self._field) + 2
        if (
            found_size != size
            or physical_offset != offset
            or magic != MAGIC_V1
            or body_size < 0
            or not data.startswith(self._field, body_end)
            or properties_at + int.from_bytes(data[properties_at - 2 : properties_at], "big") != size
        ):
            return self._read_otherwise(offset, size)
        properties = data[properties_at:]
        if CRC_PROPERTY in properties:
            properties = without(properties, (CRC_PROPERTY,))
        # Avoids the Python-level constructor of a NamedTuple.
        return tuple.__new__(
            DeferredMessage,
            (
                data[head.size : body_end], properties, flag, sys_flag, born_timestamp, born_host, reconsume_times,
            ),
        )  # fmt: skip

    def _read_otherwise(self, offset: int, size: int) -> DeferredMessage | None:
        found = read_deferred(self._store, offset, size)
        if found is None or found.topic != self._topic:
            return None
        return DeferredMessage(
            found.body, found.properties, found.flag, found.sys_flag, found.born_timestamp, found.born_host,
            found.reconsume_times,
        )  # fmt: skip


def append_one(store: MessageStore | EscapeBridge, message: StoredMessage) -> tuple[int, AppendRefusedError | None]:
    """Append one message; returns the size of its record, or the refusal if no retry can succeed.

    If the store refuses it for its properties, it is retried with fewer of the broker's own, and at last without
    its light message queues: the message itself must arrive. Raises StoreError if the append has to be retried
    later.
    """
    refusal: AppendRefusedError | None = None
    for properties in _attempts(store, message):
        try:
            appended = store.append(message._replace(properties=properties), is_stored=True)
        except AppendRefusedError as error:
            # The size of log files may have been lowered and can be raised again; a sender cannot cause this.
            if error.status not in _HOPELESS or len(message.body) > store.config.max_message_size:
                raise
            refusal = error
        else:
            return appended.size, None
    return 0, refusal


def _attempts(store: MessageStore | EscapeBridge, message: StoredMessage) -> Iterator[bytes]:
    """The properties to append a message with, in the order of attempts."""
    yield message.properties
    protected = REAL_QUEUE_PROPERTIES if message.topic in _DEFERRAL_TOPICS else ()
    smaller = fitted(message.properties, property_limit(store), protected)
    if smaller != message.properties:
        yield smaller
    if MULTI_DISPATCH in smaller:
        yield without(smaller, (MULTI_DISPATCH,))
