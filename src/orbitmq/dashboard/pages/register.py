"""Registers the pages with NiceGUI, each in its frame, loaded after the browser is connected."""

import dataclasses
import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import Client, ui

from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.dashboard.auth.roles import NotSignedInError
from orbitmq.dashboard.console import Console
from orbitmq.dashboard.pages import (
    api,
    brokers,
    clients,
    dead_letters,
    deferred,
    events,
    groups,
    management,
    messages,
    name_servers,
    overview,
    pipelines,
    topics,
)
from orbitmq.dashboard.pages.view import View
from orbitmq.dashboard.sign_in import ASSETS
from orbitmq.dashboard.widgets import cards
from orbitmq.dashboard.widgets.buttons import flat
from orbitmq.dashboard.widgets.frame import frame

log = logging.getLogger("orbitmq.dashboard")

CONNECT_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class PageSpec:
    """A page: its path below the cluster (or from the root), title, entry in the navigation, and content."""

    path: str
    title: str
    active: str
    build: Callable[[View, ui.element], Awaitable[None]]
    parent: tuple[str, str] | None = None
    """Title and path of the page above it. The title of this page is then the name in its path."""


DEAD_LETTERS = ("Dead letters", "dead-letters")
PAGES = (
    PageSpec("overview", "Overview", "overview", overview.build),
    PageSpec("brokers", "Brokers", "brokers", brokers.build),
    PageSpec("brokers/{name:path}", "Broker", "brokers", brokers.build_one, ("Brokers", "brokers")),
    PageSpec("name-servers", "Name servers", "name-servers", name_servers.build),
    PageSpec("events", "Events", "events", events.build),
    PageSpec("topics", "Topics", "topics", topics.build),
    PageSpec("topics/{name:path}", "Topic", "topics", topics.build_one, ("Topics", "topics")),
    PageSpec("groups", "Groups", "groups", groups.build),
    PageSpec("groups/{name:path}", "Group", "groups", groups.build_one, ("Groups", "groups")),
    PageSpec("clients", "Clients", "clients", clients.build),
    PageSpec("messages", "Messages", "messages", messages.build),
    PageSpec("messages/{name:path}", "Message", "messages", messages.build_one, ("Messages", "messages")),
    PageSpec("dead-letters", "Dead letters", "dead-letters", dead_letters.build),
    PageSpec(
        "dead-letters/{name:path}", "", "dead-letters", dead_letters.build_one, ("Dead letters", "dead-letters")
    ),
    PageSpec("deferred", "Deferred messages", "deferred", deferred.build),
    PageSpec("pipelines", "Pipelines", "pipelines", pipelines.build),
    PageSpec("/console/jobs", "Jobs", "/console/jobs", management.build_jobs),
    PageSpec("/console/audit", "Audit log", "/console/audit", management.build_audit),
    PageSpec("/console/users", "Users", "/console/users", management.build_users),
    PageSpec("/console/password", "Change password", "", management.build_password),
    PageSpec("/console/api", "REST interface", "/console/api", api.build),
)


def add_pages(app: FastAPI, console: Console) -> None:
    """Put all pages into the application."""

    @app.get("/", include_in_schema=False)
    async def home() -> Response:
        return RedirectResponse(f"/c/{console.clusters.first.name}/overview", 303)

    @app.get("/c/{cluster}", include_in_schema=False)
    async def cluster_home(cluster: str) -> Response:
        return RedirectResponse(f"/c/{console.clusters.get(cluster).name}/overview", 303)

    for spec in PAGES:
        _add(spec, console)
    ui.run_with(
        app,
        title="OrbitMQ console",
        favicon=ASSETS / "logo.svg",
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        reconnect_timeout=10.0,
        binding_refresh_interval=None,
    )


def _add(spec: PageSpec, console: Console) -> None:
    path = spec.path if spec.path.startswith("/") else f"/c/{{cluster}}/{spec.path}"

    @ui.page(path)
    async def show(request: Request, client: Client) -> None:
        name = request.path_params.get("name", "")
        title = name or spec.title
        # The browser's title is text, too: NiceGUI puts it into the page as it is.
        ui.page_title(f"{title if not name else spec.title} - OrbitMQ")
        try:
            cluster = console.clusters.get(request.path_params.get("cluster") or console.clusters.first.name)
        except NotFoundError as error:
            ui.label(str(error))
            return
        view = View(console, cluster, request, client)
        crumb = None if spec.parent is None else (spec.parent[0], view.link(spec.parent[1]))
        with frame(view, title, spec.active, crumb) as buttons:
            body = ui.element("div").style("display: contents")
        with body:
            waiting = ui.spinner(size="lg").props("aria-label=Loading").style("margin: 48px auto")
        await client.connected(CONNECT_SECONDS)
        with body:
            await _build(spec, view, buttons)
        waiting.delete()


async def _build(spec: PageSpec, view: View, buttons: ui.element) -> None:
    try:
        await spec.build(view, buttons)
    except NotSignedInError:
        ui.navigate.to("/login")
    except AdminError as error:
        cards.error(str(error))
        flat("Try again", icon="refresh", on_click=ui.navigate.reload).style("width: fit-content")
    except Exception as error:
        log.exception("page: %s not built", spec.path)
        cards.error(f"unexpected error, see the log of the console: {type(error).__name__}")
