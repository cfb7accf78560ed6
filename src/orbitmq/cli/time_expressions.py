"""Times and durations on the command line: ``10m ago``, ``2026-11-15T20:11``, ``yesterday``; ``5s``, ``1h30m``."""

from __future__ import annotations

import datetime
import re
import time
from typing import NoReturn

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds of each unit of a duration."""

TIME_HELP = "ISO 8601, `10m ago`, +10m, now, today, yesterday, milliseconds since 1970 or @SECONDS"
"""For help texts: what ``parse_time`` accepts."""

DURATION_HELP = "such as 5s, 1.5h, 1h30m or 200ms; a number without a unit is seconds"

_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d|w)\s*")
_LATEST_MS = 253_402_300_800_000
"""The end of the year 9999."""


def parse_duration(text: str) -> float:
    """Seconds of ``5s``, ``1.5h``, ``1h30m``, ``200ms`` or ``5``. Raises BadParameter."""
    rest = text.strip()
    try:
        seconds = float(rest) if re.fullmatch(r"[\d.]+", rest) else _seconds_of(rest)
    except ValueError:
        _refuse(f"{text!r} is not a duration: give one {DURATION_HELP}")
    if seconds * 1000 >= _LATEST_MS:
        _refuse(f"the duration {text!r} is too long")
    return seconds


def _seconds_of(text: str) -> float:
    """The sum of parts with units. Raises ValueError."""
    seconds, at = 0.0, 0
    while part := _PART.match(text, at):
        seconds += float(part[1]) * UNITS[part[2]]
        at = part.end()
    if at == 0 or at != len(text):
        raise ValueError(text)
    return seconds


def parse_time(text: str, now: float | None = None) -> int:
    """Milliseconds since 1970 of a time, as ``TIME_HELP`` describes. Times without a zone are local.

    Relative times count from ``now``, in seconds since 1970: by default, from this moment. Raises BadParameter.
    """
    word = text.strip()
    if word.isdecimal() and word.isascii():
        return int(word)
    if word.startswith("@"):
        return round(_number(word[1:], text) * 1000)
    relative = _relative(word)
    if relative is not None:
        return round(((time.time() if now is None else now) + relative) * 1000)
    return round(_calendar_time(word, text, now) * 1000)


def _relative(word: str) -> float | None:
    """Seconds from now of ``now``, ``10m ago``, ``-10m`` and ``+10m``; None for another expression."""
    if word == "now":
        return 0.0
    sign = 1.0 if word.startswith("+") else -1.0
    try:
        if word.endswith(" ago"):
            return -_seconds_of(word.removesuffix("ago").strip())
        return sign * _seconds_of(word[1:].strip()) if word[:1] in {"+", "-"} else None
    except ValueError:
        return None


def _calendar_time(word: str, text: str, now: float | None) -> float:
    if word in {"today", "yesterday"}:
        today = datetime.datetime.fromtimestamp(time.time() if now is None else now).date()
        day = today - datetime.timedelta(days=word == "yesterday")
        return datetime.datetime.combine(day, datetime.time()).timestamp()
    try:
        return datetime.datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError, OSError):
        _refuse(f"{text!r} is not a time: give {TIME_HELP}")


def _number(digits: str, text: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", digits):
        _refuse(f"{text!r} is not a time: after @ come seconds since 1970")
    return float(digits)


def _refuse(sentence: str) -> NoReturn:
    from typer import BadParameter  # noqa: PLC0415 - not imported by servers

    raise BadParameter(sentence)
