"""Plots of the history: a chart with a choice of how far back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nicegui import ui

from orbitmq.dashboard.widgets.cards import heading
from orbitmq.dashboard.widgets.charts import NUMBER, SPANS, TimeChart

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.dashboard.history.store import HistoryStore

REFRESH_SECONDS = 5.0


class Plots:
    """Charts that share one choice of the time span. ``lines`` gives the series by name, or those of today."""

    def __init__(self, history: HistoryStore | None) -> None:
        self._history = history
        self._span = SPANS["15 min"]
        self._charts: list[tuple[TimeChart, Callable[[], Mapping[str, str]]]] = []

    def choice(self) -> None:
        """The choice of the span."""
        if self._history is None:
            return
        options = {seconds: label for label, seconds in SPANS.items()}
        toggle = ui.toggle(options, value=self._span, on_change=lambda event: self._choose(int(event.value)))
        toggle.props('dense unelevated no-caps toggle-color=primary aria-label="Time span"')

    def add(self, title: str, lines: Callable[[], Mapping[str, str]], *, form: str = "") -> None:
        """A card with a chart."""
        if self._history is None:
            return
        with ui.element("section").classes("oq-card"):
            heading(title)
            chart = TimeChart(title, form=form or NUMBER)
        self._charts.append((chart, lines))
        self._draw(chart, lines)

    def refresh(self) -> None:
        """Draw what is in the history now."""
        for chart, lines in self._charts:
            self._draw(chart, lines)

    def _choose(self, span: int) -> None:
        self._span = span
        self.refresh()

    def _draw(self, chart: TimeChart, lines: Callable[[], Mapping[str, str]]) -> None:
        assert self._history is not None
        end = int(time.time())
        begin = end - self._span
        found = {}
        for name, series in lines().items():
            read = self._history.read(series, begin, end)
            found[name] = (read.times, read.values)
        chart.show(found, begin, end)
