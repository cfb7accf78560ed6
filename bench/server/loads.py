"""Which loads a run applies, and how long."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TypeAlias

from bench.figures import Size
from bench.machine import GIB
from bench.server.java_load import JavaLoad
from bench.server.raw_load import RawLoad

Load: TypeAlias = RawLoad | JavaLoad

BODIES = (10, 128, 1024)
THREADS = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The amount of work of each part of a run."""

    rounds: int
    seconds: float
    """One round of a raw load."""
    warm_up_messages: int
    """A Java broker's first 150,000 messages take four times as long as the later ones."""
    warm_up_seconds: float
    """No more than this, however few messages that was."""
    filled_messages: int
    java_rounds: int
    java_lines: int
    """A line a second; the ten before the first are not printed."""
    idle_seconds: float
    space: int
    """Bytes of disk that both systems take together at most."""


PLANS = {
    Size.QUICK: Plan(
        rounds=1,
        seconds=1,
        warm_up_messages=20_000,
        warm_up_seconds=5,
        filled_messages=20_000,
        java_rounds=1,
        java_lines=1,
        idle_seconds=1,
        space=6 * GIB,
    ),
    Size.USUAL: Plan(
        rounds=5,
        seconds=3,
        warm_up_messages=500_000,
        warm_up_seconds=60,
        filled_messages=200_000,
        java_rounds=3,
        java_lines=11,
        idle_seconds=5,
        space=16 * GIB,
    ),
    Size.FULL: Plan(
        rounds=9,
        seconds=5,
        warm_up_messages=1_000_000,
        warm_up_seconds=90,
        filled_messages=400_000,
        java_rounds=5,
        java_lines=20,
        idle_seconds=10,
        space=48 * GIB,
    ),
}

WARM_UP = RawLoad("send", 128, 8, 64)


def loads(size: Size) -> list[Load]:
    """The loads of a run, raw ones first."""
    if size is Size.QUICK:
        raw = [RawLoad("send", 128, 8, 64), RawLoad("send", 128, 64, 1), RawLoad("pull", 128, 8, 1)]
        return [*raw, JavaLoad(128, THREADS)]
    if size is Size.FULL:
        shapes = ((8, 64), (64, 1))
        raw = [
            RawLoad(mode, body, connections, in_flight, headers)
            for mode, (connections, in_flight), headers, body in itertools.product(
                ("send", "pull"), shapes, ("json", "binary"), BODIES
            )
        ]
        raw += [RawLoad("pull", body, 8, 1) for body in BODIES]
        java = [JavaLoad(body, THREADS) for body in BODIES]
        return [*raw, *java, JavaLoad(128, THREADS, consume=True)]
    raw = [RawLoad("send", body, 8, 64) for body in BODIES]
    raw += [RawLoad("send", 128, 64, 1), RawLoad("send", 128, 8, 64, "binary")]
    raw += [RawLoad("send", 128, 8, 64, client) for client in ("go", "node", "cpp")]
    raw += [RawLoad("send", 128, 64, 1, "go")]
    raw += [RawLoad("pull", body, 8, 1) for body in BODIES]
    raw += [RawLoad("pull", 128, 8, 64), RawLoad("pull", 128, 64, 1)]
    return [*raw, JavaLoad(128, THREADS), JavaLoad(128, THREADS, consume=True)]
