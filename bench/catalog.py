"""Which scenarios there are, and the bars that OrbitMQ holds itself to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bench.scenarios import (
    append,
    batch_append,
    clean_open,
    deferred,
    memory,
    protocol,
    queues,
    read,
    recovery,
    scan,
    sync_flush,
    timers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.figures import Figure, Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """Something to measure, in a process of its own."""

    name: str
    title: str
    run: Callable[[Settings], list[Figure]]
    space: Callable[[Settings], int]
    """How many bytes of disk it takes at most."""


SCENARIOS = (
    Scenario("append", "append with dispatch and index, 8 queues", append.run, append.space),
    Scenario("batch-append", "append batches, with dispatch and index", batch_append.run, batch_append.space),
    Scenario("sync-flush", "append and wait for the disk (SYNC_FLUSH)", sync_flush.run, sync_flush.space),
    Scenario("read", "read units and records", read.run, read.space),
    Scenario("scan", "verify every record of a log", scan.run, scan.space),
    Scenario("recovery", "open a store after a crash", recovery.run, recovery.space),
    Scenario("clean-open", "open a store that was closed", clean_open.run, clean_open.space),
    Scenario("memory", "memory after appending", memory.run, memory.space),
    Scenario("timers", "memory of messages that wait for their time", timers.run, timers.space),
    Scenario("deferred", "messages that wait and are then due at once", deferred.run, deferred.space),
    Scenario("queues", "50,000 queues beside 8", queues.run, queues.space),
    Scenario("protocol", "frames, headers and answers", protocol.run, protocol.space),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Bar:
    """The limit of a figure's median."""

    statement: str
    scenario: str
    subject: str
    measure: str
    limit: float
    at_most: bool

    def judge(self, results: Mapping[str, list[Figure]]) -> Verdict:
        for figure in results.get(self.scenario, ()):
            if (figure.subject, figure.measure) == (self.subject, self.measure):
                value = figure.median
                return Verdict(
                    self, value, figure.unit, value <= self.limit if self.at_most else value >= self.limit
                )
        return Verdict(self, None, "", None)


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """True if a bar was met; None if this run did not measure it."""

    bar: Bar
    value: float | None
    unit: str
    met: bool | None

    def as_json(self) -> dict[str, Any]:
        return {
            "statement": self.bar.statement,
            "scenario": self.bar.scenario,
            "limit": self.bar.limit,
            "value": self.value,
            "unit": self.unit,
            "met": self.met,
        }


BARS = (
    Bar(
        "an append of 128 bytes takes at most 10 µs of CPU",
        *("append", "128 B", "CPU per record"),
        limit=10,
        at_most=True,
    ),
    Bar(
        "an append of 128 bytes in a batch takes at most 2 µs of CPU",
        *("batch-append", "128 B each", "CPU per record"),
        limit=2,
        at_most=True,
    ),
    Bar(
        "a log of 1 KiB messages is verified at 300 MB/s or more",
        *("scan", "1024 B, in bulk", "log verified, by the clock"),
        limit=300,
        at_most=False,
    ),
    Bar(
        "a closed store of 10 GiB opens within a second",
        *("clean-open", "10 GiB of 64 KiB, cached", "time to open"),
        limit=1,
        at_most=True,
    ),
    Bar(
        "an append costs at most 15 % more with 50,000 queues than with 8",
        *("queues", "50000 queues to 8 queues", "the same, writing units included"),
        limit=1.15,
        at_most=True,
    ),
)
