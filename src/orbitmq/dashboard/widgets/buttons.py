"""Buttons in the colours of the theme."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

if TYPE_CHECKING:
    from collections.abc import Callable


def primary(label: str, icon: str = "", on_click: Callable[..., Any] | None = None) -> ui.button:
    """The main action of a page or a form."""
    return ui.button(label, icon=icon or None, on_click=on_click).props("unelevated")


def flat(
    label: str, icon: str = "", on_click: Callable[..., Any] | None = None, *, danger: bool = False
) -> ui.button:
    """Another action. Its colour is the theme's, which Quasar's own colours are not."""
    button = ui.button(label, icon=icon or None, on_click=on_click, color=None).props("flat")
    return button.classes("oq-flat danger" if danger else "oq-flat")


def icon_only(icon: str, label: str, on_click: Callable[..., Any] | None = None) -> ui.button:
    """A round button with an icon; the label is for screen readers and as a tooltip."""
    button = ui.button(icon=icon, on_click=on_click, color=None).props("flat round dense").classes("oq-icon")
    button.props["aria-label"] = label
    return button
