"""The console's server: REST interface and pages behind the guard, served by uvicorn."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.dashboard.pages.register import add_pages
from orbitmq.dashboard.rest.app import make_app
from orbitmq.dashboard.rest.guard import MAX_WEBSOCKET_MESSAGE, Guard
from orbitmq.remoting import ServerTls, TlsConfigError
from orbitmq.remoting.tls.context import ServerCertificates, reloading_context

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import AsyncIterator, Callable, Iterator

    from fastapi import FastAPI

    from orbitmq.dashboard.config import DashboardConfig
    from orbitmq.dashboard.console import Console

MAX_CONNECTIONS = 1000
KEEP_ALIVE_SECONDS = 30
STOP_SECONDS = 3
"""Time for open requests when the console stops."""


async def serve(console: Console, stop: asyncio.Event, ready: Callable[[int], None]) -> None:
    """Serve until ``stop`` is set. ``ready`` gets the port. Raises InvalidRequestError if it is in use."""
    app = make_app(console)
    add_pages(app, console)
    listener = _listen(console.config.host, console.config.port)
    _run_with(app, console)
    config = uvicorn.Config(
        Guard(app, console),
        log_config=None,
        access_log=False,
        server_header=False,
        # Addresses in headers are a proxy's: without one, any client could invent them.
        proxy_headers=bool(console.config.allowed_hosts),
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        ws_max_size=MAX_WEBSOCKET_MESSAGE,
        h11_max_incomplete_event_size=64 << 10,
    )
    config.load()
    config.ssl = _tls(console.config)
    server = _Server(config, lambda: ready(listener.getsockname()[1]), stop)
    with contextlib.closing(listener):
        await server.serve([listener])


def _tls(config: DashboardConfig) -> ssl.SSLContext | None:
    """Raises InvalidRequestError."""
    if not config.tls_certificate:
        return None
    tls = ServerTls(certificate_path=config.tls_certificate, key_path=config.tls_key)
    try:
        return reloading_context(ServerCertificates(tls))
    except TlsConfigError as error:
        raise InvalidRequestError(str(error)) from None


class _Server(uvicorn.Server):
    """uvicorn's server, whose signals are the command's."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stop: asyncio.Event) -> None:
        super().__init__(config)
        self._ready = ready
        self._stop = stop

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        if self._stop.is_set():
            return True
        return await super().on_tick(counter)


def _run_with(app: FastAPI, console: Console) -> None:
    """Start and stop the console with the application."""
    pages = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        await console.start()
        try:
            async with pages(app) as state:
                yield state
        finally:
            await console.close()

    app.router.lifespan_context = lifespan


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, number)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise InvalidRequestError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listener
