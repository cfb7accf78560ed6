"""Messages that wait under a topic of the broker's own, taken out to be appended where they belong.

When a million of them are due, what each takes counts: of one that this process wrote, only what is needed to
append it again is read, in one step, and many are appended together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.broker.rebuilding import read_parked
from orbitmq.protocol.properties import without
from orbitmq.protocol.record import CRC_PROPERTY, HEADS, MAGIC_V1, MIN_RECORD_SIZE, SYS_FLAG_AT, topic_field
from orbitmq.store import AppendRefusedError, PutStatus

if TYPE_CHECKING:
    from orbitmq.store import MessageStore
    from orbitmq.store.bulk_append import Message

_HOPELESS = frozenset(
    {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED, PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}
)
"""Refusals of the message and not of the moment. Waiting for them would hold up everybody else."""


class Parked(NamedTuple):
    """What a parked message consists of, but for where it lies."""

    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int


class ParkedMessages:
    """Reads the messages that wait under one topic."""

    def __init__(self, store: MessageStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._field = topic_field(topic.encode())

    def read(self, offset: int, size: int) -> Parked | None:
        """The message whose record is at this place and has this size; None if it cannot be read any more."""
        store = self._store
        # What this process wrote itself need not be looked at before it is taken apart.
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
        # Without the Python call that a NamedTuple's own constructor is.
        return tuple.__new__(
            Parked,
            (
                data[head.size : body_end], properties, flag, sys_flag, born_timestamp, born_host, reconsume_times,
            ),
        )  # fmt: skip

    def _read_otherwise(self, offset: int, size: int) -> Parked | None:
        found = read_parked(self._store, offset, size)
        if found is None or found.topic != self._topic:
            return None
        return Parked(
            found.body, found.properties, found.flag, found.sys_flag, found.born_timestamp, found.born_host,
            found.reconsume_times,
        )  # fmt: skip


def append_one(store: MessageStore, message: Message) -> tuple[int, AppendRefusedError | None]:
    """Append a message by itself; returns the size of its record, or why it will never be taken.

    Raises StoreError if that has to be tried again.
    """
    try:
        appended = store.append(
            message.topic,
            message.queue_id,
            message.body,
            message.properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
    except AppendRefusedError as error:
        # A limit that was lowered since can be raised again; no sender could bring that about.
        if error.status not in _HOPELESS or len(message.body) > store.config.max_message_size:
            raise
        return 0, error
    return appended.size, None
