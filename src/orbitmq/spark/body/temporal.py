"""Dates and timestamps as text in bodies, in the formats of Spark's own readers.

The year has four digits. After it, parts may be left out from the right; what is left out is the first of its
kind. A timestamp may end in a zone: ``Z``, an offset, ``UTC``, ``GMT`` or ``UT`` with or without one, or a name
such as ``Europe/Paris``. Digits of a second after the sixth are cut off.
"""

from __future__ import annotations

import datetime
import functools
import re
import zoneinfo

_DATE = r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
_JUST_DATE = re.compile(_DATE + r"(?:[ T].*)?)?)?\s*", re.ASCII | re.DOTALL)
_TIMESTAMP = re.compile(
    _DATE + r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?"
    r"\s*([A-Za-z+-][\w/+:-]*)?)?)?)?\s*",
    re.ASCII,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146097
"""The calendar repeats itself after these, which gives the year 0 a place that Python's calendar has not."""

_DAY = 86_400
_YEAR_ONE = (1 - _EPOCH) * _DAY


def days_of(text: str) -> int:
    """The days since 1970 of a date. Raises ValueError."""
    found = _JUST_DATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a date")
    return _days(text, found[1], found[2], found[3])


def _days(text: str, year: str, month: str | None, day: str | None) -> int:
    try:
        date = datetime.date(int(year) % _CYCLE_YEARS + _CYCLE_YEARS, int(month or 1), int(day or 1))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date: {error}") from error
    return date.toordinal() - _EPOCH + (int(year) // _CYCLE_YEARS - 1) * _CYCLE_DAYS


def micros_of(text: str, zone: datetime.tzinfo | None) -> int:
    """The microseconds since 1970 of a timestamp, in ``zone`` if it names none of its own.

    Without ``zone`` it is a timestamp without zone, and must not name one. Raises ValueError.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a timestamp")
    days = _days(text, found[1], found[2], found[3])
    hour, minute, second = int(found[4] or 0), int(found[5] or 0), int(found[6] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a timestamp: there is no such time of day")
    micros = int(found[7][:6].ljust(6, "0")) if found[7] else 0
    local = days * _DAY + hour * 3600 + minute * 60 + second
    if found[8] is not None:
        if zone is None:
            raise ValueError(f"{text!r} names a zone, which a timestamp_ntz has not")
        zone = zone_of(found[8])
    return (local - _offset(zone, local)) * 1_000_000 + micros


def _offset(zone: datetime.tzinfo | None, local: int) -> int:
    """Seconds east of Greenwich, of the earlier of two when clocks are set back, of before when they skip."""
    if zone is None or zone is datetime.UTC:
        return 0
    if local < _YEAR_ONE:
        local += _CYCLE_DAYS * _DAY  # no zone had changed its clocks by then
    moment = datetime.datetime(1970, 1, 1, tzinfo=zone) + datetime.timedelta(seconds=local)  # as a clock shows it
    offset = moment.utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


@functools.lru_cache(maxsize=1024)
def zone_of(name: str) -> datetime.tzinfo:
    """The zone of a name or an offset. Raises ValueError."""
    if name in {"Z", "UTC", "GMT", "UT"}:
        return datetime.UTC
    found = _OFFSET.fullmatch(name)
    if found is None:
        try:
            return zoneinfo.ZoneInfo(name)
        except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
            raise ValueError(f"there is not a time zone {name!r}") from error
    minutes, seconds = int(found[3] or 0), int(found[4] or 0)
    offset = int(found[2]) * 3600 + minutes * 60 + seconds
    if offset >= _DAY or minutes > 59 or seconds > 59:
        raise ValueError(f"there is not a time zone {name!r}")
    return datetime.timezone(datetime.timedelta(seconds=-offset if found[1] == "-" else offset))
