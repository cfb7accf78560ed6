"""Groups under a controller in virtual time: nothing acknowledged is lost, and planted errors are found."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.store.errors import NotCopiedError
from orbitmq.testing.simulation.failover import SHARE, FailoverCluster, cluster_of
from orbitmq.testing.simulation.faults.kinds import Fault, FaultKind
from orbitmq.testing.simulation.run import play, run
from simulation import planted

SECONDS = 30.0
"""Virtual time in which messages are sent."""

PATIENCE = 60.0
"""Virtual time in which everything is consumed: no client is killed."""


def _faults(kind: FaultKind, times: list[float], seconds: float) -> list[Fault]:
    return [Fault(at, kind, number, 1, seconds, seed=number) for number, at in enumerate(times)]


ISOLATIONS = _faults(FaultKind.ISOLATE_MASTER, [6.0, 17.0], 8.0)
"""Of the master, with some of the clients on its side."""

ONE_ISOLATION_AFTER_THE_OTHER = [
    Fault(6.0 + 6.5 * number, FaultKind.ISOLATE_MASTER, seconds=5.0, seed=12 + number) for number in range(5)
]
"""The first master is elected again."""

ONE_AFTER_THE_OTHER = [
    Fault(6.0, FaultKind.KILL_BROKER, 0, seconds=12.0),
    Fault(10.0, FaultKind.KILL_BROKER, 1, seconds=20.0),
    Fault(14.0, FaultKind.KILL_BROKER, 2, seconds=16.0),
]
"""The first replica comes back long before those that have more."""

ELECTIONS_WITHOUT_POWER = sorted(
    _faults(FaultKind.KILL_MASTER, [6.0, 14.0, 22.0], 4.0)
    + _faults(FaultKind.POWER_CUT_CONTROLLER, [6.3, 14.3, 22.3], 0.2),
    key=lambda fault: fault.at,
)


def test_every_third_seed_has_a_controller() -> None:
    kinds = [isinstance(cluster_of(seed), FailoverCluster) for seed in range(1, 2 * SHARE + 1)]
    assert kinds == [False, False, True] * 2


@pytest.mark.parametrize("faults", [ISOLATIONS, ELECTIONS_WITHOUT_POWER], ids=["isolated", "controller"])
def test_nothing_acknowledged_is_lost(faults: list[Fault]) -> None:
    report = run(SHARE, faults, seconds=SECONDS, patience=PATIENCE)
    assert report.is_good, report
    assert report.acknowledged > 200


@pytest.mark.parametrize(
    ("plant", "faults"),
    [
        (planted.shrink_before_the_controller_agrees, ISOLATIONS),
        (planted.acknowledge_alone, ISOLATIONS),
        (planted.skip_the_truncation, ISOLATIONS),
        (planted.ignore_the_lease, ISOLATIONS),
        (planted.read_what_is_not_confirmed, ISOLATIONS),
        (planted.elect_whoever_is_alive, ONE_AFTER_THE_OTHER),
        (planted.forget_elections, ELECTIONS_WITHOUT_POWER),
        (planted.keep_what_follows_from_lost_records, ONE_ISOLATION_AFTER_THE_OTHER),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_planted_errors_of_failover_are_found(plant: planted.Plant, faults: list[Fault]) -> None:
    with plant():
        reports = (
            run(seed, faults, seconds=SECONDS, patience=PATIENCE) for seed in range(SHARE, 20 * SHARE, SHARE)
        )
        assert any(not report.is_good for report in reports)


def test_progress_that_another_master_may_not_know_is_not_kept() -> None:
    """A master that is cut off from its slaves stores records, and keeps nothing that follows from them."""
    cluster = FailoverCluster(SHARE)

    async def work() -> None:
        await cluster.start()
        master = cluster.master
        assert master is not None
        await master.broker.runtime.flushed(master.broker.store.log.end)
        for other in (cluster.controller, *cluster.slaves):
            cluster.network.cut(master.host, other.host)
            cluster.network.cut(other.host, master.host)
        await asyncio.sleep(2)
        assert master.broker.replication.may_lose_end
        with pytest.raises(NotCopiedError):
            await master.broker.runtime.flushed(master.broker.store.log.end)
        cluster.network.heal_all()
        await cluster.recover()
        now = cluster.master
        assert now is not None
        await now.broker.runtime.flushed(now.broker.store.log.end)

    play(cluster, work())
