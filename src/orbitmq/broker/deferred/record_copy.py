"""Copies of stored records: decode one and append it again, under another topic or with other properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.properties import without
from orbitmq.protocol.message.record import CRC_PROPERTY, decode_record
from orbitmq.store import StoredMessage

if TYPE_CHECKING:
    from orbitmq.protocol.message.record import Readable, Record
    from orbitmq.store import MessageStore


def decode_for_append(record: Readable) -> Record:
    """Decode a stored record, without its CRC property. Raises ProtocolError if it is malformed."""
    found = decode_record(record)
    if CRC_PROPERTY in found.properties:
        # The CRC covers the original record; in a copy it would not match, and readers would drop the copy.
        found.properties = without(found.properties, (CRC_PROPERTY,))
    return found


def copied(record: Record, topic: str, queue_id: int, properties: bytes) -> StoredMessage:
    """A stored record as a message for another queue, with other properties; the rest stays as it is."""
    return StoredMessage(
        topic, queue_id, record.body, properties, record.flag, record.sys_flag, record.born_timestamp,
        record.born_host, record.reconsume_times,
    )  # fmt: skip


def read_deferred(store: MessageStore, offset: int, size: int = 0) -> Record | None:
    """Read the record that a consume-queue unit points to; None if it cannot be read any more.

    ``size``: its expected size; 0 if unknown. A record that this process wrote is decoded without a prior check:
    when a million messages are due, checking each of them costs a fifth of the whole delivery.
    """
    try:
        if size and offset >= store.reader.checked_from:
            data = store.log.slice(offset, size)
            found = None if data is None else decode_for_append(data)
            if found is not None and found.size == size and found.physical_offset == offset:
                return found
        record = store.record(offset)
        return None if record is None else decode_for_append(record)
    except ProtocolError:
        return None
