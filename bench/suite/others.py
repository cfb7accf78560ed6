"""The same load on OrbitMQ, Apache RocketMQ, Kafka and RabbitMQ, each in its own protocol."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.server import raw_load
from bench.server.measures import CPU, RATE, Sample
from bench.suite.kafka import start_kafka
from bench.suite.rabbitmq import start_rabbitmq
from bench.suite.running import START, folder, keeping, measure_load, reason
from bench.suite.scenario import Found, System
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from bench.server.raw_load import Finding
    from bench.server.systems import Server
    from bench.suite.scenario import Bench

NAME = "other systems"

BATCH = 32
"""Messages of a batch, of a pull and between two acknowledgements."""

PROTOCOLS = {
    System.ORBITMQ: "rocketmq",
    System.APACHE: "rocketmq",
    System.KAFKA: "kafka",
    System.RABBITMQ: "amqp",
}
_STARTS: Mapping[System, Callable[[Path], Server]] = {
    **START,
    System.KAFKA: start_kafka,
    System.RABBITMQ: start_rabbitmq,
}
_SPACE = {Size.QUICK: 4 * GIB, Size.USUAL: 16 * GIB, Size.FULL: 32 * GIB}
_FILLED_MESSAGES = {Size.QUICK: 5_000, Size.USUAL: 200_000, Size.FULL: 400_000}
_FILL_SECONDS = 120
_WARM_UP_MESSAGES = {Size.QUICK: 5_000, Size.USUAL: 400_000, Size.FULL: 400_000}
_WARM_UP_STEP_SECONDS = 2
_WARM_UP_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class OtherLoad:
    """One load, in whatever protocol."""

    name: str
    mode: str
    body: int
    connections: int
    in_flight: int
    systems: frozenset[System] = frozenset(System)
    options: Mapping[str, str | float] = dataclasses.field(default_factory=dict)
    """Further options of the program."""
    fill: str = "send"
    """The mode in which a topic that is read was filled before."""

    @property
    def topic(self) -> str:
        """Sends go to a topic without consumers."""
        return (
            f"Others-{self.mode}-{self.body}"
            if self.fill == "send"
            else f"Others-{self.mode}-{self.fill}-{self.body}"
        )

    @property
    def reads(self) -> bool:
        return self.mode == "pull"


LOADS = (
    OtherLoad("send 128 B, 8 × 64", "send", 128, 8, 64),
    OtherLoad("send 128 B, 64 × 1", "send", 128, 64, 1),
    OtherLoad("send 1 KiB, 8 × 64", "send", 1024, 8, 64),
    OtherLoad("consume 128 B, 32 at a time, 8 × 4", "pull", 128, 8, 4),
    # What follows is how one of them is used where it is at its best, and the others where they can do the same.
    OtherLoad(
        "send 128 B, 32 in a request, 8 × 8",
        "send-batch",
        128,
        8,
        8,
        frozenset({System.ORBITMQ, System.APACHE, System.KAFKA}),
    ),
    OtherLoad(
        "consume 128 B, 1 MiB at a time, 8 × 1",
        "pull",
        128,
        8,
        1,
        frozenset({System.KAFKA}),
        {"fetch-bytes": 1 << 20},
        fill="send-batch",
    ),
    OtherLoad(
        "send 128 B, 8 × 64, messages that may be lost",
        "send",
        128,
        8,
        64,
        frozenset({System.RABBITMQ}),
        {"persistent": "false"},
    ),
)
_WARM_UP = LOADS[0]


@dataclasses.dataclass(frozen=True, slots=True)
class OtherSystems:
    """All loads on all systems, which are started once."""

    size: Size
    name: str = NAME
    systems: frozenset[System] = frozenset(System)

    @property
    def space(self) -> int:
        return _SPACE[self.size]

    def run(self, bench: Bench, /) -> Found:
        raw_load.require()
        found = Found({})
        with keeping(found), _started(bench, found) as servers:
            for system, server in list(servers.items()):
                try:
                    with server.turn():
                        _prepare(server, bench)
                except PeerError as error:
                    found.skipped.append(f"{system.title}: {reason(error)}")
                    del servers[system]
            for load in LOADS:
                those = [server for system, server in servers.items() if system in load.systems]
                if those:
                    measure_load(found, load.name, those, _measuring(load, bench), bench)
        return found


@contextlib.contextmanager
def _started(bench: Bench, found: Found) -> Iterator[dict[System, Server]]:
    """The systems that a run asks for, halted; one that does not start is left out."""
    with folder(bench) as home, contextlib.ExitStack() as stack:
        servers: dict[System, Server] = {}
        for system in bench.systems:
            bench.tell(f"{system.title}: starting")
            try:
                server = stack.enter_context(_STARTS[system](home / system.value))
            except PeerError as error:
                found.skipped.append(f"{system.title} did not start: {reason(error)}")
                continue
            server.halt()
            servers[system] = server
        yield servers


def _prepare(server: Server, bench: Bench) -> None:
    """Make and fill topics, and warm up."""
    system = system_of(server)
    bench.tell(f"{server.name}: making topics, filling those to be consumed, warming up")
    loads = [load for load in LOADS if system in load.systems]
    for topic in dict.fromkeys(load.topic for load in loads):
        server.make_topic(topic)
    for load in loads:
        if load.reads and not _takes_away(system):
            _fill(load, server, _FILLED_MESSAGES[bench.size])
    end, sent = time.monotonic() + _WARM_UP_SECONDS, 0
    while sent < _WARM_UP_MESSAGES[bench.size] and time.monotonic() < end:
        sent += _run(_WARM_UP, server, _WARM_UP_STEP_SECONDS)[0].messages


def _measuring(load: OtherLoad, bench: Bench) -> Callable[[Server, int], Sample]:
    return lambda server, _: _measure(load, server, bench)


def _measure(load: OtherLoad, server: Server, bench: Bench) -> Sample:
    if not load.reads:
        return raw_load.sample(*_run(load, server, bench.seconds))
    if _takes_away(system_of(server)):
        _fill(load, server, _FILLED_MESSAGES[bench.size])
    found, used = _run(load, server, bench.seconds)
    if not found.messages:
        raise PeerError(f"{server.name} gave no messages: {found.failure}")
    # Requests differ too much to compare latencies: RabbitMQ pushes messages without a request.
    return Sample(
        {RATE: found.messages / max(found.seconds, 1e-3), CPU: used / found.messages * 1e6},
        failures=found.failures,
        failure=found.failure,
    )


def _fill(load: OtherLoad, server: Server, messages: int) -> None:
    filling = dataclasses.replace(load, mode=load.fill, connections=8, in_flight=64, options={})
    found = _run(filling, server, _FILL_SECONDS, topic=load.topic, messages=messages)[0]
    if found.messages < messages:
        raise PeerError(f"{server.name} took only {found.messages} of {messages} messages: {found.failure}")


def _run(
    load: OtherLoad, server: Server, seconds: float, *, topic: str = "", messages: int = 0
) -> tuple[Finding, float]:
    options: dict[str, str | float] = {
        "protocol": PROTOCOLS[system_of(server)],
        "mode": load.mode,
        "connections": load.connections,
        "in-flight": load.in_flight,
        "body": load.body,
        "batch": BATCH,
        "topic": topic or load.topic,
        "seconds": seconds,
        "messages": messages,
        **load.options,
    }
    return raw_load.run_load(load.name, options, server, seconds)


def system_of(server: Server) -> System:
    return next(system for system in System if system.title == server.name)


def _takes_away(system: System) -> bool:
    """True if consumed messages are deleted, so that every round needs new ones."""
    return system is System.RABBITMQ
