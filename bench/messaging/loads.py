"""The loads: what is done to a server in a round, and what is learnt from it."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, ClassVar, Protocol

from bench.messaging.measures import TAKEN, Watched, fired, lateness
from bench.messaging.talk import PROBED_TOPIC, Talk
from bench.server.measures import CPU, P50, P99, RATE, Sample
from bench.server.raw_load import run_load
from bench.server.systems import QUEUES
from peers.process import PeerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.messaging.plan import Plan
    from bench.server.raw_load import Finding
    from bench.server.systems import Server

BODY = 128
CONNECTIONS = 8
IN_FLIGHT = 64

_HOUR_MS = 3_600_000
# Two days ahead a timer no longer fits into the wheel and rolls; three days are the most that is allowed.
_NEAREST_MS, _FURTHEST_MS = _HOUR_MS, 70 * _HOUR_MS
_POLL_SECONDS = 0.05
_PROBE_SECONDS = 0.005
# A system may be slow, but one that brings nothing for so long has lost something.
_STALL_SECONDS = 60
_SEND_SECONDS = 600


class Load(Protocol):
    """Something to measure, in rounds after it was prepared once."""

    name: str

    def prepare(self, server: Server, plan: Plan, /) -> None: ...

    def measure(self, server: Server, plan: Plan, /) -> Sample: ...


def send(server: Server, topic: str, messages: int, **options: float) -> tuple[Finding, float]:
    """Send so many messages as fast as the server takes them; also its processor time.

    What it refuses because it is busy is sent again, and counted as failed.
    """
    shape: dict[str, str | float] = {"connections": CONNECTIONS, "in-flight": IN_FLIGHT, "body": BODY}
    shape |= {"mode": "send", "topic": topic, "seconds": _SEND_SECONDS, "messages": messages}
    shape |= {name.replace("_", "-"): value for name, value in options.items()}
    found, used = run_load(f"sending to {topic}", shape, server, _SEND_SECONDS)
    if not found.messages:
        raise PeerError(f"{server.name} took none of {messages} messages: {found.failure}")
    if found.messages < messages:
        more, more_used = send(server, topic, messages - found.messages, **options)
        found = dataclasses.replace(
            found,
            messages=messages,
            seconds=found.seconds + more.seconds,
            failures=found.failures + more.failures,
        )
        used += more_used
    return found, used


def drain(server: Server, topic: str, offsets: Sequence[int], **options: float) -> Finding:
    """Read what came behind these offsets, and how late."""
    shape: dict[str, str | float] = {"connections": 1, "in-flight": QUEUES, "mode": "drain", "topic": topic}
    shape |= {"offsets": ",".join(map(str, offsets)), "seconds": _SEND_SECONDS}
    shape |= {name.replace("_", "-"): value for name, value in options.items()}
    return run_load(f"reading {topic}", shape, server, _SEND_SECONDS)[0]


def settle_timers(server: Server) -> None:
    """Wait until all timers that were taken are in the wheel."""
    with Talk(server) as talk:
        left, moved = -1, time.monotonic()
        while behind := talk.timers_behind():
            if behind != left:
                left, moved = behind, time.monotonic()
            if time.monotonic() - moved > _STALL_SECONDS:
                raise PeerError(f"{server.name} has {behind} timers that it does not enter\n{server.quote()}")
            time.sleep(_POLL_SECONDS)


def watch(server: Server, topic: str, offsets: Sequence[int], messages: int) -> Watched:
    """Send now and then until so many messages came behind these offsets."""
    used = server.processor_seconds()
    watched = Watched(0.0)
    target = sum(offsets) + messages
    with Talk(server) as talk:
        seen, moved, looked = 0, time.monotonic(), 0.0
        while seen < target:
            watched.sends.append(talk.send_seconds())
            now = time.monotonic()
            if now - looked >= _POLL_SECONDS:
                looked, before = now, seen
                seen = sum(talk.offsets(topic))
                if seen != before:
                    moved = now
            if now - moved > _STALL_SECONDS:
                raise PeerError(f"{server.name} has brought {messages - target + seen} of {messages} messages")
            time.sleep(_PROBE_SECONDS)
    watched.processor_seconds = server.processor_seconds() - used
    return watched


def add_pending(server: Server, messages: int) -> Finding:
    """Timers that are far away, half an hour and more than two days."""
    now = int(time.time() * 1000)
    return send(server, "Bench-timers", messages, due_from=now + _NEAREST_MS, due_to=now + _FURTHEST_MS)[0]


class TimersEntered:
    """Timers far ahead: taken from senders and entered into wheel and log."""

    name = "timers: enter"

    def prepare(self, server: Server, plan: Plan) -> None:
        """Fill in the pending messages before the first round."""

    def measure(self, server: Server, plan: Plan) -> Sample:
        used, began = server.processor_seconds(), time.monotonic()
        found = add_pending(server, plan.timers)
        settle_timers(server)
        seconds = time.monotonic() - began
        return Sample(
            {
                RATE: plan.timers / seconds,
                TAKEN: found.messages / found.seconds,
                CPU: (server.processor_seconds() - used) / plan.timers * 1e6,
            },
            failures=found.failures,
            failure=found.failure,
        )


class TimersFired:
    """Many timers of one moment, while others wait."""

    name = "timers: fire, all due at one time"
    topic = "Bench-fired"

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}

    def prepare(self, server: Server, plan: Plan) -> None:
        server.make_topic(self.topic)
        server.make_topic(PROBED_TOPIC)
        began = time.monotonic()
        add_pending(server, plan.timers // 4)
        settle_timers(server)
        self._rates[server.name] = plan.timers // 4 / (time.monotonic() - began)

    def measure(self, server: Server, plan: Plan) -> Sample:
        with Talk(server) as talk:
            offsets = talk.offsets(self.topic)
        # Time enough to send and enter all of them, also if that goes at half the rate it had.
        lead = 5 + 2 * plan.timers / self._rates[server.name]
        due = int(time.time() + lead) * 1000
        send(server, self.topic, plan.timers, due_from=due)
        settle_timers(server)
        if time.time() * 1000 > due:
            raise PeerError(f"{server.name} was still accepting timers when they were due: it takes a longer lead")
        time.sleep(max(due / 1000 - time.time(), 0))
        watched = watch(server, self.topic, offsets, plan.timers)
        found = drain(server, self.topic, offsets, due_from=due)
        sample = fired(found, watched)
        return dataclasses.replace(sample, values={**sample.values, **lateness(found)})


class LevelBacklog:
    """A backlog in one delay level that is due as a whole: it was sent, and the server halted until its time."""

    name = "delay level: a backlog that is due"
    topic = "Bench-delayed"

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[list[int], int, float]] = {}

    def prepare(self, server: Server, _plan: Plan) -> None:
        server.make_topic(self.topic)
        server.make_topic(PROBED_TOPIC)

    def begin(self, server: Server, plan: Plan) -> None:
        """Send the backlog, before the server is halted until all of it is due."""
        with Talk(server) as talk:
            before = sum(talk.offsets(self.topic))
            send(server, self.topic, plan.pending, delay_level=plan.level)
            offsets = talk.offsets(self.topic)
        left = plan.pending - (sum(offsets) - before)
        self._waiting[server.name] = offsets, left, time.time() + plan.level_ms / 1000

    def measure(self, server: Server, plan: Plan) -> Sample:
        offsets, left, all_due = self._waiting.pop(server.name)
        # It may be running for a moment already.
        since_ms = int(server.resumed * 1000)
        if time.time() < all_due:
            raise PeerError("the backlog is not due yet")
        watched = watch(server, self.topic, offsets, left)
        return fired(drain(server, self.topic, offsets, delay_ms=plan.level_ms), watched, since_ms=since_ms)

    def due(self, server: Server) -> float:
        """When the server may go on."""
        return self._waiting[server.name][2]


class LevelSteady:
    """Delayed messages at a rate that both keep up with: how late they are."""

    name = "delay level: sent at a steady rate"
    topic = "Bench-steady"
    level, level_ms = 2, 5000

    def prepare(self, server: Server, _plan: Plan) -> None:
        server.make_topic(self.topic)
        server.make_topic(PROBED_TOPIC)

    def measure(self, server: Server, plan: Plan) -> Sample:
        count = int(plan.steady_rate * plan.steady_seconds)
        with Talk(server) as talk:
            offsets = talk.offsets(self.topic)
        used = send(server, self.topic, count, delay_level=self.level, rate=plan.steady_rate)[1]
        watched = watch(server, self.topic, offsets, count)
        watched.processor_seconds += used
        found = drain(server, self.topic, offsets, delay_ms=self.level_ms)
        sample = fired(found, watched)
        return dataclasses.replace(sample, values={**sample.values, **lateness(found)})


@dataclasses.dataclass(slots=True)
class OptionReader:
    """Requests that clients wait for, kept in flight for some seconds: transactions, pops."""

    name: str
    mode: str
    topic: str
    in_flight: int
    rounds: dict[str, int] = dataclasses.field(default_factory=dict)

    CONNECTIONS: ClassVar[int] = 8

    def prepare(self, server: Server, plan: Plan) -> None:
        server.make_topic(self.topic)
        with Talk(server) as talk:
            there = sum(talk.offsets(self.topic))
        if self.mode.startswith("pop") and there < plan.popped:
            send(server, self.topic, plan.popped - there)

    def measure(self, server: Server, plan: Plan) -> Sample:
        number = self.rounds[server.name] = self.rounds.get(server.name, 0) + 1
        is_popping = self.mode.startswith("pop")
        options: dict[str, str | float] = {
            "mode": self.mode,
            "topic": self.topic,
            "group": f"Bench-{self.mode}-{number if is_popping else 0}",
            "connections": self.CONNECTIONS,
            "in-flight": self.in_flight,
            "body": BODY,
            "seconds": plan.seconds,
            "messages": plan.popped if is_popping else 0,
        }
        used = server.processor_seconds()
        found, _ = run_load(self.name, options, server, plan.seconds)
        if is_popping:
            # Check points and acknowledgements are timers: they are paid for when those are entered.
            settle_timers(server)
        used = server.processor_seconds() - used
        return Sample(
            {
                RATE: found.messages / max(found.seconds, 1e-3),
                CPU: used / max(found.messages, 1) * 1e6,
                P50: found.p50_us / 1e3,
                P99: found.p99_us / 1e3,
            },
            failures=found.failures,
            failure=found.failure,
        )


def loads() -> list[Load]:
    """All of them, in the order of a run."""
    return [
        TimersEntered(),
        TimersFired(),
        LevelBacklog(),
        LevelSteady(),
        OptionReader("transactions: half message and commit, 8 × 32", "transaction", "Bench-transaction", 32),
        OptionReader("pop 32 and acknowledge one by one, 8 × 4", "pop", "Bench-pop", 4),
        OptionReader("pop 32 and acknowledge together, 8 × 4", "pop-batch", "Bench-pop", 4),
    ]


def needs_pending(load: Load) -> bool:
    """True if it is measured beside pending timers."""
    return isinstance(load, TimersEntered | TimersFired)
