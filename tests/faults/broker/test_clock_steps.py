"""Power failures with a clock that stands still or is set back: durability must not depend on a monotonic clock."""

from __future__ import annotations

import os

import pytest

from faults.store.store_run import StoreLife
from orbitmq.testing import ManualClock, MemoryDisk
from support.store.stores import SYNC, T0, TOPIC, open_small, send

SEEDS = int(os.environ.get("ORBITMQ_SEEDS", "50")) // 2


class SteppingLife(StoreLife):
    """A run on a machine whose clock is set by large steps."""

    def _pass_time(self) -> None:
        if self.rng.random() < 0.3:
            self.clock._now_ms -= self.rng.choice((1, 50, 5_000, 5 * 3_600_000))
        else:
            super()._pass_time()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_when_the_clock_goes_back(seed: int) -> None:
    SteppingLife(seed, sync_flush=seed % 4 != 0).live(cuts=5)


@pytest.mark.parametrize("seed", range(10))
def test_keys_stored_in_the_millisecond_of_the_first_record_are_all_found(seed: int) -> None:
    disk = MemoryDisk(seed)
    store = open_small("/store", disk=disk, max_index_num=10, **SYNC)
    send(store, UNIQ_KEY="u0")
    store.flush()
    store.sync_queues()
    for number in range(1, 60):
        send(store, UNIQ_KEY=f"u{number}")
    store.flush()
    assert store.index is not None
    store.index.flush_pending()
    with open_small("/store", disk=disk.power_cut(), max_index_num=10, **SYNC) as again:
        assert [len(again.query(TOPIC, f"u{number}").records) for number in range(60)] == [1] * 60


def test_an_index_on_disk_is_trusted_although_its_times_go_back() -> None:
    clock = ManualClock(T0)
    disk = MemoryDisk(clock=clock)
    store = open_small("/store", disk=disk, clock=clock, max_index_num=10)
    clock.advance(60_000)
    send(store, 30, UNIQ_KEY="u")
    clock._now_ms = T0
    send(store, 30, UNIQ_KEY="u")
    store.flush()
    store.sync_queues()
    with open_small("/store", disk=disk.power_cut(), clock=clock, max_index_num=10) as again:
        assert again.recovery.removed_index_files == []
        assert len(again.query(TOPIC, "u").records) == 60
