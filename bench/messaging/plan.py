"""The amount of work of a run."""

from __future__ import annotations

import dataclasses

from bench.figures import Size
from bench.machine import GIB


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Numbers of messages and seconds."""

    rounds: int
    pending: int
    """Timers that wait all the time, and messages in one delay level."""
    timers: int
    """Entered in a round, and fired at one time."""
    level: int
    """The delay level of the backlog, which all of it has to fit into."""
    level_ms: int
    steady_rate: int
    """Delayed messages a second while both keep up."""
    steady_seconds: float
    seconds: float
    """Of transactions and pops in a round."""
    popped: int
    """Messages there are to pop; a new group pops them in every round."""
    warm_up_messages: int
    space: int


PLANS = {
    Size.QUICK: Plan(
        rounds=1,
        pending=20_000,
        timers=5_000,
        level=3,
        level_ms=10_000,
        steady_rate=1_000,
        steady_seconds=2,
        seconds=1,
        popped=20_000,
        warm_up_messages=20_000,
        space=6 * GIB,
    ),
    Size.USUAL: Plan(
        rounds=3,
        pending=1_000_000,
        timers=200_000,
        level=5,
        level_ms=60_000,
        steady_rate=10_000,
        steady_seconds=6,
        seconds=4,
        popped=200_000,
        warm_up_messages=200_000,
        space=16 * GIB,
    ),
}
