"""Accepting connections: a PROXY header, a TLS handshake, or frames, detected by the first bytes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol, cast

from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.connect.proxy_header import (
    V1_SIGNATURE,
    V2_SIGNATURE,
    ProxyHeader,
    ProxyHeaderError,
    read_proxy_header,
)
from orbitmq.remoting.connect.trusted_proxies import is_trusted
from orbitmq.remoting.connection import Connection
from orbitmq.remoting.errors import one_sentence
from orbitmq.remoting.identity import CERTIFIED_USER, certified_user
from orbitmq.remoting.tls.context import ServerCertificates, TlsMode
from orbitmq.remoting.tls.transport import TlsTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.remoting.connect.trusted_proxies import Network
    from orbitmq.remoting.endpoint import Pending
    from orbitmq.remoting.limits.connection_limits import Limits

log = logging.getLogger("orbitmq.remoting")

TLS_HANDSHAKE = 0x16
"""The first byte of TLS; a frame that begins with it would be 369 MB long."""


class Accepting(Protocol):
    """Acceptor: the limits of its connections, and the table of those whose first bytes are not complete."""

    pending: dict[Pending, None]

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def limits(self) -> Limits: ...

    def is_full(self) -> bool: ...

    def check_empty(self) -> None: ...


@dataclasses.dataclass(slots=True)
class Acceptor:
    """Shared state of the connections accepted by one server."""

    endpoint: Accepting
    certificates: ServerCertificates
    trusted_proxies: tuple[Network, ...]
    """Networks whose PROXY headers are trusted."""
    open: bool = True
    alpn: tuple[str, ...] = ()
    """Protocols to agree on in the TLS handshake, for clients that ask for one."""
    held: list[PendingConnection] | None = None
    """Connections whose first bytes wait, while the server reads nothing; otherwise None."""


class PendingConnection(asyncio.Protocol):
    """Protocol of an accepted connection until its first bytes are complete."""

    __slots__ = (
        "_acceptor",
        "_begun",
        "_head",
        "_make",
        "_peer",
        "_proxy",
        "_since",
        "_transport",
    )

    _transport: asyncio.Transport

    def __init__(self, acceptor: Acceptor, make: Callable[[ProxyHeader, str], asyncio.Protocol]) -> None:
        """``make`` gets the PROXY header, and the peer's address, and makes the protocol of the rest."""
        self._acceptor = acceptor
        self._make = make
        self._head = b""
        self._begun = False
        self._proxy: ProxyHeader | None = None
        self._peer = ""
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        endpoint = self._acceptor.endpoint
        if not self._acceptor.open or endpoint.is_full():
            transport.close()
            return
        self._peer = address_of(transport.get_extra_info("peername"))
        self._since = endpoint.loop.time()
        endpoint.pending[self] = None

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._since = self._acceptor.endpoint.loop.time()
        self._head += data
        held = self._acceptor.held
        if held is not None:
            self._transport.pause_reading()
            held.append(self)
            return
        if self._proxy is None and not self._read_proxy_header():
            return
        if not self._head:
            return
        if self._head[0] == TLS_HANDSHAKE:
            self._begin_tls()
        elif self._acceptor.certificates.mode is TlsMode.ENFORCING:
            self._reject("no TLS, and tls.server.mode is enforcing")
        else:
            self._remove_pending()
            self._switch_protocol(self._connection())

    def release(self) -> None:
        """Process what came while the server read nothing."""
        if self in self._acceptor.endpoint.pending:
            self._since = self._acceptor.endpoint.loop.time()
            self._transport.resume_reading()
            self.data_received(b"")

    def eof_received(self) -> None:
        """The transport closes the connection."""

    def connection_lost(self, _: Exception | None) -> None:
        self._remove_pending()

    def review(self, now: float) -> None:
        """Abort a connection that is silent or too slow."""
        limits = self._acceptor.endpoint.limits
        if self._acceptor.held is not None:
            return
        if now - self._since >= (limits.handshake_seconds if self._begun else limits.idle_seconds):
            self.abort()

    @property
    def is_silent(self) -> bool:
        return not self._begun

    def abort(self) -> None:
        self._remove_pending()
        self._transport.abort()

    def _read_proxy_header(self) -> bool:
        try:
            read = read_proxy_header(self._head)
            if read is None or read[0]:
                self._check_proxy()
        except ProxyHeaderError as error:
            self._reject(str(error))
            return False
        if read is None:
            return False
        size, self._proxy = read
        self._head = self._head[size:]
        return True

    def _check_proxy(self) -> None:
        """Raises ProxyHeaderError if the peer is not a trusted proxy."""
        peer = self._transport.get_extra_info("peername")
        if self._head.startswith((V1_SIGNATURE, V2_SIGNATURE)) and not is_trusted(
            peer[0] if isinstance(peer, tuple) and peer else peer, self._acceptor.trusted_proxies
        ):
            raise ProxyHeaderError("PROXY header from an address that trustedProxies does not list")

    def _begin_tls(self) -> None:
        certificates = self._acceptor.certificates
        if certificates.mode is TlsMode.DISABLED:
            self._reject("TLS, and tls.server.mode is disabled")
            return
        context = certificates.context()
        if context is None:
            self._reject("TLS, and no certificate is configured: set tls.server.certPath")
            return
        if self._acceptor.alpn:
            context.set_alpn_protocols(list(self._acceptor.alpn))
        connection = self._connection()
        transport = TlsTransport(context, connection, lambda error: self._tls_done(error, done), server_side=True)
        done = (transport, connection)
        self._switch_protocol(transport)

    def _tls_done(self, error: Exception | None, done: tuple[TlsTransport, asyncio.Protocol]) -> None:
        self._remove_pending()
        if error is not None:
            log.warning("remoting: TLS handshake with %s failed: %s", self._peer, one_sentence(error))
            return
        transport, connection = done
        user = certified_user(transport)
        if user and isinstance(connection, Connection):
            connection.attributes = {**connection.attributes, CERTIFIED_USER: user}

    def _connection(self) -> asyncio.Protocol:
        return self._make(self._proxy or ProxyHeader(), self._peer)

    def _switch_protocol(self, protocol: asyncio.Protocol) -> None:
        head, self._head = self._head, b""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(head)

    def _reject(self, why: str) -> None:
        log.warning("remoting: closing %s: %s", self._peer, why)
        self._transport.close()

    def _remove_pending(self) -> None:
        self._acceptor.endpoint.pending.pop(self, None)
        self._acceptor.endpoint.check_empty()
