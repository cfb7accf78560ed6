"""A server: ports to listen on, each with its table of handlers, and an orderly start and stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.errors import ListenError
from orbitmq.remoting.limits import Limits
from orbitmq.remoting.opening import Arrival, Entrance
from orbitmq.remoting.tls import ServerCertificates, ServerTls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.remoting.connection import Connection, Handler
    from orbitmq.remoting.taking import Taker

log = logging.getLogger("orbitmq.remoting")

BACKLOG = 1024
"""Connections that wait to be accepted, as in RocketMQ."""


@dataclasses.dataclass(frozen=True, slots=True)
class Listener:
    """One port. The VIP port of a broker is a second one with fewer handlers."""

    handlers: Mapping[int, Handler]
    """By request code. A code that is not in it is answered with code 3."""
    port: int = 0
    """0 is any that is free."""
    host: str = "127.0.0.1"
    """The address of an interface; ``0.0.0.0`` is all of them for IPv4, ``::`` for IPv6.

    Loopback unless asked otherwise: nothing is offered to a network by accident.
    """
    taker: Taker | None = None
    """Is shown everything before it is cut into frames."""


class RemotingServer:
    """Accepts connections and hands their requests to handlers."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        limits: Limits | None = None,
        tls: ServerTls | None = None,
        proxy_protocol: bool = True,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, Exception | None], None] | None = None,
    ) -> None:
        """``on_open`` is called when a connection is ready for frames, ``on_close`` when it is gone; always both.

        The error of ``on_close`` is None if either side closed in an orderly way.
        """
        self._listeners = listeners
        self._limits = limits or Limits()
        self._tls = tls or ServerTls()
        self._proxy_protocol = proxy_protocol
        self._on_open = on_open
        self._on_close = on_close
        self._entrance: Entrance | None = None
        self._servers: list[asyncio.Server] = []

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset() if self._entrance is None else frozenset(self._entrance.endpoint.connections)

    @property
    def ports(self) -> list[int]:
        """Where it listens, in the order of the listeners."""
        return [int(server.sockets[0].getsockname()[1]) for server in self._servers]

    async def start(self) -> None:
        """Listen. Raises ListenError or TlsConfigError, and then listens nowhere."""
        assert self._entrance is None, "started already"
        certificates = ServerCertificates(self._tls)
        endpoint = Endpoint(self._limits, self._on_open, self._on_close)
        self._entrance = Entrance(endpoint, certificates, self._proxy_protocol)
        try:
            for listener in self._listeners:
                self._servers.append(await self._listen(listener, self._entrance))
        except BaseException:
            await self.stop(0)
            raise

    async def _listen(self, listener: Listener, entrance: Entrance) -> asyncio.Server:
        # Codes may be members of an enumeration; looking a plain number up among plain numbers is faster.
        handlers = {int(code): handler for code, handler in listener.handlers.items()}
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: Arrival(entrance, handlers, listener.taker), listener.host, listener.port, backlog=BACKLOG
            )
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from error
        log.info("listening on %s", ", ".join(address_of(sock.getsockname()) for sock in server.sockets))
        return server

    def reload_certificates(self) -> None:
        """Use what is in the certificate files now for new connections; changed files are noticed without it."""
        if self._entrance is not None:
            self._entrance.certificates.reload()

    async def stop(self, grace: float = 5.0) -> None:
        """Accept nothing more, send the answers that are owed, but for no longer than ``grace`` seconds, and close.

        Requests that come in meanwhile are not taken. Whoever holds requests back should answer them first.
        """
        if self._entrance is None:
            return
        entrance, self._entrance = self._entrance, None
        endpoint = entrance.endpoint
        entrance.open = False
        for server in self._servers:
            server.close()
        for arrival in tuple(endpoint.opening):
            arrival.abort()
        for connection in tuple(endpoint.connections):
            connection.drain()
        if not await endpoint.empty(grace):
            for connection in tuple(endpoint.connections):
                connection.abort()
            await endpoint.empty(endpoint.limits.closing_seconds)
        endpoint.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
