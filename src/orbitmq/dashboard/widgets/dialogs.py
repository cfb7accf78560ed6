"""Dialogs: forms, and the confirmation of changes with what they alter."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.dashboard.widgets.buttons import flat
from orbitmq.dashboard.widgets.cards import heading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from orbitmq.admin.changes import Change


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a form. ``kind`` is text, area, number, switch, select or password."""

    name: str
    label: str
    kind: str = "text"
    value: Any = ""
    options: Sequence[str] | Mapping[str, str] = ()
    hint: str = ""
    required: bool = False


async def ask(
    title: str, fields: Sequence[Field], *, button: str = "Continue", text: str = ""
) -> dict[str, Any] | None:
    """The values of a form, or None if it was closed."""
    inputs: dict[str, Any] = {}
    with ui.dialog().props("persistent") as dialog, ui.element("div").classes("oq-dialog"):
        _describe(dialog, title)
        heading(title)
        if text:
            ui.label(text).classes("oq-muted")
        for field in fields:
            inputs[field.name] = _control(field)
        problem = ui.label("").style("color: var(--bad)").props("role=alert")

        def finish() -> None:
            missing = [
                one.label for one in fields if one.required and not str(inputs[one.name].value or "").strip()
            ]
            if missing:
                problem.text = f"Needed: {', '.join(missing)}."
            else:
                dialog.submit({name: element.value for name, element in inputs.items()})

        _buttons(dialog, button, finish, "primary")
    dialog.open()
    found: dict[str, Any] | None = await dialog
    dialog.delete()
    return found


async def confirm(title: str, lines: Sequence[str], *, button: str, typed: str = "") -> bool:
    """Ask the viewer to confirm; True if they do. ``typed``: only after typing that name, for what destroys."""
    with ui.dialog().props("persistent") as dialog, ui.element("div").classes("oq-dialog"):
        _describe(dialog, title)
        heading(title)
        with ui.element("div").classes("oq-diff"):
            for line in lines[:200]:
                ui.label(line)
            if len(lines) > 200:
                ui.label(f"… and {len(lines) - 200:,} more").classes("oq-muted")
        name = ui.input(f"Type {typed} to confirm").props("outlined dense") if typed else None

        def finish() -> None:
            if name is None or name.value == typed:
                dialog.submit(True)

        _buttons(dialog, button, finish, "negative" if typed else "primary")
    dialog.open()
    agreed = bool(await dialog)
    dialog.delete()
    return agreed


async def confirm_changes(
    title: str, changes: Sequence[Change], apply: Callable[[], Awaitable[object]], *, typed: str = ""
) -> bool:
    """Show what a change alters, and do it if the viewer agrees; True if it was done."""
    if not changes:
        ui.notify("Nothing differs: there is nothing to change.")
        return False
    if not await confirm(title, [str(change) for change in changes], button="Apply", typed=typed):
        return False
    await apply()
    ui.notify("Done.", type="positive")
    return True


def _describe(dialog: ui.dialog, title: str) -> None:
    dialog.props["aria-label"] = title


def _buttons(dialog: ui.dialog, button: str, finish: Callable[[], None], color: str) -> None:
    with ui.element("div").classes("oq-dialog-buttons"):
        flat("Cancel", on_click=lambda: dialog.submit(None))
        ui.button(button, on_click=finish, color=color).props("unelevated")


def _control(field: Field) -> Any:
    if field.kind == "switch":
        return ui.switch(field.label, value=bool(field.value))
    if field.kind == "select":
        options: Any = dict(field.options) if isinstance(field.options, dict) else list(field.options)
        found: Any = ui.select(options, label=field.label, value=field.value)
    elif field.kind == "area":
        found = ui.textarea(field.label, value=str(field.value)).props("autogrow input-style='max-height: 40vh'")
    elif field.kind == "number":
        found = ui.number(field.label, value=field.value, format="%d")
    else:
        found = ui.input(field.label, value=str(field.value), password=field.kind == "password")
    found.props("outlined dense")
    if field.hint:
        found.props["hint"] = field.hint
    return found
