"""Counters that people can watch while work goes on, where there is a terminal to show them."""

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table

FRAMES = 8
"""How often in a second the display is drawn."""


class Counter:
    """How many of something there were, and how fast they came."""

    __slots__ = ("_began", "_last", "count", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        self.count = 0
        self._began = self._last = time.perf_counter()

    def start(self) -> None:
        """Count time from now on."""
        self._began = self._last = time.perf_counter()

    def add(self, count: int = 1) -> None:
        self.count += count
        self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """From the start to the last that was counted."""
        return max(self._last - self._began, 1e-9)

    @property
    def rate(self) -> float:
        return self.count / self.seconds


class LiveCounters:
    """Counters in the order in which they were made."""

    def __init__(self) -> None:
        self._counters: list[tuple[Counter, bool]] = []

    def counter(self, label: str, *, with_rate: bool = False) -> Counter:
        counter = Counter(label)
        self._counters.append((counter, with_rate))
        return counter

    @contextlib.contextmanager
    def shown(self, console: Console) -> Iterator[None]:
        """Show them for as long as this lasts, and leave nothing of it. Without a terminal nothing is shown."""
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
