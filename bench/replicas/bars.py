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


def subject_of(name: str, connections: int, in_flight: int) -> str:
    return f"{name}: {connections} × {in_flight}"


def verdicts(found: Found, shapes: Iterable[tuple[int, int]]) -> list[Verdict]:
    """The bars for whose both sides the run has figures, for each (connections, requests in flight)."""
    judged = []
    rate, cpu = (RATE.name, RATE.unit), (SLAVE_CPU, "µs")
    for connections, in_flight in shapes:
        least = 3.0 if in_flight > 1 else 1.3
        bars = [
            ("rate with an asynchronous slave, of that without", ASYNC, ALONE, rate, 0.85, True),
            *(
                (
                    f"rate of {ours.name}, of Apache's",
                    ours,
                    dataclasses.replace(ours, system=APACHE),
                    rate,
                    least,
                    True,
                )
                for ours in (SYNC, SYNC_TWO)
            ),
            *(
                (
                    f"CPU of the slaves of {ours.name}, of Apache's",
                    ours,
                    dataclasses.replace(ours, system=APACHE),
                    cpu,
                    0.3,
                    False,
                )
                for ours in (ASYNC, SYNC, SYNC_TWO)
            ),
            ("rate in controller mode, of SYNC_MASTER", CONTROLLED, SYNC, rate, 0.95, True),
        ]
        for statement, ours, theirs, measure, limit, is_least in bars:
            pair = [
                found.get((subject_of(one.name, connections, in_flight), *measure), []) for one in (ours, theirs)
            ]
            value = _quotient(*pair)
            if value is not None:
                met = value >= limit if is_least else value <= limit
                judged.append(Verdict(f"{connections} × {in_flight}: {statement}", value, limit, met))
    return judged


def _quotient(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The median of the quotients of the rounds."""
    pairs = [one / other for one, other in zip(ours, theirs, strict=False) if other]
    return statistics.median(pairs) if pairs else None
