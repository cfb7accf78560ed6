"""``python -m bench grpc``: start each server in turn, apply the loads, and print the ratios."""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from bench.machine import load_average
from bench.proxy.systems import SYSTEMS
from bench.server.usage import processor_seconds, resident_memory
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.proxy.systems import Running

LOAD = Path(__file__).parent / "load"

SHAPES = ((8, 32), (8, 64), (64, 1))
"""Connections, and calls in flight on each."""

BUILD_SECONDS = 300


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """Of one load in one round."""

    rate: float
    microseconds: float
    """Processor time of the server for a message."""
    p99: float


def grpc(
    seconds: Annotated[float, typer.Option(help="Time of each load.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Turns of each server.")] = 1,
    size: Annotated[int, typer.Option(help="Bytes of a body.")] = 128,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
) -> None:
    """Measure OrbitMQ's gRPC port beside Apache's proxy: rate, processor time per message, and memory."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    found: dict[str, dict[str, list[Figure]]] = {name: {} for name in SYSTEMS}
    memory: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    before = load_average()
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-grpc-") as root:
            program = _build(Path(root))
            for number in range(rounds):
                for name, start in SYSTEMS.items():
                    with start(Path(root) / f"{name}-{number}") as running:
                        _measure(program, running, found[name], seconds, size)
                        memory[name].append(resident_memory(running.group).anonymous)
    except PeerError as error:
        console.print(str(error), highlight=False)
        raise typer.Exit(1) from None
    _print(console, found, memory)
    console.print(f"load average before {before}, after {load_average()}", highlight=False)
    if json_to is not None:
        rows = {
            name: {load: [dataclasses.asdict(one) for one in figures] for load, figures in loads.items()}
            for name, loads in found.items()
        }
        text = json.dumps({"figures": rows, "memory": memory}, indent=2) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        else:
            Path(json_to).write_text(text, "utf-8")


def _build(folder: Path) -> Path:
    program = folder / "load"
    built = subprocess.run(
        ["go", "build", "-C", str(LOAD), "-o", str(program), "."],
        capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
    )  # fmt: skip
    if built.returncode:
        raise PeerError(f"the load was not built: {built.stderr.strip()[-500:]}")
    return program


def _measure(program: Path, running: Running, figures: dict[str, list[Figure]], seconds: float, size: int) -> None:
    servers = running.servers
    servers.create_topic("bench", queues=8)
    servers.create_group("bench")
    # The first calls of a JVM are slow.
    _load(program, running, ["-seconds", str(seconds)])
    for mode in ("send", "receive"):
        for channels, in_flight in SHAPES[:2] if mode == "receive" else SHAPES:
            options = [
                *("-mode", mode, "-seconds", str(seconds), "-size", str(size)),
                *("-channels", str(channels), "-in-flight", str(in_flight)),
            ]
            figure = _load(program, running, options)
            figures.setdefault(f"{mode} {channels} × {in_flight}", []).append(figure)


def _load(program: Path, running: Running, options: list[str]) -> Figure:
    before = processor_seconds(running.group)
    command = [str(program), "-endpoint", running.servers.endpoints, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode:
        raise PeerError(f"the load failed: {done.stderr.strip()[-500:]}")
    result = json.loads(done.stdout)
    if result["failed"]:
        raise PeerError(f"{result['failed']} calls failed, the first one: {result['problem']}")
    spent = processor_seconds(running.group) - before
    count = max(result["messages"], 1)
    return Figure(result["messages"] / result["seconds"], spent / count * 1e6, result["p99"])


def _print(console: Console, found: dict[str, dict[str, list[Figure]]], memory: dict[str, list[float]]) -> None:
    table = Table("load", *(f"{name}: rate, µs CPU, p99 ms" for name in found), "rate ×", "CPU ×")
    first, second = found
    for load in found[first]:
        medians = {
            name: Figure(
                *(
                    statistics.median(values)
                    for values in zip(*map(dataclasses.astuple, found[name][load]), strict=True)
                )
            )
            for name in found
        }
        table.add_row(
            load,
            *(f"{one.rate:,.0f}/s  {one.microseconds:.0f}  {one.p99:.0f}" for one in medians.values()),
            f"{medians[second].rate / medians[first].rate:.2f}",
            f"{medians[second].microseconds / medians[first].microseconds:.2f}",
        )
    own = {name: statistics.median(values) for name, values in memory.items()}
    table.add_row(
        "own memory, MiB", *(f"{value:.0f}" for value in own.values()), "", f"{own[second] / own[first]:.2f}"
    )
    console.print(table)
