"""Time expressions: ``now``, ``-1h``, ``2026-11-01 12:00``, milliseconds since 1970."""

import datetime
import re
import time

import typer

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DISTANCE = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_APACHE = re.compile(r"(\d{4}-\d\d-\d\d)#(\d\d):(\d\d):(\d\d)(?::(\d{1,3}))?")
_EPOCH_SECONDS = 100_000_000_000
"""Numbers below this would be times before 1973 in milliseconds."""

HELP = "now, -1h, -1d12h, 2026-11-01, '2026-11-01 12:00' (local time), or milliseconds since 1970"


def parse_when(text: str, *, now_ms: int | None = None) -> int:
    """Milliseconds since 1970 of a time expression. Raises BadParameter."""
    now = round(time.time() * 1000) if now_ms is None else now_ms
    given = text.strip()
    if given == "now":
        return now
    if given in {"today", "yesterday"}:
        midnight = datetime.datetime.fromtimestamp(now / 1000).astimezone().replace(hour=0, minute=0, second=0)
        day = midnight.replace(microsecond=0) - datetime.timedelta(days=given == "yesterday")
        return round(day.timestamp() * 1000)
    if given.isascii() and given.isdigit():
        number = int(given)
        if 0 < number < _EPOCH_SECONDS:
            raise typer.BadParameter(f"{text!r} looks like seconds: give milliseconds since 1970, or -1h")
        return number
    if given[:1] in {"-", "+"}:
        distance = parse_distance(given[1:])
        return now - distance if given[0] == "-" else now + distance
    return _parse_date(text, given)


def _parse_date(text: str, given: str) -> int:
    if found := _APACHE.fullmatch(given):
        given = f"{found[1]}T{found[2]}:{found[3]}:{found[4]}.{(found[5] or '0').zfill(3)}"
    try:
        moment = datetime.datetime.fromisoformat(given)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f"{text!r} is not a time: give {HELP}") from None


def parse_distance(text: str) -> int:
    """Milliseconds of ``90s``, ``1h30m``. Raises BadParameter."""
    total, end = 0.0, 0
    for part in _DISTANCE.finditer(text):
        if part.start() != end:
            break
        total += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise typer.BadParameter(f"{text!r} is not a distance in time: give 90s, 15m, 1h30m, 2d")
    return round(total)
