"""Dead letters: groups that gave messages up; one group's, with resend and export."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from orbitmq.dashboard.pages.messages import message_rows, message_table
from orbitmq.dashboard.subjects import dead_letters as dead
from orbitmq.dashboard.widgets.buttons import flat, primary
from orbitmq.dashboard.widgets.cards import card
from orbitmq.dashboard.widgets.dialogs import confirm
from orbitmq.dashboard.widgets.tables import Column, DataTable, action
from orbitmq.dashboard.widgets.text import moment, parse_moment

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.dashboard.pages.view import View

MAX_VISIBLE = 200


async def build(view: View, _: ui.element) -> None:
    """The groups."""
    with card():
        table = DataTable(
            "Groups with dead letters",
            [
                Column("group", "Group", sortable=True),
                Column("messages", "Dead letters", numeric=True, sortable=True),
                Column("last", "Last one"),
            ],
            nothing="No group has given up a message.",
            icon="mark_email_read",
            page_size=50,
        )

    async def refresh() -> None:
        found = sorted(await view.cluster.dead_letters(), key=lambda one: one.messages, reverse=True)
        table.show(
            [
                {
                    "id": one.group,
                    "group": one.group,
                    "messages": one.messages,
                    "last": moment(one.last_update_ms),
                    "links": {"group": view.link("dead-letters", one.group)},
                }
                for one in found
            ]
        )

    await refresh()
    view.every(10.0, refresh)


async def build_one(view: View, buttons: ui.element) -> None:
    """The dead letters of one group."""
    page = _Letters(view, view.parameters["name"])
    with buttons:
        flat("Group", icon="groups", on_click=lambda: ui.navigate.to(view.link("groups", page.group)))
        path = f"/api/v1/clusters/{quote(view.cluster.name)}/dead-letters/{quote(page.group, safe='')}/export"
        flat("Export", icon="download", on_click=lambda: ui.download.from_url(path))
        if view.may_operate:
            flat("Resend all of these", icon="send", on_click=view.do(page.resend_all))
    page.build()
    await page.refresh()


class _Letters:
    """The list, with its span of time."""

    def __init__(self, view: View, group: str) -> None:
        self.group = group
        self._view = view
        self._messages: list[ReceivedMessage] = []

    def build(self) -> None:
        view = self._view
        with card():
            with ui.element("div").classes("oq-filters"):
                self._begin = ui.input("From", placeholder="2026-11-01 12:00, or -1h").props(
                    "outlined dense clearable"
                )
                self._end = ui.input("To").props("outlined dense clearable")
                primary("Show", icon="search", on_click=view.do(self.refresh))
            self._count = ui.label("").classes("oq-muted")
            self._table = message_table(
                "No dead letters in this span.", self._on_action if view.may_operate else None
            )

    async def refresh(self) -> None:
        view = self._view
        begin, end = self._span()
        self._messages = [
            message
            async for message in dead.read(view.cluster, self.group, begin_ms=begin, end_ms=end, limit=MAX_VISIBLE)
        ]
        count = len(self._messages)
        self._count.text = f"The first {count}; choose a time for others." if count == MAX_VISIBLE else ""
        actions = [action("resend", "send", "Resend")] if view.may_operate else []
        self._table.show(message_rows(view, self._messages, actions))

    def _span(self) -> tuple[int | None, int | None]:
        """Raises ValueError."""
        return parse_moment(self._begin.value or ""), parse_moment(self._end.value or "")

    async def _on_action(self, _: str, message_id: str) -> None:
        await self._view.attempt(self._resend({"message_id": message_id, "limit": 1}))

    async def resend_all(self) -> None:
        begin, end = self._span()
        await self._resend({"begin_ms": begin, "end_ms": end, "limit": dead.MAX_RESENT})

    async def _resend(self, which: dict[str, object]) -> None:
        view = self._view
        planned = await dead.resend(view.console, view.actor, view.cluster, self.group, which, dry_run=True)
        lines = [f"{one.offset_message_id} to {one.topic}" for one in planned]
        title = f"Send {len(planned):,} dead letter(s) again?"
        if not planned or not await confirm(title, lines, button="Resend"):
            return
        results = await dead.resend(view.console, view.actor, view.cluster, self.group, which)
        failed = [one for one in results if one.error]
        if failed:
            view.complain(f"{len(failed)} of {len(results)} were not sent: {failed[0].error}")
        else:
            ui.notify(f"{len(results)} sent. The dead letters stay where they are.", type="positive")
