"""Line charts over time, and graphs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nicegui import ui

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COLORS = ["#4f7cff", "#17a391", "#e08a1e", "#c2459b", "#7a5af0", "#5b8c2a", "#d9534f", "#3aa0d8"]
TEXT = "#7d899c"
LINE = "rgba(125,137,156,0.25)"
NUMBER = "value => value.toLocaleString('en')"
SHORT = "value => value.toLocaleString('en', {notation: 'compact'})"
PERCENT = "value => (value * 100).toLocaleString('en', {maximumFractionDigits: 1}) + ' %'"
LEGEND_ROW, LEGEND_WIDTH, LEGEND_GAP, LETTER_WIDTH = 22, 420, 30, 7
"""Pixels."""
LEGEND_LINE = "path://M0 0h14v4h-14z"
SPANS = {"15 min": 900, "1 h": 3600, "24 h": 86_400, "7 d": 604_800}


class TimeChart:
    """Lines over time. A chart without samples says so."""

    def __init__(self, label: str, *, form: str = NUMBER) -> None:
        self._chart = ui.echart(_time_options(label, form)).classes("oq-chart")
        self._chart.props["role"] = "img"
        self._chart.props["aria-label"] = label

    def show(self, lines: Mapping[str, tuple[Sequence[int], Sequence[float]]], begin: int, end: int) -> None:
        """Show lines by name, with times in seconds since the epoch."""
        options = self._chart.options
        options["xAxis"]["min"] = begin * 1000
        options["xAxis"]["max"] = end * 1000
        options["legend"]["show"] = len(lines) > 1
        options["grid"]["top"] = 12 + LEGEND_ROW * _legend_rows(lines) if len(lines) > 1 else 12
        options["series"] = [
            {
                "name": name,
                "type": "line",
                "showSymbol": len(times) == 1,
                "smooth": False,
                "lineStyle": {"width": 2},
                # The areas of many lines would hide each other.
                "areaStyle": {"opacity": 0.12 if len(lines) <= 2 else 0},
                "data": [[time * 1000, round(value, 4)] for time, value in zip(times, values, strict=True)],
            }
            for name, (times, values) in lines.items()
        ]
        has_samples = any(times for times, _ in lines.values())
        options["title"]["text"] = "" if has_samples else "no samples yet"
        self._chart.update()


def _legend_rows(names: Iterable[str]) -> int:
    """The rows of a legend in the narrowest chart of a wide screen."""
    return math.ceil(sum(len(name) * LETTER_WIDTH + LEGEND_GAP for name in names) / LEGEND_WIDTH)


def _time_options(label: str, form: str) -> dict[str, Any]:
    return {
        "color": COLORS,
        "animation": False,
        "aria": {"enabled": True, "label": {"description": label}},
        "title": {
            "text": "no samples yet",
            "left": "center",
            "top": "middle",
            "textStyle": {"color": TEXT, "fontSize": 13, "fontWeight": "normal"},
        },
        "grid": {"left": 8, "right": 16, "top": 34, "bottom": 8, "containLabel": True},
        "tooltip": {"trigger": "axis", ":valueFormatter": form, "renderMode": "richText"},
        "legend": {
            "show": False,
            "top": 0,
            "left": 0,
            "icon": LEGEND_LINE,
            "itemWidth": 14,
            "itemHeight": 12,
            "textStyle": {"color": TEXT},
        },
        "xAxis": {
            "type": "time",
            "axisLabel": {"color": TEXT, "hideOverlap": True},
            "axisLine": {"lineStyle": {"color": LINE}},
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            "max": 1 if form == PERCENT else None,
            "axisLabel": {"color": TEXT, ":formatter": SHORT if form == NUMBER else form},
            "splitLine": {"lineStyle": {"color": LINE}},
        },
        "series": [],
    }


class BarChart:
    """Counts by name."""

    def __init__(self, label: str) -> None:
        axis = {"color": TEXT}
        self._chart = ui.echart(
            {
                "color": COLORS,
                "animation": False,
                "aria": {"enabled": True, "label": {"description": label}},
                "grid": {"left": 8, "right": 16, "top": 24, "bottom": 8, "containLabel": True},
                "tooltip": {"trigger": "axis", ":valueFormatter": NUMBER, "renderMode": "richText"},
                "xAxis": {
                    "type": "category",
                    "data": [],
                    "axisLabel": {**axis, "interval": 0, "fontSize": 11},
                    "axisTick": {"show": False},
                },
                "yAxis": {
                    "type": "value",
                    "minInterval": 1,
                    "axisLabel": {**axis, ":formatter": SHORT},
                    "splitLine": {"lineStyle": {"color": LINE}},
                },
                "series": [
                    {"type": "bar", "barMaxWidth": 56, "data": [], "label": {"show": True, "position": "top"}}
                ],
            }
        ).classes("oq-chart")
        self._chart.options["series"][0]["label"]["color"] = TEXT
        self._chart.props["role"] = "img"
        self._chart.props["aria-label"] = label

    def show(self, counts: Sequence[tuple[str, int]]) -> None:
        """Show these counts in place of those before."""
        self._chart.options["xAxis"]["data"] = [name for name, _ in counts]
        self._chart.options["series"][0]["data"] = [count for _, count in counts]
        self._chart.update()


def graph(label: str, nodes: Sequence[Mapping[str, Any]], edges: Sequence[tuple[str, str, str]]) -> None:
    """Nodes in columns (``name``, ``text``, ``column``, ``row``, ``color``) with arrows that have a text."""
    rows = max((int(node["row"]) for node in nodes), default=0) + 1
    columns = max((int(node["column"]) for node in nodes), default=0)
    # On axes, which stay invisible, nodes keep their size.
    axis = {"type": "value", "show": False, "min": 0}
    series = {
        "type": "graph",
        "coordinateSystem": "cartesian2d",
        # Edges end at a circle around the node; the box is the label, as wide as the circle.
        "symbol": "circle",
        "symbolSize": 200,
        "edgeSymbol": ["none", "arrow"],
        "label": {
            "show": True,
            "color": "#fff",
            "width": 176,
            "overflow": "truncate",
            "lineHeight": 17,
            "padding": [8, 10],
            "borderRadius": 8,
        },
        "edgeLabel": {
            "show": True,
            "position": "middle",
            "align": "center",
            "verticalAlign": "bottom",
            ":formatter": "one => one.data.text",
            "color": TEXT,
            "fontSize": 11,
            "opacity": 1,
        },
        "lineStyle": {"color": TEXT, "width": 1.5, "opacity": 1},
        "data": [
            {
                "name": str(node["name"]),
                "label": {"formatter": str(node["text"]), "backgroundColor": str(node["color"])},
                "value": [int(node["column"]), rows - 1 - int(node["row"])],
                "itemStyle": {"color": "transparent"},
            }
            for node in nodes
        ],
        "links": [{"source": one, "target": other, "text": text} for one, other, text in edges],
    }
    options = {
        "animation": False,
        "aria": {"enabled": True, "label": {"description": label}},
        "grid": {"left": 110, "right": 110, "top": 36, "bottom": 36},
        "xAxis": {**axis, "max": max(columns, 1)},
        # One row is in the middle.
        "yAxis": {**axis, "min": 0 if rows > 1 else -1, "max": rows - 1 if rows > 1 else 1},
        "series": [series],
    }
    chart = ui.echart(options).classes("oq-chart")
    chart.style(f"height: {rows * 70 + 50}px; min-width: 760px")
    chart.props["role"] = "img"
    chart.props["aria-label"] = label
