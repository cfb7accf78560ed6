"""Scenarios of sends: sizes and connections, sync flush, batches, an echo server, Apache's Producer."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB, MIB
from bench.server import java_load, raw_load
from bench.server.java_load import JavaLoad
from bench.server.systems import Server
from bench.suite.running import ROCKETMQ, folder, keeping, measure_load, running, warm_up
from bench.suite.scenario import Found
from bench.suite.sending import KIB, Sending
from peers.ports import free_port, is_listening
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.server.measures import Sample
    from bench.suite.scenario import Bench, System

BODIES = (10, 128, KIB, 64 * KIB)
CONNECTIONS = (1, 8, 64, 512)
IN_FLIGHT = (1, 64)

CLIENTS = ("go", "node", "cpp")

ECHO = "echo server (a ceiling)"

_LARGE = 64 * KIB
# A round of large messages is over after so many bytes, however much time is left: disks are not endless.
_LARGE_ROUND = 512 * MIB
# The bytes that each server may write before it is restarted with an empty store.
_GROUP_SPACE = 5 * GIB
# For how much a round writes at most: no system gets further on any machine it was seen on.
_HIGHEST_RATE = 800_000
_RECORD = 200
_SYNC_WARM_UP_SECONDS = 10.0
_ECHO_SECONDS = 10


def matrix(size: Size) -> list[Sending]:
    """The cells of a run: all of them, or the corners and the middle."""
    if size is Size.FULL:
        cells = [_cell(*each) for each in itertools.product(BODIES, CONNECTIONS, IN_FLIGHT)]
        return [cell for cell in cells if cell != LARGEST]
    if size is Size.QUICK:
        return [_cell(128, 8, 64), _cell(128, 64, 1)]
    middle = [_cell(body, 8, 64) for body in BODIES]
    return [*middle, *(_cell(128, *shape) for shape in ((1, 1), (1, 64), (64, 1), (512, 1), (512, 64)))]


def _cell(body: int, connections: int, in_flight: int) -> Sending:
    # Every request in flight has its message at least.
    most = max(_LARGE_ROUND // body, connections * in_flight) if body >= _LARGE else 0
    return Sending(body, connections, in_flight, most=most)


LARGEST = _cell(BODIES[-1], CONNECTIONS[-1], IN_FLIGHT[-1])
"""With 2 GiB of requests in flight, which takes a disk of its own."""


def groups(cells: Sequence[Sending], bench: Bench) -> Iterator[list[Sending]]:
    """Cells that the same processes are measured with, so that these do not fill the disk."""
    group: list[Sending] = []
    held = 0
    for cell in cells:
        a_round = cell.most or bench.seconds * _HIGHEST_RATE
        needed = int(a_round * (cell.body + _RECORD) * (bench.rounds + 1))
        if group and held + needed > _GROUP_SPACE:
            yield group
            group, held = [], 0
        group.append(cell)
        held += needed
    if group:
        yield group


@dataclasses.dataclass(frozen=True, slots=True)
class Sends:
    """Sends of every size over every number of connections."""

    cells: Sequence[Sending]
    name: str = "send"
    space: int = 0
    systems: frozenset[System] = ROCKETMQ

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        with keeping(found):
            for group in groups(self.cells, bench):
                measure_sends(bench, found, group)
        return found


def sends(size: Size) -> list[Sends]:
    """The matrix of a run, and the cell that stands apart."""
    # Log files are made before they are needed.
    space = 4 * GIB if size is Size.QUICK else (_GROUP_SPACE + 3 * GIB) * len(ROCKETMQ)
    made = [Sends(matrix(size), space=space)]
    if size is Size.FULL:
        made.append(Sends([LARGEST], f"send, {LARGEST.most * LARGEST.body // GIB} GiB in flight", 44 * GIB))
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class OtherClients:
    """Sends as clients of other languages than Java write them."""

    size: Size
    name: str = "send, other clients"
    systems: frozenset[System] = ROCKETMQ
    space: int = 2 * (_GROUP_SPACE + 3 * GIB)

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        shapes = ((8, 64),) if self.size is Size.QUICK else ((8, 64), (64, 1))
        cells = [Sending(128, *shape, headers=client) for shape in shapes for client in CLIENTS]
        with keeping(found):
            for group in groups(cells, bench):
                measure_sends(bench, found, group)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class SyncFlush:
    """Sends whose answers wait until the message is on the disk."""

    size: Size
    name: str = "send, sync flush"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        shapes = ((64, 1),) if self.size is Size.QUICK else ((1, 1), (64, 1), (8, 64))
        loads = [Sending(128, *shape) for shape in shapes]
        with keeping(found):
            measure_sends(bench, found, loads, settings={"flushDiskType": "SYNC_FLUSH"}, remark="sync flush")
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Batches:
    """Requests of 32 messages each."""

    size: Size
    name: str = "send, batches"
    systems: frozenset[System] = ROCKETMQ
    space: int = 14 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        bodies = (128,) if self.size is Size.QUICK else (128, KIB)
        with keeping(found):
            measure_sends(bench, found, [Sending(body, 8, 8, batch=32) for body in bodies])
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class EchoCeiling:
    """One request in flight on each of 64 connections, beside a server that does nothing but answer."""

    size: Size
    name: str = "send, beside an echo server"
    systems: frozenset[System] = ROCKETMQ
    space: int = 6 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        load = Sending(128, 64, 1)
        with running(bench) as servers, echo_server(bench) as echo:
            warm_up(servers, bench)
            for server in servers:
                with server.turn():
                    load.make_topics(server)
            name = f"{load.name}, beside an echo server"

            def measure(server: Server, _number: int) -> Sample:
                return load.measure(server, bench.seconds)

            measure_load(found, name, [*servers, echo], measure, bench)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class ApachesProducer:
    """Apache's own benchmark program with 64 threads, each of which waits for its answers."""

    size: Size
    name: str = "send, Apache's Producer"
    systems: frozenset[System] = ROCKETMQ
    space: int = 6 * GIB

    def run(self, bench: Bench) -> Found:
        if why := java_load.unavailable():
            raise PeerError(why)
        found = Found({})
        load = JavaLoad(128, 64)
        lines = {Size.QUICK: 1, Size.USUAL: 3}.get(self.size, 11)

        def measure(server: Server, _number: int) -> Sample:
            return java_load.measure(load, server, lines)

        with running(bench) as servers:
            for server in servers:
                with server.turn():
                    server.make_topic(load.topic)
            measure_load(found, load.name, servers, measure, bench)
        return found


