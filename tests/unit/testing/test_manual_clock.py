"""The clock that stands still until it is told to move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import ManualClock

if TYPE_CHECKING:
    from orbitmq.platform.clock import Clock


def test_it_is_a_clock() -> None:
    clock: Clock = ManualClock()
    assert clock.now_ms() == 0


def test_the_clock_moves_only_by_advance() -> None:
    clock = ManualClock(1_700_000_000_123)
    assert (clock.now_ms(), clock.hour(), clock.stamp()) == (1_700_000_000_123, 22, "20231114221320123")
    clock.advance(2 * 3_600_000)
    assert (clock.hour(), clock.stamp()) == (0, "20231115001320123")


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="forward"):
        ManualClock().advance(-1)
    with pytest.raises(ValueError, match="since the epoch"):
        ManualClock(-1)
