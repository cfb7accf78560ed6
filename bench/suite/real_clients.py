"""Clients of other languages as their users run them: Apache's Go client, ali-ons for Node.js, the C++ client."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from bench.figures import Size
from bench.machine import GIB
from bench.messaging.loads import send
from bench.server import raw_load
from bench.server.measures import CPU, RATE, Sample
from bench.suite.running import ROCKETMQ, folder, measure_load, running, warm_up
from bench.suite.scenario import Found
from peers import cpp_client, go_client, node_client
from peers.agent import Outgoing
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.server.systems import Server
    from bench.suite.scenario import Bench, Scenario, System
    from peers.agent import Agent

_BODY = 128
_AT_A_TIME = 16
_PATIENCE_SECONDS = 120.0


class StartClient(Protocol):
    """Starts a process with a client."""

    def __call__(self, *, home: Path, nameserver: str) -> Agent: ...


@dataclasses.dataclass(frozen=True, slots=True)
class RealClient:
    """A client, and how many messages it consumes in some seconds."""

    title: str
    key: str
    """In the names of topics and groups."""
    start: StartClient
    unavailable: Callable[[], str | None]
    consumed: int


CLIENTS = (
    RealClient("Go client", "go", go_client.GoClient, go_client.available, 200_000),
    RealClient("Node.js client", "node", node_client.NodeClient, node_client.available, 40_000),
    RealClient("C++ client", "cpp", cpp_client.CppClient, cpp_client.available, 40_000),
)
_QUICK_CONSUMED = 2_000


@dataclasses.dataclass(frozen=True, slots=True)
class RealClients:
    """Each client sends, with so many at a time that wait for their answers, and consumes what is there."""

    size: Size
    name: str = "real clients"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        clients = []
        for client in CLIENTS:
            if why := client.unavailable():
                found.skipped.append(f"{client.title}: {why}")
            else:
                clients.append(client)
        if not clients:
            raise PeerError(found.skipped[0])
        with running(bench, self.systems) as servers, folder(bench) as home:
            warm_up(servers, bench)
            for client in clients:
                self._measure(client, servers, bench, home, found)
        return found

    def _measure(self, client: RealClient, servers: list[Server], bench: Bench, home: Path, found: Found) -> None:
        sends, consumes = f"Bench-sent-by-{client.key}", f"Bench-consumed-by-{client.key}"
        messages = _QUICK_CONSUMED if self.size is Size.QUICK else client.consumed
        for server in servers:
            bench.tell(f"{server.name}: filling for the {client.title}")
            with server.turn():
                server.make_topic(sends)
                server.make_topic(consumes)
                send(server, consumes, messages)

        def measure_sends(server: Server, _number: int) -> Sample:
            with client.start(home=home, nameserver=server.nameserver) as agent:
                producer = agent.producer("bench")
                # The first message looks for the route, which several at once of the C++ client do not wait for.
                agent.send(producer, [Outgoing(topic=sends, body=b"first")])
                used = server.processor_seconds()
                load = agent.send_for(
                    producer, sends, size=_BODY, workers=_AT_A_TIME, seconds=max(bench.seconds, 1.0)
                )
                used = server.processor_seconds() - used
            if not load.messages:
                raise PeerError(f"{server.name} took no messages of the {client.title}: {load.failure}")
            values = {RATE: load.messages / load.seconds, CPU: used / load.messages * 1e6}
            return Sample(values, load.failures, load.failure)

        def measure_consumption(server: Server, number: int) -> Sample:
            with client.start(home=home, nameserver=server.nameserver) as agent:
                used = server.processor_seconds()
                counter = agent.counter("bench", consumes, group=f"{consumes}-{number + 1}")
                load = agent.counted(counter, messages, seconds=_PATIENCE_SECONDS)
                used = server.processor_seconds() - used
            if load.messages < messages:
                raise PeerError(f"{server.name} gave the {client.title} {load.messages} of {messages} messages")
            return Sample({RATE: load.messages / max(load.seconds, 1e-3), CPU: used / load.messages * 1e6})

        title = f"{client.title}, send {_BODY} B, {_AT_A_TIME} at a time"
        measure_load(found, title, servers, measure_sends, bench)
        measure_load(found, f"{client.title}, consume {_BODY} B", servers, measure_consumption, bench)


def real_clients(size: Size) -> list[Scenario]:
    """The scenario of this file."""
    return [RealClients(size)]
