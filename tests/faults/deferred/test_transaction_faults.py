"""Transactions under power failures and kills at every disk write: no commit is lost, nothing else is delivered."""

from __future__ import annotations

import os

import pytest

from faults.deferred.transaction_run import TransactionLife

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50"))
"""Number of runs; each has at least four crashes. ``make soak`` sets more."""


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_power_failures_neither_lose_a_commit_nor_deliver_an_uncommitted_message(seed: int) -> None:
    await TransactionLife(seed, is_power=True).live(crashes=4)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
async def test_kills_neither_lose_a_commit_nor_deliver_an_uncommitted_message(seed: int) -> None:
    await TransactionLife(seed, is_power=False).live(crashes=4)


@pytest.mark.parametrize("is_power", [True, False])
async def test_without_a_crash_every_commit_is_delivered_once(is_power: bool) -> None:
    life = TransactionLife(1, is_power=is_power, restarts=False)
    await life._open()
    for _ in range(600):
        await life._step()
    await life._come_to_an_end()
    life.check_nothing_is_missing()
    assert len(life.delivered()) > 50
    await life._stop()
