"""Outgoing connections: one per address, opened on first use and reopened after a loss."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.addresses import host_and_port
from orbitmq.remoting.connection import Connection, Handler
from orbitmq.remoting.endpoint import Endpoint
from orbitmq.remoting.errors import ConnectError, ConnectionLostError, one_sentence
from orbitmq.remoting.limits.connection_limits import Limits
from orbitmq.remoting.signing_connection import SigningConnection
from orbitmq.remoting.tls.transport import TlsTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.remoting.server import RemotingServer
    from orbitmq.remoting.tls.context import ClientTls

CONNECT_SECONDS = 3.0
"""Connect timeout, as in RocketMQ's clients; includes the TLS handshake."""


class RemotingClient:
    """Calls peers by address, and handles the requests that they send back. Must be made inside its event loop."""

    def __init__(
        self,
        handlers: Mapping[int, Handler] | None = None,
        *,
        limits: Limits | None = None,
        tls: ClientTls | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, Exception | None], None] | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        """``handlers`` are for requests that servers send; ``signer`` signs the own ones. Raises TlsConfigError."""
        self._handlers = {int(code): handler for code, handler in (handlers or {}).items()}
        self._context: ssl.SSLContext | None = None if tls is None else tls.context()
        self._connect_seconds = connect_seconds
        self._on_close = on_close
        self._endpoint = Endpoint(limits or Limits(), on_open, self._on_connection_closed)
        self._endpoint.signer = signer
        self._shared: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False

    @property
    def connections(self) -> frozenset[Connection]:
        return frozenset(self._endpoint.connections)

    def is_connected(self, address: str) -> bool:
        """True while the shared connection to ``host:port`` is open."""
        shared = self._shared.get(address)
        return shared is not None and not shared.is_closing

    async def connection(self, address: str) -> Connection:
        """The shared connection to ``host:port``. Raises ConnectError."""
        shared = self._shared.get(address)
        if shared is not None and not shared.is_closing:
            return shared
        if self._closed:
            raise ConnectionLostError("this client is closed")
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = self._endpoint.loop.create_task(self._share(address))
            self._connecting[address] = attempt
            attempt.add_done_callback(lambda ended: self._attempt_ended(address, ended))
        try:
            # A cancelled caller must not cancel the attempt of the others.
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if attempt.cancelled() and task is not None and not task.cancelling():
                raise ConnectionLostError("this client was closed") from None
            raise

    async def call(self, address: str, command: Command, timeout: float) -> Command:  # noqa: ASYNC109
        """Send a request and wait for its response; connecting does not count. Raises RemotingError."""
        return await (await self.connection(address)).call(command, timeout)

    async def call_oneway(self, address: str, command: Command) -> None:
        """Send a oneway request. Raises RemotingError."""
        (await self.connection(address)).call_oneway(command)

    async def connect(self, address: str) -> Connection:
        """A new connection that is not shared. Raises ConnectError."""
        if self._endpoint.is_full():
            raise ConnectError(f"cannot connect to {address}: connection limit reached")
        connection = self._new_connection()
        try:
            host, port = host_and_port(address)
            async with asyncio.timeout(self._connect_seconds):
                await self._open(connection, host, port)
        except TimeoutError:
            raise ConnectError(f"{address} did not answer within {self._connect_seconds:g} s") from None
        except ProtocolError as error:
            raise ConnectError(f"cannot connect: {error}") from error
        except ssl.SSLCertVerificationError as error:
            raise ConnectError(
                f"cannot connect to {address}: its certificate is not accepted: {error.verify_message}"
            ) from error
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error.strerror or one_sentence(error)}") from error
        return connection

    def connect_in_process(self, server: RemotingServer, address: str) -> Connection:
        """A connection to a server of this process, which knows it by this address. Raises ConnectError."""
        if self._closed:
            raise ConnectionLostError("this client is closed")
        connection = self._new_connection()
        server.connect_in_process(connection, address)
        return connection

    async def close(self) -> None:
        """Close all connections and wait until they are closed."""
        self._closed = True
        for attempt in tuple(self._connecting.values()):
            attempt.cancel()
        await asyncio.gather(*self._connecting.values(), return_exceptions=True)
        for connection in tuple(self._endpoint.connections):
            connection.close()
        if not await self._endpoint.empty(self._endpoint.limits.closing_seconds):
            for connection in tuple(self._endpoint.connections):
                connection.abort()
            await self._endpoint.empty(self._endpoint.limits.closing_seconds)
        self._endpoint.close()

    def _new_connection(self) -> Connection:
        connection_type = Connection if self._endpoint.signer is None else SigningConnection
        return connection_type(self._endpoint, self._handlers, is_server=False)

    async def _share(self, address: str) -> Connection:
        connection = await self.connect(address)
        self._shared[address] = connection
        return connection

    def _on_connection_closed(self, connection: Connection, error: Exception | None) -> None:
        for address, shared in self._shared.items():
            if shared is connection:
                del self._shared[address]
                break
        if self._on_close is not None:
            self._on_close(connection, error)

    def _attempt_ended(self, address: str, attempt: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not attempt.cancelled():
            # Marks the error as retrieved: the callers that waited have raised it, and there may be none left.
            attempt.exception()

    async def _open(self, connection: Connection, host: str, port: int) -> None:
        loop = self._endpoint.loop
        if self._context is None:
            await loop.create_connection(lambda: connection, host, port)
            return
        handshake: asyncio.Future[None] = loop.create_future()

        def done(error: Exception | None) -> None:
            if handshake.done():
                return
            if error is None:
                handshake.set_result(None)
            else:
                handshake.set_exception(error)

        context = self._context
        transport, _ = await loop.create_connection(
            lambda: TlsTransport(context, connection, done, server_side=False, server_name=host), host, port
        )
        try:
            await handshake
        except BaseException:
            transport.abort()
            raise
