"""Kill -9 with messages of every kind and topics created and deleted: nothing acknowledged is lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from faults.broker.kill_9_run import (
    Ledger,
    broker_process,
    check,
    kill_in_recovery,
    live_until_killed,
    started_in,
    talking_at,
)

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("ORBITMQ_KILLS", "6"))
"""Number of kills in both flush modes together. ``make kill9`` sets more."""
LIVES_A_CHECK = 10
"""Runs before everything is checked and a new store begins: the amount to check grows with each run."""


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_nothing_acknowledged_is_lost_by_kills(flush: str, tmp_path: Path) -> None:
    kills = 0
    for seed in range(KILLS):
        if kills >= KILLS // 2:
            break
        home = tmp_path / str(seed)
        home.mkdir()
        kills += await killed_and_checked(home, flush, seed, min(LIVES_A_CHECK, KILLS // 2 - kills))
    assert kills >= KILLS // 2


async def killed_and_checked(home: Path, flush: str, seed: int, kills: int) -> int:
    ledger = Ledger(seed)
    done, seconds = 1, await started_in(home, flush)
    while done < kills:
        async with broker_process(home, flush) as (server, address):
            await live_until_killed(server, address, ledger, ledger.rng.choice((40, 150, 400)))
        done += 1
        while done < kills and ledger.rng.random() < 0.4:
            await kill_in_recovery(home, flush, ledger, seconds)
            done += 1
    async with broker_process(home, flush) as (server, address), talking_at(address) as peer:
        await check(peer, ledger)
        assert await server.stopped() == 0
    assert ledger.acknowledged > 0
    return done
