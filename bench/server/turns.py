"""A run: systems take turns under each load, round by round, while the one that is not measured is halted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.server import java_load, raw_load
from bench.server.loads import WARM_UP
from bench.server.measures import IDLE, OWN, OWN_IDLE, RESIDENT, RESIDENT_IDLE, START, Sample
from bench.server.raw_load import RawLoad
from bench.suite.rounds import Case, interleave_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.server.loads import Load, Plan
    from bench.server.measures import Measure
    from bench.server.systems import Server

PROCESS = "the broker's process"
"""What is measured whatever the load goes by this name."""

_WARM_UP_STEP_SECONDS = 3


class Turns:
    """The servers of a run, which are halted outside their turns, and what was measured of each."""

    def __init__(self, servers: Sequence[Server], plan: Plan, tell: Callable[[str], None]) -> None:
        self.samples: dict[str, dict[str, list[Sample]]] = {}
        """By load and system, in the order of the rounds."""
        self._servers = servers
        self._plan = plan
        self._tell = tell

    def run(self, loads: Sequence[Load]) -> None:
        """Prepare, warm up, measure, and look at the processes before and after."""
        at_start = {server.name: self._process_at_start(server) for server in self._servers}
        raw = [load for load in loads if isinstance(load, RawLoad)]
        java = [load for load in loads if not isinstance(load, RawLoad)]
        for server in self._servers:
            with server.turn():
                self._prepare(server, raw, java)
        plan, tell = self._plan, self._tell
        self.samples |= interleave_all({load.name: self._case(load) for load in raw}, plan.rounds, tell)
        # A round of Apache's programs is long enough to warm up within itself.
        self.samples |= interleave_all(
            {each.name: self._case(each) for each in java}, plan.java_rounds, tell, first=0
        )
        self.samples[PROCESS] = {
            server.name: [Sample(at_start[server.name] | self._process_at_end(server))] for server in self._servers
        }

    def _case(self, load: Load) -> Case[Server]:
        def measure(server: Server, _number: int) -> Sample:
            if isinstance(load, RawLoad):
                return raw_load.measure(load, server, self._plan.seconds)
            return java_load.measure(load, server, self._plan.java_lines)

        return Case(self._servers, measure)

    def _prepare(self, server: Server, raw: Sequence[RawLoad], java: Sequence[Load]) -> None:
        self._tell(f"{server.name}: making topics, filling those to be pulled, warming up")
        for topic in dict.fromkeys(load.topic for load in (*raw, *java)):
            server.make_topic(topic)
        for load in {load.topic: load for load in raw if load.mode == "pull"}.values():
            raw_load.fill(load, server, self._plan.filled_messages)
        if raw:
            server.make_topic(WARM_UP.topic)
            end = time.monotonic() + self._plan.warm_up_seconds
            sent = 0
            while sent < self._plan.warm_up_messages and time.monotonic() < end:
                sent += raw_load.send_for(WARM_UP, server, _WARM_UP_STEP_SECONDS)

    def _process_at_start(self, server: Server) -> dict[Measure, float]:
        with server.turn():
            memory = server.memory()
        return {START: server.start_seconds, RESIDENT_IDLE: memory.total, OWN_IDLE: memory.anonymous}

    def _process_at_end(self, server: Server) -> dict[Measure, float]:
        self._tell(f"{server.name}: idle")
        with server.turn():
            memory = server.memory()
            used, began = server.processor_seconds(), time.monotonic()
            time.sleep(self._plan.idle_seconds)
            idle = (server.processor_seconds() - used) / (time.monotonic() - began)
        return {RESIDENT: memory.total, OWN: memory.anonymous, IDLE: idle * 100}
