"""Popped messages under power cuts and kills, in every place where the disk is written: none is lost for ever."""

from __future__ import annotations

import os

import pytest

from faults.pop_life import PopLife

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50"))
"""How many lives are lived; each has at least four crashes. ``make soak`` asks for more."""


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_after_power_cuts_messages_come_back_and_acknowledged_ones_do_not(seed: int) -> None:
    await PopLife(seed, is_power=True).live(crashes=4)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_after_kills_messages_come_back_and_acknowledged_ones_do_not(seed: int) -> None:
    await PopLife(seed, is_power=False).live(crashes=4)


@pytest.mark.parametrize("is_power", [True, False])
async def test_in_one_life_a_message_comes_back_once_for_each_pop_that_nobody_settled(is_power: bool) -> None:
    life = PopLife(1, is_power=is_power, restarts=False)
    await life._open()
    for _ in range(600):
        await life.step()
    await life.come_to_an_end()
    life.check()
    assert len(life.settled) > 50
    assert len(life.consumed) > 50
    await life.stop()
