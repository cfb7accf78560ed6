"""Failovers under load with the timings of ``serve --replicas 3``. ``make failover KILLS=200`` makes more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.ha.failover_run import KILL, STOP, FailoverRun

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 20.0
"""Seconds on a machine that runs other tests meanwhile; ``make failover`` holds them to less."""


async def test_masters_that_are_killed_and_stopped_are_replaced_in_time_and_nothing_is_lost(tmp_path: Path) -> None:
    async with FailoverRun(tmp_path) as run:
        await run.run([KILL, STOP, KILL])
        assert len(run.outages) == 3
        assert max(run.recovery(KILL)) < PATIENCE > max(run.recovery(STOP))
