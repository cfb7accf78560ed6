"""Seeded power cuts on the virtual disk: in appends, roll-overs, flushes, retention and recovery itself."""

from __future__ import annotations

import os

import pytest

from faults.store.store_run import StoreLife

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "200"))
"""How many lives are lived; each has at least five power cuts. ``make soak`` asks for more."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_by_power_cuts(seed: int) -> None:
    StoreLife(seed).live(cuts=5)


@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_what_survives_an_asynchronous_flush_is_whole(seed: int) -> None:
    StoreLife(seed, sync_flush=False).live(cuts=5)
