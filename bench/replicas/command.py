"""``python -m bench replicas``: sends to masters with and without slaves in turns, and the rate of catching up."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from bench.figures import Figure, figure
from bench.machine import GIB, MIB, describe_machine, free_space, load_average
from bench.replicas import cores
from bench.replicas.bars import ALONE, ASYNC, SLAVE_CPU, Found, subject_of, verdicts
from bench.replicas.pairs import CATCH_UP_SECONDS, Pair, Shape
from bench.report import spread_table
from bench.server import raw_load
from bench.server.measures import CPU, P99, RATE
from bench.server.raw_load import RawLoad
from bench.server.systems import APACHE, ORBITMQ
from bench.suite.rounds import in_order
from peers import apache
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Sequence

LOADS = (RawLoad("send", 128, 8, 64), RawLoad("send", 128, 64, 1))
SHAPES = (
    Shape(ORBITMQ, 0),
    Shape(ORBITMQ, 1),
    Shape(ORBITMQ, 1, is_sync=True),
    Shape(ORBITMQ, 2, is_sync=True),
    Shape(ORBITMQ, 1, is_sync=True, is_controlled=True),
    Shape(APACHE, 0),
    Shape(APACHE, 1),
    Shape(APACHE, 1, is_sync=True),
    Shape(APACHE, 2, is_sync=True),
)
APART = (ALONE, ASYNC)
"""Shapes that are measured once more with the master and its load on a core of their own."""
CATCH_UP_BODY = 4096
CATCH_UP_ROUNDS = 3
CATCH_UP_ROUND_SECONDS = 1.0


def replicas(
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each load; 5 without it.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a round.")] = 3.0,
    only: Annotated[
        list[str] | None, typer.Option(help="Only shapes whose name contains this; may be given several times.")
    ] = None,
    catch_up: Annotated[
        bool, typer.Option("--catch-up/--no-catch-up", help="Also measure an empty slave behind a long log.")
    ] = True,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
) -> None:
    """Measure masters with slaves beside the same without, of OrbitMQ and of Apache RocketMQ."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    rounds = rounds or (1 if quick else 5)
    shapes = [shape for shape in SHAPES if not only or any(text in shape.name for text in only)]
    if any(shape.system == APACHE for shape in shapes) and (reason := apache.available()):
        console.print(f"{APACHE}: {reason}", highlight=False)
        shapes = [shape for shape in shapes if shape.system != APACHE]
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
        if free_space(root) < (4 if quick else 24) * GIB:
            raise typer.BadParameter(f"{root} has too little room", param_hint="--dir")
        machine, load = describe_machine(root), load_average()
        try:
            raw_load.require()
            found = _sends(shapes, Path(root), rounds, seconds)
            figures = [figure(subject, measure, unit, values) for (subject, measure, unit), values in found.items()]
            if catch_up:
                figures += _catch_up(Path(root) / "catch-up", 256 * MIB if quick else 5 * GIB)
        except PeerError as error:
            console.print(str(error), highlight=False, markup=False)
            raise typer.Exit(1) from None
    console.print(spread_table("system", figures))
    judged = verdicts(found, [(load.connections, load.in_flight) for load in LOADS])
    for one in judged:
        console.print(str(one), highlight=False, markup=False)
    results = {
        "machine": machine,
        "load_average": [load, load_average()],
        "figures": [one.as_json() for one in figures],
        "bars": [dataclasses.asdict(one) for one in judged],
    }
    if json_to == "-":
        sys.stdout.write(json.dumps(results, indent=2, default=str) + "\n")
    elif json_to is not None:
        Path(json_to).write_text(json.dumps(results, indent=2, default=str) + "\n", "utf-8")


