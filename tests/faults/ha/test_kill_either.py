"""Kill -9 of master, slave or both at random under load: logs, queues and index are identical afterwards."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from faults.ha.kill_run import Pair

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("ORBITMQ_HA_KILLS", "4"))
"""Rounds in both flush modes together. ``make kill9-ha`` sets more."""
ROUNDS_A_STORE = 8
"""Rounds before a new pair of stores begins."""


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_master_and_slave_are_identical_after_kills_of_either(flush: str, tmp_path: Path) -> None:
    rounds = KILLS // 2
    for number in range(0, rounds, ROUNDS_A_STORE):
        folder = tmp_path / str(number)
        folder.mkdir()
        pair = Pair(folder, flush, number)
        await pair.start()
        for _ in range(min(ROUNDS_A_STORE, rounds - number)):
            await pair.kill_one(100)
        await pair.settle_and_stop()
        pair.check()
        assert pair.ledger.placed


async def test_a_promoted_slave_has_all_that_was_acknowledged_before_the_master_and_its_disk_were_lost(
    tmp_path: Path,
) -> None:
    sync = ("brokerRole=SYNC_MASTER", "totalReplicas=2", "inSyncReplicas=2", "slaveTimeout=60000")
    pair = Pair(tmp_path, "SYNC_FLUSH", 1, *sync)
    await pair.start()
    await pair.kill_and_promote(200)
    before = len(pair.ledger.placed)
    # It takes messages as a master does.
    await pair.send(20)
    await pair.master.end(signal.SIGTERM)
    assert len(pair.ledger.placed) > before > 50
    pair.check_promoted()
