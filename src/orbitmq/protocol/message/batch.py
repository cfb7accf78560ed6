"""Many messages in one body: what a batch send carries, and what a record of a BatchCQ topic holds.

A body is a row of items without padding: total size 4, magic 4, CRC 4, flag 4, body length 4, body,
properties length 2, properties. Size, magic and CRC of an item are written and never read: RocketMQ
writes 0 for the last two and goes from item to item by the lengths.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.crc import body_crc
from orbitmq.protocol.message.flags import COMPRESSED, COMPRESSION_MASK, INNER_BATCH, NEED_UNWRAP
from orbitmq.protocol.message.record import MAX_PROPERTIES_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orbitmq.protocol.message.record import Record

"""The two sysFlag bits of a record whose body is a batch; readers ask for both."""

_HEAD = struct.Struct(">iiiii")
_FLAG = struct.Struct(">12xi")
_BODY_SIZE = struct.Struct(">16xi")
_PROPERTIES_SIZE = struct.Struct(">h")

ITEM_SIZE = _HEAD.size + _PROPERTIES_SIZE.size
"""An item without body and properties."""


def encode_batch(items: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The batch body of these items: flag, body and properties of each."""
    parts: list[bytes] = []
    for flag, body, properties in items:
        if len(properties) > MAX_PROPERTIES_SIZE:
            raise ProtocolError(f"properties of {len(properties)} bytes, at most {MAX_PROPERTIES_SIZE}")
        size = ITEM_SIZE + len(body) + len(properties)
        parts += (
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_SIZE.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def iter_batch(body: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Flag, body and properties of each item, as slices of ``body``."""
    starts, body_ends = item_bounds(body)
    read_flag = _FLAG.unpack_from
    # There is one end more than needed where there is no item at all.
    for start, body_end, end in zip(starts, body_ends, [*starts[1:], len(body)], strict=False):
        yield read_flag(body, start)[0], body[start + _HEAD.size : body_end], body[body_end + 2 : end]


def item_bounds(body: bytes | memoryview) -> tuple[list[int], list[int]]:
    """Where each item of a batch begins, and where its body ends. Raises ProtocolError."""
    read_body_size = _BODY_SIZE.unpack_from
    read_size = _PROPERTIES_SIZE.unpack_from
    starts: list[int] = []
    body_ends: list[int] = []
    position, end = 0, len(body)
    try:
        while position < end:
            (body_size,) = read_body_size(body, position)
            body_end = position + 20 + body_size
            (properties_size,) = read_size(body, body_end)
            starts.append(position)
            body_ends.append(body_end)
            position = body_end + 2 + properties_size
            if body_size < 0 or properties_size < 0 or position > end:
                raise ProtocolError(
                    f"batch item with {body_size} bytes of body and {properties_size} of properties"
                    f" does not fit in {end} bytes"
                )
    except struct.error as error:
        raise ProtocolError(f"batch item at {position} of {end} bytes is cut off") from error
    return starts, body_ends


def is_inner_batch(sys_flag: int) -> bool:
    """True if the body of a record with this sysFlag is a batch that its reader unpacks."""
    return sys_flag & (NEED_UNWRAP | INNER_BATCH) == NEED_UNWRAP | INNER_BATCH


def split_record(record: Record) -> list[Record]:
    """The messages in a record: the items of an inner batch, or the record itself.

    Items count the queue offset on and share everything else with their record. Their bodies are plain,
    so their sysFlag says no longer that they are compressed or a batch.
    """
    if not is_inner_batch(record.sys_flag):
        return [record]
    body = memoryview(decompress(record.body, record.sys_flag))
    sys_flag = record.sys_flag & ~(NEED_UNWRAP | INNER_BATCH | COMPRESSED | COMPRESSION_MASK)
    return [
        dataclasses.replace(
            record,
            queue_offset=record.queue_offset + index,
            flag=flag,
            sys_flag=sys_flag,
            body_crc=body_crc(item),
            body=bytes(item),
            properties=bytes(properties),
        )
        for index, (flag, item, properties) in enumerate(iter_batch(body))
    ]
