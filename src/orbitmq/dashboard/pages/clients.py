"""Clients: producers by group, and consumers by group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.listing import Page, Query, page_of
from orbitmq.dashboard.subjects.live import connected_consumers, is_internal, producers
from orbitmq.dashboard.widgets.cards import INFO, card
from orbitmq.dashboard.widgets.tables import Column, PagedTable

if TYPE_CHECKING:
    from orbitmq.admin.group.model import Member
    from orbitmq.dashboard.pages.view import View

INTERNAL = "RocketMQ's own"
COLUMNS = [
    Column("group", "Group", sortable=True),
    Column("client", "Client", sortable=True),
    Column("address", "Address"),
    Column("language", "Language", sortable=True),
    Column("version", "Version", sortable=True),
]
SORTS = {
    "group": lambda pair: pair[0],
    "client": lambda pair: pair[1].client_id,
    "language": lambda pair: pair[1].language,
    "version": lambda pair: pair[1].version,
}


async def build(view: View, _: ui.element) -> None:
    """The page."""
    with card(), ui.element("div").classes("oq-filters"):
        search = ui.input("Search clients", on_change=lambda event: find(event.value or ""))
        search.props("outlined dense clearable debounce=300").classes("oq-search")
        internal = ui.switch(INTERNAL, on_change=view.do(lambda: find(search.value or "")))
    with card("Producers"):
        senders = _table(view, "Producers", producers, "No producer is connected.", internal, linked=False)
    with card("Consumers"):
        readers = _table(view, "Consumers", connected_consumers, "No consumer is connected.", internal, linked=True)

    async def find(text: str) -> None:
        await asyncio.gather(senders.search(text), readers.search(text))

    async def refresh() -> None:
        await asyncio.gather(senders.refresh(), readers.refresh())

    await refresh()
    view.every(10.0, refresh)


def _table(view: View, label: str, read: Any, nothing: str, internal: ui.switch, *, linked: bool) -> PagedTable:
    async def fetch(query: Query) -> tuple[list[dict[str, Any]], int]:
        found: dict[str, list[Member]] = await read(view.cluster)
        pairs = [
            (group, member)
            for group, members in found.items()
            if internal.value or not is_internal(group)
            for member in members
        ]
        page: Page[tuple[str, Member]] = page_of(pairs, query, text=_text, sorts=SORTS)
        return [_row(view, group, member, linked=linked) for group, member in page.rows], page.total

    return PagedTable(label, COLUMNS, fetch, sort="group", nothing=nothing, attempt=view.attempt)


def _text(pair: tuple[str, Member]) -> str:
    group, member = pair
    return f"{group} {member.client_id} {member.address} {member.language}"


def _row(view: View, group: str, member: Member, *, linked: bool) -> dict[str, Any]:
    return {
        "id": f"{group} {member.client_id}",
        "group": group,
        "client": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
        "kinds": {"language": INFO},
        "links": {"group": view.link("groups", group)} if linked else {},
    }
