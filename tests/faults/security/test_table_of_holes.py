"""The table of known holes: each has a test, which exists."""

from __future__ import annotations

import ast
import re

from support.paths import PROJECT, TESTS

TABLE = (PROJECT / "docs" / "known-holes.md").read_text()
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_\w+)`")


def rows() -> list[str]:
    return [line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith("| hole ")]


def test_every_hole_names_a_test() -> None:
    assert len(rows()) > 25
    assert [row for row in rows() if not NAMED.search(row)] == []


def test_every_named_test_exists() -> None:
    missing = []
    for path, name in NAMED.findall(TABLE):
        file = TESTS / path
        tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
        if name not in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }:
            missing.append(f"{path}::{name}")
    assert missing == []
