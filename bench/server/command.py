"""``python -m bench server``: start the systems, let them take turns, report."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import os
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
from bench.server import java_load, raw_load
from bench.server.loads import PLANS, Load, loads
from bench.server.raw_load import RawLoad
from bench.server.report import ServerReport
from bench.server.revision import install
from bench.server.systems import APACHE, ORBITMQ, start_apache, start_orbitmq
from bench.server.turns import Turns
from peers import apache
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.server.loads import Plan
    from bench.server.systems import Server


class System(enum.Enum):
    """The systems that can be measured, by the name on the command line."""

    ORBITMQ = "orbitmq"
    APACHE = "apache"


STARTS = {System.ORBITMQ: (ORBITMQ, start_orbitmq), System.APACHE: (APACHE, start_apache)}


def server(
    only: Annotated[
        list[str] | None, typer.Option(help="Only loads whose name contains this; may be given several times.")
    ] = None,
    system: Annotated[
        list[System] | None, typer.Option(help="Only this system; without it both, side by side.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Compare with OrbitMQ at this git revision instead of Apache RocketMQ."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Every size, shape and kind of header; takes 1½ hours.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each load; 5 without it.")] = None,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    markdown_to: Annotated[str | None, typer.Option("--markdown", help="Write Markdown to this file.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the loads and end.")] = False,
) -> None:
    """Measure OrbitMQ's server beside Apache RocketMQ, under the same loads in the same run."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    if quick and full:
        raise typer.BadParameter("a run is quick or full, not both")
    size = Size.QUICK if quick else Size.FULL if full else Size.USUAL
    chosen = [load for load in loads(size) if not only or any(text in load.name for text in only)]
    if listing:
        for load in chosen:
            console.print(load.name, highlight=False)
        return
    if baseline is not None and system:
        raise typer.BadParameter("give --baseline or --system, not both")
    if not chosen:
        raise typer.BadParameter(f"no load is called {' or '.join(only or ())}", param_hint="--only")
    if directory is not None and not os.path.isdir(directory):
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="--dir")
    # On SIGTERM it cleans up first: the folder may hold gigabytes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        systems = [each for each in System if not system or each in system]
        plan = PLANS[size] if rounds is None else dataclasses.replace(PLANS[size], rounds=rounds)
        report = _run(chosen, systems, baseline, plan, size, directory, console)
    except PeerError as error:
        console.print(str(error), highlight=False, markup=False)
        raise typer.Exit(1) from None
    tell_report(report, console, json_to=json_to, markdown_to=markdown_to)


def _run(
    chosen: list[Load],
    systems: list[System],
    baseline: str | None,
    plan: Plan,
    size: Size,
    directory: str | None,
    console: Console,
) -> ServerReport:
    skipped, began = [], time.monotonic()
    systems, chosen = [System.ORBITMQ] if baseline is not None else list(systems), list(chosen)
    if System.APACHE in systems and (reason := apache.available()):
        systems.remove(System.APACHE)
        skipped.append(f"{APACHE}: {reason}")
    for kind, unavailable in ((RawLoad, raw_load.unavailable), (java_load.JavaLoad, java_load.unavailable)):
        if any(isinstance(load, kind) for load in chosen) and (reason := unavailable()):
            skipped += [f"{load.name}: {reason}" for load in chosen if isinstance(load, kind)]
            chosen = [load for load in chosen if not isinstance(load, kind)]

    def tell(what: str) -> None:
        if sys.stderr.isatty():
            console.print(f"{what} …", highlight=False, markup=False)

    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
        if free_space(root) < plan.space:
            raise typer.BadParameter(
                f"the run may take {plan.space / GIB:.0f} GiB and {os.path.dirname(root)} has "
                f"{free_space(root) / GIB:.1f}: give another --dir, or --quick",
                param_hint="--dir",
            )
        starts: dict[str, Callable[[Path], Server]] = dict(STARTS[each] for each in systems)
        if baseline is not None:
            name = f"{ORBITMQ} at {baseline}"
            tell(f"{name}: building")
            package = install(baseline, Path(root) / "baseline")
            starts[name] = functools.partial(start_orbitmq, name=name, package=package)
        report = ServerReport(describe_machine(root), size.value, list(starts), skipped, load_average())
        with contextlib.ExitStack() as stack:
            servers = []
            for number, (name, start) in enumerate(starts.items()):
                tell(f"{name}: starting")
                servers.append(stack.enter_context(start(Path(root) / f"system-{number}")))
                servers[-1].halt()
            turns = Turns(servers, plan, tell)
            turns.run(chosen)
    report.samples = turns.samples
    report.load_after = load_average()
    report.source_after = source_state()
    report.seconds = time.monotonic() - began
    return report
