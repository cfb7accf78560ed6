"""``python -m bench suite``: every scenario on every system that can be had, and a report of it."""

from __future__ import annotations

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
from bench.suite import kafka, plots, rabbitmq
from bench.suite.catalog import scenarios
from bench.suite.report import SuiteReport
from bench.suite.running import reason
from bench.suite.scenario import Bench, System
from peers import apache
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.suite.scenario import Scenario


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Number and duration of the rounds of a load."""

    rounds: int
    seconds: float


PLANS = {Size.QUICK: Plan(1, 0.5), Size.USUAL: Plan(5, 2.0), Size.FULL: Plan(7, 3.0)}

UNAVAILABLE: dict[System, Callable[[], str | None]] = {
    System.ORBITMQ: lambda: None,
    System.APACHE: apache.available,
    System.KAFKA: kafka.unavailable,
    System.RABBITMQ: rabbitmq.unavailable,
}
"""Why a system cannot be had here, in one sentence. Asking may fetch it."""


class Stopped:
    """A flag for SIGTERM. The run then ends as after Ctrl-C, with the results so far."""

    def __init__(self) -> None:
        self.now = False

    def __call__(self, *_: object) -> None:
        self.now = True
        raise KeyboardInterrupt


def suite(
    only: Annotated[
        list[str] | None, typer.Option(help="Only scenarios whose name contains this; may be given several times.")
    ] = None,
    system: Annotated[
        list[System] | None,
        typer.Option(help="Only this system; may be given several times. Without it, all that can be had."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Everything: hours, and tens of gigabytes.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each load; 5 without it.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Of one round; 2 without it.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write report.json, report.md and plots into this folder.")
    ] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the scenarios and end.")] = False,
) -> None:
    """Measure OrbitMQ beside other systems in every scenario, and write a report."""
    console = Console(width=None if sys.stdout.isatty() else 200)
    if quick and full:
        raise typer.BadParameter("a run is quick or full, not both")
    size = Size.QUICK if quick else Size.FULL if full else Size.USUAL
    chosen = [each for each in scenarios(size) if not only or any(text in each.name for text in only)]
    if listing:
        for each in chosen:
            systems = ", ".join(one.title for one in System if one in each.systems)
            console.print(f"{each.name:32} {each.space / GIB:5.1f} GiB  {systems}", highlight=False)
        return
    if not chosen:
        raise typer.BadParameter(f"no scenario is called {' or '.join(only or ())}", param_hint="--only")
    if directory is not None and not os.path.isdir(directory):
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="--dir")
    if out is not None:
        # Before the run: an output folder that cannot be written must not waste an hour.
        _make_folder(out)
    plan = PLANS[size]
    plan = Plan(rounds or plan.rounds, seconds or plan.seconds)
    report = _run(chosen, [each for each in System if not system or each in system], size, plan, directory, out)
    report.print(console)
    if out is not None:
        console.print(f"written: {out}", highlight=False)
    if not report.found:
        raise typer.Exit(1)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be made: {error.strerror}", param_hint="--out") from None


def available(wanted: Sequence[System], report: SuiteReport) -> list[System]:
    """Those of the systems that can be had here; the report says why the others cannot."""
    found = []
    for each in wanted:
        try:
            why = UNAVAILABLE[each]()
        except PeerError as error:
            why = reason(error)
        if why is None:
            found.append(each)
        else:
            report.skipped.append(f"{each.title}: {why}")
    return found


def _run(
    chosen: Sequence[Scenario],
    wanted: Sequence[System],
    size: Size,
    plan: Plan,
    directory: str | None,
    out: Path | None,
) -> SuiteReport:
    began, stopped = time.monotonic(), Stopped()

    def tell(what: str) -> None:
        # Even without a terminal: a silent run looks as if it hung.
        print(f"{time.monotonic() - began:5.0f} s  {what} …", file=sys.stderr, flush=True)

    handlers = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
            report = SuiteReport(describe_machine(root), size.value, plan.rounds, plan.seconds, load_average())
            try:
                useful = [each for each in wanted if any(each in one.systems for one in chosen)]
                systems = available(useful, report)
                bench = Bench(Path(root), size, plan.rounds, plan.seconds, systems, tell)
                for scenario in chosen:
                    run_scenario(scenario, bench, report)
                    if stopped.now:
                        raise KeyboardInterrupt  # it kept what it had, and returned
                    _close(report, began, out)
            except KeyboardInterrupt:
                report.skipped.append("the rest of the run: it was stopped")
            # A second signal does not stop the clean-up: the folder may hold gigabytes.
            for number in handlers:
                signal.signal(number, signal.SIG_IGN)
        _close(report, began, out)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return report


def run_scenario(scenario: Scenario, bench: Bench, report: SuiteReport) -> None:
    """Add what a scenario finds to the report, or why it finds nothing."""
    systems = [each for each in bench.systems if each in scenario.systems]
    if not systems:
        report.skipped.append(f"{scenario.name}: it is none for {', '.join(each.title for each in bench.systems)}")
        return
    free = free_space(str(bench.root))
    if scenario.space > free:
        report.skipped.append(
            f"{scenario.name}: it may take {scenario.space / GIB:.0f} GiB and {bench.root.parent} has "
            f"{free / GIB:.1f}: give another --dir"
        )
        return
    bench.tell(scenario.name)
    began = time.monotonic()
    try:
        report.found[scenario.name] = scenario.run(dataclasses.replace(bench, systems=systems))
    except (PeerError, OSError, ValueError) as error:
        report.skipped.append(f"{scenario.name}: {reason(error)}")
        bench.tell(f"{scenario.name} failed: {error}")
    report.took[scenario.name] = time.monotonic() - began


def _close(report: SuiteReport, began: float, out: Path | None) -> None:
    """Write the report as far as it goes: a run takes long, and may end at any time."""
    report.load_after = load_average()
    report.source_after = source_state()
    report.seconds = time.monotonic() - began
    if out is None:
        return
    if plots.unavailable() is None:
        report.plots = plots.draw(report, out)
    report.write(out)
