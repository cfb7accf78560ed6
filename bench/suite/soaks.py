"""Soak: messages sent and consumed for a long time at a steady rate, and the memory of the broker meanwhile."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.server import raw_load
from bench.server.measures import CPU, OWN, RATE, RESIDENT, Measure, Sample
from bench.suite.consumes import END_P99, END_P999, followed
from bench.suite.running import ROCKETMQ, reason, running, warm_up
from bench.suite.scenario import Found, Line
from bench.suite.watching import watched
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.server.systems import Server
    from bench.server.usage import Resident
    from bench.suite.scenario import Bench, System

OWN_EARLY = Measure("anonymous memory, after a tenth of the time", "MiB")

TITLE = "anonymous memory of the broker"

_SECONDS = {Size.QUICK: 4.0, Size.USUAL: 60.0, Size.FULL: 3600.0}
_RATE = {Size.QUICK: 1_000, Size.USUAL: 5_000, Size.FULL: 5_000}
_TOPIC = "Bench-soak"
_MAX_POINTS = 720
_SHORTEST_LOOK = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Soak:
    """One system after the other: an hour of turns of some seconds each would be none."""

    size: Size
    name: str = "soak"
    systems: frozenset[System] = ROCKETMQ

    @property
    def space(self) -> int:
        return 4 * GIB + int(_SECONDS[self.size] * _RATE[self.size] * 500)

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        title = f"{_SECONDS[self.size]:,.0f} s of 128 B at {_RATE[self.size]:,} a second, consumed at once"
        found.samples[title] = {}
        for system in bench.systems:
            if system not in self.systems:
                continue
            try:
                with running(bench, (system,)) as servers:
                    (server,) = servers
                    warm_up(servers, bench)
                    bench.tell(f"{title}: {server.name}")
                    with server.turn():
                        sample, line = self._soak(title, server)
            except PeerError as error:
                found.skipped.append(f"{title}: {system.title}: {reason(error)}")
                continue
            found.samples[title][system.title] = [sample]
            found.lines.append(line)
        return found

    def _soak(self, title: str, server: Server) -> tuple[Sample, Line]:
        seconds = _SECONDS[self.size]
        server.make_topic(_TOPIC)
        options: dict[str, str | float] = {"mode": "longpoll", "connections": 8, "rate": _RATE[self.size]}
        with watched(server.memory, max(seconds / _MAX_POINTS, _SHORTEST_LOOK)) as watch:
            one, used = followed(title, options, server, _TOPIC, seconds)
        values = {
            RATE: one.messages / max(one.seconds, 1e-3),
            CPU: used / max(one.messages, 1) * 1e6,
            END_P99: one.p99_us / 1e3,
            END_P999: one.p999_us / 1e3,
            **growth([memory for _, memory in watch.seen]),
        }
        start = watch.seen[0][0]
        points = [(at - start, memory.anonymous) for at, memory in watch.seen]
        return Sample(values, one.failures, one.failure), Line(TITLE, server.name, "MiB", points, [])


def growth(memory: Sequence[Resident]) -> dict[Measure, float]:
    """Memory early and at the end, each the median of a tenth of the samples."""
    tenth = max(len(memory) // 10, 1)
    early = statistics.median(each.anonymous for each in memory[tenth : 2 * tenth] or memory)
    late = statistics.median(each.anonymous for each in memory[-tenth:])
    return {OWN_EARLY: early, OWN: late, RESIDENT: memory[-1].total}
