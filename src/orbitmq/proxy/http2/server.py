"""Listens for connections of HTTP/2, closes silent ones, and stops in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.platform.event_loop import close_servers
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.proxy.http2.connection import Http2Connection
from orbitmq.proxy.http2.grpc_status import GrpcCode, GrpcError
from orbitmq.remoting import ListenError, ServerTls
from orbitmq.remoting.connect.accept import Acceptor, PendingConnection
from orbitmq.remoting.connect.trusted_proxies import read_networks
from orbitmq.remoting.limits.connection_limits import Limits
from orbitmq.remoting.limits.descriptors import connections_allowed
from orbitmq.remoting.tls.context import ServerCertificates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.proxy.http2.stream import Stream
    from orbitmq.remoting.connect.proxy_header import ProxyHeader
    from orbitmq.remoting.endpoint import Pending

log = logging.getLogger("orbitmq.proxy")

BACKLOG = 1024
SWEEP_SECONDS = 5.0

MAX_HELD = 256 << 20
"""Bytes of messages that have not arrived to their end, of all connections."""


class Method(NamedTuple):
    """A call that is served: from the message of the client to that of the response, or to any number of them."""

    call: Callable[[bytes, Stream], Awaitable[bytes | None]]
    is_unary: bool = True
    reads_stream: bool = False
    """The client sends any number of messages, which the call reads from the stream."""


class Http2Config(NamedTuple):
    """Limits of a server; those that are the same for all servers are constants where they count."""

    max_message_bytes: int
    max_streams: int
    max_calls: int
    idle_seconds: float
    max_connections: int = 65_536


class Http2Server:
    """One port. Make it inside its event loop."""

    def __init__(
        self,
        methods: dict[str, Method],
        config: Http2Config,
        *,
        tls: ServerTls | None = None,
        trusted_proxies: str = "",
    ) -> None:
        """``methods`` are by path, ``/package.Service/Method``."""
        self.methods = methods
        self.max_message_bytes = config.max_message_bytes
        self.max_streams = config.max_streams
        self.loop = asyncio.get_running_loop()
        self.limits = Limits(idle_seconds=config.idle_seconds)
        self.connections: set[Http2Connection] = set()
        self.pending: dict[Pending, None] = {}
        self.calls = 0
        """Calls in progress."""
        self.held = 0
        """Bytes of messages that have not arrived to their end."""
        self.port = 0
        self._max_calls = config.max_calls
        self._allowed = connections_allowed(config.max_connections, 0)
        self._tls = tls or ServerTls()
        self._trusted_proxies = read_networks(trusted_proxies)
        self._acceptor: Acceptor | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._emptied = asyncio.Event()

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ListenError and TlsConfigError."""
        acceptor = Acceptor(self, ServerCertificates(self._tls), self._trusted_proxies, alpn=("h2",))
        try:
            self._server = await self.loop.create_server(
                lambda: PendingConnection(acceptor, self._connection), host, port, backlog=BACKLOG
            )
        except OSError as error:
            raise ListenError(f"cannot listen for gRPC on {host}:{port}: {error.strerror or error}") from error
        self._acceptor = acceptor
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def _connection(self, proxy: ProxyHeader, peer: str) -> Http2Connection:
        return Http2Connection(self, proxy.source or peer)

    async def stop(self, grace: float) -> None:
        """Refuse connections, end streams, wait up to ``grace`` seconds for other calls, and close."""
        server, self._server = self._server, None
        if server is None:
            return
        assert self._acceptor is not None
        self._acceptor.open = False
        for pending in tuple(self.pending):
            pending.abort()
        await close_servers(server)
        for connection in tuple(self.connections):
            connection.drain()
            for stream in tuple(connection.streams.values()):
                if stream.method is not None and not stream.method.is_unary:
                    connection.fail(stream, GrpcError(GrpcCode.UNAVAILABLE, "the server stops"))
        await self._empty(grace)
        for connection in tuple(self.connections):
            connection.close()
        await self._empty(1.0)
        for connection in tuple(self.connections):
            connection.abort()
        await self._empty(1.0)
        if self._timer is not None:
            self._timer.cancel()
        await server.wait_closed()

    async def _empty(self, seconds: float) -> None:
        self._emptied.clear()
        self.check_empty()
        try:
            async with asyncio.timeout(seconds):
                await self._emptied.wait()
        except TimeoutError:
            return

    # For connections

    def begin_call(self) -> None:
        """Raises GrpcError if there are too many calls."""
        if self.calls >= self._max_calls:
            count_refusal(Limit.GRPC_CALLS)
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, f"{self.calls} calls are in progress (grpcMaxCalls)")
        self.calls += 1

    def end_call(self) -> None:
        self.calls -= 1

    def hold(self, more: int) -> None:
        """Count bytes of unfinished messages. Raises GrpcError if they are too many."""
        self.held += more
        if more > 0 and self.held > MAX_HELD:
            raise GrpcError(GrpcCode.RESOURCE_EXHAUSTED, "too many bytes of messages wait for their end")

    def is_full(self) -> bool:
        return len(self.connections) + len(self.pending) >= self._allowed

    def check_empty(self) -> None:
        if not self.connections and not self.pending:
            self._emptied.set()

    def _sweep(self) -> None:
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.review(now)
        for pending in tuple(self.pending):
            pending.review(now)
