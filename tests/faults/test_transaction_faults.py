"""Transactions under power cuts and kills, in every place where the disk is written: none is lost or invented."""

from __future__ import annotations

import os

import pytest

from faults.transaction_life import TransactionLife

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50"))
"""How many lives are lived; each has at least four crashes. ``make soak`` asks for more."""


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_power_cuts_neither_lose_a_transaction_nor_bring_one_out(seed: int) -> None:
    await TransactionLife(seed, is_power=True).live(crashes=4)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_kills_neither_lose_a_transaction_nor_bring_one_out(seed: int) -> None:
    await TransactionLife(seed, is_power=False).live(crashes=4)


@pytest.mark.parametrize("is_power", [True, False])
async def test_in_one_life_every_message_comes_out_once(is_power: bool) -> None:
    life = TransactionLife(1, is_power=is_power, restarts=False)
    await life._open()
    for _ in range(600):
        await life._step()
    await life._come_to_an_end()
    life.check_nothing_is_missing()
    assert len(life.delivered()) > 50
    await life._stop()
