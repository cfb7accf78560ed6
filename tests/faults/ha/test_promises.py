"""The table of docs/replication.md: for each failure and setting, what is lost of what was acknowledged."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import LocalCluster
from support.broker.replica_harness import FAST, MASTER, SLAVE, Sends, bodies, promoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PAGE = Path(__file__).parents[3] / "docs" / "replication.md"
NEVER_FLUSHED = {"flushIntervalCommitLog": "3600000", "flushCommitLogThoroughInterval": "36000000"}
WAIT = 60.0

SEEDS = (3, 5, 7, 9, 11, 13)
"""A disk without power may have kept everything by chance."""


def table() -> dict[tuple[str, str], str]:
    """The cells of the table by failure and setting."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    start = next(number for number, line in enumerate(lines) if line.startswith("| failure |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:]]
    settings = rows[0][1:]
    found: dict[tuple[str, str], str] = {}
    for failure, *cells in rows[2:]:
        if len(cells) != len(settings):
            break
        found |= {(failure, setting): cell for setting, cell in zip(settings, cells, strict=True)}
    return found


class Case:
    """A pair that took messages in two halves: the first flushed and copied everywhere, the second not yet."""

    def __init__(self, setting: str, directory: Path, seed: int = 0) -> None:
        """``seed`` decides what is left on the disk after a loss of power."""
        self.seed = seed
        role, flush = re.split(r",\s*", setting)
        self.is_sync = role == "SYNC_MASTER"
        self.settings = {
            **FAST,
            **NEVER_FLUSHED,
            "brokerRole": role,
            "inSyncReplicas": "2" if self.is_sync else "1",
            "flushDiskType": flush,
            "slaveTimeout": "60000",
        }
        self.directory = directory
        self.early: set[bytes] = set()
        self.acknowledged: set[bytes] = set()

    async def fill(self, cluster: LocalCluster, *, cut: bool = False) -> None:
        """``cut``: the slave copies nothing of the second half; otherwise that depends on the setting."""
        sends = Sends(cluster, 1)
        await sends.some(10)
        await cluster.wait_until_replicated(WAIT)
        for name in (MASTER, SLAVE):
            await cluster.broker(name).service.flushed(cluster.broker(name).store.log.end)
        self.early = set(sends.acknowledged)
        assert len(self.early) == 10
        if cut or not self.is_sync:
            cluster.stall(MASTER, SLAVE)
            cluster.broker(MASTER).settings.store.slave_timeout = 50
        await sends.some(10)
        self.acknowledged = sends.acknowledged
        assert len(self.acknowledged) == (10 if cut and self.is_sync else 20)


async def slave_lost(case: Case) -> set[bytes]:
    async with LocalCluster(replicas=2, settings=case.settings) as cluster:
        await case.fill(cluster)
        await cluster.kill(SLAVE)
        return bodies(cluster.broker(MASTER))


async def master_killed(case: Case) -> set[bytes]:
    """On a local disk, which keeps what was written as the kernel does."""
    async with LocalCluster(replicas=2, settings=case.settings, directory=case.directory) as cluster:
        await case.fill(cluster)
        await cluster.kill(MASTER)
        await cluster.start(MASTER)
        return bodies(cluster.broker(MASTER))


async def master_without_power(case: Case) -> set[bytes]:
    async with LocalCluster(replicas=2, settings=case.settings, seed=case.seed) as cluster:
        await case.fill(cluster)
        await cluster.kill(MASTER)
        await cluster.start(MASTER)
        return bodies(cluster.broker(MASTER))


async def master_lost(case: Case) -> set[bytes]:
    async with LocalCluster(replicas=2, settings=case.settings) as cluster:
        await case.fill(cluster)
        await cluster.kill(MASTER)
        await cluster.stop(SLAVE)
        async with promoted(cluster) as broker:
            return bodies(broker)


async def master_lost_and_slave_without_power(case: Case) -> set[bytes]:
    async with LocalCluster(replicas=2, settings=case.settings, seed=case.seed) as cluster:
        await case.fill(cluster)
        await cluster.kill()
        async with promoted(cluster) as broker:
            return bodies(broker)


async def cut_and_master_lost(case: Case) -> set[bytes]:
    async with LocalCluster(replicas=2, settings=case.settings) as cluster:
        await case.fill(cluster, cut=True)
        await cluster.kill(MASTER)
        await cluster.stop(SLAVE)
        async with promoted(cluster) as broker:
            return bodies(broker)


SCENARIOS: dict[str, Callable[[Case], Awaitable[set[bytes]]]] = {
    "the slave is lost": slave_lost,
    "the master's process is killed and starts again": master_killed,
    "the master loses power and starts again": master_without_power,
    "the master's disk is lost, the slave is promoted": master_lost,
    "the master's disk is lost, the slave loses power and is promoted": master_lost_and_slave_without_power,
    "the connection is cut, later the master's disk is lost, the slave is promoted": cut_and_master_lost,
}


def test_the_table_has_a_scenario_for_each_failure() -> None:
    assert {failure for failure, _ in table()} == SCENARIOS.keys()


@pytest.mark.parametrize(("failure", "setting"), list(table()))
async def test_what_is_lost_is_what_the_table_names(failure: str, setting: str, tmp_path: Path) -> None:
    promise = table()[failure, setting]
    for seed in SEEDS:
        case = Case(setting, tmp_path / str(seed), seed)
        left = await SCENARIOS[failure](case)
        assert case.early <= left, "even what was flushed and copied is lost"
        lost = case.acknowledged - left
        if promise == "nothing":
            assert not lost
            return
        if lost:
            return
    raise AssertionError("nothing is lost: the table promises less than there is")
