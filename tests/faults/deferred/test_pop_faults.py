"""Popped messages under power failures and kills at every disk write: none is lost."""

from __future__ import annotations

import os

import pytest

from faults.deferred.pop_run import PopLife

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50"))
"""Number of runs; each has at least four crashes. ``make soak`` sets more."""


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_power_failures_redeliver_popped_messages_and_no_acked_ones(seed: int) -> None:
    await PopLife(seed, is_power=True).live(crashes=4)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_kills_redeliver_popped_messages_and_no_acked_ones(seed: int) -> None:
    await PopLife(seed, is_power=False).live(crashes=4)


@pytest.mark.parametrize("is_power", [True, False])
async def test_without_a_crash_each_unacked_pop_redelivers_its_message_once(is_power: bool) -> None:
    life = PopLife(1, is_power=is_power, restarts=False)
    await life._open()
    for _ in range(600):
        await life.step()
    await life.come_to_an_end()
    life.check()
    assert len(life.settled) > 50
    assert len(life.consumed) > 50
    await life.stop()
