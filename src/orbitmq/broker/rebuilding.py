"""A stored record as what it takes to append it again: under another topic, with other properties, once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.properties import without
from orbitmq.protocol.record import CRC_PROPERTY, decode_record

if TYPE_CHECKING:
    from orbitmq.protocol.record import Readable, Record
    from orbitmq.store import MessageStore


def rebuild(record: Readable) -> Record:
    """Take a record apart. Raises ProtocolError if it is none."""
    found = decode_record(record)
    if CRC_PROPERTY in found.properties:
        # It covers the record it stands in. In another one it would be wrong, and readers would drop that.
        found.properties = without(found.properties, (CRC_PROPERTY,))
    return found


def read_parked(store: MessageStore, offset: int, size: int = 0) -> Record | None:
    """The record that a unit of this broker's own points to, which has this size if one is given.

    None if it cannot be read any more.

    What this process wrote itself is taken apart once and not looked at before that: when a million messages are
    due, the second look is a fifth of all their cost.
    """
    try:
        if size and offset >= store.reader.checked_from:
            place = store.log.slice(offset, size)
            found = None if place is None else rebuild(place)
            if found is not None and found.size == size and found.physical_offset == offset:
                return found
        record = store.record(offset)
        return None if record is None else rebuild(record)
    except ProtocolError:
        return None
