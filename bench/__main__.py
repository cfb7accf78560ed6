"""``python -m bench``: run scenarios, print a table, write JSON. ``python -m bench server`` measures servers,
``python -m bench messages`` timers, delay levels, transactions and POP, ``python -m bench client`` clients,
``python -m bench spark`` Spark over topics and stores, ``python -m bench rebuild`` building queues from a log,
``python -m bench replicas`` masters with slaves, ``python -m bench security`` signed and encrypted sends,
``python -m bench floods`` a client beside bad ones, ``python -m bench grpc`` the gRPC port,
``python -m bench failover`` one failover as a list of events and a plot,
``python -m bench suite`` all systems in all scenarios, with a report."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import Annotated

import typer
from rich.console import Console

from bench.apart import ApartError, apart
from bench.catalog import SCENARIOS, Scenario
from bench.client.command import client
from bench.failover.command import failover
from bench.figures import Settings, Size
from bench.floods.command import floods
from bench.machine import GIB, describe_machine, free_space, load_average, source_state
from bench.messaging.command import messages
from bench.proxy.command import grpc
from bench.rebuild import rebuild
from bench.replicas.command import replicas
from bench.report import Report
from bench.security.command import security
from bench.server.command import server
from bench.spark.command import spark
from bench.suite.command import suite

app = typer.Typer(add_completion=False)
app.command("server")(server)
app.command("messages")(messages)
app.command("client")(client)
app.command("spark")(spark)
app.command("rebuild")(rebuild)
app.command("replicas")(replicas)
app.command("security")(security)
app.command("floods")(floods)
app.command("suite")(suite)
app.command("grpc")(grpc)
app.command("failover")(failover)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option(help="Run this scenario; may be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run of seconds; its figures say little.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Also what takes minutes and 14 GiB of disk.")] = False,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the scenarios and end.")] = False,
) -> None:
    """Measure what OrbitMQ's store and protocol cost on this machine."""
    if context.invoked_subcommand is not None:
        return
    # Standard output belongs to the JSON if that is where it goes.
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    if listing:
        for scenario in SCENARIOS:
            console.print(f"{scenario.name:12} {scenario.title}", highlight=False)
        return
    if quick and full:
        raise typer.BadParameter("a run is quick or full, not both")
    chosen = _choose(only)
    size = Size.QUICK if quick else Size.FULL if full else Size.USUAL
    if directory is not None and not os.path.isdir(directory):
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="--dir")
    try:
        with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
            _refuse_without_space(chosen, root, size)
            report = _run(chosen, root, size, console)
    except ApartError as error:
        # The process has printed its own error on stderr.
        console.print(f"{error}", highlight=False)
        raise typer.Exit(1) from None
    report.print(console)
    if json_to is not None:
        text = json.dumps(report.as_json(), indent=2) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        else:
            with open(json_to, "w", encoding="utf-8") as file:
                file.write(text)


def _choose(only: list[str] | None) -> list[Scenario]:
    known = {scenario.name: scenario for scenario in SCENARIOS}
    for name in only or ():
        if name not in known:
            raise typer.BadParameter(f"{name} is none of {', '.join(known)}", param_hint="--only")
    return [scenario for scenario in SCENARIOS if not only or scenario.name in only]


def _refuse_without_space(chosen: list[Scenario], root: str, size: Size) -> None:
    """Scenarios run one after the other and clean up, so the largest decides."""
    free = free_space(root)
    for scenario in chosen:
        needed = scenario.space(Settings(root, size))
        if needed > free:
            raise typer.BadParameter(
                f"{scenario.name} needs {needed / GIB:.1f} GiB and {os.path.dirname(root)} has {free / GIB:.1f}: "
                "give another --dir, or --quick",
                param_hint="--dir",
            )


def _run(chosen: list[Scenario], root: str, size: Size, console: Console) -> Report:
    report = Report(describe_machine(root), size.value, load_average())
    for scenario in chosen:
        with tempfile.TemporaryDirectory(prefix=f"{scenario.name}-", dir=root) as directory:
            start = time.perf_counter()
            if sys.stderr.isatty():
                console.print(f"{scenario.name} …", highlight=False)
            report.results[scenario.name] = apart(scenario.run, Settings(directory, size))
            report.seconds[scenario.name] = time.perf_counter() - start
    report.load_after = load_average()
    report.source_after = source_state()
    return report


if __name__ == "__main__":
    app()