def _sends(shapes: Sequence[Shape], root: Path, rounds: int, seconds: float) -> Found:
    """Every system takes its turn in every round of every load."""
    with contextlib.ExitStack() as stack:
        pairs = []
        for number, shape in enumerate(shapes):
            pair = Pair(shape, root / f"pair-{number}")
            stack.callback(pair.close)
            pair.add_slaves()
            for load in LOADS:
                pair.master.make_topic(load.topic)
            raw_load.send_for(LOADS[0], pair.master, seconds)
            pair.halt()
            pairs.append(pair)
        found: Found = {}
        for number, load in itertools.product(range(rounds), LOADS):
            for pair in in_order(pairs, number):
                _measure(pair, load, seconds, found)
            for pair in in_order(pairs, number):
                if cores.has_several() and pair.shape in APART:
                    _measure(pair, load, seconds, found, is_apart=True)
    return found


def _measure(pair: Pair, load: RawLoad, seconds: float, found: Found, *, is_apart: bool = False) -> None:
    """One round; apart, the slaves take no time from the master's core."""
    with pair.turn(), cores.apart(pair) if is_apart else contextlib.nullcontext():
        before = pair.slave_seconds()
        sample = raw_load.measure(load, pair.master, seconds)
        if sample.failures:
            raise PeerError(f"{pair.shape.name}: {sample.failures} sends failed, the first: {sample.failure}")
        if pair.slaves:
            pair.slaves[0].wait_until(pair.is_copied, what="copied", seconds=CATCH_UP_SECONDS)
        used = pair.slave_seconds() - before
    subject = subject_of(pair.shape.name, load.connections, load.in_flight, is_apart=is_apart)
    for measure in (RATE, P99, CPU):
        found.setdefault((subject, measure.name, measure.unit), []).append(sample.values[measure])
    if pair.slaves:
        messages = sample.values[RATE] * seconds
        found.setdefault((subject, SLAVE_CPU, "µs"), []).append(used / messages * 1e6)


def _catch_up(root: Path, size: int) -> list[Figure]:
    """An empty slave behind a log of this size; then another one, while the master takes sends.

    Of OrbitMQ only: Apache's master sends an empty slave the newest log file.
    """
    pair = Pair(Shape(ORBITMQ, 1), root)
    try:
        load = RawLoad("send", CATCH_UP_BODY, 8, 64)
        sends = LOADS[0]
        for each in (load, sends):
            pair.master.make_topic(each.topic)
        while pair.status().master_commit_log_max_offset < size:
            raw_load.send_for(load, pair.master, 2.0)
        copied = pair.status().master_commit_log_max_offset
        began = time.monotonic()
        pair.add_slaves()
        pair.slaves[0].wait_until(pair.is_copied, what="copied", seconds=CATCH_UP_SECONDS)
        alone = copied / MIB / (time.monotonic() - began)
        before = [_rate(sends, pair) for _ in range(CATCH_UP_ROUNDS)]
        copied = pair.status().master_commit_log_max_offset
        began = time.monotonic()
        pair.exchange_slave()
        meanwhile = [_rate(sends, pair)]
        while not pair.has_copied(copied):
            if time.monotonic() - began > CATCH_UP_SECONDS:
                raise PeerError(f"an empty slave had not copied the log after {CATCH_UP_SECONDS} s")
            meanwhile.append(_rate(sends, pair))
        loaded = copied / MIB / (time.monotonic() - began)
    finally:
        pair.close()
    what = f"catch-up of {copied / GIB:.1f} GiB, start of the slave included"
    return [
        figure(ORBITMQ, what, "MiB/s", [alone]),
        figure(ORBITMQ, f"{what}, under sends", "MiB/s", [loaded]),
        figure(ORBITMQ, f"{sends.name}, one slave in sync", RATE.unit, before),
        figure(ORBITMQ, f"{sends.name}, while an empty slave catches up", RATE.unit, meanwhile),
    ]


def _rate(load: RawLoad, pair: Pair) -> float:
    """Messages a second that the master takes."""
    sample = raw_load.measure(load, pair.master, CATCH_UP_ROUND_SECONDS)
    if sample.failures:
        raise PeerError(f"{sample.failures} sends failed, the first: {sample.failure}")
    return sample.values[RATE]
