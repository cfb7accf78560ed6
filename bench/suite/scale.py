"""Scenarios of scale: many queues, and a backlog; each system is also compared with itself on a small store."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.messaging.talk import Talk
from bench.server import raw_load
from bench.server.measures import RATE, Measure, Sample
from bench.server.systems import QUEUES
from bench.suite.rounds import Case, interleave_all
from bench.suite.running import ROCKETMQ, running, warm_up
from bench.suite.scenario import Found, System
from bench.suite.sending import Sending

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.server.systems import Server
    from bench.suite.scenario import Bench, Samples

_BODY = 128
_PER_TOPIC = 1000
# So many units of a queue are more than 4 KiB.
_FIRST_PAGE = 216
# What a Java broker opens and maps beside one file for each queue.
_OTHER_FILES = 3000

_PARTS = 4
"""A round of loads that are compared is split into this many shorter ones. The speed of a shared machine changes
from one second to the next by more than the difference of interest; adjacent short rounds see the same speed."""

_NAME = Sending(_BODY, 8, 64).name

_STEP = 1_000_000
_NEWEST = 4000
"""Messages of a queue, counted from its end, that a consumer that keeps up finds."""


def held_against(base: Sequence[Sample], samples: Sequence[Sample], measure: Measure) -> list[Sample]:
    """The samples with their share of the base's rate, round by round, in per cent."""
    return [
        dataclasses.replace(each, values={**each.values, measure: each.values[RATE] / at_base.values[RATE] * 100})
        for at_base, each in zip(base, samples, strict=True)
    ]


def add_shares(samples: Samples, base: str, cases: Sequence[str], of_what: str) -> None:
    """Add to every case what share of the base's rate it is, for each system that has both."""
    measure = Measure(f"messages, share of that {of_what}", "%", more_is_better=True)
    for case in cases:
        for system, each in samples[case].items():
            if system in samples[base]:
                samples[case][system] = held_against(samples[base][system], each, measure)


@dataclasses.dataclass(frozen=True, slots=True)
class ManyQueues:
    """Sends that go over all queues of a broker, which are few or many."""

    size: Size
    name: str = "queues"
    systems: frozenset[System] = ROCKETMQ

    @property
    def counts(self) -> tuple[int, ...]:
        return (200,) if self.size is Size.QUICK else (1000, 10_000, 50_000)

    @property
    def space(self) -> int:
        return 4 * GIB if self.size is Size.QUICK else 32 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        for count in self.counts:
            able = []
            for system in bench.systems:
                if why := too_many(system, count):
                    found.skipped.append(f"{count:,} queues, {system.title}: {why}")
                else:
                    able.append(system)
            self._hold(count, ROCKETMQ.intersection(able), bench, found)
        return found

    @staticmethod
    def _hold(count: int, systems: frozenset[System], bench: Bench, found: Found) -> None:
        """Hold so many queues against few. Other numbers are not there meanwhile: what a server does once a minute
        weighs the more the longer it is halted in it."""
        few, many = f"{_NAME}, {QUEUES} queues, beside {count:,}", f"{_NAME}, {count:,} queues"
        cases: dict[str, Case[Server]] = {}
        with contextlib.ExitStack() as stack:
            for name, queues in ((few, QUEUES), (many, count)):
                load = _over(queues)
                servers = stack.enter_context(running(bench, systems))
                warm_up(servers, bench)
                for server in servers:
                    bench.tell(f"{server.name}: {queues:,} queues")
                    with server.turn():
                        load.make_topics(server)
                        # A queue's file is made with its first message, or when a page of it is full.
                        dataclasses.replace(load, in_flight=8, batch=8).fill(server, _FIRST_PAGE * queues)
                cases[name] = Case(servers, functools.partial(_send, load, bench.seconds / _PARTS))
            samples = interleave_all(cases, bench.rounds * _PARTS, bench.tell)
        add_shares(samples, few, [many], f"with {QUEUES} queues")
        found.samples |= samples


def _over(count: int) -> Sending:
    topics = max(count // _PER_TOPIC, 1)
    return Sending(_BODY, 8, 64, queues=count // topics, topics=topics)


def too_many(system: System, queues: int) -> str | None:
    """Why a system cannot have so many queues on this machine, in one sentence."""
    if system is not System.APACHE:
        return None
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    maps = int(Path("/proc/sys/vm/max_map_count").read_text("ascii"))
    needed = queues + _OTHER_FILES
    if files != resource.RLIM_INFINITY and needed > files:
        return f"it keeps a file of each queue open, and this machine allows {files:,} (ulimit -n)"
    if needed > maps:
        return f"it keeps a file of each queue mapped, and this machine allows {maps:,} (vm.max_map_count)"
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Backlog:
    """Sends, and reads of new messages, on an empty store and behind many unread messages."""

    size: Size
    name: str = "backlog"
    systems: frozenset[System] = ROCKETMQ

    @property
    def messages(self) -> int:
        return 50_000 if self.size is Size.QUICK else 10_000_000

    @property
    def space(self) -> int:
        return 4 * GIB if self.size is Size.QUICK else 24 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        load = Sending(_BODY, 8, 64)
        behind = f"behind {self.messages:,} messages"
        cases: dict[str, Case[Server]] = {}
        with contextlib.ExitStack() as stack:
            for where, messages in (("on an empty store", 0), (behind, self.messages)):
                servers = stack.enter_context(running(bench))
                warm_up(servers, bench)
                for server in servers:
                    with server.turn():
                        load.make_topics(server)
                        self._fill(server, messages, bench)
                seconds = bench.seconds / _PARTS
                cases[f"{load.name}, {where}"] = Case(servers, functools.partial(_send, load, seconds))
                cases[f"pull the newest, 8 × 1, {where}"] = Case(servers, functools.partial(_pull, load, seconds))
            samples = interleave_all(cases, bench.rounds * _PARTS, bench.tell)
        send_base, pull_base, send, pull = cases
        add_shares(samples, send_base, [send], "on an empty store")
        add_shares(samples, pull_base, [pull], "on an empty store")
        return Found(samples)

    @staticmethod
    def _fill(server: Server, messages: int, bench: Bench) -> None:
        batches = Sending(_BODY, 8, 8, batch=32)
        left = messages
        while left > 0:
            bench.tell(f"{server.name}: {left:,} messages to go")
            batches.fill(server, min(left, _STEP))
            left -= _STEP


def _send(load: Sending, seconds: float, server: Server, _number: int) -> Sample:
    return load.measure(server, seconds)


def _pull(load: Sending, seconds: float, server: Server, _number: int) -> Sample:
    """Read the newest messages of each queue, again and again."""
    with Talk(server) as talk:
        first = [max(end - _NEWEST, 0) for end in talk.offsets(load.topic)]
    options: Mapping[str, str | float] = {
        "mode": "pull",
        "connections": 8,
        "in-flight": 1,
        "topic": load.topic,
        "offsets": ",".join(map(str, first)),
        "seconds": seconds,
    }
    return raw_load.sample(*raw_load.run_load("pull", options, server, seconds))
