"""The client reads time and randomness from what it is handed, never from the system directly."""

from __future__ import annotations

import ast
from pathlib import Path

import orbitmq.client

CLIENT = Path(orbitmq.client.__file__).parent

CALLER_LOOP = "sync/bridge.py"
"""Measures how long a blocking program stood still, which no simulation drives."""

READS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "perf_counter"),
    ("uuid", "uuid4"),
    ("uuid", "uuid1"),
}


def _direct_reads(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.value.id, node.attr
            if name in READS or (node.value.id == "random" and node.attr != "Random" and _imports_random(path)):
                found.append(f"{path.relative_to(CLIENT)}:{node.lineno}: {'.'.join(name)}")
    return found


def _imports_random(path: Path) -> bool:
    return any(
        isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def test_nothing_in_the_client_reads_the_systems_clock_or_random_numbers() -> None:
    paths = [path for path in CLIENT.rglob("*.py") if path.relative_to(CLIENT).as_posix() != CALLER_LOOP]
    assert len(paths) > 50
    assert [read for path in paths for read in _direct_reads(path)] == []
