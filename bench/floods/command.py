"""``python -m bench floods``: sends at a steady rate, alone and beside bad clients, round by round."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from bench.figures import figure
from bench.machine import GIB, describe_machine, free_space, load_average
from bench.report import spread_table
from bench.server import raw_load
from bench.server.measures import P50, P99
from bench.server.raw_load import RawLoad, run_load
from bench.server.systems import QUEUES, start_orbitmq
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.figures import Figure
    from bench.server.systems import Server

LIMIT = 2.0
"""The 99 % latency beside a flood, of that alone."""
ALONE = "alone"
MEMORY = "anonymous memory of the server at its end"
_FILLED = RawLoad("pull", 1024, 8, 1)
_FILLED_MESSAGES = 50_000
_CONNECTIONS, _BODY = 8, 128
_CONNECT_SECONDS = 120
# A flood goes on for as long as the sends beside it, and what they take to start.
_LONGER_SECONDS = 3.0


@dataclasses.dataclass(frozen=True, slots=True)
class Flood:
    """Bad clients of one kind."""

    name: str
    kind: str
    connections: int
    rate: int = 0
    """Connections a second, of those that come and go."""

    @property
    def options(self) -> dict[str, str | float]:
        return {
            "mode": "flood",
            "flood": self.kind,
            "connections": self.connections,
            "rate": self.rate,
            "topic": _FILLED.topic,
            "queues": QUEUES,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How fast and how long the well-behaved client sends."""

    seconds: float
    rate: int
    settle: float
    """Seconds for a flood to reach its course: what it costs to begin is not that of going on."""


IDLE = Flood("10,000 idle clients", "idle", 10_000)
DEAF = Flood("500 clients that never read", "deaf", 500)
CONNECTS = Flood("1,000 connections a second", "connects", 20, rate=1000)
SLOW = Flood("500 clients that write byte by byte", "slow", 500)
CASES: tuple[tuple[Flood, ...], ...] = (
    (IDLE,),
    (DEAF,),
    (CONNECTS,),
    (SLOW,),
    (IDLE, DEAF),
    (IDLE, DEAF, CONNECTS, SLOW),
)


def floods(
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds; 5 without it.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a round.")] = 5.0,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second that the well-behaved client sends.")] = 2000,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds from the beginning of a flood to that of the round.")
    ] = 2.0,
    only: Annotated[str | None, typer.Option(help="Only floods whose name contains this.")] = None,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
) -> None:
    """Measure a client that sends at a steady rate, alone and beside floods of bad clients."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    rounds, seconds = rounds or (1 if quick else 5), 1.0 if quick else seconds
    cases = {" and ".join(flood.name for flood in case): case for case in CASES}
    cases = {name: case for name, case in cases.items() if not only or only in name}
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
        if free_space(root) < 4 * GIB:
            raise typer.BadParameter(f"{root} has too little room", param_hint="--dir")
        machine, load = describe_machine(root), load_average()
        try:
            raw_load.require()
            figures, times = _measured(cases, Path(root), rounds, Pace(seconds, rate, settle))
        except PeerError as error:
            console.print(str(error), highlight=False, markup=False)
            raise typer.Exit(1) from None
    console.print(spread_table("sends", figures))
    for name, value in times.items():
        judged = "met" if value <= LIMIT else "missed"
        text = f"{name}: {value:.2f} times the 99 % latency alone, the bar is {LIMIT:g}: {judged}"
        console.print(text, highlight=False, markup=False)
    results: dict[str, Any] = {
        "machine": machine,
        "load_average": [load, load_average()],
        "figures": [one.as_json() for one in figures],
        "times": times,
    }
    if json_to == "-":
        sys.stdout.write(json.dumps(results, indent=2, default=dataclasses.asdict) + "\n")
    elif json_to is not None:
        Path(json_to).write_text(json.dumps(results, indent=2, default=dataclasses.asdict) + "\n", "utf-8")


def _measured(
    cases: dict[str, tuple[Flood, ...]], root: Path, rounds: int, pace: Pace
) -> tuple[list[Figure], dict[str, float]]:
    """The figures of each case, and how many times its latency is that alone in the same round."""
    found: dict[tuple[str, str, str], list[float]] = {}
    times: dict[str, list[float]] = {name: [] for name in cases}
    with start_orbitmq(root / "server") as server:
        for load in (_FILLED, RawLoad("send", _BODY, 8, 64)):
            server.make_topic(load.topic)
        raw_load.fill(_FILLED, server, _FILLED_MESSAGES)
        raw_load.send_for(RawLoad("send", _BODY, 8, 64), server, pace.seconds)
        for number in range(rounds):
            for place, (name, case) in enumerate(cases.items()):
                alone = _latency(server, pace, ALONE, found)
                with _flooded(server, case, root / f"round-{number}" / str(place), pace):
                    beside = _latency(server, pace, name, found)
                    memory = server.memory().anonymous
                found.setdefault((name, MEMORY, "MiB"), []).append(memory)
                times[name].append(beside / alone)
    figures = [figure(subject, measure, unit, values) for (subject, measure, unit), values in found.items()]
    return figures, {name: statistics.median(values) for name, values in times.items()}


def _latency(server: Server, pace: Pace, name: str, found: dict[tuple[str, str, str], list[float]]) -> float:
    """The 99 % latency of one round of sends, in milliseconds, counted from the time when each was due."""
    options: dict[str, str | float] = {
        "mode": "steady",
        "rate": pace.rate,
        "connections": _CONNECTIONS,
        "body": _BODY,
        "topic": RawLoad("send", _BODY, 8, 64).topic,
        "seconds": pace.seconds,
    }
    sample = raw_load.sample(*run_load(f"sends, {name}", options, server, pace.seconds))
    if sample.failures:
        raise PeerError(f"{name}: {sample.failures} sends failed: {sample.failure}")
    for measure in (P50, P99):
        found.setdefault((name, measure.name, measure.unit), []).append(sample.values[measure])
    return sample.values[P99]


@contextlib.contextmanager
def _flooded(server: Server, case: Sequence[Flood], home: Path, pace: Pace) -> Iterator[None]:
    """The floods of a case go on within the block."""
    with contextlib.ExitStack() as stack:
        started = []
        for number, flood in enumerate(case):
            options = {"address": server.address, "broker": server.broker_name, **flood.options}
            options["seconds"] = pace.seconds + pace.settle + _LONGER_SECONDS
            command = [str(raw_load.program()), *(f"-{name}={value}" for name, value in options.items())]
            folder = home / str(number)
            folder.mkdir(parents=True)
            process = PeerProcess(flood.name, command, home=folder, environment={}, conversation=True)
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            raw_load.line_of(process, _CONNECT_SECONDS)
        for process in started:
            to_flood, _ = process.pipes
            to_flood.write(b"go\n")
            to_flood.flush()
        time.sleep(pace.settle)
        yield
