"""What clients send besides messages: offsets of their groups, heartbeats, and the ends of transactions."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.messaging.loads import OptionReader
from bench.messaging.loads import loads as messaging_loads
from bench.messaging.plan import PLANS
from bench.server import raw_load
from bench.server.raw_load import run_load
from bench.suite.running import ROCKETMQ, measure_load, running, warm_up
from bench.suite.scenario import Found
from peers.frames import ask
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.server.measures import Sample
    from bench.server.systems import Server
    from bench.suite.scenario import Bench, Scenario, System

_UPDATE_AND_CREATE_SUBSCRIPTION_GROUP = 200
_GROUP = "Bench-offsets"
_ONEWAY = 32
_GROUPS = 64
"""One for each connection."""
# RocketMQ's own, instead of those that keep Apache's broker from spinning on a core where nobody uses transactions.
_TRANSACTIONS = {"transactionOpBatchInterval": "3000", "transactionOpMsgMaxSize": "4096"}
_CLIENTS = {Size.QUICK: 100, Size.USUAL: 1_000, Size.FULL: 10_000}


def _measure(
    found: Found, title: str, servers: Sequence[Server], shape: Mapping[str, str | float], bench: Bench
) -> None:
    """Measure a load with these options at every server."""

    def measure(server: Server, _number: int) -> Sample:
        return raw_load.sample(*run_load(title, {**shape, "seconds": bench.seconds}, server, bench.seconds))

    measure_load(found, title, servers, measure, bench)


@dataclasses.dataclass(frozen=True, slots=True)
class Offsets:
    """Consumer offsets, committed with and without answers, and asked for."""

    size: Size
    name: str = "consumer offsets"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB
    topic: str = "Bench-offsets"

    def run(self, bench: Bench) -> Found:
        loads: dict[str, Mapping[str, str | float]] = {
            "commit, 8 × 64": {"mode": "commit", "connections": 8, "in-flight": 64},
            "commit, 64 × 1": {"mode": "commit", "connections": 64, "in-flight": 1},
            f"commit one-way, one of {_ONEWAY} answered, 8 × 4": {
                "mode": "commit-oneway",
                "connections": 8,
                "in-flight": 4,
                "batch": _ONEWAY,
            },
            "query, 8 × 64": {"mode": "query-offset", "connections": 8, "in-flight": 64},
        }
        if self.size is Size.QUICK:
            del loads["commit, 64 × 1"]
        raw_load.require()
        found = Found({})
        with running(bench, self.systems) as servers:
            warm_up(servers, bench)
            for server in servers:
                with server.turn():
                    server.make_topic(self.topic)
                    for number in range(_GROUPS):
                        make_group(server, f"{_GROUP}-{number}")
            for title, options in loads.items():
                shape = {"topic": self.topic, "group": _GROUP, **options}
                _measure(found, title, servers, shape, bench)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Heartbeats:
    """Clients with a connection each, all of which repeat their heartbeat as soon as the last one was answered."""

    size: Size
    name: str = "heartbeats"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB
    topic: str = "Bench-heartbeats"

    def run(self, bench: Bench) -> Found:
        clients = _CLIENTS[self.size]
        title = f"heartbeats of {clients:,} clients"
        shape: dict[str, str | float] = {"mode": "heartbeat", "connections": clients, "in-flight": 1}
        shape |= {"topic": self.topic, "group": self.topic}

        raw_load.require()
        found = Found({})
        with running(bench, self.systems) as servers:
            warm_up(servers, bench)
            for server in servers:
                with server.turn():
                    server.make_topic(self.topic)
            _measure(found, title, servers, shape, bench)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Transactions:
    """Half messages, and the requests that commit them."""

    size: Size
    name: str = "transactions"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB

    def run(self, bench: Bench) -> Found:
        found = Found({})
        raw_load.require()
        plan = dataclasses.replace(PLANS.get(self.size, PLANS[Size.USUAL]), seconds=bench.seconds)
        load = next(
            each for each in messaging_loads() if isinstance(each, OptionReader) and each.mode == "transaction"
        )
        with running(bench, self.systems, _TRANSACTIONS) as servers:
            warm_up(servers, bench)
            for server in servers:
                with server.turn():
                    load.prepare(server, plan)
            measure_load(found, load.name, servers, lambda server, _: load.measure(server, plan), bench)
        return found


def make_group(server: Server, group: str) -> None:
    """Make a consumer group: offsets of others are refused."""
    config = {"groupName": group, "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
    answer = ask(server.address, _UPDATE_AND_CREATE_SUBSCRIPTION_GROUP, body=json.dumps(config).encode())
    if answer.code:
        raise PeerError(f"{server.name} made no group: code {answer.code}, {answer.remark}")


def upkeep(size: Size) -> list[Scenario]:
    """The scenarios of this file."""
    return [Transactions(size), Offsets(size), Heartbeats(size)]
