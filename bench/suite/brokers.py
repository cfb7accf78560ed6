"""Several brokers of ``orbitmq serve``, a process each: what they gain over one on the same machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.server import raw_load
from bench.server.measures import CPU, P50, P99, RATE, Measure, Sample
from bench.server.raw_load import run_load
from bench.server.systems import BROKERS_APART, ORBITMQ, start_orbitmq
from bench.suite.rounds import WARM_UP, in_order
from bench.suite.running import folder
from bench.suite.scenario import Found, System
from orbitmq.protocol.bodies import ClusterInfo
from peers.frames import GET_BROKER_CLUSTER_INFO, ask
from peers.ports import endpoint
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.server.systems import Server
    from bench.suite.scenario import Bench

GAIN = Measure("messages, times those of one broker", "×", more_is_better=True)
SERVER_CORES = Measure("cores that the brokers used", "cores")
LOAD_CORES = Measure("cores that the load used", "cores")

_TOPIC = "Bench-brokers"
_BODY = 128
_START_SECONDS = 60
_POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class Brokers:
    """The same sends over one broker and over several, with their connections spread over them."""

    size: Size
    name: str = "brokers"
    systems: frozenset[System] = frozenset({System.ORBITMQ})

    @property
    def space(self) -> int:
        return {Size.QUICK: 4, Size.USUAL: 12, Size.FULL: 32}[self.size] * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        if System.ORBITMQ not in bench.systems:
            return found
        with folder(bench) as home, contextlib.ExitStack() as stack:
            clusters = []
            for count in counts(self.size):
                bench.tell(f"{self.name}: starting {count}")
                server = stack.enter_context(start_orbitmq(home / str(count), brokers=count))
                clusters.append(_Cluster(server, _with_topic(server, count)))
                server.halt()
            rates: dict[int, float] = {}
            for number in range(WARM_UP, bench.rounds):
                bench.tell(f"{self.name}: round {number + 1} of {bench.rounds}")
                samples = {len(each.names): each.measure(bench.seconds) for each in in_order(clusters, number)}
                rates = {count: sample.values[RATE] for count, sample in samples.items()}
                for count, sample in sorted(samples.items()):
                    if number != WARM_UP:
                        gained = {**sample.values, GAIN: rates[count] / rates[min(rates)]}
                        title = f"send {_BODY} B, 8 × 64, {count} on {os.cpu_count()} cores"
                        rounds = found.samples.setdefault(title, {ORBITMQ: []})[ORBITMQ]
                        rounds.append(dataclasses.replace(sample, values=gained))
        return found


def counts(size: Size) -> list[int]:
    """The numbers of brokers to compare: more than the machine has cores gain nothing."""
    cores = os.cpu_count() or 1
    most = {Size.QUICK: 2, Size.USUAL: 4, Size.FULL: 8}[size]
    return [1, *(count for count in (2, 4, 8) if count <= max(min(most, cores), 2))]


@dataclasses.dataclass(frozen=True, slots=True)
class _Cluster:
    server: Server
    names: dict[str, str]
    """The names of its brokers, by address."""

    def measure(self, seconds: float) -> Sample:
        with self.server.turn():
            options: dict[str, str | float] = {
                "mode": "send",
                "address": ",".join(self.names),
                "broker": ",".join(self.names.values()),
                "connections": 8,
                "in-flight": 64,
                "body": _BODY,
                "topic": _TOPIC,
                "seconds": seconds,
            }
            found, used = run_load(f"{len(self.names)} brokers", options, self.server, seconds)
        spent = max(found.seconds, 1e-3)
        return Sample(
            {
                RATE: found.messages / spent,
                CPU: used / max(found.messages, 1) * 1e6,
                SERVER_CORES: used / spent,
                LOAD_CORES: found.used_seconds / spent,
                P50: found.p50_us / 1e3,
                P99: found.p99_us / 1e3,
            },
            failures=found.failures,
            failure=found.failure,
        )


def _with_topic(server: Server, count: int) -> dict[str, str]:
    """Wait for all brokers, and make the topic on each of them; their names by address."""
    host, port = endpoint(server.address)
    addresses = [f"{host}:{port + BROKERS_APART * number}" for number in range(count)]
    deadline = time.monotonic() + _START_SECONDS
    while True:
        info = ClusterInfo.decode(ask(server.nameserver, GET_BROKER_CLUSTER_INFO).body)
        names = {data.broker_addrs[0]: name for name, data in info.broker_addr_table.items()}
        if names.keys() >= set(addresses):
            break
        if time.monotonic() > deadline:
            raise PeerError(f"{server.name}: only {len(names)} of {count} brokers came up\n{server.quote()}")
        time.sleep(_POLL_SECONDS)
    for address in addresses:
        server.beside(address, names[address]).make_topic(_TOPIC)
    return {address: names[address] for address in addresses}
