"""Decodes the items of a client's batch into columns: start, end of body and end of each.

Reading the lengths item by item costs half a microsecond each. So the positions are guessed, from the size of the
first item or from the sizes stored in the items, and all lengths are then compared at once: if each item leads to
the next one, up to the end, a sequential parse would have found the same positions.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.message.batch import ITEM_SIZE, item_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]
else:
    np = lazy_module("numpy")

FLAG_AT = 12
BODY_SIZE_AT = 16
BODY_AT = 20
"""Offset of the body in an item."""

_SIZE = struct.Struct(">i")


@dataclasses.dataclass(slots=True)
class BatchItems:
    """Items of a batch, at least one."""

    batch: bytes
    starts: Ints
    body_ends: Ints
    ends: Ints
    is_alike: bool
    """True if all bodies have one size and all properties have one size."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def table(self) -> Bytes:
        """A row for each item, if the items are alike."""
        assert self.is_alike
        return np.frombuffer(self.batch, np.uint8).reshape(len(self.starts), -1)

    @property
    def properties_starts(self) -> Ints:
        return self.body_ends + 2

    @classmethod
    def of(cls, batch: bytes) -> BatchItems:
        """Parse a batch. Raises ProtocolError."""
        return _alike(batch) or _as_they_say(batch) or cls.between(batch, *item_bounds(batch))

    @classmethod
    def between(cls, batch: bytes, starts: Sequence[int], body_ends: Sequence[int]) -> BatchItems:
        """Items with known bounds, which were parsed one by one."""
        begins = np.array(starts, np.int64)
        return cls(batch, begins, np.array(body_ends, np.int64), _following(begins, len(batch)), is_alike=False)


def _alike(batch: bytes) -> BatchItems | None:
    """The items if all have the sizes of the first; None otherwise."""
    if len(batch) < ITEM_SIZE:
        return None
    body_end = BODY_AT + int.from_bytes(batch[BODY_SIZE_AT:BODY_AT], "big", signed=True)
    if not BODY_AT <= body_end <= len(batch) - 2:
        return None
    properties_size = int.from_bytes(batch[body_end : body_end + 2], "big", signed=True)
    size = body_end + 2 + properties_size
    if properties_size < 0 or len(batch) % size:
        return None
    table = np.frombuffer(batch, np.uint8).reshape(-1, size)
    for field in (slice(BODY_SIZE_AT, BODY_AT), slice(body_end, body_end + 2)):
        if not bool((table[:, field] == table[0, field]).all()):
            return None
    starts = np.arange(0, len(batch), size)
    return BatchItems(batch, starts, starts + body_end, starts + size, is_alike=True)


def _as_they_say(batch: bytes) -> BatchItems | None:
    """The items if the sizes stored in them are consistent; None otherwise."""
    positions: list[int] = []
    append, unpack = positions.append, _SIZE.unpack_from
    position, last = 0, len(batch) - ITEM_SIZE
    while position <= last:
        append(position)
        (size,) = unpack(batch, position)
        if size < ITEM_SIZE:
            return None
        position += size
    if position != len(batch) or not positions:
        return None
    starts = np.array(positions, np.int64)
    ends = _following(starts, len(batch))
    data = np.frombuffer(batch, np.uint8)
    body_ends = starts + BODY_AT + pieces(data, starts + BODY_SIZE_AT, 4).view(">i4")
    properties_sizes = ends - body_ends - 2
    if int((body_ends - starts).min()) < BODY_AT or int(properties_sizes.min()) < 0:
        return None
    if not np.array_equal(pieces(data, body_ends, 2).view(">i2"), properties_sizes):
        return None
    return BatchItems(batch, starts, body_ends, ends, is_alike=False)


def _following(starts: Ints, end: int) -> Ints:
    return np.append(starts[1:], end)


def pieces(data: Bytes, at: Ints, size: int) -> npt.NDArray[np.void]:
    """The ``size`` bytes at each of these positions, as one element each.

    Copies from a strided view with one element for every byte: a few nanoseconds each.
    """
    everywhere: npt.NDArray[np.void] = np.ndarray(
        (max(len(data) - size + 1, 0),), np.dtype((np.void, size)), data, 0, (1,)
    )
    return everywhere[at]
