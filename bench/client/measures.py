"""Measures of clients only, and the bars of OrbitMQ's client."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bench.client.grpc_peer import PROXY
from bench.client.loads import ASYNC_SEND, CONSUME, LOADS, Program
from bench.figures import Figure
from bench.report import formatted
from bench.server.measures import RATE, Measure
from bench.server.systems import APACHE, ORBITMQ

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.client.loads import Load
    from bench.server.measures import Sample

CPU = Measure("CPU of the client per message", "µs")
CORES = Measure("cores of the client", "cores")

TIMES_THE_PEER = 20
_BARS = {ASYNC_SEND: 30_000, CONSUME: 60_000}
"""Messages a second, by load."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """True if a bar was met by the medians of this run."""

    statement: str
    value: float | None
    bar: float
    unit: str

    @property
    def sentence(self) -> str:
        if self.value is None:
            return f"not measured  {self.statement}"
        word = "met" if self.value >= self.bar else "missed"
        return f"{word:12}  {self.statement}: {formatted(self.value)} {self.unit}"

    def as_json(self) -> dict[str, Any]:
        is_met = None if self.value is None else self.value >= self.bar
        return {"statement": self.statement, "value": self.value, "bar": self.bar, "unit": self.unit, "met": is_met}


def verdicts(samples: Mapping[str, Mapping[str, Sequence[Sample]]]) -> list[Verdict]:
    """The bars, compared with the fastest mode of OrbitMQ's client."""
    found = []
    for load in LOADS:
        bar = _BARS.get(load.name)
        if bar is None:
            continue
        of_load = samples.get(load.name, {})
        ours, with_apache, theirs = (
            _best(load, of_load, program, server)
            for program, server in (
                (Program.ORBITMQ, ORBITMQ),
                (Program.ORBITMQ, APACHE),
                (Program.GRPC, PROXY),
            )
        )
        found.append(Verdict(f"{load.name} of 128 B, at least {bar:,} a second", ours, bar, "msgs/s"))
        for rate, where in ((ours, "OrbitMQ"), (with_apache, "Apache RocketMQ")):
            statement = f"{load.name} with {where} at least {TIMES_THE_PEER} times as fast as the gRPC client"
            times = rate / theirs if rate and theirs else None
            found.append(Verdict(statement, times, TIMES_THE_PEER, "×"))
    return found


def _best(load: Load, samples: Mapping[str, Sequence[Sample]], program: Program, server: str) -> float | None:
    rates = [
        rate
        for contender in load.contenders
        if contender.is_judged
        and contender.program is program
        and contender.server == server
        and (rate := _rate(samples.get(contender.name, ()))) is not None
    ]
    return max(rates, default=None)


def _rate(samples: Sequence[Sample]) -> float | None:
    values = tuple(sample.values[RATE] for sample in samples)
    return Figure("", RATE.name, RATE.unit, values).median if values else None
