"""Poison records in every topic that a service reads: each service continues, also after a restart."""

from __future__ import annotations

import os

import pytest

from faults.services.poison import feed
from faults.services.probes import services

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50")) // 10
RECORDS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_every_service_processes_a_new_message_after_poison_records(seed: int) -> None:
    async with services() as running:
        feed(running.broker.store, seed, RECORDS)
        await running.run(20_000)
        await running.probe()
        assert sum(running.skipped.values()) > 0
        clock, disk = running.clock, running.disk
    async with services(disk, clock) as running:
        await running.probe()
        feed(running.broker.store, seed + 1_000_000, RECORDS)
        await running.probe()


async def test_skipped_records_are_counted_in_runtime_info() -> None:
    async with services() as running:
        feed(running.broker.store, 7, RECORDS)
        await running.run(20_000)
        table = running.broker.stats.quarantine.figures()
        assert table.keys() >= {"quarantined_revive", "quarantined_timer", "quarantined_schedule"}
        assert all(int(count) > 0 for count in table.values())
