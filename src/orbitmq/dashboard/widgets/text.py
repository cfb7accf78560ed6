"""Numbers, sizes and times as viewers read them."""

from __future__ import annotations

import datetime
import time

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def number(value: float) -> str:
    """With thousands separated; fractions only where they matter."""
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.0f}"


def rate(value: float) -> str:
    return f"{number(value)}/s"


def size(value: float) -> str:
    """Bytes in the unit that fits."""
    for unit in _UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} {_UNITS[-1]}"


def share(value: float) -> str:
    return "unknown" if value < 0 else f"{value:.0%}"


def moment(time_ms: int) -> str:
    """A time in the zone of the console's machine; a dash for none."""
    if time_ms <= 0:
        return "–"
    try:
        return f"{datetime.datetime.fromtimestamp(time_ms / 1000).astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def ago(time_ms: int) -> str:
    """Time since a moment, as text."""
    if time_ms <= 0:
        return "never"
    seconds = max(0.0, time.time() - time_ms / 1000)
    if seconds < 1:
        return "just now"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name} ago"
    return f"{seconds / 86_400:.0f} days ago"


def until(time_ms: int) -> str:
    """Time until a moment, as text."""
    seconds = time_ms / 1000 - time.time()
    if seconds <= 0:
        return "now"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


def parse_moment(text: str) -> int | None:
    """Milliseconds of ``2026-11-01 12:00[:30]``, of ``-1h`` before now, or None for nothing.

    Raises ValueError.
    """
    text = text.strip()
    if not text:
        return None
    if text.isdecimal() and len(text) >= 12:
        return int(text)
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    if text.startswith("-") and text[-1:] in units and text[1:-1].isdecimal():
        return int((time.time() - int(text[1:-1]) * units[text[-1]]) * 1000)
    try:
        return int(datetime.datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"a time is 2026-11-01 12:00, or -30m, -1h, -2d before now; not {text!r}") from None
