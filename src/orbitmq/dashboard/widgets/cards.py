"""Cards, tiles, facts, badges, code and empty states."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nicegui import ui

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GOOD, WARN, BAD, INFO, PLAIN = "good", "warn", "bad", "info", ""


@contextlib.contextmanager
def card(title: str = "") -> Iterator[ui.element]:
    """A card with a heading. What is added in the block is its content; yields the row of the heading."""
    with ui.element("section").classes("oq-card"):
        head = ui.element("div").classes("oq-card-head")
        if title:
            with head:
                heading(title)
        else:
            head.set_visibility(False)
        yield head


def heading(text: str, level: int = 2) -> None:
    """A heading of the page's structure."""
    with ui.element(f"h{level}"):
        ui.label(text)


class Tile:
    """One figure."""

    def __init__(self, label: str, value: str = "–", note: str = "") -> None:
        with ui.element("div").classes("oq-tile"):
            ui.label(label).classes("oq-label")
            self._value = ui.label(value).classes("oq-value")
            self._note = ui.label(note).classes("oq-note")

    def show(self, value: str, note: str = "") -> None:
        """Show another value."""
        self._value.text = value
        self._note.text = note


def tiles() -> ui.element:
    return ui.element("div").classes("oq-tiles")


def badge(text: str, kind: str = PLAIN) -> ui.label:
    return ui.label(text).classes(f"oq-badge {kind}")


def facts(values: Mapping[str, object]) -> None:
    """Names and values below each other."""
    with ui.element("div").classes("oq-facts"):
        for name, value in values.items():
            ui.label(name)
            ui.label("–" if value is None or not str(value) else str(value))


def code(text: str, *, wide: bool = False) -> ui.element:
    """Text with fixed width, as it is. It scrolls, and the keyboard reaches it."""
    with ui.element("pre").classes(f"oq-code{' is-wide' if wide else ''}").props("tabindex=0") as block:
        ui.label(text).style("white-space: inherit")
    return block


def empty(icon: str, text: str) -> None:
    """An empty state."""
    with ui.element("div").classes("oq-empty"):
        ui.icon(icon).props("aria-hidden=true")
        ui.label(text)


def error(text: str) -> None:
    """Card of what could not be read, and why."""
    box = ui.element("section").classes("oq-card oq-error").props("role=alert")
    with box, ui.element("div").classes("oq-problem"):
        badge("error", BAD)
        ui.label(text)
