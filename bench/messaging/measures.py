"""Measures of deferred messages, and their arithmetic."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from bench.server.measures import CPU, RATE, Measure, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.server.raw_load import Finding

TAKEN = Measure("messages taken from senders", "msgs/s", more_is_better=True)
LATE_P50 = Measure("late, half of the messages", "ms")
LATE_P99 = Measure("late, 99 %", "ms")
LATE_MAX = Measure("late, the last", "ms")
PROBE_P99 = Measure("a send meanwhile, 99 %", "ms")
PROBE_MAX = Measure("a send meanwhile, the slowest", "ms")
OWN_WAITING = Measure("anonymous memory with the timers waiting", "MiB")


@dataclasses.dataclass(slots=True)
class Watched:
    """Observations while messages were delivered."""

    processor_seconds: float
    sends: list[float] = dataclasses.field(default_factory=list)
    """How long each send took that was made meanwhile, in seconds."""


def fired(found: Finding, watched: Watched, *, since_ms: int | None = None) -> Sample:
    """A round of messages that came out, as they were read afterwards; ``since_ms`` is when they could begin to.

    Without it the first of them was the beginning. A millisecond is added, because times in the log are cut off to
    one.
    """
    begin_ms = found.first_ms if since_ms is None else since_ms
    values = {
        RATE: found.messages / max(found.last_ms + 1 - begin_ms, 1) * 1000,
        CPU: watched.processor_seconds / max(found.messages, 1) * 1e6,
    }
    return Sample(values | _sends(watched.sends), failures=found.early, failure="a message that came early")


def lateness(found: Finding) -> Mapping[Measure, float]:
    """The lateness of messages: delivery minus due time."""
    return {
        LATE_P50: found.late_p50_us / 1000,
        LATE_P99: found.late_p99_us / 1000,
        LATE_MAX: found.late_max_us / 1000,
    }


def _sends(seconds: Sequence[float]) -> dict[Measure, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {PROBE_P99: quantile(ordered, 0.99) * 1000, PROBE_MAX: ordered[-1] * 1000}


def quantile(ordered: Sequence[float], part: float) -> float:
    """The value that so large a part of the others does not exceed."""
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]
