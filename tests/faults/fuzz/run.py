"""One run of the fuzzer: start the servers, send the frames, probe the services, restart, and report."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from faults.fuzz.canary import SLOW_SECONDS, CanaryProcess, Report
from faults.fuzz.frames import BATCH_FRAMES, batch
from faults.fuzz.lanes import Lanes, Tally
from faults.fuzz.probes import canary_messages, probe_all
from faults.fuzz.server import FuzzedServer
from faults.fuzz.templates import BROKER, NAME_SERVER
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TESTS = Path(__file__).parents[2]
_LOOK_SECONDS = 0.5
_SAY_SECONDS = 10.0
_MOST_SAVED = 200
"""Batches of a failure that are written to the file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``first`` and ``frames`` are whole batches."""

    seed: int
    first: int
    frames: int
    home: Path
    """An empty folder."""
    lanes: int = 4
    memory: int = 1 << 30
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """For the servers, beside the present one."""
    one_by_one: bool = False
    """Each frame waits for the one before, and its cost is measured."""
    left_out: frozenset[int] = frozenset()
    """Request codes that are not sent, to look behind a fault that is known."""


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a run found."""

    tally: Tally
    canary: Report = dataclasses.field(default_factory=Report)
    seconds: float = 0.0
    most_memory: int = 0
    problems: list[str] = dataclasses.field(default_factory=list)
    """What is wrong, each in one paragraph."""
    suspects: set[int] = dataclasses.field(default_factory=set)
    """The batches in flight when something went wrong."""


