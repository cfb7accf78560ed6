"""Records of a queue for one answer, in plain Python: the twin of gathering.h."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.store.disk import Buffer

_UNIT = struct.Struct(">qiq")
_FILLER_SIZE = 0x7FFFFFFF


def gather(
    units: bytes, buffer: Buffer, base: int, end: int, most_bytes: int, copied: int, copied_each: int, /
) -> tuple[int, int, int, int, bytes | None] | None:
    """What to give of the records that consume queue units lead to, all of which should lie in one file of the log.

    ``buffer`` is that file, whose first byte has the offset ``base`` in a log that ends at ``end``. Gives as many
    as have ``most_bytes`` together, but at least one: number and size, where the last one begins and ends, and
    the records themselves if they are scattered and have no more than ``copied`` bytes and ``copied_each`` each.
    None if it is not that simple: there are fillers, or records elsewhere.
    """
    found = list(_UNIT.iter_unpack(units))
    if not found or min([size for _, size, _ in found]) <= 0 or max([size for _, size, _ in found]) == _FILLER_SIZE:
        return None
    total = sum([size for _, size, _ in found])
    while total > most_bytes and len(found) > 1:
        total -= found.pop()[1]
    first = found[0][0]
    last, size, _ = found[-1]
    stop = last + size
    if first < base or stop > end or stop - base > len(buffer):
        return None
    records = None
    if total != stop - first and total <= copied + copied_each * len(found):
        records = b"".join([buffer[at - base : at - base + size] for at, size, _ in found])
        if len(records) != total or min([at for at, _, _ in found]) < base:
            return None
    return len(found), total, last, stop, records
