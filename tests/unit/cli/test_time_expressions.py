"""Times and durations as a user types them."""

from __future__ import annotations

import datetime

import pytest
from typer import BadParameter

from orbitmq.cli.time_expressions import parse_duration, parse_time

NOW = 1_700_000_000.5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5),
        ("1.5", 1.5),
        ("5s", 5),
        ("200ms", 0.2),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172_800),
        ("0", 0),
    ],
)
def test_a_duration_has_units_or_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "5x", "5s!", "-5s", "1.2.3", "99999999999d", "m5"])
def test_what_is_no_duration_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadParameter, match="duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("@1700000000", 1_700_000_000_000),
        ("@1700000000.25", 1_700_000_000_250),
        ("now", 1_700_000_000_500),
        ("10m ago", 1_699_999_400_500),
        ("-1h30m", 1_699_994_600_500),
        ("+5s", 1_700_000_005_500),
        ("2026-11-15T20:11:36.918+01:00", 1_794_769_896_918),
        ("2026-11-15T20:11:36Z", 1_794_773_496_000),
    ],
)
def test_a_time_is_absolute_or_relative(text: str, ms: int) -> None:
    assert parse_time(text, NOW) == ms


def test_days_begin_at_local_midnight() -> None:
    today = datetime.datetime.fromtimestamp(NOW).replace(hour=0, minute=0, second=0, microsecond=0)
    assert parse_time("today", NOW) == today.timestamp() * 1000
    assert parse_time("yesterday", NOW) == (today - datetime.timedelta(days=1)).timestamp() * 1000
    assert parse_time(today.date().isoformat(), NOW) == today.timestamp() * 1000


@pytest.mark.parametrize("text", ["", "soon", "@x", "-5", "+", "ago", "2026-13-01", "５"])
def test_what_is_no_time_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadParameter, match="is not a time"):
        parse_time(text, NOW)
