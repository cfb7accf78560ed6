"""The processor time of a process and all its descendants, from ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_SESSION = 3
_TIMES = slice(11, 15)
"""User and system time, of the process itself and of its ended children."""


def session_seconds(session: int) -> float:
    """User and system time of all processes of a session; Spark's workers leave the group of their driver."""
    ticks = 0
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            text = Path(f"/proc/{name}/stat").read_text("utf-8", "replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended since the listing
        # The name is in parentheses and may hold anything, spaces and parentheses too.
        fields = text.rpartition(")")[2].split()
        if int(fields[_SESSION]) == session:
            ticks += sum(map(int, fields[_TIMES]))
    return ticks * _TICK
