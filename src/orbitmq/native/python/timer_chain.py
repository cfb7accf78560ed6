"""Timer chain: the units of a timer slot, newest first. Twin of ``native/src/broker/deferred_delivery.c``."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.native.buffer import Buffer

_LINK = struct.Struct(">iqi")
"""Beginning of a unit of the timer log: its size, the position of the unit before it, its magic."""
_UNIT_SIZE = 52
_ROLL, _DELETE = 2, 4
_MAX_MAGIC = 0xF
_POSITION = struct.Struct("=q")


def follow_timer_chain(
    timer_log: Buffer, base: int, position: int, skip_to: int, max_units: int
) -> tuple[bytes, int, int]:
    """Positions of at most ``max_units`` units from ``position`` on, while they are in this file and recall
    nothing.

    ``base`` is the position of the file's first byte. Positions up to ``skip_to`` are passed but left out. Also
    returns the position at which it ended, and the number of units passed.
    """
    found = []
    passed = 0
    while passed < max_units and base <= position <= base + len(timer_log) - _UNIT_SIZE:
        size, previous, magic = _LINK.unpack_from(timer_log, position - base)
        if size != _UNIT_SIZE or not 0 < magic <= _MAX_MAGIC or previous >= position:
            break
        if magic & (_DELETE | _ROLL) == _DELETE:
            break
        if position > skip_to:
            found.append(_POSITION.pack(position))
        position = previous
        passed += 1
    return b"".join(found), position, passed
