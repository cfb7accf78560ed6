"""The pictures of an audit's report: SVG, made by Matplotlib without a display, each a text of its own."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.util
import io
import re
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from orbitmq.spark.pipelines.audit.tables import Row

COLOURS = ("#2563a8", "#d9822b", "#3a8f5c", "#8a4fa3", "#b23a48", "#5c6b7a", "#00818a", "#a0763a")
INK, FAINT, GRID = "#26313c", "#6b7785", "#dfe4ea"
MAX_BARS = 20
MAX_TOPICS = 7
WIDTH = 8.6
"""Inches; the page scales it."""

_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "orbitmq",
    "text.parse_math": False,
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)


def check_plots() -> None:
    """Raises PipelineError where there is nothing to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PipelineError("reports need Matplotlib: run 'pip install \"orbitmq[pipelines]\"'")


def traffic(buckets: Sequence[Row]) -> str:
    """Messages over time, by topic: ``topic``, ``at`` in ms, ``width`` in ms of all of them, ``messages``."""
    if not buckets:
        return ""
    begin, end, width = min(row["at"] for row in buckets), max(row["at"] for row in buckets), buckets[0]["width"]
    times = range(begin, end + 2 * width, width)
    totals: dict[str, int] = {}
    for row in buckets:
        totals[row["topic"]] = totals.get(row["topic"], 0) + row["messages"]
    chosen = sorted(totals, key=lambda topic: -totals[topic])[:MAX_TOPICS]
    counts = {topic: dict.fromkeys(times, 0) for topic in chosen}
    others = dict.fromkeys(times, 0)
    for row in buckets:
        counts.get(row["topic"], others)[row["at"]] += row["messages"]
    if len(totals) > len(chosen):
        counts["all others"] = others
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    dates: Any = importlib.import_module("matplotlib.dates")  # which has no types

    with _figure(2.6) as (figure, axes):
        points: Any = [datetime.datetime.fromtimestamp(at / 1000, datetime.UTC) for at in times]
        axes.stackplot(
            points,
            [list(of.values()) for of in counts.values()],
            labels=list(counts),
            colors=COLOURS,
            alpha=0.85,
            step="post",
        )
        places = dates.AutoDateLocator()
        axes.xaxis.set_major_locator(places)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(places))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("messages")
        axes.set_ylim(bottom=0)
        axes.margins(x=0)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.14), ncols=4, frameon=False, fontsize=8.5)
        return _svg(figure, "Messages stored over time, by topic")


def latencies(rows: Sequence[Row]) -> str:
    """The percentiles of each topic and group as points of a line, on a scale of powers of ten."""
    top = list(rows)[:MAX_BARS]
    if not top:
        return ""
    names = [f"{row['topic']} · {row['what']}" + (f" · {row['group']}" if row["group"] else "") for row in top]
    marks = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p999_ms": "p99.9", "max_ms": "max"}
    with _figure(0.9 + 0.34 * len(top)) as (figure, axes):
        for at, row in enumerate(top):
            values = [max(row[name], 0) for name in marks]
            axes.plot([values[0], values[-1]], [at, at], color=GRID, linewidth=4, solid_capstyle="round", zorder=1)
        for number, (name, text) in enumerate(marks.items()):
            values = [max(row[name], 0) for row in top]
            axes.scatter(values, range(len(top)), s=34, color=COLOURS[number], label=text, zorder=2 + number)
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("milliseconds")
        axes.set_yticks(range(len(top)), names)
        axes.set_ylim(len(top) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=GRID, linewidth=0.8)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5, frameon=False, fontsize=8.5)
        return _svg(figure, "Latency percentiles by topic and group")


def bars(numbers: Mapping[str, int], what: str, title: str) -> str:
    """The largest of some numbers, by their names."""
    top = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))[:MAX_BARS]
    if not top:
        return ""
    with _figure(0.7 + 0.32 * len(top)) as (figure, axes):
        values = [value for _, value in top]
        drawn = axes.barh(range(len(top)), values, color=COLOURS[0], height=0.62)
        axes.bar_label(drawn, labels=[f"{value:,}" for value in values], padding=4, color=INK, fontsize=9)
        axes.set_yticks(range(len(top)), [name for name, _ in top])
        axes.set_ylim(len(top) - 0.5, -0.5)
        axes.set_xlim(0, max(*values, 1) * 1.12)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(what)
        axes.spines["bottom"].set_visible(False)
        axes.xaxis.set_visible(False)
        return _svg(figure, title)


@contextlib.contextmanager
def _figure(height: float) -> Iterator[tuple[Figure, Axes]]:
    import matplotlib as mpl  # noqa: PLC0415 - only reports need it, and it takes a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.add_subplot()


def _svg(figure: Figure, title: str) -> str:
    """As a part of a page: no head, no fixed size, and a name for those who do not see it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = _HEAD.sub("", out.getvalue(), count=1)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
