"""``python -m bench spark``: start both systems, fill them with the same rows, let them take turns, report."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from bench.figures import Size
from bench.machine import GIB, describe_machine, free_space, load_average, source_state
from bench.output import tell as tell_report
from bench.server.measures import Measure, Sample
from bench.server.report import ServerReport
from bench.server.systems import ORBITMQ
from bench.spark import kafka as kafka_peer
from bench.spark.loads import LOADS, PLANS, Load, Plan, request_of
from bench.spark.systems import KAFKA, Answer, System, kafka, orbitmq
from orbitmq.protocol.message.record import HEADS
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROWS = Measure("rows", "rows/s", more_is_better=True)
BODIES = Measure("bodies", "MB/s", more_is_better=True)
"""Bytes of the rows' bodies, whether the query reads them or not."""
LOG = Measure("log", "MB/s", more_is_better=True)
CPU = Measure("CPU of the server and Spark per row", "µs")


def spark(
    only: Annotated[
        list[str] | None, typer.Option(help="Only loads whose name contains this; may be given several times.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Only OrbitMQ, without Kafka beside it.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    full: Annotated[bool, typer.Option("--full", help="More rows and rounds; takes an hour.")] = False,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    markdown_to: Annotated[str | None, typer.Option("--markdown", help="Write Markdown to this file.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
) -> None:
    """Measure Spark over OrbitMQ beside Spark over Kafka, on the same rows in the same run."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    size = Size.QUICK if quick else Size.FULL if full else Size.USUAL
    chosen = [load for load in LOADS if not only or any(text in load.name for text in only)]
    if not chosen:
        raise typer.BadParameter(f"no load is called {' or '.join(only or ())}", param_hint="--only")
    # On SIGTERM it cleans up first: the folder may hold gigabytes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def tell(what: str) -> None:
        if sys.stderr.isatty():
            console.print(f"{what} …", highlight=False, markup=False)

    try:
        report = _run(chosen, size, directory, tell, alone=alone)
    except PeerError as error:
        console.print(str(error), highlight=False, markup=False)
        raise typer.Exit(1) from None
    tell_report(report, console, json_to=json_to, markdown_to=markdown_to)


def _run(
    chosen: Sequence[Load], size: Size, directory: str | None, tell: Callable[[str], None], *, alone: bool
) -> ServerReport:
    plan, began, skipped = PLANS[size], time.monotonic(), []
    with_kafka = not alone
    if with_kafka and (reason := kafka_peer.unavailable()):
        with_kafka = False
        skipped.append(f"{KAFKA}: {reason}")
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
        if free_space(root) < plan.space:
            raise PeerError(f"the run may take {plan.space / GIB:.0f} GiB: give another --dir, or --quick")
        names = [ORBITMQ, KAFKA] if with_kafka else [ORBITMQ]
        report = ServerReport(describe_machine(root), size.value, names, skipped, load_average())
        with contextlib.ExitStack() as stack:
            tell("starting")
            topics = [load.topic() for load in chosen] + [
                f"bench-sink-{number}" for number in range(plan.rounds + 1)
            ]
            systems = [stack.enter_context(orbitmq(Path(root) / "orbitmq", list(dict.fromkeys(topics))))]
            filled: set[int] = set()
            samples: dict[str, dict[str, list[Sample]]] = {}
            report.samples = samples
            if with_kafka:
                systems.append(stack.enter_context(kafka(Path(root) / "kafka")))
            for load in chosen:
                try:
                    samples[load.name] = _measured(load, plan, systems, filled, tell)
                except PeerError as error:
                    # What was measured before is not lost with it.
                    skipped.append(f"{load.name}: {str(error).splitlines()[0]}")
    report.load_after = load_average()
    report.source_after = source_state()
    report.seconds = time.monotonic() - began
    return report


def _measured(
    load: Load, plan: Plan, systems: Sequence[System], filled: set[int], tell: Callable[[str], None]
) -> dict[str, list[Sample]]:
    """The rounds of one load, by system. ``filled`` are the sizes of rows that the systems have."""
    samples: dict[str, list[Sample]] = {system.name: [] for system in systems}
    if load.verb != "sink" and load.size not in filled:
        # Not before it is needed: a store directory is scanned with nothing else in it.
        filled.add(load.size)
        for system in systems:
            tell(f"{system.name}: filling with {load.size} B")
            with system.turn():
                rows = plan.rows[load.size]
                system.ask({"do": "sink", "topic": load.topic(), "rows": rows, "size": load.size})
    # The round before the first warms up what this load runs through, and does not count.
    for number in range(-1, plan.rounds):
        tell(f"{load.name}: round {number + 1}" if number >= 0 else f"{load.name}: warming up")
        # Who goes first changes, so that neither always finds caches and disk as the other left them.
        for system in systems if number % 2 else reversed(systems):
            if load.verb == "scan" and not system.store:
                continue
            request = request_of(load, plan, number=number, is_kafka=system.name == KAFKA, store=system.store)
            with system.turn():
                answer = system.ask(request)
            expected = plan.sink_rows if load.verb == "sink" else plan.rows[load.size]
            if answer.rows != expected:
                raise PeerError(f"{system.name} gave {answer.rows} rows of {expected}: {load.name}")
            if number >= 0:
                samples[system.name].append(_sample(load, answer))
    return samples


def _sample(load: Load, answer: Answer) -> Sample:
    rows, seconds = answer.rows, answer.seconds
    values = {ROWS: rows / seconds, BODIES: rows * load.size / seconds / 1e6}
    if load.verb == "scan":
        # A record is at least its head and body; topic and properties are not counted.
        values[LOG] = rows * (load.size + HEADS[0].size) / seconds / 1e6
    values[CPU] = answer.processor_seconds / rows * 1e6
    return Sample(values)
