"""Tables: in pages that the server cuts, or whole where they are small. Cells are text, never markup."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.listing import Query
from orbitmq.dashboard.widgets.cards import empty

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

PAGE_SIZES = (25, 50, 100, 200)

# A cell is a link if its row has an address for it, a badge if it has a kind.
_CELL = """
<q-td :props="props" :class="'{style}'" :title="{clipped} ? String(props.value) : undefined">
  <a v-if="props.row.links && props.row.links['{name}']" :href="props.row.links['{name}']">{{{{ props.value }}}}</a>
  <span v-else-if="props.row.kinds && props.row.kinds['{name}'] !== undefined" class="oq-badge"
    :class="props.row.kinds['{name}']">{{{{ props.value }}}}</span>
  <span v-else>{{{{ props.value }}}}</span>
</q-td>
"""
_ACTIONS = """
<q-td :props="props" auto-width>
  <q-btn v-for="one in props.row.actions" :key="one.name" flat dense size="sm" :icon="one.icon"
    :aria-label="one.label + ' ' + props.row.id" @click="$parent.$emit('action', [one.name, props.row.id])">
    <q-tooltip>{{ one.label }}</q-tooltip>
  </q-btn>
</q-td>
"""
ACTIONS = "actions"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column. Its values are in the rows under ``name``."""

    name: str
    label: str
    numeric: bool = False
    sortable: bool = False
    wrapped: bool = False
    """Long text: broken into lines."""
    clipped: bool = False
    """Long text: on one line, as far as there is room."""
    form: str = ""
    """A JavaScript function that formats a value."""

    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name,
            "label": self.label,
            "field": self.name,
            "align": "right" if self.numeric else "left",
            "sortable": self.sortable,
        }
        form = self.form or ("value => value == null ? '–' : value.toLocaleString('en')" if self.numeric else "")
        if form:
            found[":format"] = form
        return found


def action(name: str, icon: str, label: str) -> dict[str, str]:
    """A button in a row, in the row's list ``actions``."""
    return {"name": name, "icon": icon, "label": label}


class DataTable:
    """A table whose rows are all in the browser. Each row has an ``id``."""

    def __init__(
        self,
        label: str,
        columns: Sequence[Column],
        *,
        nothing: str = "Nothing here.",
        icon: str = "inbox",
        on_action: Callable[[str, str], Awaitable[None]] | None = None,
        page_size: int = 25,
    ) -> None:
        self._nothing = nothing
        self.element = _table(label, columns, on_action, {"rowsPerPage": page_size})
        self._place = ui.element("div")
        with self._place:
            empty(icon, nothing)
        self.show([])

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Show these rows in place of those before."""
        self.element.rows = rows
        self.element.update()
        self.element.set_visibility(bool(rows))
        self._place.set_visibility(not rows)
        # The row of page controls is for tables that need it.
        self.element.props(
            add="hide-bottom" if len(rows) <= 25 else None, remove=None if len(rows) <= 25 else "hide-bottom"
        )


class PagedTable:
    """A table that fetches the part that is visible. ``fetch`` returns the rows and the number of all."""

    def __init__(
        self,
        label: str,
        columns: Sequence[Column],
        fetch: Callable[[Query], Awaitable[tuple[list[dict[str, Any]], int]]],
        *,
        sort: str = "",
        descending: bool = False,
        nothing: str = "Nothing found.",
        on_action: Callable[[str, str], Awaitable[None]] | None = None,
        attempt: Callable[[Awaitable[None]], Awaitable[bool]],
    ) -> None:
        self._fetch = fetch
        self._attempt = attempt
        self._query = Query(size=PAGE_SIZES[0], sort=sort, descending=descending)
        pagination = {
            "rowsPerPage": self._query.size,
            "page": 1,
            "sortBy": sort or None,
            "descending": descending,
            "rowsNumber": 0,
        }
        self.element = _table(label, columns, on_action, pagination)
        self.element.on("request", self._on_request)
        self.element.on_pagination_change(self._keep_total)
        self._total = 0
        self._place = ui.element("div")
        with self._place:
            empty("search_off", nothing)
        self._place.set_visibility(False)

    async def search(self, text: str) -> None:
        """Show what has a text in it."""
        self._query = dataclasses.replace(self._query, search=text, page=1)
        await self.refresh()

    async def refresh(self) -> None:
        """Fetch the visible part again."""
        await self._attempt(self._load())

    async def _on_request(self, event: Any) -> None:
        wanted = event.args["pagination"]
        size = wanted.get("rowsPerPage") or PAGE_SIZES[-1]
        self._query = dataclasses.replace(
            self._query,
            page=max(1, int(wanted.get("page") or 1)),
            size=min(int(size), PAGE_SIZES[-1]),
            sort=str(wanted.get("sortBy") or ""),
            descending=bool(wanted.get("descending")),
        )
        await self.refresh()

    def _keep_total(self, event: Any) -> None:
        """Browsers send the number of rows back, that of an earlier load if the next one was faster."""
        if event.value.get("rowsNumber") != self._total:
            self.element.pagination = {**event.value, "rowsNumber": self._total}

    async def _load(self) -> None:
        rows, total = await self._fetch(self._query)
        query = self._query
        self._total = total
        self.element.rows = rows
        self.element.pagination = {
            "rowsPerPage": query.size,
            "page": query.page,
            "sortBy": query.sort or None,
            "descending": query.descending,
            "rowsNumber": total,
        }
        self.element.update()
        self.element.set_visibility(total > 0)
        self._place.set_visibility(total == 0)


def _table(
    label: str,
    columns: Sequence[Column],
    on_action: Callable[[str, str], Awaitable[None]] | None,
    pagination: dict[str, Any],
) -> ui.table:
    options = [column.options() for column in columns]
    if on_action is not None:
        options.append({"name": ACTIONS, "label": "", "field": ACTIONS, "align": "right"})
    table = ui.table(columns=options, rows=[], row_key="id", pagination=pagination)
    table.classes("oq-table").props(f'flat :rows-per-page-options="{list(PAGE_SIZES)}" binary-state-sort')
    table.props["aria-label"] = label
    table.props["role"] = "region"
    for column in columns:
        name = column.name
        style = "is-wrapped" if column.wrapped else "is-clipped" if column.clipped else ""
        cell = _CELL.format(name=name, style=style, clipped=str(column.clipped).lower())
        table.add_slot(f"body-cell-{name}", cell)
    if on_action is not None:
        table.add_slot(f"body-cell-{ACTIONS}", _ACTIONS)

        async def handle(event: Any) -> None:
            name, row = event.args
            await on_action(str(name), str(row))

        table.on("action", handle)
    return table
