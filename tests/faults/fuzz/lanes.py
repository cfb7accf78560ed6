"""Lanes: connections that send batches, one after the other, and read whatever the servers answer."""

from __future__ import annotations

import dataclasses
import heapq
import threading
import time
from typing import TYPE_CHECKING

from faults.fuzz.frames import BATCH_FRAMES, Batch, Fate, batch, one_by_one, without
from faults.fuzz.line import ANSWER_SECONDS, CONNECT_SECONDS, HangError, Line, MalformedAnswerError
from peers.ports import endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FLIGHTS_PER_CONNECTION = 40
_COSTLY = 50
"""How many of the most expensive frames are kept."""


@dataclasses.dataclass(slots=True)
class Ran:
    """When a batch was in flight."""

    number: int
    began: float
    ended: float


@dataclasses.dataclass(slots=True)
class Tally:
    """What all lanes did. ``ran`` is in the order of the ends."""

    frames: int = 0
    answers: int = 0
    answered_bytes: int = 0
    connections: int = 0
    closed_by_server: int = 0
    """Connections that a server closed before or at the last frame of a flight that should not break them."""
    ran: list[Ran] = dataclasses.field(default_factory=list)
    failures: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    """Batch numbers with what went wrong."""
    costs: list[tuple[float, int, int]] = dataclasses.field(default_factory=list)
    """A heap of the most expensive frames, if they are sent one by one: seconds, number and request code."""


class Lanes:
    """Sends the batches ``first`` to ``last`` over several connections at once.

    With ``cost``, the processor time of the servers until now, frame by frame over one connection at a time.
    Requests of the codes ``left_out`` are not sent.
    """

    def __init__(
        self,
        seed: int,
        first: int,
        last: int,
        addresses: Mapping[str, str],
        lanes: int,
        cost: Callable[[], float] | None = None,
        left_out: frozenset[int] = frozenset(),
    ) -> None:
        self._left_out = left_out
        self._cost = cost
        self._seed = seed
        self._numbers = iter(range(first, last))
        self._addresses = {target: endpoint(address) for target, address in addresses.items()}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.tally = Tally()
        self._threads = [
            threading.Thread(target=self._run, daemon=True) for _ in range(lanes if cost is None else 1)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Send no further batch, and wait for those in flight."""
        self._stop.set()
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(ANSWER_SECONDS + CONNECT_SECONDS)

    def _run(self) -> None:
        lines: dict[str, Line] = {}
        while not self._stop.is_set():
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                break
            made = without(batch(self._seed, number), self._left_out)
            if self._cost is not None:
                made = one_by_one(made)
            began = time.monotonic()
            try:
                self._send(made, lines)
            except (HangError, MalformedAnswerError, OSError) as error:
                self._stop.set()
                with self._lock:
                    self.tally.failures.append((number, f"{type(error).__name__}: {error}"))
            with self._lock:
                self.tally.frames += BATCH_FRAMES
                self.tally.ran.append(Ran(number, began, time.monotonic()))
        for line in lines.values():
            self._count(line)
            line.close()

    def _send(self, made: Batch, lines: dict[str, Line]) -> None:
        for at, flight in enumerate(made.flights):
            line = lines.get(made.target)
            if line is None or line.flights >= _FLIGHTS_PER_CONNECTION or line.closed:
                if line is not None:
                    self._count(line)
                    line.close()
                line = lines[made.target] = Line(self._addresses[made.target], lambda: not self._stop.is_set())
            line.flights += 1
            before = 0.0 if self._cost is None else self._cost()
            mark = (made.number * 64 + at) % 100_000_000
            whole = flight.frames[:-1] if flight.fate is Fate.BROKEN else flight.frames
            open_still = not whole or line.exchange(b"".join(whole), mark, bytewise=made.bytewise)
            if open_still and flight.fate is Fate.BROKEN:
                line.send_last(flight.frames[-1], reset=made.number % 3 == 0, bytewise=made.bytewise)
            elif not open_still and flight.fate is Fate.OPEN:
                with self._lock:
                    self.tally.closed_by_server += 1
            if flight.fate is Fate.BROKEN:
                del lines[made.target]
                self._count(line)
                line.close()
            if self._cost is not None:
                self._keep(self._cost() - before, made.first_frame + at, made.codes[at])

    def _count(self, line: Line) -> None:
        with self._lock:
            self.tally.connections += 1
            self.tally.answers += line.answers
            self.tally.answered_bytes += line.read_bytes

    def _keep(self, cost: float, frame: int, code: int) -> None:
        heapq.heappush(self.tally.costs, (cost, frame, code))
        if len(self.tally.costs) > _COSTLY:
            heapq.heappop(self.tally.costs)
