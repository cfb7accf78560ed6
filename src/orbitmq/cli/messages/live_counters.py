"""Live counters: a progress display on a terminal, redrawn while work goes on."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

FRAMES = 8
"""Redraws of the display per second."""


class Counter:
    """A count and its rate."""

    __slots__ = ("_began", "_last", "count", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        self.count = 0
        self._began = self._last = time.perf_counter()

    def start(self) -> None:
        """Restart the time of the rate."""
        self._began = self._last = time.perf_counter()

    def add(self, count: int = 1) -> None:
        self.count += count
        self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last count."""
        return max(self._last - self._began, 1e-9)

    @property
    def rate(self) -> float:
        return self.count / self.seconds


class LiveCounters:
    """Counters in the order of their creation."""

    def __init__(self) -> None:
        self._counters: list[tuple[Counter, bool]] = []

    def counter(self, label: str, *, with_rate: bool = False) -> Counter:
        counter = Counter(label)
        self._counters.append((counter, with_rate))
        return counter

    @contextlib.contextmanager
    def displayed(self, console: Console) -> Iterator[None]:
        """Show the counters inside the block, then clear them. Does nothing without a terminal."""
        if not console.is_terminal:
            yield
            return
        with Live(get_renderable=self.table, console=console, refresh_per_second=FRAMES, transient=True):
            yield

    def table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column(justify="right", style="bold cyan")
        table.add_column(justify="right", style="dim")
        for counter, with_rate in self._counters:
            rate = f"{counter.rate:,.0f}/s" if with_rate and counter.count else ""
            table.add_row(counter.label, f"{counter.count:,}", rate)
        return table
