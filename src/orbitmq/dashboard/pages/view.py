"""View: one open page with its console, cluster and user, and how its errors are reported."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from nicegui import ui

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.auth.roles import NotSignedInError, Role
from orbitmq.dashboard.widgets.frame import THEME_COOKIE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request
    from nicegui import Client

    from orbitmq.dashboard.clusters import ManagedCluster
    from orbitmq.dashboard.console import Console

log = logging.getLogger("orbitmq.dashboard")


class View:
    """Viewer of a page, and the cluster that it shows."""

    def __init__(self, console: Console, cluster: ManagedCluster, request: Request, client: Client) -> None:
        self.console = console
        self.cluster = cluster
        self.admin = cluster.admin
        self.actor = request.state.actor
        self.parameters: dict[str, str] = {**request.query_params, **request.path_params}
        self.base = f"{request.url.scheme}://{request.url.netloc}"
        self.theme = request.cookies.get(THEME_COOKIE, "auto")
        self.client = client

    def may(self, role: Role) -> bool:
        """True if an action is offered."""
        return self.console.may(self.actor, role)

    @property
    def may_operate(self) -> bool:
        return self.may(Role.OPERATOR)

    @property
    def may_administer(self) -> bool:
        return self.may(Role.ADMIN)

    def link(self, *parts: object, **query: object) -> str:
        """The address of a page of this cluster."""
        path = "/".join(quote(str(part), safe="") for part in (self.cluster.name, *parts))
        tail = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
        return f"/c/{path}{'?' if tail else ''}{tail}"

    async def attempt(self, work: Awaitable[Any]) -> bool:
        """Do something for the viewer; an error is a notification. True if it was done."""
        try:
            await work
        except NotSignedInError:
            with self.client:
                ui.navigate.to("/login")
        except (AdminError, ValueError) as error:
            self.complain(str(error))
        except Exception as error:
            log.exception("page: action failed")
            self.complain(f"unexpected error, see the log of the console: {type(error).__name__}")
        else:
            return True
        return False

    def complain(self, text: str) -> None:
        """Notify the viewer of an error."""
        if not self.client.has_socket_connection:
            return
        with self.client:
            ui.notify(text[:2000], type="negative", multi_line=True, timeout=10_000, close_button="Close")

    def do(self, work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[None]]:
        """A handler of an event, whose errors are notifications."""

        async def handle() -> None:
            await self.attempt(work())

        return handle

    def every(self, seconds: float, refresh: Callable[[], Awaitable[None]]) -> None:
        """Refresh while the page is open. A session that has ended leads to the sign-in."""

        async def tick() -> None:
            try:
                self.console.still_open(self.actor)
                await refresh()
            except NotSignedInError:
                timer.deactivate()
                ui.navigate.to("/login")
            except AdminError as error:
                log.debug("page: not refreshed, will retry: %s", error)

        timer = ui.timer(seconds, tick, immediate=False)

    def sign_out(self) -> None:
        self.console.sessions.end(self.actor.session)
        ui.navigate.to("/login")
