"""Runs of whole clusters in virtual time: no invariant is violated, and planted errors are found.

``make simulate SEEDS=10000`` is the long version.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from orbitmq.testing.simulation.cluster import SimulatedCluster
from orbitmq.testing.simulation.faults.injection import from_json, random_faults, to_json
from orbitmq.testing.simulation.faults.kinds import Fault, FaultKind
from orbitmq.testing.simulation.run import run, shrink
from simulation import planted

SEEDS = int(os.environ.get("ORBITMQ_SIMULATIONS", "8"))


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_whatever_fails_nothing_acknowledged_is_lost(seed: int) -> None:
    report = run(seed)
    assert report.is_good, report
    assert report.acknowledged > 500


SEEDS_THAT_ACT = (17, 34)
"""Seeds of clusters whose slaves act as master."""


def _killed(at: float, which: int, seconds: float) -> Fault:
    return Fault(at, FaultKind.KILL_BROKER, which, seconds=seconds)


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (SEEDS_THAT_ACT[0], [_killed(15.0, 0, 20.0), _killed(42.0, 1, 15.0)]),
        (
            SEEDS_THAT_ACT[1],
            [
                Fault(15.0, FaultKind.POWER_CUT, 0, seconds=18.0),
                _killed(22.0, 2, 3.0),
                Fault(36.0, FaultKind.RESET, 2, 4),
                Fault(42.0, FaultKind.STOP_BROKER, 1, seconds=12.0),
                Fault(45.0, FaultKind.CLOCK_JUMP, 3, seed=7),
            ],
        ),
    ],
)
def test_nothing_is_lost_while_slaves_act_for_dead_masters(seed: int, faults: list[Fault]) -> None:
    """The first two brokers are the masters, the others their slaves."""
    assert SimulatedCluster(seed).slaves_act
    report = run(seed, faults)
    assert report.is_good, report
    assert report.acknowledged > 500


@pytest.mark.parametrize("seed", ["7", "3"], ids=["brokers", "controller"])
def test_a_run_follows_from_its_seed(seed: str) -> None:
    command = [sys.executable, "-m", "orbitmq.testing.simulation", "--seed", seed]
    runs = {
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition(" run ")[2].split()[0]
        for _ in range(2)
    }
    assert len(runs) == 1


POWER_CUTS = [
    Fault(15.0 + 5 * number, FaultKind.POWER_CUT, number, seconds=0.5, seed=number) for number in range(8)
]
KILLED_CLIENTS = [Fault(10.0 + 2 * number, FaultKind.KILL_CLIENT, number, seconds=0.2) for number in range(20)]


@pytest.mark.parametrize(
    ("plant", "faults"),
    [
        (planted.acknowledge_before_the_flush, POWER_CUTS),
        (planted.commit_offsets_of_messages_in_hand, KILLED_CLIENTS),
        (planted.forget_what_was_not_acknowledged, []),
        (planted.deliver_what_was_rolled_back, []),
        (planted.lose_retries, []),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_planted_errors_are_found(plant: planted.Plant, faults: list[Fault]) -> None:
    with plant():
        assert any(not run(seed, faults).is_good for seed in range(1, 20))


def test_a_failing_run_is_shrunk_to_the_faults_that_matter() -> None:
    faults = [Fault(float(number), FaultKind.RESET, number) for number in range(12)]
    assert shrink(1, faults, lambda some: {3, 8} <= {fault.which for fault in some}) == [faults[3], faults[8]]


def test_faults_are_written_and_read() -> None:
    faults = random_faults(random.Random(3), 60.0)
    assert from_json(to_json(faults)) == faults
