"""Extension units of a consume queue, read where a RocketMQ broker with ``enableConsumeQueueExt`` left them.

OrbitMQ writes plain tags codes, which RocketMQ reads as well with the extension on.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.unit_file import file_name

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

_HEAD = struct.Struct(">hqqh")
_LOWEST = -(1 << 63)
_HIGHEST_ADDRESS = -(1 << 31) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class ExtUnit:
    """Contents of an extension unit."""

    tags_code: int
    store_timestamp: int
    bit_map: bytes


def is_ext_address(tags_code: int) -> bool:
    """True if the tags code of a queue unit is the address of an extension unit."""
    return tags_code <= _HIGHEST_ADDRESS


def read_ext(disk: Disk, root: str, topic: str, queue_id: int, file_size: int, address: int) -> ExtUnit | None:
    """The extension unit at an address, or None if it is gone or unreadable."""
    offset = address - _LOWEST
    within = offset % file_size
    path = os.path.join(root, "consumequeue_ext", topic, str(queue_id), file_name(offset - within))
    head = disk.pread(path, within, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    size, tags_code, store_timestamp, bits = _HEAD.unpack(head)
    if size < _HEAD.size or bits < 0 or size != _HEAD.size + bits or within + size > file_size:
        return None
    return ExtUnit(tags_code, store_timestamp, disk.pread(path, within + _HEAD.size, bits) if bits else b"")
