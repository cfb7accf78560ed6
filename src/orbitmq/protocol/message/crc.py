"""CRC-32 as RocketMQ uses it: zlib's polynomial with the sign bit cleared."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    crc32: Callable[..., int]
else:
    try:
        # isal computes the same value three to four times faster (128 B: 0.05 against 0.17 µs).
        from isal.isal_zlib import crc32
    except ImportError:
        crc32 = zlib.crc32

MASK = 0x7FFFFFFF


def body_crc(data: bytes | bytearray | memoryview) -> int:
    """The BODYCRC field of a record."""
    return crc32(data) & MASK


__all__ = ["MASK", "body_crc", "crc32"]