def measure_sends(
    bench: Bench,
    found: Found,
    loads: Sequence[Sending],
    *,
    settings: dict[str, str] | None = None,
    remark: str = "",
) -> None:
    """Put loads on newly started servers, one after the other."""

    def measure(load: Sending, server: Server, _number: int) -> Sample:
        return load.measure(server, bench.seconds)

    with running(bench, settings=settings) as servers:
        if settings:
            warm_up(servers, bench, seconds=_SYNC_WARM_UP_SECONDS)
        else:
            warm_up(servers, bench)
        for server in servers:
            with server.turn():
                for topic in {load.topic: load for load in loads}.values():
                    topic.make_topics(server)
        for load in loads:
            name = f"{load.name}, {remark}" if remark else load.name
            measure_load(found, name, servers, functools.partial(measure, load), bench)


@contextlib.contextmanager
def echo_server(bench: Bench) -> Iterator[Server]:
    """A server that answers and does nothing else, halted until its turns."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with folder(bench) as home:
        command = [sys.executable, str(Path(__file__).with_name("echo_server.py")), str(port)]
        process = PeerProcess("echo server", command, home=home, environment={})
        with Server(ECHO, [process], "", address) as server:
            process.wait_until(lambda: is_listening(address), what="listening", seconds=_ECHO_SECONDS)
            server.broker_name = "echo"
            server.halt()
            yield server
