"""Following the chain of a slot of the timer, newest unit first: the plain twin of what is compiled."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.store.disk import Buffer

_LINK = struct.Struct(">iqi")
"""What a unit of the timer log begins with: its size, the position of the unit before it, its magic."""
_UNIT_SIZE = 52
_ROLL, _DELETE = 2, 4
_MOST_MAGIC = 0xF
_POSITION = struct.Struct("=q")


def follow(timer_log: Buffer, base: int, position: int, skip_to: int, most: int) -> tuple[bytes, int, int]:
    """Positions of units from one on, as long as they are in this file and take no message back, up to so many.

    ``base`` is the position of the file's first byte. Positions up to ``skip_to`` are passed, but left out. The
    other results are the position at which it ended, and how many units were passed.
    """
    found = []
    passed = 0
    while passed < most and base <= position <= base + len(timer_log) - _UNIT_SIZE:
        size, previous, magic = _LINK.unpack_from(timer_log, position - base)
        if size != _UNIT_SIZE or not 0 < magic <= _MOST_MAGIC or previous >= position:
            break
        if magic & (_DELETE | _ROLL) == _DELETE:
            break
        if position > skip_to:
            found.append(_POSITION.pack(position))
        position = previous
        passed += 1
    return b"".join(found), position, passed
