"""Timer messages under power failures and kills at every disk write: none is lost, none is early."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from faults.deferred.timer_run import TimerLife

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50"))
"""Number of runs; each has at least four crashes. ``make soak`` sets more."""


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_power_failures_lose_no_message_and_deliver_none_early(seed: int) -> None:
    await TimerLife(seed, is_power=True).live(crashes=4)


async def test_a_crash_repeats_little(record_property: Callable[[str, object], None]) -> None:
    """Deliveries since the last save are repeated: over all runs fewer than the messages."""
    repeated = sent = 0
    for seed in range(1000, 1006):
        life = TimerLife(seed, is_power=bool(seed % 2))
        await life.live(crashes=4)
        repeated += life.repeated
        sent += len(life.sent)
    record_property("repeated", f"{repeated} of {sent}")
    assert repeated < sent


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_kills_lose_no_message_and_deliver_none_early(seed: int) -> None:
    await TimerLife(seed, is_power=False).live(crashes=4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_power", [True, False])
async def test_without_a_crash_every_message_is_delivered_once(seed: int, is_power: bool) -> None:
    life = TimerLife(seed, is_power=is_power)
    await life._open()
    for _ in range(400):
        await life._step()
    await life.come_to_an_end()
    assert len(life.sent) > 50
    assert life.repeated == 0