class Run:
    """Runs a plan."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._server = FuzzedServer(plan.home, plan.environment)
        first = plan.first // BATCH_FRAMES
        addresses = {BROKER: self._server.broker, NAME_SERVER: self._server.name_server}
        last = first + -(-plan.frames // BATCH_FRAMES)
        cost = self._server.processor_seconds if plan.one_by_one else None
        self._lanes = Lanes(plan.seed, first, last, addresses, plan.lanes, cost, plan.left_out)
        self._faults: collections.Counter[str] = collections.Counter()
        self.outcome = Outcome(self._lanes.tally)

    def run(self) -> Outcome:
        path = os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", "")))
        canary: CanaryProcess | None = None
        try:
            self._server.start()
            environment = {**os.environ, "PYTHONPATH": path}
            canary = CanaryProcess(self._server.broker, self._server.name_server, self._plan.home, environment)
            self._fire(canary)
            self._judge_canary(canary.finish())
            self._probe()
            self._restart()
        except PeerError as error:
            self._problem(str(error))
        finally:
            self._lanes.stop()
            if canary is not None:
                canary.kill()
            self._server.kill()
        self._look()
        self._judge()
        return self.outcome

    def _fire(self, canary: CanaryProcess) -> None:
        """Send all frames, while looking at the log and the memory."""
        began = said = time.monotonic()
        self._lanes.start()
        while self._lanes.running:
            time.sleep(_LOOK_SECONDS)
            self._look()
            if not self._server.running:
                self._problem("the server ended while frames were sent")
                break
            if not canary.running:
                break
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                tally, memory = self.outcome.tally, self.outcome.most_memory >> 20
                self._say(f"{tally.frames:,} frames, {tally.answers:,} answers, {memory} MiB at most")
        self._lanes.stop()
        self.outcome.seconds = time.monotonic() - began
        for number, what in self.outcome.tally.failures:
            self._problem(f"frames {_range(number)}: {what}", number)

    def _look(self) -> None:
        self.outcome.most_memory = max(self.outcome.most_memory, self._server.memory)
        found = self._server.new_faults()
        if found:
            self.outcome.suspects |= self._in_flight(time.monotonic() - 2 * _LOOK_SECONDS, time.monotonic())
            self._faults.update(found)

    def _judge_canary(self, report: Report) -> None:
        self.outcome.canary = report
        for when, took, _ in report.slow:
            self.outcome.suspects |= self._in_flight(when, when + took)
        for when, _ in report.wrong:
            self.outcome.suspects |= self._in_flight(when - 1, when)
        if report.wrong:
            self._problem(f"the canary got {len(report.wrong)} wrong answers, the first: {report.wrong[0][1]}")

    def _probe(self) -> None:
        for name, problem, took in probe_all(self._server, "1"):
            self._say(f"probe {name}: {problem or 'works'} ({took:.1f} s)")
            if problem is not None:
                self._problem(f"{name} does not work after the frames: {problem}")

    def _restart(self) -> None:
        began = time.monotonic()
        problem = self._server.stop()
        stopped = time.monotonic()
        if problem is not None:
            self._problem(problem)
        self._server.start()
        self._say(f"stopped in {stopped - began:.1f} s, started in {time.monotonic() - stopped:.1f} s")
        problem = canary_messages(self._server, self.outcome.canary.acknowledged)
        if problem is not None:
            self._problem(f"after a restart: {problem}")
        problem = self._server.stop()
        if problem is not None:
            self._problem(f"after a restart: {problem}")

    def _judge(self) -> None:
        for fault, count in self._faults.most_common():
            self._problem(f"in the server's log, {count} times: {fault}")
        if self.outcome.most_memory > self._plan.memory:
            used, most = self.outcome.most_memory >> 20, self._plan.memory >> 20
            self._problem(f"{used} MiB of memory, more than the {most} of --memory")

    def _problem(self, what: str, *suspects: int) -> None:
        self.outcome.problems.append(what)
        self.outcome.suspects.update(suspects)
        self._say(f"PROBLEM {what}")

    def _in_flight(self, began: float, ended: float) -> set[int]:
        """The batches that were in flight at some time between the two."""
        found = set()
        for ran in reversed(self.outcome.tally.ran):
            if ran.ended < began - 5:
                break
            if ran.began <= ended and ran.ended >= began:
                found.add(ran.number)
        return found

    def save_suspects(self, file: Path) -> str:
        """Write the suspected frames to a file; how to send them again."""
        numbers = sorted(self.outcome.suspects)[:_MOST_SAVED]
        with file.open("w") as lines:
            for number in numbers:
                made = batch(self._plan.seed, number)
                for at, frame in enumerate(made.frames):
                    lines.write(
                        json.dumps(
                            {"frame": made.first_frame + at, "to": made.target, "code": made.codes[at]}
                            | {"hex": frame.hex()}
                        )
                        + "\n"
                    )
        first = numbers[0] * BATCH_FRAMES
        count = (numbers[-1] + 1) * BATCH_FRAMES - first
        return f"make fuzz SEED={self._plan.seed} FIRST={first} FRAMES={count}"


def _range(number: int) -> str:
    return f"{number * BATCH_FRAMES}..{(number + 1) * BATCH_FRAMES - 1}"


def summary(outcome: Outcome) -> str:
    """A few lines about a run."""
    tally, canary = outcome.tally, outcome.canary
    rate = tally.frames / outcome.seconds if outcome.seconds else 0.0
    slow = sorted(canary.slow, key=lambda entry: -entry[1])[:5]
    return "\n".join(
        (
            f"{tally.frames:,} frames in {outcome.seconds:.1f} s ({rate:,.0f}/s), "
            f"{tally.connections:,} connections, {tally.answers:,} answers with {tally.answered_bytes >> 20} MiB, "
            f"{tally.closed_by_server} connections closed by the servers",
            f"canary: {canary.answers:,} answers, slowest {canary.slowest * 1000:.0f} ms, "
            f"{len(canary.slow)} above {SLOW_SECONDS * 1000:.0f} ms, {canary.busy} sends repeated"
            + "".join(f"\n  {what} took {took * 1000:.0f} ms" for _, took, what in slow),
            f"memory: {outcome.most_memory >> 20} MiB at most",
            f"problems: {len(outcome.problems)}",
        )
    )


def expensive(outcome: Outcome, count: int = 10) -> list[str]:
    """The frames that cost most if they were sent one by one, or the batches that took longest."""
    if outcome.tally.costs:
        return [
            f"frame {frame}, request {code}: {cost * 1000:.1f} ms of processor time"
            for cost, frame, code in sorted(outcome.tally.costs, reverse=True)[:count]
        ]
    longest = sorted(outcome.tally.ran, key=lambda ran: ran.began - ran.ended)[:count]
    return [f"frames {_range(ran.number)}: {(ran.ended - ran.began) * 1000:.0f} ms" for ran in longest]


def to_standard_output(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
