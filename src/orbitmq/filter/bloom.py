"""Bloom filter in the consume queue extension: the SQL subscriptions that a record may match.

When a record is dispatched, every subscription of its topic that matches sets the same few bits of a bitmap, chosen
by hashing ``group#topic``. A pull need not read a record whose bitmap lacks one of its bits.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module

if TYPE_CHECKING:
    from collections.abc import Iterable

    import mmh3
else:
    mmh3 = lazy_module("mmh3")

_HALF = 1 << 31
_WHOLE = 1 << 32


@dataclasses.dataclass(frozen=True, slots=True)
class BloomFilter:
    """The size of the bitmaps of a broker. It must not change: bitmaps of another size are unusable."""

    bit_count: int
    hash_count: int

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a subscription (``bitPos`` in ``consumerFilter.json``), in the order they are computed."""
        # Java encodes a lone surrogate as a question mark.
        low, _ = mmh3.hash64(f"{group}#{topic}".encode("utf-8", "replace"), signed=False)
        first, step = low % _WHOLE, low >> 32
        return tuple([self._position(first + round_ * step) for round_ in range(1, self.hash_count + 1)])

    def _position(self, combined: int) -> int:
        combined %= _WHOLE
        # A negative int has its bits flipped.
        return (combined if combined < _HALF else _WHOLE - 1 - combined) % self.bit_count

    def mask(self, positions: Iterable[int]) -> int:
        """The bits as one number, for comparison."""
        mask = 0
        for position in positions:
            mask |= 1 << position
        return mask

    def bitmap(self, masks: Iterable[int]) -> bytes:
        """The bitmap of a record that matches the subscriptions with these masks."""
        bits = 0
        for mask in masks:
            bits |= mask
        # Bit n is bit n % 8 of byte n / 8, which is what a little-endian number is.
        return bits.to_bytes(self.bit_count // 8, "little")

    def may_match(self, bitmap: bytes, mask: int) -> bool:
        """A record with this bitmap may match; always true for a bitmap of another length."""
        return len(bitmap) * 8 != self.bit_count or int.from_bytes(bitmap, "little") & mask == mask


def bloom_filter(error_percent: int = 20, subscriptions: int = 32) -> BloomFilter:
    """The filter for this number of subscriptions per topic with this percentage of false positives.

    These are the broker's ``maxErrorRateOfBloomFilter`` and ``expectConsumerNumUseFilter``; the defaults make 112
    bits and 3 hashes.
    """
    if not 1 <= error_percent <= 99:
        raise ValueError(f"maxErrorRateOfBloomFilter must be 1 to 99, not {error_percent}")
    if subscriptions < 1:
        raise ValueError(f"expectConsumerNumUseFilter must be at least 1, not {subscriptions}")
    rate = error_percent / 100.0
    # Written with quotients of natural logarithms as Java has it: math.log2 may differ in the last bit.
    hash_count = math.ceil(math.log(rate) / math.log(0.5))
    bits = subscriptions * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2))
    return BloomFilter(8 * math.ceil(math.ceil(bits) / 8), hash_count)
