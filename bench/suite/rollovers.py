"""Latency over time, with small log files: what the making of a new one does to those who send meanwhile."""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB, MIB
from bench.server import raw_load
from bench.server.measures import CPU, P50, P99, P999, RATE, Measure, Sample
from bench.server.raw_load import run_load
from bench.suite.running import ROCKETMQ, measure_load, running, warm_up
from bench.suite.scenario import Found, Line
from bench.suite.watching import watched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.server.raw_load import Finding
    from bench.server.systems import Server
    from bench.suite.scenario import Bench, System

WORST = Measure("latency, the worst", "ms")
WORST_NEAR = Measure("latency, the worst within 0.2 s of a new log file", "ms")

WORST_TITLE = "the worst latency in each 100 ms"
P999_TITLE = "latency, 99.9 % in each 100 ms"

_FILE_BYTES = 64 * MIB
_SETTINGS = {"mappedFileSizeCommitLog": str(_FILE_BYTES)}
_BODY = 1024
_RATE = {Size.QUICK: 10_000, Size.USUAL: 20_000, Size.FULL: 20_000}
_SECONDS = {Size.QUICK: 6.0, Size.USUAL: 12.0, Size.FULL: 30.0}
_STEP_SECONDS = 0.1
_NEAR_SECONDS = 0.2
_LOOK_SECONDS = 0.005


@dataclasses.dataclass(frozen=True, slots=True)
class RollOver:
    """Sends at a steady rate, whether or not they are answered, into log files of 64 MiB."""

    size: Size
    name: str = "roll-over"
    systems: frozenset[System] = ROCKETMQ

    @property
    def space(self) -> int:
        return {Size.QUICK: 4, Size.USUAL: 8, Size.FULL: 24}[self.size] * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        rate, seconds = _RATE[self.size], _SECONDS[self.size]
        title = f"{_BODY} B at {rate:,} a second, log files of {_FILE_BYTES // MIB} MiB"
        drawn: dict[str, list[Line]] = {}

        def measure(server: Server, _number: int) -> Sample:
            one, used, files = _send(title, server, rate, seconds)
            # Those of the last round stay.
            drawn[server.name] = lines(server.name, one.series, files)
            return _sample(one, used, files)

        with running(bench, self.systems, _SETTINGS) as servers:
            warm_up(servers, bench)
            for server in servers:
                with server.turn():
                    server.make_topic(_topic(_BODY))
            measure_load(found, title, servers, measure, bench)
        found.lines = [line for each in drawn.values() for line in each]
        return found


def _topic(body: int) -> str:
    return f"Bench-roll-over-{body}"


def _send(title: str, server: Server, rate: int, seconds: float) -> tuple[Finding, float, list[float]]:
    """One round, the processor time of the server, and when log files appeared, in seconds after the start."""
    options: dict[str, str | float] = {
        "mode": "steady",
        "connections": 8,
        "body": _BODY,
        "topic": _topic(_BODY),
        "rate": rate,
        "seconds": seconds,
        "series": f"{_STEP_SECONDS}s",
    }
    with watched(lambda: _log_files(server.store), _LOOK_SECONDS) as watch:
        found, used = run_load(title, options, server, seconds)
    return found, used, appeared(watch.seen, found.start_ms / 1000)


def _log_files(store: Path) -> frozenset[str]:
    # Files that are being made have other names until they are whole.
    return frozenset(name for name in os.listdir(store / "commitlog") if name.isdecimal())


def appeared(seen: Sequence[tuple[float, frozenset[str]]], start: float) -> list[float]:
    """When there were files that had not been there before, in seconds after the start."""
    return [
        now - start for (_, before), (now, names) in itertools.pairwise(seen) if names - before and now >= start
    ]


def _sample(found: Finding, used: float, files: Sequence[float]) -> Sample:
    near = [point["max_us"] for point in found.series if _is_near(point["seconds"], files)]
    values = {
        RATE: found.messages / max(found.seconds, 1e-3),
        CPU: used / max(found.messages, 1) * 1e6,
        P50: found.p50_us / 1e3,
        P99: found.p99_us / 1e3,
        P999: found.p999_us / 1e3,
        WORST: found.max_us / 1e3,
    }
    if near:
        values[WORST_NEAR] = max(near) / 1e3
    return Sample(values, found.failures, found.failure)


def _is_near(seconds: float, files: Sequence[float]) -> bool:
    return any(seconds - _NEAR_SECONDS <= file <= seconds + _STEP_SECONDS + _NEAR_SECONDS for file in files)


def lines(system: str, series: Sequence[Mapping[str, float]], files: Sequence[float]) -> list[Line]:
    """The plots of one round."""
    marks = [(file, "new log file") for file in files]
    return [
        Line(title, system, "ms", [(each["seconds"], each[value] / 1e3) for each in series], marks)
        for title, value in ((WORST_TITLE, "max_us"), (P999_TITLE, "p999_us"))
    ]
