"""Bars of replication: what a master loses by its slaves, and how pairs compare to Apache RocketMQ's."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, TypeAlias

from bench.replicas.pairs import Shape
from bench.server.measures import RATE
from bench.server.systems import APACHE, ORBITMQ

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SLAVE_CPU = "CPU of the slaves per message"
Found: TypeAlias = dict[tuple[str, str, str], list[float]]
"""The values of all rounds, by subject, measure and unit."""

ALONE = Shape(ORBITMQ, 0)
ASYNC = Shape(ORBITMQ, 1)
SYNC = Shape(ORBITMQ, 1, is_sync=True)
SYNC_TWO = Shape(ORBITMQ, 2, is_sync=True)
CONTROLLED = Shape(ORBITMQ, 1, is_sync=True, is_controlled=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """The quotient of two shapes, round by round, and whether it keeps to its limit."""

    statement: str
    value: float
    limit: float
    met: bool

    def __str__(self) -> str:
        return f"{self.statement}: {self.value:.2f}, the bar is {self.limit:g}: {'met' if self.met else 'missed'}"


def subject_of(name: str, connections: int, in_flight: int, *, is_apart: bool = False) -> str:
    """The subject of a round's figures."""
    return f"{name}: {connections} × {in_flight}{', master on a core of its own' if is_apart else ''}"


def verdicts(found: Found, loads: Iterable[tuple[int, int]]) -> list[Verdict]:
    """The bars for whose both sides the run has figures, for each (connections, requests in flight)."""
    return [
        verdict for load in loads for bar in _bars(load[1]) if (verdict := _judged(found, *load, bar)) is not None
    ]


@dataclasses.dataclass(frozen=True, slots=True)
class _Bar:
    """A limit of the quotient of one measure of two shapes."""

    statement: str
    ours: Shape
    theirs: Shape
    measure: tuple[str, str]
    limit: float
    at_most: bool = False
    is_apart: bool = False


def _bars(in_flight: int) -> list[_Bar]:
    rate, slave_cpu = (RATE.name, RATE.unit), (SLAVE_CPU, "µs")
    least = 3.0 if in_flight > 1 else 1.3
    pairs = {ours: dataclasses.replace(ours, system=APACHE) for ours in (ASYNC, SYNC, SYNC_TWO)}
    return [
        _Bar("rate with an asynchronous slave, of that without", ASYNC, ALONE, rate, 0.85, is_apart=True),
        *(
            _Bar(f"rate of {ours.name}, of Apache's", ours, theirs, rate, least)
            for ours, theirs in pairs.items()
            if ours.is_sync
        ),
        *(
            _Bar(f"CPU of the slaves of {ours.name}, of Apache's", ours, theirs, slave_cpu, 0.3, at_most=True)
            for ours, theirs in pairs.items()
        ),
        _Bar("rate in controller mode, of SYNC_MASTER", CONTROLLED, SYNC, rate, 0.95),
    ]


def _judged(found: Found, connections: int, in_flight: int, bar: _Bar) -> Verdict | None:
    ours, theirs = (
        found.get((subject_of(one.name, connections, in_flight, is_apart=bar.is_apart), *bar.measure), [])
        for one in (bar.ours, bar.theirs)
    )
    value = _quotient(ours, theirs)
    if value is None:
        return None
    where = ", master on a core of its own" if bar.is_apart else ""
    met = value <= bar.limit if bar.at_most else value >= bar.limit
    return Verdict(f"{connections} × {in_flight}{where}: {bar.statement}", value, bar.limit, met)


def _quotient(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the quotients of the rounds."""
    pairs = [one / other for one, other in zip(ours, theirs, strict=False) if other]
    return statistics.median(pairs) if pairs else None
