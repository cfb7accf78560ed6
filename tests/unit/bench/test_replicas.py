"""Bars of replication are judged round by round. No server is started here."""

from __future__ import annotations

import sys

import pytest

from support.paths import PROJECT

sys.path.append(str(PROJECT))

from bench.replicas.bars import SLAVE_CPU, Found, subject_of, verdicts
from bench.replicas.command import SHAPES
from bench.server.measures import RATE

LOAD = (8, 64)


def values(name: str, measure: str, unit: str, *rounds: float, is_apart: bool = False) -> Found:
    return {(subject_of(name, *LOAD, is_apart=is_apart), measure, unit): list(rounds)}


@pytest.mark.parametrize(("rounds", "met"), [((90.0, 45.0, 80.0), True), ((80.0, 40.0, 99.0), False)])
def test_a_quotient_is_the_median_of_the_rounds(rounds: tuple[float, ...], met: bool) -> None:
    found = values("OrbitMQ, no slave", RATE.name, RATE.unit, 100.0, 50.0, 100.0, is_apart=True)
    found |= values("OrbitMQ, ASYNC_MASTER, 1 slave(s)", RATE.name, RATE.unit, *rounds, is_apart=True)
    [verdict] = verdicts(found, [LOAD])
    assert verdict.met is met
    assert "8 × 64" in str(verdict)
    assert ("met" if met else "missed") in str(verdict)


def test_slaves_are_compared_with_those_of_the_same_shape() -> None:
    found = values("OrbitMQ, SYNC_MASTER, 2 slave(s)", SLAVE_CPU, "µs", 2.0)
    found |= values("Apache RocketMQ, SYNC_MASTER, 2 slave(s)", SLAVE_CPU, "µs", 10.0)
    found |= values("Apache RocketMQ, SYNC_MASTER, 1 slave(s)", SLAVE_CPU, "µs", 1.0)
    [verdict] = verdicts(found, [LOAD])
    assert (verdict.value, verdict.met) == (0.2, True)


def test_nothing_is_judged_without_figures_of_both() -> None:
    assert verdicts({}, [LOAD]) == []


def test_every_shape_has_a_name_of_its_own() -> None:
    names = [shape.name for shape in SHAPES]
    assert len(set(names)) == len(names)
    assert "Apache RocketMQ, SYNC_MASTER, 2 slave(s)" in names
    assert "OrbitMQ, controller mode, 1 slave(s)" in names
