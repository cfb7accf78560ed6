"""The REST interface: its operations, from the OpenAPI description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.rest.app import make_app
from orbitmq.dashboard.widgets.cards import INFO, PLAIN, WARN, card, code
from orbitmq.dashboard.widgets.tables import Column, DataTable

if TYPE_CHECKING:
    from orbitmq.dashboard.pages.view import View

EXAMPLE = """\
TOKEN=$(curl -s {base}/api/v1/session -H 'content-type: application/json' \\
  -d '{{"user": "admin", "password": "…"}}' | python3 -c 'import json,sys; print(json.load(sys.stdin)["token"])')
curl -s {base}/api/v1/clusters/{cluster}/topics -H "authorization: Bearer $TOKEN"
"""
METHODS = {"get": INFO, "post": PLAIN, "put": PLAIN, "patch": PLAIN, "delete": WARN}


async def build(view: View, buttons: ui.element) -> None:
    """The page."""
    with buttons:
        ui.link("OpenAPI description", "/api/v1/openapi.json", new_tab=True)
    with card("From a script"):
        code(EXAMPLE.format(base=view.base, cluster=view.cluster.name))
    paths: dict[str, dict[str, Any]] = make_app(view.console).openapi()["paths"]
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            tags.setdefault((operation.get("tags") or ["other"])[0], []).append(
                {
                    "id": f"{method} {path}",
                    "method": method.upper(),
                    "path": path,
                    "summary": operation.get("summary", ""),
                    "kinds": {"method": METHODS.get(method, PLAIN)},
                }
            )
    for tag, rows in tags.items():
        with card(tag.capitalize()):
            table = DataTable(
                tag,
                [
                    Column("method", "Method"),
                    Column("path", "Path", wrapped=True),
                    Column("summary", "Does", wrapped=True),
                ],
                page_size=100,
            )
            table.show(rows)
