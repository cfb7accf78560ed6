"""What is measured of clients only, and what OrbitMQ's client holds itself to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bench.client.loads import ASYNC_SEND, CONSUME, LOADS, Program
from bench.figures import Figure
from bench.server.measures import RATE, Measure
from bench.server.systems import ORBITMQ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.client.loads import Load
    from bench.server.measures import Sample

CPU = Measure("CPU of the client per message", "µs")
CORES = Measure("cores of the client", "cores")

TIMES_THE_PEER = 20
ASYNC_BAR = 30_000
CONSUME_BAR = 60_000


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a bar was met by the medians of this run."""

    statement: str
    value: float | None
    bar: float
    unit: str

    @property
    def sentence(self) -> str:
        if self.value is None:
            return f"not measured  {self.statement}"
        word = "met" if self.value >= self.bar else "missed"
        return f"{word:12}  {self.statement}: {self.value:,.4g} {self.unit}"

    def as_json(self) -> dict[str, Any]:
        is_met = None if self.value is None else self.value >= self.bar
        return {"statement": self.statement, "value": self.value, "bar": self.bar, "unit": self.unit, "met": is_met}


def verdicts(samples: Mapping[str, Mapping[str, Sequence[Sample]]]) -> list[Verdict]:
    """The bars, held against the fastest way of OrbitMQ's client with OrbitMQ's server."""
    found = []
    for load in LOADS:
        if load.name not in (ASYNC_SEND, CONSUME):
            continue
        bar = ASYNC_BAR if load.name == ASYNC_SEND else CONSUME_BAR
        rates = samples.get(load.name, {})
        ours = _best(load, rates)
        theirs = _median(load, rates, Program.GRPC)
        found.append(Verdict(f"{load.name} of 128 B with at least {bar:,} a second", ours, bar, "msgs/s"))
        times = ours / theirs if ours and theirs else None
        found.append(Verdict(f"{load.name} at least 20 times the gRPC client's", times, TIMES_THE_PEER, "×"))
    return found


def _best(load: Load, samples: Mapping[str, Sequence[Sample]]) -> float | None:
    rates = [
        rate
        for contender in load.contenders
        if contender.program is Program.ORBITMQ
        and contender.server == ORBITMQ
        and (rate := _rate(samples.get(contender.name, ()))) is not None
    ]
    return max(rates, default=None)


def _median(load: Load, samples: Mapping[str, Sequence[Sample]], program: Program) -> float | None:
    for contender in load.contenders:
        if contender.program is program:
            return _rate(samples.get(contender.name, ()))
    return None


def _rate(samples: Sequence[Sample]) -> float | None:
    values = tuple(sample.values[RATE] for sample in samples)
    return Figure("", RATE.name, RATE.unit, values).median if values else None
