"""A run: the systems take turns under each load, and the one that is not measured is halted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.messaging.loads import LevelBacklog, add_pending, needs_pending, send, settle_timers
from bench.messaging.measures import OWN_WAITING
from bench.server.loads import WARM_UP
from bench.server.measures import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.messaging.loads import Load
    from bench.messaging.plan import Plan
    from bench.server.systems import Server

PROCESS = "the broker's process"

_STEP = 100_000


class Turns:
    """The servers of a run, which are halted outside their turns, and what was measured of each."""

    def __init__(self, servers: Sequence[Server], plan: Plan, tell: Callable[[str], None]) -> None:
        self.samples: dict[str, dict[str, list[Sample]]] = {}
        """By load and system, in the order of the rounds."""
        self._servers = servers
        self._plan = plan
        self._tell = tell

    def run(self, loads: Sequence[Load]) -> None:
        for server in self._servers:
            with server.turn():
                self._prepare(server, loads)
        for load in loads:
            # The round before the first warms up what this load runs through, and does not count.
            for number in range(-1, self._plan.rounds):
                self._round(load, number)

    def _prepare(self, server: Server, loads: Sequence[Load]) -> None:
        self._tell(f"{server.name}: warming up")
        server.make_topic(WARM_UP.topic)
        send(server, WARM_UP.topic, self._plan.warm_up_messages)
        if any(needs_pending(load) for load in loads):
            server.make_topic("Bench-timers")
            left = self._plan.pending
            while left > 0:
                self._tell(f"{server.name}: {left:,} timers to go")
                add_pending(server, min(left, _STEP))
                left -= _STEP
            settle_timers(server)
            self._add(PROCESS, server, Sample({OWN_WAITING: server.memory().anonymous}))
        for load in loads:
            load.prepare(server, self._plan)

    def _round(self, load: Load, number: int) -> None:
        self._tell(f"{load.name}: round {number + 1}" if number >= 0 else f"{load.name}: warming up")
        # Who goes first changes, so that neither always finds caches and disk as the other left them.
        order = self._servers if number % 2 else self._servers[::-1]
        if isinstance(load, LevelBacklog):
            for server in order:
                with server.turn():
                    load.begin(server, self._plan)
        for server in order:
            if isinstance(load, LevelBacklog):
                time.sleep(max(load.due(server) - time.time(), 0))
            with server.turn():
                sample = load.measure(server, self._plan)
            if number >= 0:
                self._add(load.name, server, sample)

    def _add(self, load: str, server: Server, sample: Sample) -> None:
        systems = self.samples.setdefault(load, {each.name: [] for each in self._servers})
        systems[server.name].append(sample)
