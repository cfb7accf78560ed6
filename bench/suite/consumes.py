"""Consuming: what is in memory, what is on the disk, messages as they are sent, and sends and pulls at once."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB, MIB
from bench.messaging.loads import OptionReader, drain, send
from bench.messaging.loads import loads as messaging_loads
from bench.messaging.plan import PLANS
from bench.messaging.talk import Talk
from bench.server import raw_load
from bench.server.measures import CONSUMED, CPU, P99, RATE, Measure, Sample
from bench.server.raw_load import RawLoad, run_load
from bench.server.systems import QUEUES
from bench.suite.evicting import disk_reads, drop_store
from bench.suite.running import ROCKETMQ, measure_load, running, warm_up
from bench.suite.scenario import Found
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.server.raw_load import Finding
    from bench.server.systems import Server
    from bench.suite.scenario import Bench, Scenario, System

SENT = Measure("messages sent", "msgs/s", more_is_better=True)
END_P50 = Measure("send to consumed, half of the messages", "ms")
END_P99 = Measure("send to consumed, 99 %", "ms")
END_P999 = Measure("send to consumed, 99.9 %", "ms")
DISK = Measure("read from the disk for each message", "B")
FAULTS = Measure("waits for the disk in maps, for 1,000 messages", "faults")
SENDS_P99 = Measure("latency of the sends, 99 %", "ms")
STAYED = Measure("of the store still in memory before", "MiB")

_BATCH = 32
_HOT_BODIES = (128, 1024)
_HOT_MESSAGES = {Size.QUICK: 20_000, Size.USUAL: 200_000, Size.FULL: 400_000}
_COLD_BODY = 1024
# With what a record has besides its body.
_COLD_RECORD = _COLD_BODY + 200
_COLD_BYTES = {Size.QUICK: 64 * MIB, Size.USUAL: GIB, Size.FULL: 8 * GIB}
_BODY = 128
_TAG_EVERY = 10
_LONG_POLL_RATE = 1_000
_HOLDERS = 8
# A pull that arrives after its message waits for nothing.
_SETTLE = "5s"
_FOLLOWERS = 2
_STEADILY: Mapping[str, str | float] = {"mode": "longpoll", "connections": 1, "rate": _LONG_POLL_RATE}
_AT_ONCE: Mapping[str, str | float] = {
    "mode": "mixed",
    "connections": 8,
    "in-flight": 16,
    "followers": _FOLLOWERS,
}
_WARM_UP_SECONDS = {Size.QUICK: 1, Size.USUAL: 8, Size.FULL: 20}


@dataclasses.dataclass(frozen=True, slots=True)
class Hot:
    """Pulls by 32 of what was sent a moment ago and is in the page cache."""

    size: Size
    name: str = "consume hot"
    systems: frozenset[System] = ROCKETMQ
    space: int = 4 * GIB

    def run(self, bench: Bench) -> Found:
        loads = {f"pull by {_BATCH} of {body} B, 8 × 1": RawLoad("pull", body, 8, 1) for body in _HOT_BODIES}
        return _pulls(bench, self.systems, loads, _HOT_MESSAGES[self.size])


@dataclasses.dataclass(frozen=True, slots=True)
class Filtered:
    """Pulls by 32 of the messages with a tag that one in ten has."""

    size: Size
    name: str = "consume, tag filter"
    systems: frozenset[System] = ROCKETMQ
    space: int = 4 * GIB

    def run(self, bench: Bench) -> Found:
        shapes = ((8, 1),) if self.size is Size.QUICK else ((8, 1), (8, 64))
        wanted = f"pull by {_BATCH} of {_BODY} B with the tag of one in {_TAG_EVERY}"
        loads = {
            f"{wanted}, {connections} × {in_flight}": RawLoad(
                "pull", _BODY, connections, in_flight, tag_every=_TAG_EVERY
            )
            for connections, in_flight in shapes
        }
        return _pulls(bench, self.systems, loads, _HOT_MESSAGES[self.size])


def _pulls(bench: Bench, systems: frozenset[System], loads: Mapping[str, RawLoad], messages: int) -> Found:
    """Pulls of topics that were filled a moment ago."""
    raw_load.require()
    found = Found({})
    with running(bench, systems) as servers:
        warm_up(servers, bench)
        filled = set()
        for title, load in loads.items():
            for server in servers:
                if (server.name, load.topic) in filled:
                    continue
                bench.tell(f"{server.name}: filling")
                filled.add((server.name, load.topic))
                with server.turn():
                    server.make_topic(load.topic)
                    raw_load.fill(load, server, messages)

            def measure(server: Server, _number: int, load: RawLoad = load) -> Sample:
                return raw_load.measure(load, server, bench.seconds)

            measure_load(found, title, servers, measure, bench)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class Cold:
    """A backlog read once, from the disk: before each round the store is dropped from the page cache."""

    size: Size
    name: str = "consume cold"
    systems: frozenset[System] = ROCKETMQ
    topic: str = "Bench-cold"

    @property
    def space(self) -> int:
        # Log files are made before they are needed.
        return 2 * (_COLD_BYTES[self.size] * 2 + 3 * GIB)

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        messages = _COLD_BYTES[self.size] // _COLD_RECORD
        amount = f"{_COLD_BYTES[self.size] // MIB:,} MiB"
        title = f"{amount} of {_COLD_BODY} B from the disk, pull by {_BATCH}, 1 × {QUEUES}"
        with running(bench, self.systems) as servers:
            warm_up(servers, bench)
            for server in servers:
                bench.tell(f"{server.name}: filling {amount}")
                with server.turn():
                    server.make_topic(self.topic)
                    send(server, self.topic, messages, body=_COLD_BODY)
            measure_load(found, title, servers, lambda server, _: self._read(server, messages), bench)
        return found

    def _read(self, server: Server, messages: int) -> Sample:
        stayed = drop_store(server)
        before, used = disk_reads(server), server.processor_seconds()
        found = drain(server, self.topic, [0] * QUEUES, batch=_BATCH)
        used = server.processor_seconds() - used
        reads = disk_reads(server).since(before)
        if found.messages < messages:
            raise PeerError(f"{server.name} gave only {found.messages} of {messages} messages: {found.failure}")
        return Sample(
            {
                RATE: found.messages / found.seconds,
                CPU: used / found.messages * 1e6,
                P99: found.p99_us / 1e3,
                DISK: reads.bytes / found.messages,
                FAULTS: reads.faults / found.messages * 1000,
                STAYED: stayed,
            },
            failures=found.failures,
            failure=found.failure,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Pops:
    """Pops by 32 whose messages are acknowledged one by one, or all of a pop in one request."""

    size: Size
    name: str = "pop"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        plan = dataclasses.replace(PLANS.get(self.size, PLANS[Size.USUAL]), seconds=bench.seconds)
        with running(bench, self.systems) as servers:
            warm_up(servers, bench)
            for load in (
                each for each in messaging_loads() if isinstance(each, OptionReader) and each.mode.startswith("pop")
            ):
                for server in servers:
                    bench.tell(f"{server.name}: filling")
                    with server.turn():
                        load.prepare(server, plan)

                def measure(server: Server, _number: int, load: OptionReader = load) -> Sample:
                    return load.measure(server, plan)

                measure_load(found, load.name, servers, measure, bench)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class LongPoll:
    """A consumer that holds a pull for each queue, and a producer at a modest rate: how long messages take."""

    name: str = "long poll"
    systems: frozenset[System] = ROCKETMQ
    space: int = 4 * GIB
    topic: str = "Bench-long-poll"

    def run(self, bench: Bench) -> Found:
        found = Found({})
        title = f"{_BODY} B at {_LONG_POLL_RATE:,} a second, {QUEUES} pulls held"

        def measure(server: Server, _number: int) -> Sample:
            one, used = followed(title, _STEADILY, server, self.topic, bench.seconds)
            return Sample(_end_to_end(one) | {CPU: _per_message(used, one)}, one.failures, one.failure)

        with _ready(bench, self.systems, self.topic) as servers:
            measure_load(found, title, servers, measure, bench)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class ManyHeld:
    """Consumers that hold thousands of pulls, a queue each, and a producer whose messages wake a few of them."""

    size: Size
    name: str = "long poll, many held"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB

    @property
    def queues(self) -> int:
        return 500 if self.size is Size.QUICK else 10_000

    @property
    def topic(self) -> str:
        return f"Bench-held-{self.queues}"

    def run(self, bench: Bench) -> Found:
        found = Found({})
        title = f"{_BODY} B at {_LONG_POLL_RATE:,} a second over {self.queues:,} queues, a pull held for each"
        options: dict[str, str | float] = {
            **_STEADILY,
            "queues": self.queues,
            "followers": _HOLDERS,
            "settle": _SETTLE,
        }

        def measure(server: Server, _number: int) -> Sample:
            one, used = followed(title, options, server, self.topic, bench.seconds, self.queues)
            return Sample(_end_to_end(one) | {CPU: _per_message(used, one)}, one.failures, one.failure)

        raw_load.require()
        with running(bench, self.systems) as servers:
            warm_up(servers, bench)
            for server in servers:
                with server.turn():
                    server.make_topic(self.topic, self.queues)
            measure_load(found, title, servers, measure, bench)
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class Mixed:
    """Sends as fast as they are taken, and consumers that follow with held pulls, at the same time."""

    name: str = "mixed"
    systems: frozenset[System] = ROCKETMQ
    space: int = 8 * GIB
    topic: str = "Bench-mixed"

    def run(self, bench: Bench) -> Found:
        found = Found({})
        title = f"send {_BODY} B, 8 × 16, and consume at once by {_FOLLOWERS} that hold pulls"

        def measure(server: Server, _number: int) -> Sample:
            one, used = followed(title, _AT_ONCE, server, self.topic, bench.seconds)
            values = {
                SENT: one.sent / max(one.sent_seconds, 1e-3),
                CONSUMED: one.messages / max(one.seconds, 1e-3),
                CPU: _per_message(used, one),
                SENDS_P99: one.sent_p99_us / 1e3,
            }
            return Sample(values | _end_to_end(one), one.failures, one.failure)

        with _ready(bench, self.systems, self.topic) as servers:
            measure_load(found, title, servers, measure, bench)
        return found


@contextlib.contextmanager
def _ready(bench: Bench, systems: frozenset[System], topic: str) -> Iterator[list[Server]]:
    """Servers with a topic, warm also in what runs when messages are followed."""
    raw_load.require()
    with running(bench, systems) as servers:
        warm_up(servers, bench)
        for server in servers:
            with server.turn():
                server.make_topic(topic)
                followed("warming up", _AT_ONCE, server, topic, _WARM_UP_SECONDS[bench.size])
        yield servers


def followed(
    name: str, options: Mapping[str, str | float], server: Server, topic: str, seconds: float, queues: int = QUEUES
) -> tuple[Finding, float]:
    """Run a load whose messages are consumed as they come, from where the topic ends now."""
    with Talk(server) as talk:
        offsets = talk.offsets(topic, queues)
    shape: dict[str, str | float] = {"topic": topic, "body": _BODY, "batch": _BATCH, "seconds": seconds}
    shape["offsets"] = ",".join(map(str, offsets))
    return run_load(name, {**shape, **options}, server, seconds)


def consumes(size: Size) -> list[Scenario]:
    """The scenarios of this file."""
    return [Hot(size), Filtered(size), Pops(size), Cold(size), LongPoll(), ManyHeld(size), Mixed()]


def _end_to_end(found: Finding) -> dict[Measure, float]:
    return {END_P50: found.p50_us / 1e3, END_P99: found.p99_us / 1e3, END_P999: found.p999_us / 1e3}


def _per_message(used: float, found: Finding) -> float:
    return used / max(found.messages, 1) * 1e6
