"""Measuring in rounds that take turns, so that a busy minute of the machine hits every case alike."""

from __future__ import annotations

import dataclasses
import resource
import time
from typing import TYPE_CHECKING, Self

from bench.figures import Figure, figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclasses.dataclass(slots=True)
class Timing:
    """Times of the rounds of one case, each divided by its operations."""

    cpu: list[float] = dataclasses.field(default_factory=list)
    """Seconds of CPU per item: user and system time of all threads of this process."""
    user: list[float] = dataclasses.field(default_factory=list)
    """User time, to the precision of the system's clock ticks."""
    wall: list[float] = dataclasses.field(default_factory=list)
    """Seconds by the clock per item."""

    def add(self, watch: Stopwatch, items: int) -> None:
        self.cpu.append(watch.cpu / items)
        self.user.append(watch.user / items)
        self.wall.append(watch.wall / items)

    def per_item(self, subject: str, item: str) -> list[Figure]:
        """CPU per item, and items per second by the clock."""
        return [
            figure(subject, f"CPU per {item}", "µs", [seconds * 1e6 for seconds in self.cpu]),
            figure(subject, f"{item}s by the clock", f"{item}s/s", [1 / seconds for seconds in self.wall]),
        ]


class Stopwatch:
    """CPU and wall seconds spent in a ``with`` block."""

    __slots__ = ("_cpu", "_user", "_wall", "cpu", "user", "wall")

    def __enter__(self) -> Self:
        self._wall = time.perf_counter()
        self._user = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        self._cpu = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu = time.process_time() - self._cpu
        self.user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - self._user
        self.wall = time.perf_counter() - self._wall


def take_turns(cases: Mapping[str, Callable[[], int]], rounds: int) -> dict[str, Timing]:
    """Run every case once per round, after one round that does not count.

    A case does a round's work and returns how many items that was.
    """
    timings = {name: Timing() for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            with Stopwatch() as watch:
                items = case()
            if number:
                timings[name].add(watch, items)
    return timings
