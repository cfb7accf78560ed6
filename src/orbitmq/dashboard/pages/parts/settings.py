"""Settings of a server: a list to search, with changes that show what they alter first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nicegui import ui

from orbitmq.dashboard.widgets.buttons import flat
from orbitmq.dashboard.widgets.cards import card
from orbitmq.dashboard.widgets.dialogs import Field, ask, confirm_changes
from orbitmq.dashboard.widgets.tables import Column, DataTable, action

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.admin.changes import Change
    from orbitmq.dashboard.pages.view import View

SECRET_WORDS = ("password", "secretkey", "secret_key", "credential", "authconfig")
HIDDEN = "••••••"


class SettingsChange(Protocol):
    """Changes settings, or says what it would change."""

    def __call__(self, values: dict[str, str], *, dry_run: bool) -> Awaitable[list[Change]]: ...


async def settings_table(
    view: View, title: str, read: Callable[[], Awaitable[dict[str, str]]], change: SettingsChange
) -> None:
    """The card with the settings."""
    found = await read()
    with card(title) as head:
        with head:
            ui.element("div").classes("oq-grow")
            search = ui.input("Search settings").props("outlined dense clearable")
            search.classes("oq-search")
            if view.may_administer:
                flat("Change a setting", icon="edit", on_click=view.do(lambda: edit("")))
        table = DataTable(
            title,
            [Column("name", "Name", sortable=True), Column("value", "Value", wrapped=True)],
            nothing="No setting has this in its name or value.",
            on_action=(lambda _, name: edit_from_row(name)) if view.may_administer else None,
            page_size=50,
        )

    def show() -> None:
        wanted = (search.value or "").lower()
        table.show(
            [
                {"id": name, "name": name, "value": visible(name, value), "actions": [EDIT]}
                for name, value in found.items()
                if wanted in name.lower() or wanted in visible(name, value).lower()
            ]
        )

    async def edit_from_row(name: str) -> None:
        await view.attempt(edit(name))

    async def edit(name: str) -> None:
        given = await ask(
            "Change a setting",
            [
                Field(name="name", label="Name", value=name, required=True),
                Field(name="value", label="Value", value=found.get(name, ""), kind="area"),
            ],
            text="The change is in force at once, and written to the server's settings file.",
        )
        if given is None:
            return
        values = {str(given["name"]).strip(): str(given["value"])}
        changes = await change(values, dry_run=True)
        if await confirm_changes("Change this setting?", changes, lambda: change(values, dry_run=False)):
            found.clear()
            found.update(await read())
            show()

    search.on_value_change(show)
    show()


EDIT = action("edit", "edit", "Change")


def visible(name: str, value: str) -> str:
    """The value, unless its name says that it is a secret."""
    return HIDDEN if value and any(word in name.lower() for word in SECRET_WORDS) else value
