"""``python -m bench client``: start the servers, let the clients take turns, report."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.client import grpc_peer
from bench.client.loads import LOADS, PLANS, Load, Program
from bench.client.report import ClientReport
from bench.client.turns import Turns
from bench.figures import Size
from bench.machine import GIB, describe_machine, free_space, load_average, source_state
from bench.output import tell as tell_report
from bench.server import java_load
from bench.server.systems import APACHE, ORBITMQ, Server, start_apache, start_orbitmq
from peers import apache
from peers.process import PeerError


def client(
    only: Annotated[
        list[str] | None, typer.Option(help="Only loads whose name contains this; may be given several times.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Only OrbitMQ's client with OrbitMQ's server: no Java, no gRPC.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    full: Annotated[bool, typer.Option("--full", help="More and longer rounds; takes half an hour.")] = False,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    markdown_to: Annotated[str | None, typer.Option("--markdown", help="Write Markdown to this file.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the loads and end.")] = False,
) -> None:
    """Measure OrbitMQ's client beside the gRPC client of PyPI and the Java client, in the same run."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 180)
    if quick and full:
        raise typer.BadParameter("a run is quick or full, not both")
    size = Size.QUICK if quick else Size.FULL if full else Size.USUAL
    chosen = [load for load in LOADS if not only or any(text in load.name for text in only)]
    if listing:
        for load in chosen:
            console.print(load.name, highlight=False)
        return
    if not chosen:
        raise typer.BadParameter(f"no load is called {' or '.join(only or ())}", param_hint="--only")
    if directory is not None and not os.path.isdir(directory):
        raise typer.BadParameter(f"{directory} is not a directory", param_hint="--dir")
    # On SIGTERM it cleans up first: the folder may hold gigabytes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = _run(chosen, size, directory, console, alone=alone)
    except PeerError as error:
        console.print(str(error), highlight=False, markup=False)
        raise typer.Exit(1) from None
    tell_report(report, console, json_to=json_to, markdown_to=markdown_to)


def _missing(chosen: list[Load], *, alone: bool) -> dict[Program | str, str]:
    """Programs and servers that cannot run here, with the reason."""
    if alone:
        return dict.fromkeys((APACHE, grpc_peer.PROXY, Program.GRPC, Program.JAVA), "")
    found: dict[Program | str, str] = {}
    if reason := apache.available():
        return dict.fromkeys((APACHE, grpc_peer.PROXY, Program.GRPC, Program.JAVA), reason)
    used = {contender.program for load in chosen for contender in load.contenders}
    if Program.GRPC in used and (reason := grpc_peer.unavailable()):
        found |= dict.fromkeys((Program.GRPC, grpc_peer.PROXY), reason)
    if Program.JAVA in used and (reason := java_load.unavailable()):
        found[Program.JAVA] = reason
    return found


def _run(chosen: list[Load], size: Size, directory: str | None, console: Console, *, alone: bool) -> ClientReport:
    plan, began = PLANS[size], time.monotonic()
    missing = _missing(chosen, alone=alone)
    skipped = [f"{_named(what)}: {reason}" for what, reason in missing.items() if reason]
    loads = [
        dataclasses.replace(
            load,
            contenders=tuple(
                each for each in load.contenders if each.program not in missing and each.server not in missing
            ),
        )
        for load in chosen
    ]

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
        report = ClientReport(describe_machine(root), size.value, skipped, load_average())
        with contextlib.ExitStack() as stack:
            servers: dict[str, Server] = {}
            proxy = None
            for name, start in ((ORBITMQ, start_orbitmq), (APACHE, start_apache)):
                if name in missing:
                    continue
                tell(f"{name}: starting")
                servers[name] = stack.enter_context(start(Path(root) / name.partition(" ")[0]))
                if name == APACHE and any(
                    each.server == grpc_peer.PROXY for load in loads for each in load.contenders
                ):
                    tell(f"{grpc_peer.PROXY}: starting")
                    proxy = stack.enter_context(grpc_peer.Proxy(Path(root) / "proxy", servers[name].nameserver))
                    proxy.halt()
                servers[name].halt()
            turns = Turns(servers, proxy, plan, tell)
            turns.run(loads)
    report.samples = turns.samples
    report.load_after = load_average()
    report.source_after = source_state()
    report.seconds = time.monotonic() - began
    return report


def _named(what: Program | str) -> str:
    return what.value if isinstance(what, Program) else what
