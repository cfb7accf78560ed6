"""Protocol between the run and a load in its own process: it reports readiness, waits, works, and reports."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

READY = "ready"
TURN = 16
"""Messages between two looks at the clock, where that counts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """The parameters of a load."""

    mode: str
    address: str
    """Of a name server, or of a proxy."""
    topic: str
    group: str
    seconds: float
    body: int = 128
    threads: int = 1
    batch: int = 1
    in_flight: int = 1
    messages: int = 0
    """At most so many; 0 for as many as there is time for."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The report of a load."""

    messages: int
    seconds: float
    processor_seconds: float
    failures: int = 0
    failure: str = ""
    p50_us: float | None = None
    p99_us: float | None = None


def read_task(text: str) -> Task:
    return Task(**json.loads(text))


def read_finding(text: str | bytes) -> Finding:
    return Finding(**json.loads(text))


class Window:
    """The time that is measured, from the run's word until the last answer. Any thread may count."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.latencies: list[int] = []
        """Nanoseconds of each request, where they are taken."""
        self._done = 0
        self._failures = 0
        self._failure = ""
        self._last = 0.0
        self._guard = threading.Lock()
        self._full = threading.Event()

    def open(self) -> None:
        """Say that everything is prepared, and begin when the run says so."""
        print(READY, flush=True)
        sys.stdin.readline()
        self._began = self._last = time.perf_counter()
        self._used = time.process_time()
        self.end = self._began + self.task.seconds

    def is_open(self) -> bool:
        return time.perf_counter() < self.end and not self._full.is_set()

    def begin_with_first(self) -> None:
        """Forget the time so far: a consumer's time begins with its first message."""
        with self._guard:
            if not self._done:
                self._began = self._last = time.perf_counter()
                self._used = time.process_time()
                self.end = self._began + self.task.seconds

    def add(self, messages: int = 1) -> None:
        """Count messages that are sent or consumed."""
        now = time.perf_counter()
        with self._guard:
            if now <= self.end or not self.task.messages:
                self._done += messages
                self._last = now
            if self.task.messages and self._done >= self.task.messages:
                self._full.set()

    def fail(self, error: BaseException) -> None:
        with self._guard:
            self._failures += 1
            self._failure = self._failure or f"{type(error).__name__}: {error}"

    def wait(self) -> None:
        """Until the time is up, or all messages are there."""
        while self.is_open():
            self._full.wait(max(0.0, min(0.1, self.end - time.perf_counter())))

    def close(self) -> None:
        """Report what came of it."""
        used = time.process_time() - self._used
        found = Finding(
            self._done,
            max(self._last - self._began, 1e-9),
            used,
            self._failures,
            self._failure,
            *(_quantile(self.latencies, share) for share in (0.5, 0.99)),
        )
        print(json.dumps(dataclasses.asdict(found)), flush=True)


def in_threads(count: int, work: Callable[[], None]) -> None:
    """Do something in so many threads at a time, this one included, and wait for all."""
    others = [threading.Thread(target=work) for _ in range(count - 1)]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()


def _quantile(nanoseconds: list[int], share: float) -> float | None:
    if not nanoseconds:
        return None
    nanoseconds.sort()
    return nanoseconds[min(int(len(nanoseconds) * share), len(nanoseconds) - 1)] / 1e3
