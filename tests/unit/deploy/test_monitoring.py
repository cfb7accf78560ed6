"""The Grafana board and the alert rules in ``deploy/``: every metric and label that they use exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from orbitmq.broker.metrics import exporter, names, own
from orbitmq.metrics.instrument import Instrument, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
BOARD = ROOT / "deploy/grafana/orbitmq-cluster.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"

_METRIC = re.compile(r"\b(?:rocketmq|orbitmq)_\w+")
_SELECTOR = re.compile(r"((?:rocketmq|orbitmq)_\w+)\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


def _exported() -> set[str]:
    """Names of all series that a broker exports."""
    found: set[str] = set()
    for module in (names, own, exporter):
        for value in vars(module).values():
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
            for part in parts:
                if isinstance(part, Instrument):
                    name = part.prometheus_name
                    found |= (
                        {f"{name}_{end}" for end in ("bucket", "sum", "count")}
                        if part.kind is Kind.HISTOGRAM
                        else {name}
                    )
    return found


def _documented_labels() -> dict[str, set[str]]:
    """Labels by metric, from the tables of docs/metrics.md."""
    common = {"cluster", "node_type", "node_id", "le"}
    found: dict[str, set[str]] = {}
    before: set[str] = set()
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) < 3 or not (name := re.fullmatch(r"`(\w+)`", cells[0])):
            continue
        text = cells[2] if len(cells) == 4 else cells[1]
        labels = before if text == "as before" else set(re.findall(r"\w+", text))
        found[name[1]] = labels | common
        before = labels
    return found


def _expressions() -> Iterator[tuple[str, str]]:
    board = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]
    for rule in _rules():
        yield rule["alert"], rule["expr"]


def _rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_every_metric_of_the_board_and_the_alerts_is_exported() -> None:
    exported = _exported()
    assert len(exported) > 150
    for title, expression in _expressions():
        used = set(_METRIC.findall(expression))
        assert used or "up{" in expression, title
        assert used <= exported, (title, used - exported)


def test_every_label_in_a_selector_is_one_of_the_metric() -> None:
    labels = _documented_labels()
    seen = 0
    for title, expression in _expressions():
        for metric, matchers in _SELECTOR.findall(expression):
            name = re.sub(r"_(bucket|sum|count)$", "", metric)
            if name in labels:
                seen += 1
                assert set(_MATCHER.findall(matchers)) <= labels[name], (title, metric)
    assert seen > 30


@pytest.mark.parametrize("rule", _rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith(".")
    assert rule["alert"] in (ROOT / "docs/console.md").read_text()


def test_the_panels_of_the_board_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids = set()
    for panel in json.loads(BOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        ids.add(panel["id"])
    assert len(ids) == len(json.loads(BOARD.read_text())["panels"])
