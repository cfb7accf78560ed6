"""A stored record as what it takes to append it again: under another topic, with other properties, once more."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.properties import without
from orbitmq.protocol.record import CRC_PROPERTY, decode_record

if TYPE_CHECKING:
    from orbitmq.protocol.record import Readable


@dataclasses.dataclass(slots=True)
class Rebuilt:
    """The parts of a message. The first ones are for ``append``, the others say where it was found."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int

    offset: int
    queue_offset: int
    store_timestamp: int
    store_host: bytes


def rebuild(record: Readable) -> Rebuilt:
    """Take a record apart. Raises ProtocolError if it is none."""
    found = decode_record(record)
    properties = found.properties
    if CRC_PROPERTY in properties:
        # It covers the record it stands in. In another one it would be wrong, and readers would drop that.
        properties = without(properties, (CRC_PROPERTY,))
    return Rebuilt(
        topic=found.topic,
        queue_id=found.queue_id,
        body=found.body,
        properties=properties,
        flag=found.flag,
        sys_flag=found.sys_flag,
        born_timestamp=found.born_timestamp,
        born_host=found.born_host,
        reconsume_times=found.reconsume_times,
        offset=found.physical_offset,
        queue_offset=found.queue_offset,
        store_timestamp=found.store_timestamp,
        store_host=found.store_host,
    )
