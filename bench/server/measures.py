"""Measures of a server, and the comparison of two servers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """Something to count, and which way is up."""

    name: str
    unit: str
    more_is_better: bool = False


RATE = Measure("messages", "msgs/s", more_is_better=True)
CPU = Measure("CPU of the server per message", "µs")
P50 = Measure("latency, half of the requests", "ms")
P99 = Measure("latency, 99 %", "ms")
P999 = Measure("latency, 99.9 %", "ms")
AVERAGE = Measure("latency, average", "ms")
CONSUMED = Measure("messages consumed", "msgs/s", more_is_better=True)
END_TO_END = Measure("born to consumed, average", "ms")
START = Measure("start of the process to open port", "s")
RESIDENT_IDLE = Measure("resident memory, after the start", "MiB")
OWN_IDLE = Measure("anonymous memory, after the start", "MiB")
RESIDENT = Measure("resident memory, after the load", "MiB")
OWN = Measure("anonymous memory, after the load", "MiB")
IDLE = Measure("CPU while idle, after the load", "% of a core")


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """The result of one round of one load."""

    values: Mapping[Measure, float]
    failures: int = 0
    failure: str = ""
    """The server's response to the first of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One measure of one load: a figure per system, and how many times better the first is than the second."""

    load: str
    measure: Measure
    figures: Mapping[str, Figure]
    advantage: Figure | None

    def as_json(self) -> dict[str, Any]:
        return {
            "load": self.load,
            "measure": self.measure.name,
            "unit": self.measure.unit,
            "systems": {name: spread(each) for name, each in self.figures.items()},
            "advantage": spread(self.advantage) if self.advantage else None,
        }


def total_failures(samples: Sequence[Sample]) -> tuple[int, str]:
    """The number of failed requests of all rounds, and the error of the first."""
    message = next((each.failure for each in samples if each.failures), "")
    return sum(each.failures for each in samples), message


def compare(load: str, samples: Mapping[str, Sequence[Sample]]) -> list[Row]:
    """The rows of one load, from each system's samples in the order of the rounds.

    The advantage is taken round by round, because what disturbs a round mostly disturbs both of its halves.
    """
    measures = dict.fromkeys(measure for each in samples.values() for one in each for measure in one.values)
    rows = []
    for measure in measures:
        values = {
            name: tuple(one.values[measure] for one in each if measure in one.values)
            for name, each in samples.items()
        }
        figures = {
            name: Figure(load, measure.name, measure.unit, numbers) for name, numbers in values.items() if numbers
        }
        advantage = times_better(load, measure, *values.values()) if len(values) == 2 else None
        rows.append(Row(load, measure, figures, advantage))
    return rows


def times_better(
    load: str, measure: Measure, our_values: Sequence[float], their_values: Sequence[float]
) -> Figure | None:
    """The ratio of ours to theirs, round by round: above 1 ours is better, in either direction of the measure."""
    pairs = [pair for pair in zip(our_values, their_values, strict=False) if all(pair)]
    if not pairs:
        return None
    times = tuple(ours / theirs if measure.more_is_better else theirs / ours for ours, theirs in pairs)
    return Figure(load, f"{measure.name}, times better", "×", times)


def spread(figure: Figure) -> dict[str, Any]:
    """A figure with what it is the median of."""
    return {"min": figure.low, "median": figure.median, "max": figure.high, "rounds": list(figure.values)}
