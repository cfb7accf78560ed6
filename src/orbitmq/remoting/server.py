"""A server: ports to listen on, each with its table of handlers, and an orderly start and stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.platform.event_loop import close_servers
from orbitmq.platform.memory_budget import process_budget
from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.connect.accept import Acceptor, PendingConnection
from orbitmq.remoting.connect.in_process import connect_in_process
from orbitmq.remoting.connect.proxy_header import ProxyHeader
from orbitmq.remoting.connect.trusted_proxies import read_networks
from orbitmq.remoting.connection import Connection
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.errors import ConnectError, ListenError
from orbitmq.remoting.identity import IN_PROCESS
from orbitmq.remoting.limits.connection_limits import Limits
from orbitmq.remoting.observed_connection import ObservedConnection
from orbitmq.remoting.tls.context import ServerCertificates, ServerTls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.remoting.connection import Handler
    from orbitmq.remoting.interceptor import FrameInterceptor

log = logging.getLogger("orbitmq.remoting")

BACKLOG = 1024
"""Connections that wait to be accepted, as in RocketMQ."""


@dataclasses.dataclass(frozen=True, slots=True)
class Listener:
    """A port to listen on. The VIP port of a broker is a second one with fewer handlers."""

    handlers: Mapping[int, Handler]
    """By request code. Other codes are answered with REQUEST_CODE_NOT_SUPPORTED (3)."""
    port: int = 0
    """0 is any free port."""
    host: str = "127.0.0.1"
    """IP address of a network interface; ``0.0.0.0`` is all of them for IPv4, ``::`` for IPv6.

    The default is loopback, so that no server is open to a network by accident.
    """
    interceptor: FrameInterceptor | None = None
    """Receives inbound bytes before frame parsing."""


class RemotingServer:
    """Accepts connections and dispatches their requests to handlers."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        limits: Limits | None = None,
        tls: ServerTls | None = None,
        trusted_proxies: str = "",
        budget: MemoryBudget | None = None,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, Exception | None], None] | None = None,
        observer: Callable[[Connection, bytes], None] | None = None,
    ) -> None:
        """``on_open`` is called when a connection is ready for frames, ``on_close`` when it is closed; always both.

        ``trusted_proxies`` are the addresses or CIDR blocks, separated by commas, whose PROXY headers are trusted.
        ``budget`` is a memory budget shared with other servers; by default that of the process.

        ``observer`` sees the beginning of every deferred response.

        The error of ``on_close`` is None if either side closed gracefully.
        """
        self._listeners = listeners
        self._limits = limits or Limits()
        self._budget = budget or process_budget()
        self._tls = tls or ServerTls()
        self._trusted_proxies = read_networks(trusted_proxies)
        self._on_open = on_open
        self._on_close = on_close
        self._observer = observer
        self._acceptor: Acceptor | None = None
        self._endpoint: Endpoint | None = None
        self._servers: list[asyncio.Server] = []

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset() if self._endpoint is None else frozenset(self._endpoint.connections)

    @property
    def ports(self) -> list[int]:
        """The ports it listens on, in the order of the listeners."""
        return [int(server.sockets[0].getsockname()[1]) for server in self._servers]

    async def start(self) -> None:
        """Listen on all ports. Raises ListenError or TlsConfigError, and then listens on none."""
        assert self._acceptor is None, "started already"
        certificates = ServerCertificates(self._tls)
        endpoint = Endpoint(self._limits, self._on_open, self._on_close, self._budget)
        endpoint.observer = self._observer
        self._endpoint = endpoint
        self._acceptor = Acceptor(endpoint, certificates, self._trusted_proxies)
        try:
            for listener in self._listeners:
                self._servers.append(await self._listen(listener, self._acceptor))
        except BaseException:
            await self.stop(0)
            raise

    def hold(self) -> None:
        """Read nothing from any connection until ``release``. New ones are accepted, as by a process that hangs."""
        assert self._acceptor is not None, "not started"
        if self._acceptor.held is None:
            self._acceptor.held = []
            for connection in self.connections:
                connection.pause_reading()

    def release(self) -> None:
        """End ``hold``: what came meanwhile is processed."""
        assert self._acceptor is not None, "not started"
        held, self._acceptor.held = self._acceptor.held, None
        for connection in self.connections:
            connection.resume_reading()
        for pending in held or ():
            pending.release()

    async def _listen(self, listener: Listener, acceptor: Acceptor) -> asyncio.Server:
        # Codes may be enum members; a lookup of int keys is faster.
        handlers = {int(code): handler for code, handler in listener.handlers.items()}

        def connection(proxy: ProxyHeader, peer: str) -> Connection:
            return self._connection(handlers, listener.interceptor, proxy, peer)

        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: PendingConnection(acceptor, connection),
                listener.host,
                listener.port,
                backlog=BACKLOG,
            )
        except OSError as error:
            where = f"{listener.host}:{listener.port}"
            raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from error
        log.info("remoting: listening on %s", ", ".join(address_of(sock.getsockname()) for sock in server.sockets))
        return server

    def _connection(
        self, handlers: dict[int, Handler], interceptor: FrameInterceptor | None, proxy: ProxyHeader, peer: str
    ) -> Connection:
        assert self._endpoint is not None
        connection_type = Connection if self._observer is None else ObservedConnection
        return connection_type(
            self._endpoint,
            handlers,
            is_server=True,
            remote_address=proxy.source or peer,
            attributes=proxy.attributes,
            interceptor=interceptor,
        )

    def connect_in_process(self, client: Connection, address: str) -> None:
        """Connect a client of this process, known here by this address, to the first port. Raises ConnectError."""
        acceptor = self._acceptor
        if acceptor is None or not acceptor.open or acceptor.endpoint.is_full():
            raise ConnectError("the server takes no more connections")
        listener = self._listeners[0]
        handlers = {int(code): handler for code, handler in listener.handlers.items()}
        accepted = self._connection(handlers, listener.interceptor, ProxyHeader(), address)
        accepted.attributes = {IN_PROCESS: "true"}
        connect_in_process(asyncio.get_running_loop(), accepted, client, (f"127.0.0.1:{self.ports[0]}", address))

    def reload_certificates(self) -> None:
        """Reload the certificate files for new connections. Changed files are also detected without this."""
        if self._acceptor is not None:
            self._acceptor.certificates.reload()

    async def stop(self, grace: float = 5.0) -> None:
        """Stop listening, wait up to ``grace`` seconds for deferred responses, and close all connections.

        Requests received meanwhile are dropped. Owners of held requests should answer them first.
        """
        if self._acceptor is None:
            return
        acceptor, self._acceptor = self._acceptor, None
        endpoint, self._endpoint = self._endpoint, None
        assert endpoint is not None
        acceptor.open = False
        for pending in tuple(endpoint.pending):
            pending.abort()
        await close_servers(*self._servers)
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
