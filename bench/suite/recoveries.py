"""Recovery: a broker killed with SIGKILL and started again on what it left."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB, MIB
from bench.messaging.loads import drain, send
from bench.messaging.talk import PROBED_TOPIC, Talk
from bench.server import raw_load
from bench.server.measures import START, Measure, Sample
from bench.server.systems import QUEUES
from bench.suite.rounds import in_order
from bench.suite.running import ROCKETMQ, folder
from bench.suite.running import START as STARTS
from bench.suite.scenario import Found
from peers.process import PeerError

if TYPE_CHECKING:
    from pathlib import Path

    from bench.server.systems import Server
    from bench.suite.scenario import Bench, System

FIRST_SEND = Measure("start of the process to the first answered send", "s")
KEPT = Measure("acknowledged messages that are there", "%", more_is_better=True)

_BYTES = {Size.QUICK: 64 * MIB, Size.USUAL: GIB, Size.FULL: 10 * GIB}
_BODY = 1024
_RECORD = _BODY + 200
_TOPIC = "Bench-recovered"
# Each round has a crash of its own, on what came since the last.
_MORE = 10
_PATIENCE_SECONDS = 900
_POLL_SECONDS = 0.002


@dataclasses.dataclass(slots=True)
class _Crashed:
    """A system that was filled and killed: where it lies, and what it had acknowledged."""

    system: System
    home: Path
    acknowledged: int
    server: Server


@dataclasses.dataclass(frozen=True, slots=True)
class Recovery:
    """Kill -9 after the last acknowledgement, and a start on the same store, its pages still in memory."""

    size: Size
    name: str = "recovery"
    systems: frozenset[System] = ROCKETMQ

    @property
    def space(self) -> int:
        return 2 * (2 * _BYTES[self.size] + 4 * GIB)

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        wanted = [system for system in bench.systems if system in self.systems]
        messages = _BYTES[self.size] // _RECORD
        title = f"after kill -9, a store of {_BYTES[self.size] // MIB:,} MiB, {_BODY} B"
        samples: dict[str, list[Sample]] = {system.title: [] for system in wanted}
        with folder(bench) as home:
            left: dict[System, _Crashed] = {}
            for system in wanted:
                bench.tell(f"{system.title}: {messages:,} messages before the crash")
                left[system] = _fill(system, home / system.value, messages)
            for number in range(bench.rounds):
                bench.tell(f"{title}: round {number + 1} of {bench.rounds}")
                for system in in_order(wanted, number):
                    samples[system.title].append(_recover(left[system], messages // _MORE))
        return Found({title: samples})


def _fill(system: System, home: Path, messages: int) -> _Crashed:
    # Leaving the block is the crash.
    with STARTS[system](home) as server:
        server.make_topic(_TOPIC)
        server.make_topic(PROBED_TOPIC)
        send(server, _TOPIC, messages, body=_BODY)
    return _Crashed(system, home, messages, server)


def _recover(crashed: _Crashed, more: int) -> Sample:
    """Start it, look for what it had acknowledged, and crash it again after so many messages more."""
    sent_after = 0.0

    def send_first(address: str) -> None:
        nonlocal sent_after
        began = time.monotonic()
        _send_one(crashed.server.beside(address, crashed.server.broker_name))
        sent_after = time.monotonic() - began

    with STARTS[crashed.system](crashed.home, opened=send_first, patience=_PATIENCE_SECONDS) as server:
        there = drain(server, _TOPIC, [0] * QUEUES).messages
        lost = max(crashed.acknowledged - there, 0)
        values = {
            START: server.start_seconds,
            FIRST_SEND: server.start_seconds + sent_after,
            KEPT: (1 - lost / crashed.acknowledged) * 100,
        }
        send(server, _TOPIC, more, body=_BODY)
    crashed.acknowledged += more
    return Sample(values, lost, f"{lost} acknowledged messages are gone" if lost else "")


def _send_one(server: Server) -> None:
    """Send until there is an answer that it was stored."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with Talk(server) as talk:
                talk.send_seconds()
        except (OSError, PeerError) as error:
            if time.monotonic() > deadline:
                raise PeerError(f"{server.name} takes no message: {error}") from None
            time.sleep(_POLL_SECONDS)
        else:
            return
