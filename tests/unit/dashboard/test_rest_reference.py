"""The reference of the REST interface in the documentation has the operations of its OpenAPI description."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.dashboard.rest_client import rest
from support.paths import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

_OPERATION = re.compile(r"^\| `([A-Z]+) (/\S+)` \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)


async def test_the_reference_is_complete(tmp_path: Path) -> None:
    async with rest("127.0.0.1:1", tmp_path, login=False, history_mib=0) as running:
        paths = (await running.client.get("/api/v1/openapi.json")).json()["paths"]
    described = {
        (method.upper(), path.removeprefix("/api/v1")): (
            one["summary"],
            {given["name"] for given in one.get("parameters", []) if given["in"] == "query"},
        )
        for path, methods in paths.items()
        for method, one in methods.items()
    }
    written = {
        (method, path): (summary.strip(), set(re.findall(r"`(\w+)`", query)))
        for method, path, summary, query in _OPERATION.findall((PROJECT / "docs/console-rest.md").read_text())
    }
    assert written == described
