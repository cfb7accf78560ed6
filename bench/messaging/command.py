"""``python -m bench messages``: start the systems, let them take turns, report."""

from __future__ import annotations

import contextlib
import dataclasses
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
from bench.messaging.loads import loads
from bench.messaging.plan import PLANS
from bench.messaging.report import MessagesReport
from bench.messaging.turns import Turns
from bench.output import tell as tell_report
from bench.server import raw_load
from bench.server.command import STARTS, System
from bench.server.systems import APACHE
from peers import apache
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.messaging.loads import Load
    from bench.messaging.plan import Plan


def messages(
    only: Annotated[
        list[str] | None, typer.Option(help="Only loads whose name contains this; may be given several times.")
    ] = None,
    system: Annotated[
        list[System] | None, typer.Option(help="Only this system; without it both, side by side.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each load; 3 without it.")] = None,
    pending: Annotated[
        int | None,
        typer.Option(min=1, help="Timers that wait, and messages in the delay level; a million without it."),
    ] = None,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    markdown_to: Annotated[str | None, typer.Option("--markdown", help="Write Markdown to this file.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the loads and end.")] = False,
) -> None:
    """Measure timers, delay levels, transactions and POP beside Apache RocketMQ, in the same run."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    chosen = [load for load in loads() if not only or any(text in load.name for text in only)]
    if listing:
        for load in chosen:
            console.print(load.name, highlight=False)
        return
    if not chosen:
        raise typer.BadParameter(f"no load is called {' or '.join(only or ())}", param_hint="--only")
    if directory is not None and not os.path.isdir(directory):
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="--dir")
    size = Size.QUICK if quick else Size.USUAL
    plan = PLANS[size]
    plan = dataclasses.replace(plan, rounds=rounds or plan.rounds, pending=pending or plan.pending)
    # On SIGTERM it cleans up first: the folder may hold gigabytes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = _run(chosen, [each for each in System if not system or each in system], plan, size, directory)
    except PeerError as error:
        console.print(str(error), highlight=False, markup=False)
        raise typer.Exit(1) from None
    tell_report(report, console, json_to=json_to, markdown_to=markdown_to)


def _run(
    chosen: list[Load], systems: list[System], plan: Plan, size: Size, directory: str | None
) -> MessagesReport:
    skipped, began = [], time.monotonic()
    systems = list(systems)
    if System.APACHE in systems and (reason := apache.available()):
        systems.remove(System.APACHE)
        skipped.append(f"{APACHE}: {reason}")
    if reason := raw_load.unavailable():
        raise PeerError(reason)

    def tell(what: str) -> None:
        # A line a minute or so even without a terminal: a silent run looks as if it hung.
        print(f"{time.monotonic() - began:5.0f} s  {what} …", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
        if free_space(root) < plan.space:
            raise typer.BadParameter(
                f"the run may take {plan.space / GIB:.0f} GiB and {os.path.dirname(root)} has "
                f"{free_space(root) / GIB:.1f}: give another --dir, or --quick",
                param_hint="--dir",
            )
        names = [STARTS[each][0] for each in systems]
        report = MessagesReport(describe_machine(root), size.value, names, skipped, load_average(), plan=plan)
        with contextlib.ExitStack() as stack:
            servers = []
            for each in systems:
                name, start = STARTS[each]
                tell(f"{name}: starting")
                servers.append(stack.enter_context(start(Path(root) / each.value)))
                servers[-1].halt()
            turns = Turns(servers, plan, tell)
            try:
                turns.run(chosen)
            except (KeyboardInterrupt, SystemExit):
                # Rounds that are done take minutes to repeat.
                skipped.append("the rest of the rounds: the run was stopped")
    report.samples = turns.samples
    report.load_after = load_average()
    report.source_after = source_state()
    report.seconds = time.monotonic() - began
    return report
