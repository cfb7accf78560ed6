"""Start-up: how long a broker takes until clients reach it, and what it occupies then and after many messages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.messaging.loads import send
from bench.server import raw_load
from bench.server.measures import OWN, OWN_IDLE, RESIDENT, RESIDENT_IDLE, START, Sample
from bench.suite.rounds import WARM_UP, in_order
from bench.suite.running import ROCKETMQ, folder, running
from bench.suite.running import START as STARTS
from bench.suite.scenario import Found

if TYPE_CHECKING:
    from bench.suite.scenario import Bench, System

TOPIC = "Bench-memory"

_STARTS = {Size.QUICK: 1, Size.USUAL: 5, Size.FULL: 9}
_MESSAGES = {Size.QUICK: 50_000, Size.USUAL: 1_000_000, Size.FULL: 1_000_000}


@dataclasses.dataclass(frozen=True, slots=True)
class StartUp:
    """Starts of each system in turns, on empty stores, and the memory of one that took a million messages."""

    size: Size
    name: str = "start-up"
    systems: frozenset[System] = ROCKETMQ
    space: int = 4 * GIB

    def run(self, bench: Bench) -> Found:
        found = Found({})
        self._start(bench, found)
        if reason := raw_load.unavailable():
            found.skipped.append(f"memory after messages: {reason}")
        else:
            self._fill(bench, found)
        return found

    def _start(self, bench: Bench, found: Found) -> None:
        wanted = [system for system in bench.systems if system in self.systems]
        title = "an empty store"
        samples: dict[str, list[Sample]] = {system.title: [] for system in wanted}
        rounds = max(_STARTS[self.size], bench.rounds)
        # The first start of each reads its program from the disk.
        for number in range(WARM_UP, rounds):
            bench.tell(f"{title}: round {number + 1} of {rounds}")
            for system in in_order(wanted, number):
                with folder(bench) as home, STARTS[system](home / system.value) as server:
                    memory = server.memory()
                    if number != WARM_UP:
                        values = {
                            START: server.start_seconds,
                            RESIDENT_IDLE: memory.total,
                            OWN_IDLE: memory.anonymous,
                        }
                        samples[system.title].append(Sample(values))
        found.samples[title] = samples

    def _fill(self, bench: Bench, found: Found) -> None:
        messages = _MESSAGES[self.size]
        title = f"after {messages:,} messages of 128 B"
        found.samples[title] = {}
        with running(bench, self.systems) as servers:
            for server in servers:
                bench.tell(f"{server.name}: {messages:,} messages")
                with server.turn():
                    server.make_topic(TOPIC)
                    sent, _ = send(server, TOPIC, messages)
                    memory = server.memory()
                values = {RESIDENT: memory.total, OWN: memory.anonymous}
                found.samples[title][server.name] = [Sample(values, sent.failures, sent.failure)]
