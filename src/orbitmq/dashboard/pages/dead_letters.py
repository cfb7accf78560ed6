"""Dead letters: groups that gave messages up; one group's, with resend and export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from nicegui import ui

from orbitmq.admin.message.dead_letters import ALL, DeadLetterFilter
from orbitmq.dashboard.pages.messages import message_rows, message_table
from orbitmq.dashboard.subjects import dead_letters as dead
from orbitmq.dashboard.widgets.buttons import flat, primary
from orbitmq.dashboard.widgets.cards import INFO, card
from orbitmq.dashboard.widgets.dialogs import confirm
from orbitmq.dashboard.widgets.tables import Column, DataTable, action
from orbitmq.dashboard.widgets.text import moment, parse_moment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.admin.message.dead_letters import DeadLetterKind
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.dashboard.pages.view import View

MAX_VISIBLE = 200
MAX_AT_ONCE = 100
"""More letters are sent again by a job."""
MAX_COUNTED = 2000
"""Letters whose kinds are counted: each is read."""


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
        flat("Export", icon="download", on_click=view.do(page.export))
        if view.may_operate:
            flat("Resend all of these", icon="send", on_click=view.do(page.resend_all))
    page.build()
    await page.show_all()


def _kind_table(choose: Callable[[str, str], Awaitable[None]]) -> DataTable:
    return DataTable(
        "Kinds of dead letters",
        [
            Column("origin", "Topic"),
            Column("tag", "Tag"),
            Column("retries", "Retries", numeric=True, sortable=True),
            Column("count", "Dead letters", numeric=True, sortable=True),
            Column("first", "First one"),
            Column("last", "Last one"),
        ],
        nothing="No dead letters in this span.",
        icon="mark_email_read",
        on_action=choose,
    )


def _kind_row(number: int, kind: DeadLetterKind) -> dict[str, Any]:
    return {
        "id": number,
        "origin": kind.origin,
        "tag": kind.tag or "–",
        "retries": kind.retries,
        "count": kind.count,
        "first": moment(kind.first_ms),
        "last": moment(kind.last_ms),
        "kinds": {"tag": INFO} if kind.tag else {},
        "actions": [action("choose", "filter_alt", "Show only kind")],
    }


class _Letters:
    """The list, with its span of time."""

    def __init__(self, view: View, group: str) -> None:
        self.group = group
        self._view = view
        self._messages: list[ReceivedMessage] = []
        self._kinds: list[DeadLetterKind] = []
        self._which = ALL

    def build(self) -> None:
        view = self._view
        with card():
            with ui.element("div").classes("oq-filters"):
                self._begin = ui.input("From", placeholder="2026-11-01 12:00, or -1h").props(
                    "outlined dense clearable"
                )
                self._end = ui.input("To").props("outlined dense clearable")
                primary("Show", icon="search", on_click=view.do(self.show_all))
            self._kind_table = _kind_table(self._choose)
            self._counted = ui.label("").classes("oq-muted")
        with card() as head:
            head.set_visibility(True)
            with head:
                self._title = ui.label("")
                self._reset = flat("Show all", icon="filter_alt_off", on_click=view.do(self.show_all))
            self._count = ui.label("").classes("oq-muted")
            self._table = message_table(
                "No dead letters in this span.", self._on_action if view.may_operate else None
            )

    async def show_all(self) -> None:
        """The kinds of letters in the span, and letters of all kinds."""
        begin, end = self._span()
        work = self._view.admin.dead_letters.kinds
        self._kinds = await work(self.group, begin_ms=begin, end_ms=end, limit=MAX_COUNTED)
        count = sum(kind.count for kind in self._kinds)
        self._counted.text = f"Of the first {count:,}; choose a time for others." if count >= MAX_COUNTED else ""
        self._counted.set_visibility(bool(self._counted.text))
        self._kind_table.show([_kind_row(at, kind) for at, kind in enumerate(self._kinds)])
        await self._filter(ALL)

    async def _choose(self, _: str, number: str) -> None:
        kind = self._kinds[int(number)]
        await self._view.attempt(self._filter(DeadLetterFilter(kind.origin, kind.tag, kind.retries)))

    async def _filter(self, which: DeadLetterFilter) -> None:
        self._which = which
        parts = [f"of {which.origin}", f"with the tag {which.tag}" if which.tag else "without a tag"]
        self._title.text = "All kinds" if which == ALL else f"{' '.join(parts)}, retried {which.retries} times"
        self._reset.set_visibility(which != ALL)
        await self.refresh()

    async def export(self) -> None:
        """Download the letters that are shown, and those beyond the page."""
        begin, end = self._span()
        which = self._which
        given = {
            "begin_ms": begin,
            "end_ms": end,
            "origin": which.origin,
            "tag": which.tag,
            "retries": which.retries,
        }
        query = urlencode({name: value for name, value in given.items() if value is not None})
        path = f"/api/v1/clusters/{quote(self._view.cluster.name)}/dead-letters/{quote(self.group, safe='')}/export"
        ui.download.from_url(f"{path}?{query}")

    async def refresh(self) -> None:
        view = self._view
        begin, end = self._span()
        self._messages = [
            message
            async for message in dead.read(
                view.cluster, self.group, begin_ms=begin, end_ms=end, limit=MAX_VISIBLE, which=self._which
            )
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
        await self._resend({"begin_ms": begin, "end_ms": end, "limit": dead.MAX_RESENT, "which": self._which})

    async def _resend(self, which: dict[str, object]) -> None:
        view = self._view
        planned = await dead.resend(view.console, view.actor, view.cluster, self.group, which, dry_run=True)
        lines = [f"{one.offset_message_id} to {one.topic}" for one in planned]
        title = f"Send {len(planned):,} dead letter(s) again?"
        if not planned or not await confirm(title, lines, button="Resend"):
            return
        if len(planned) > MAX_AT_ONCE:
            dead.resend_in_background(view.console, view.actor, view.cluster, self.group, which, len(planned))
            ui.navigate.to("/console/jobs")
            return
        results = await dead.resend(view.console, view.actor, view.cluster, self.group, which)
        failed = [one for one in results if one.error]
        if failed:
            view.complain(f"{len(failed)} of {len(results)} were not sent: {failed[0].error}")
        else:
            ui.notify(f"{len(results)} sent. The dead letters stay where they are.", type="positive")
