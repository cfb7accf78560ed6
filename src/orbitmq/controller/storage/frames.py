"""Frames of the event log: batches of records, each with magic, sequence number, length and CRC.

A frame is one write that is synced before the next one begins, so a crash can damage the last frame only. Damage in
front of an intact frame is that of a disk or a hand, and is reported instead of cut off.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from orbitmq.platform.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAGIC = b"OMCE"
_HEAD = struct.Struct(">4sIIQ")
"""Magic, CRC of everything behind it, length of the payload, sequence number."""
_CRC_FROM = 8
_LENGTH = struct.Struct(">I")


def encode_frame(sequence: int, records: Sequence[bytes]) -> bytes:
    """The frame of a batch of records."""
    payload = b"".join(_LENGTH.pack(len(record)) + record for record in records)
    head = _HEAD.pack(MAGIC, 0, len(payload), sequence)
    crc = zlib.crc32(payload, zlib.crc32(head[_CRC_FROM:]))
    return _HEAD.pack(MAGIC, crc, len(payload), sequence) + payload


def read_frames(data: bytes) -> Iterator[list[bytes]]:
    """The batches of a log. A torn last frame ends it. Raises StoreDamagedError."""
    at, sequence = 0, 0
    while at < len(data):
        payload = _payload(data, at)
        if payload is None:
            _check_torn(data, at)
            return
        (_, _, length, number) = _HEAD.unpack_from(data, at)
        if number != sequence:
            raise StoreDamagedError(f"the event log has frame {number} where {sequence} is expected")
        yield list(_records(payload))
        at += _HEAD.size + length
        sequence += 1


def _payload(data: bytes, at: int) -> bytes | None:
    """The payload of the frame at an offset; None if it is not intact."""
    if at + _HEAD.size > len(data):
        return None
    magic, crc, length, _ = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + length
    if magic != MAGIC or end > len(data) or zlib.crc32(data[at + _CRC_FROM : end]) != crc:
        return None
    return data[at + _HEAD.size : end]


def _check_torn(data: bytes, at: int) -> None:
    """Raise StoreDamagedError if an intact frame follows the damage."""
    found = data.find(MAGIC, at + 1)
    while found >= 0:
        if _payload(data, found) is not None:
            raise StoreDamagedError(
                f"the event log is damaged at byte {at}, and intact from byte {found} on; restore it from a backup"
            )
        found = data.find(MAGIC, found + 1)


def _records(payload: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(payload):
        (length,) = _LENGTH.unpack_from(payload, at)
        at += _LENGTH.size
        yield payload[at : at + length]
        at += length
