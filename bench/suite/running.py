"""Systems started for a scenario, halted until their turns, and gone with their files afterwards."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.server import raw_load
from bench.server.loads import WARM_UP as WARM_UP_LOAD
from bench.server.systems import start_apache, start_orbitmq
from bench.suite.rounds import interleave
from bench.suite.scenario import System
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from bench.server.measures import Sample
    from bench.server.systems import Server
    from bench.suite.scenario import Bench, Found

ROCKETMQ = frozenset({System.ORBITMQ, System.APACHE})
"""Those that speak RocketMQ's protocol, and so take the same frames."""

START = {System.ORBITMQ: start_orbitmq, System.APACHE: start_apache}
_WARM_UP_STEP_SECONDS = 2
_WARM_UP_SECONDS = 30.0
# Apache's broker is at its full rate after 300,000 messages.
_WARM_UP_MESSAGES = 400_000
_QUICK_WARM_UP_MESSAGES = 5_000


@contextlib.contextmanager
def folder(bench: Bench) -> Iterator[Path]:
    """A folder for a scenario, removed with all it holds."""
    made = Path(tempfile.mkdtemp(dir=bench.root))
    try:
        yield made
    finally:
        shutil.rmtree(made)


@contextlib.contextmanager
def running(
    bench: Bench, systems: Iterable[System] = ROCKETMQ, settings: Mapping[str, str] | None = None
) -> Iterator[list[Server]]:
    """Those of the systems that the run asks for, started with more properties of a broker, and halted."""
    wanted = frozenset(systems)
    with folder(bench) as home, contextlib.ExitStack() as stack:
        servers = []
        for system in bench.systems:
            if system in wanted:
                bench.tell(f"{system.title}: starting")
                servers.append(stack.enter_context(START[system](home / system.value, settings or {})))
                servers[-1].halt()
        yield servers


def warm_up(servers: Iterable[Server], bench: Bench, *, seconds: float = _WARM_UP_SECONDS) -> None:
    """Send until a Java broker has compiled what it runs through; its first messages take four times as long."""
    wanted = _QUICK_WARM_UP_MESSAGES if bench.size is Size.QUICK else _WARM_UP_MESSAGES
    for server in servers:
        bench.tell(f"{server.name}: warming up")
        with server.turn():
            server.make_topic(WARM_UP_LOAD.topic)
            end, sent = time.monotonic() + seconds, 0
            while sent < wanted and time.monotonic() < end:
                sent += raw_load.send_for(WARM_UP_LOAD, server, _WARM_UP_STEP_SECONDS)


def measure_load(
    found: Found, name: str, servers: Sequence[Server], measure: Callable[[Server, int], Sample], bench: Bench
) -> None:
    """Add what the rounds of a load give to what was found, or why they gave nothing: other loads go on."""
    try:
        found.samples[name] = interleave(servers, bench.rounds, measure, bench, name)
    except PeerError as error:
        found.skipped.append(f"{name}: {reason(error)}")


@contextlib.contextmanager
def keeping(found: Found) -> Iterator[None]:
    """Measure in the block. If the run is stopped meanwhile, the block ends, and the results so far stay."""
    try:
        yield
    except KeyboardInterrupt:
        found.skipped.append("the rest: the run was stopped")


def reason(error: Exception) -> str:
    """The first line of an error, without the last output of the processes."""
    return str(error).strip().partition("\n")[0]
