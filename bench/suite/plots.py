"""The plots of a report, as SVG files; without matplotlib there are none, and the report is whole without them."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any

from bench.server.measures import CPU, RATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.suite.report import Compared, SuiteReport
    from bench.suite.scenario import Line

_COLOURS = {
    "OrbitMQ": "#2463eb",
    "Apache RocketMQ": "#e4572e",
    "Kafka": "#4a4a4a",
    "RabbitMQ": "#f2a65a",
}
_OTHER = "#8ab17d"
_WIDTH = 9.0
_BAR = 0.28
_DRAWN = (RATE, CPU)


def unavailable() -> str | None:
    """None if plots can be drawn here, otherwise the reason in one sentence."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed (uv pip install matplotlib)"
    return None


def draw(report: SuiteReport, folder: Path) -> dict[str, list[str]]:
    """Write the plots of a report; returns the names of their files, by scenario."""
    files: dict[str, list[str]] = {}
    rates = [(scenario, row) for scenario, row in report.rates() if row.advantages]
    if rates:
        files[""] = [_save(_draw_ratios(rates), folder, "ratios")]
    for scenario, found in report.found.items():
        made = []
        for measure in _DRAWN:
            rows = [row for row in report.rows(scenario) if row.row.measure == measure]
            if rows:
                word = "rate" if measure == RATE else "cpu"
                made.append(_save(_draw_bars(scenario, rows), folder, f"{scenario}-{word}"))
        for title in dict.fromkeys(line.title for line in found.lines):
            lines = [line for line in found.lines if line.title == title]
            made.append(_save(_draw_lines(lines), folder, f"{scenario}-{title}"))
        if made:
            files[scenario] = made
    return files


def file_name(text: str) -> str:
    """A name for a file, of letters and digits alone."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") + ".svg"


def _save(figure: Any, folder: Path, name: str) -> str:
    file = file_name(name)
    # Without a date the same figures give the same file.
    figure.savefig(folder / file, format="svg", bbox_inches="tight", metadata={"Date": None})
    return file


def _figure(height: float) -> tuple[Any, Any]:
    """A canvas of its own, which needs no display and is gone with its last reference."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - not on every machine

    figure = Figure(figsize=(_WIDTH, height))
    return figure, figure.add_subplot()


def _draw_bars(title: str, rows: Sequence[Compared]) -> Any:
    """A group of bars for each load: medians, with a line from the lowest to the highest."""
    systems = list(dict.fromkeys(name for row in rows for name in row.row.figures))
    figure, axes = _figure(1.2 + len(rows) * (_BAR * len(systems) + 0.25))
    for number, system in enumerate(systems):
        for at, row in enumerate(rows):
            value = row.row.figures.get(system)
            if value is None:
                continue
            place = at + (number - (len(systems) - 1) / 2) * 0.8 / len(systems)
            spread = [[value.median - value.low], [value.high - value.median]]
            label = system if at == _first_with(rows, system) else None
            axes.barh(
                place,
                value.median,
                height=0.8 / len(systems),
                xerr=spread,
                label=label,
                color=_COLOURS.get(system, _OTHER),
                ecolor="#222222",
            )
    axes.set_yticks(range(len(rows)), [row.row.load for row in rows])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_xlabel(f"{rows[0].row.measure.name}, {rows[0].row.measure.unit}")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="best")
    return figure


def _first_with(rows: Sequence[Compared], system: str) -> int:
    return next(at for at, row in enumerate(rows) if system in row.row.figures)


def _draw_ratios(rates: Sequence[tuple[str, Compared]]) -> Any:
    """The ratio of OrbitMQ's rate to those of the others, for all loads of a run."""
    rows = [row for _, row in rates]
    figure, axes = _figure(1.2 + 0.28 * len(rows))
    others = list(dict.fromkeys(name for row in rows for name in row.advantages))
    for other in others:
        points = [(at, row.advantages[other]) for at, row in enumerate(rows) if other in row.advantages]
        medians = [each.median for _, each in points]
        spread = [
            [each.median - each.low for _, each in points],
            [each.high - each.median for _, each in points],
        ]
        axes.errorbar(
            medians,
            [at for at, _ in points],
            xerr=spread,
            fmt="o",
            capsize=2,
            label=f"× {other}",
            color=_COLOURS.get(other, _OTHER),
        )
    axes.axvline(1, color="#222222", linewidth=1)
    axes.set_xscale("log")
    for ticks in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        ticks("{x:g}")
    axes.set_yticks(range(len(rows)), [f"{scenario}: {row.row.load}" for scenario, row in rates])
    axes.invert_yaxis()
    axes.set_xlabel("times as many messages per second")
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    return figure


def _draw_lines(lines: Sequence[Line]) -> Any:
    """One panel for all systems: lines, and what happened at its time."""
    figure, axes = _figure(4.5)
    for line in lines:
        colour = _COLOURS.get(line.system, _OTHER)
        axes.plot(*zip(*line.points, strict=True), label=line.system, color=colour, linewidth=1)
        for number, (seconds, what) in enumerate(line.marks):
            label = f"{line.system}: {what}" if number == 0 else None
            axes.axvline(seconds, color=colour, linestyle=":", linewidth=1, label=label)
    values = [value for line in lines for _, value in line.points]
    if values and min(values) > 0 and max(values) > 50 * min(values):
        axes.set_yscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel(lines[0].unit)
    axes.set_title(lines[0].title)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    return figure
