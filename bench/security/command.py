"""``python -m bench security``: sends in clear, signed and encrypted, of OrbitMQ and Apache RocketMQ in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from bench.machine import GIB, describe_machine, free_space, load_average, source_state
from bench.output import tell as tell_report
from bench.security.report import ENCRYPTED, SIGNED, SecurityReport, load_name
from bench.security.servers import PASSWORD, USER, started
from bench.server import raw_load
from bench.server.raw_load import RawLoad, run_load
from bench.server.systems import APACHE, ORBITMQ
from bench.suite.rounds import Case, interleave_all
from peers import apache
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.server.measures import Sample
    from bench.server.systems import Server

_BODY = 128
_TOPIC = RawLoad("send", _BODY, 8, 64).topic
# Apache's first 150,000 messages take four times as long as the later ones.
_WARM_UP_SECONDS = 12.0


@dataclasses.dataclass(frozen=True, slots=True)
class Protection:
    """What protects the requests of a load."""

    name: str
    is_signed: bool = False
    is_encrypted: bool = False

    @property
    def options(self) -> dict[str, str | float]:
        """Options of the raw load."""
        found: dict[str, str | float] = {"tls": "true"} if self.is_encrypted else {}
        return {**found, "access-key": USER, "secret-key": PASSWORD} if self.is_signed else found


PROTECTIONS = (
    Protection("in clear"),
    Protection(SIGNED, is_signed=True),
    Protection(ENCRYPTED, is_encrypted=True),
    Protection(f"{SIGNED}, over TLS", is_signed=True, is_encrypted=True),
)
SHAPES = ((8, 64), (64, 1))


def security(
    quick: Annotated[bool, typer.Option("--quick", help="A smoke run; its figures say little.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each load; 5 without it.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of a round.")] = 3.0,
    only: Annotated[str | None, typer.Option(help="Only loads whose name contains this.")] = None,
    system: Annotated[str | None, typer.Option(help="Only systems whose name contains this.")] = None,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    markdown_to: Annotated[str | None, typer.Option("--markdown", help="Write Markdown to this file.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
) -> None:
    """Measure sends with signatures and access rules, and over TLS, beside Apache RocketMQ with the same."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    rounds = rounds or (1 if quick else 5)
    systems, skipped = [each for each in (ORBITMQ, APACHE) if not system or system in each], []
    if APACHE in systems and (reason := apache.available()):
        systems.remove(APACHE)
        skipped.append(f"{APACHE}: {reason}")
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as root:
        if free_space(root) < (4 if quick else 24) * GIB:
            raise typer.BadParameter(f"{root} has too little room", param_hint="--dir")
        began = time.monotonic()
        report = SecurityReport(
            describe_machine(root), "quick" if quick else "usual", systems, skipped, load_average()
        )
        try:
            raw_load.require()
            report.samples = _measured(systems, Path(root), rounds, 0.5 if quick else seconds, only)
        except PeerError as error:
            console.print(str(error), highlight=False, markup=False)
            raise typer.Exit(1) from None
        report.load_after, report.source_after = load_average(), source_state()
        report.seconds = time.monotonic() - began
    tell_report(report, console, json_to=json_to, markdown_to=markdown_to)


def _measured(
    systems: list[str], root: Path, rounds: int, seconds: float, only: str | None
) -> Mapping[str, Mapping[str, list[Sample]]]:
    """Every system takes its turn in every round of every load."""
    named = {
        load_name(f"{shape[0]} × {shape[1]}", protection.name): (protection, shape)
        for protection in PROTECTIONS
        for shape in SHAPES
    }
    chosen = {name: load for name, load in named.items() if not only or only in name}
    with contextlib.ExitStack() as stack:
        servers: dict[bool, list[Server]] = {}
        for has_users in sorted({protection.is_signed for protection, _ in chosen.values()}):
            for number, system in enumerate(systems):
                home = root / f"{number}-{'users' if has_users else 'open'}"
                home.mkdir()
                server = stack.enter_context(started(system, home, [_TOPIC], has_users=has_users))
                servers.setdefault(has_users, []).append(server)
                warm_up = next(each for each, _ in chosen.values() if each.is_signed is has_users)
                _send(server, protection=warm_up, shape=SHAPES[0], seconds=min(_WARM_UP_SECONDS, 4 * seconds))
                server.halt()
        cases = {
            name: Case(servers[protection.is_signed], _measure(protection=protection, shape=shape, seconds=seconds))
            for name, (protection, shape) in chosen.items()
        }
        return interleave_all(cases, rounds, lambda _: None)


def _measure(*, protection: Protection, shape: tuple[int, int], seconds: float) -> Callable[[Server, int], Sample]:
    send = functools.partial(_send, protection=protection, shape=shape, seconds=seconds)
    return lambda server, _number: send(server)


def _send(server: Server, *, protection: Protection, shape: tuple[int, int], seconds: float) -> Sample:
    """One round; it fails if a send does, because a refusal costs less than a message."""
    connections, in_flight = shape
    options: dict[str, str | float] = {
        "mode": "send",
        "connections": connections,
        "in-flight": in_flight,
        "body": _BODY,
        "topic": _TOPIC,
        "seconds": seconds,
        **protection.options,
    }
    name = load_name(f"{connections} × {in_flight}", protection.name)
    sample = raw_load.sample(*run_load(name, options, server, seconds))
    if sample.failures:
        raise PeerError(f"{server.name}, {protection.name}: {sample.failures} sends failed: {sample.failure}")
    return sample
