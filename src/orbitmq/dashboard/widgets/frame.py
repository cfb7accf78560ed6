"""Frame of every page: header, navigation, title, and the place for the content."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from orbitmq.dashboard.auth.roles import Role
from orbitmq.dashboard.widgets.buttons import flat, icon_only
from orbitmq.dashboard.widgets.cards import badge, heading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.dashboard.pages.view import View

THEME_COOKIE = "orbitmq_theme"

NAVIGATION = (
    ("", (("overview", "Overview", "dashboard"),)),
    (
        "Cluster",
        (
            ("brokers", "Brokers", "dns"),
            ("name-servers", "Name servers", "lan"),
            ("events", "Events", "history"),
        ),
    ),
    (
        "Data",
        (
            ("topics", "Topics", "topic"),
            ("groups", "Groups", "groups"),
            ("clients", "Clients", "devices"),
            ("messages", "Messages", "mail"),
            ("dead-letters", "Dead letters", "unsubscribe"),
            ("deferred", "Deferred", "schedule"),
            ("pipelines", "Pipelines", "account_tree"),
        ),
    ),
)
CONSOLE_NAVIGATION = (
    ("/console/jobs", "Jobs", "pending_actions", Role.OPERATOR),
    ("/console/audit", "Audit log", "fact_check", Role.OPERATOR),
    ("/console/users", "Users", "manage_accounts", Role.ADMIN),
    ("/console/api", "REST interface", "api", Role.VIEWER),
)


@contextlib.contextmanager
def frame(view: View, title: str, active: str, crumb: tuple[str, str] | None = None) -> Iterator[ui.element]:
    """The frame. The block adds to the content; yields the place for buttons beside the title."""
    ui.add_head_html('<link rel="stylesheet" href="/assets/console.css"><link rel="icon" href="/assets/logo.svg">')
    ui.colors(primary="#2f5be0", secondary="#566176", accent="#2f5be0", positive="#11735f", negative="#b42318")
    theme = view.theme
    dark = ui.dark_mode({"dark": True, "light": False}.get(theme))
    with (
        ui.left_drawer(value=False, fixed=True, bordered=False)
        .classes("oq-drawer")
        .props("width=220 show-if-above") as drawer
    ):
        _navigation(view, active)
    with ui.header().classes("oq-header row items-center"):
        icon_only("menu", "Navigation", drawer.toggle)
        with ui.element("a").props('href="/" aria-label="OrbitMQ console"').classes("oq-brand"):
            ui.element("img").props('src="/assets/logo.svg" alt=""')
            with ui.element("span"):
                ui.label("OrbitMQ")
        ui.element("div").classes("oq-grow")
        if view.console.config.read_only:
            badge("read-only", "warn")
        _cluster_choice(view)
        _theme_button(dark, theme)
        _user_menu(view)
    with ui.element("main").classes("oq-page"):
        if crumb is not None:
            ui.link(f"‹ {crumb[0]}", crumb[1]).classes("oq-crumb")
        with ui.element("div").classes("oq-title"):
            heading(title, 1)
            ui.element("div").classes("oq-grow")
            buttons = ui.element("div").classes("oq-actions")
        yield buttons


def _navigation(view: View, active: str) -> None:
    with ui.element("nav").classes("oq-nav").props('aria-label="Pages"'):
        for head, entries in NAVIGATION:
            if head:
                ui.label(head).classes("oq-nav-head")
            for name, label, icon in entries:
                _entry(f"/c/{quote(view.cluster.name)}/{name}", label, icon, is_active=name == active)
        ui.label("Console").classes("oq-nav-head")
        for target, label, icon, role in CONSOLE_NAVIGATION:
            if view.actor.role.includes(role):
                _entry(target, label, icon, is_active=target == active)


def _entry(target: str, label: str, icon: str, *, is_active: bool) -> None:
    with ui.element("a").props(f'href="{target}"').classes("is-active" if is_active else "") as link:
        if is_active:
            link.props("aria-current=page")
        ui.icon(icon).props("aria-hidden=true")
        ui.label(label)


def _cluster_choice(view: View) -> None:
    names = [cluster.name for cluster in view.console.clusters.all()]
    if len(names) < 2:
        return
    choice = ui.select(
        names,
        value=view.cluster.name,
        on_change=lambda event: ui.navigate.to(f"/c/{quote(event.value)}/overview"),
    )
    choice.props('outlined dense options-dense aria-label="Cluster"').style("max-width: 200px")


def _theme_button(dark: ui.dark_mode, theme: str) -> None:
    order = {"auto": ("dark", True), "dark": ("light", False), "light": ("auto", None)}
    icons = {"auto": "brightness_auto", "dark": "dark_mode", "light": "light_mode"}
    current = theme if theme in order else "auto"

    def change() -> None:
        nonlocal current
        current, dark.value = order[current]
        button.props(f"icon={icons[current]}")
        button.props["aria-label"] = f"Theme: {current}"
        button.update()
        ui.run_javascript(f"document.cookie = '{THEME_COOKIE}={current}; path=/; max-age=31536000; SameSite=Lax'")

    button = icon_only(icons[current], f"Theme: {current}", change)


def _user_menu(view: View) -> None:
    if not view.console.config.login:
        badge("no login", "warn")
        return
    with flat(view.actor.user, "account_circle").props("dense no-caps"), ui.menu():
        ui.menu_item(f"Role: {view.actor.role}").props("disable")
        ui.menu_item("Change password", on_click=lambda: ui.navigate.to("/console/password"))
        ui.menu_item("Sign out", on_click=view.sign_out)
