"""Reading of a metrics page with the parser of ``prometheus_client``: series, names, labels and values."""

from __future__ import annotations

import urllib.request
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Series: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]


def fetch(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def series_of(text: str) -> Series:
    """Every sample by its name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def label_names(series: Series) -> dict[str, set[frozenset[str]]]:
    """The sets of label names that each metric name has."""
    found: dict[str, set[frozenset[str]]] = {}
    for name, labels in series:
        found.setdefault(name, set()).add(frozenset(label for label, _ in labels))
    return found


def values(series: Series, name: str, *keys: str) -> dict[tuple[str, ...], float]:
    """The values of a metric by some of its labels; series that agree in them are added."""
    found: dict[tuple[str, ...], float] = {}
    for (of_name, labels), value in series.items():
        if of_name == name:
            key = tuple(dict(labels).get(label, "") for label in keys)
            found[key] = found.get(key, 0.0) + value
    return found
