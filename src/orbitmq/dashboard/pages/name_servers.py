"""Name servers: which respond, and their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.pages.parts.settings import settings_table
from orbitmq.dashboard.widgets.cards import BAD, GOOD, card
from orbitmq.dashboard.widgets.plots import REFRESH_SECONDS
from orbitmq.dashboard.widgets.tables import Column, DataTable

if TYPE_CHECKING:
    from nicegui import ui

    from orbitmq.admin.changes import Change
    from orbitmq.dashboard.pages.view import View


async def build(view: View, _: ui.element) -> None:
    """The page."""
    with card("Name servers"):
        table = DataTable(
            "Name servers",
            [Column("address", "Address"), Column("state", "State"), Column("reason", "Reason", wrapped=True)],
        )

    async def refresh() -> None:
        table.show(
            [
                {
                    "id": one.address,
                    "address": one.address,
                    "state": "up" if one.is_reachable else "no response",
                    "reason": one.reason,
                    "kinds": {"state": GOOD if one.is_reachable else BAD},
                }
                for one in await view.cluster.name_server_list()
            ]
        )

    async def change(values: dict[str, str], *, dry_run: bool) -> list[Change]:
        if dry_run:
            return await view.admin.name_servers.alter_settings(values, dry_run=True)
        action = Action("alter name server settings", ", ".join(sorted(values)), Role.ADMIN)
        return await view.console.change(
            view.actor, view.cluster, action, lambda: view.admin.name_servers.alter_settings(values)
        )

    await refresh()
    for server in await view.cluster.name_server_list():
        if server.is_reachable:
            address = server.address

            async def read(address: str = address) -> dict[str, str]:
                return await view.admin.name_servers.settings(address)

            await settings_table(view, f"Settings of {address}", read, change)
            break
    view.every(REFRESH_SECONDS, refresh)
