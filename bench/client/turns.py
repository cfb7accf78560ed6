"""A run: clients take turns under each load, round by round, and servers that are not needed are halted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import select
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bench.client import grpc_peer, java_client
from bench.client.loads import BODY, FILLED, IN_FLIGHT, Program
from bench.client.measures import CORES, CPU
from bench.client.window import Task, read_finding
from bench.server.measures import P50, P99, RATE, Sample
from bench.server.systems import APACHE
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.client.loads import Contender, Load, Plan
    from bench.client.window import Finding
    from bench.server.measures import Measure
    from bench.server.systems import Server

ROOT = Path(__file__).parents[2]

_PATIENCE_SECONDS = 90
_FILL_SECONDS = 600


class Turns:
    """The servers of a run, which are halted outside their turns, and what was measured of each client."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        proxy: grpc_peer.Proxy | None,
        plan: Plan,
        tell: Callable[[str], None],
    ) -> None:
        self.samples: dict[str, dict[str, list[Sample]]] = {}
        """By load and client, in the order of the rounds."""
        self._servers = servers
        self._proxy = proxy
        self._plan = plan
        self._tell = tell
        self._groups = 0

    def run(self, loads: Sequence[Load]) -> None:
        """Make topics, fill the one that is consumed, warm up, measure."""
        for server in self._servers.values():
            self._tell(f"{server.name}: making topics, sending what will be consumed, warming up")
            with server.turn():
                for load in loads:
                    server.make_topic(load.topic)
                self._fill(server)
        for number in range(-1, self._plan.rounds):
            for load in loads:
                self._round(load, number)

    def _fill(self, server: Server) -> None:
        messages = self._plan.filled_messages
        server.make_topic(FILLED)
        task = Task(
            "send-asyncio", server.nameserver, FILLED, "filling", _FILL_SECONDS, BODY, 1, 1, IN_FLIGHT, messages
        )
        found = run_load(Program.ORBITMQ, task)
        if found.messages < messages:
            raise PeerError(f"{server.name} took only {found.messages} of {messages} messages: {found.failure}")

    def _round(self, load: Load, number: int) -> None:
        """One round of one load; the one before round 0 does not count, it warms up what this load runs through."""
        self._tell(f"{load.name}: round {number + 1}" if number >= 0 else f"{load.name}: warming up")
        contenders = [each for each in load.contenders if self._is_there(each)]
        # The first one alternates: no contender always finds caches and disk as the same other one left them.
        for contender in contenders if number % 2 else reversed(contenders):
            if number < 0 and contender.program is Program.JAVA:
                continue  # it prints nothing in so short a time, and its own lines leave its warming up aside
            with self._turn(contender):
                sample = self._measure(load, contender, 1 if number < 0 else self._plan.seconds)
            if number >= 0:
                self.samples.setdefault(load.name, {each.name: [] for each in contenders})[contender.name].append(
                    sample
                )

    def _is_there(self, contender: Contender) -> bool:
        return contender.server in self._servers or (
            contender.server == grpc_peer.PROXY and self._proxy is not None
        )

    @contextlib.contextmanager
    def _turn(self, contender: Contender) -> Iterator[None]:
        if contender.server != grpc_peer.PROXY:
            with self._servers[contender.server].turn():
                yield
            return
        assert self._proxy is not None
        with self._servers[APACHE].turn(), self._proxy.turn():
            yield

    def _measure(self, load: Load, contender: Contender, seconds: float) -> Sample:
        if contender.program is Program.JAVA:
            server = self._servers[contender.server]
            return java_client.measure(contender.mode, load, server, self._plan.java_lines)
        self._groups += 1
        task = Task(
            contender.mode,
            self._address(contender),
            load.topic,
            # A group of its own each time, so that a consumer begins with the first message.
            f"bench-client-{self._groups}",
            seconds,
            BODY,
            load.threads,
            load.batch,
            contender.in_flight,
            self._plan.filled_messages if load.consumes else 0,
        )
        try:
            return sample_of(run_load(contender.program, task))
        except PeerError as error:
            raise PeerError(f"{load.name}, {contender.name}: {error}") from None

    def _address(self, contender: Contender) -> str:
        if contender.server == grpc_peer.PROXY:
            assert self._proxy is not None
            return self._proxy.address
        return self._servers[contender.server].nameserver


def sample_of(found: Finding) -> Sample:
    """The sample for the comparison, from the report of a load."""
    values: dict[Measure, float] = {
        RATE: found.messages / found.seconds,
        CPU: found.processor_seconds / max(found.messages, 1) * 1e6,
        CORES: found.processor_seconds / found.seconds,
    }
    if found.p50_us is not None and found.p99_us is not None:
        values |= {P50: found.p50_us / 1e3, P99: found.p99_us / 1e3}
    return Sample(values, found.failures, found.failure)


def run_load(program: Program, task: Task) -> Finding:
    """Run a load in a process of its own."""
    python = str(grpc_peer.interpreter()) if program is Program.GRPC else sys.executable
    module = "grpc_load" if program is Program.GRPC else "orbitmq_load"
    command = [python, "-m", f"bench.client.{module}", json.dumps(dataclasses.asdict(task))]
    with tempfile.TemporaryDirectory(prefix="orbitmq-client-") as folder:
        environment = {"PYTHONPATH": str(ROOT), "HOME": folder}
        process = PeerProcess(
            f"{program.value}, {task.mode}", command, home=Path(folder), environment=environment, conversation=True
        )
        try:
            to_load, from_load = process.pipes
            _line(from_load, process, _PATIENCE_SECONDS)
            to_load.write(b"go\n")
            to_load.flush()
            return read_finding(_line(from_load, process, task.seconds + _PATIENCE_SECONDS))
        finally:
            process.kill()


def _line(stream: IO[bytes], process: PeerProcess, seconds: float) -> bytes:
    """The next line; a program that prints none in time, or ends instead, is quoted."""
    if not select.select([stream], [], [], seconds)[0]:
        raise PeerError(f"silent for {seconds:g} s\n{process.quote()}")
    line = stream.readline()
    if not line:
        raise PeerError(f"ended\n{process.quote()}")
    return line
