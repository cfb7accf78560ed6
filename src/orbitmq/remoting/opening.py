"""The first bytes of an accepted connection: a proxy's header, a TLS handshake, or frames at once."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, cast

from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.connection import Connection, Handler
from orbitmq.remoting.errors import one_sentence
from orbitmq.remoting.proxy_header import ProxyHeader, ProxyHeaderError, read_proxy_header
from orbitmq.remoting.tls import ServerCertificates, TlsMode
from orbitmq.remoting.tls_transport import TlsTransport

if TYPE_CHECKING:
    from orbitmq.remoting.endpoint import Endpoint
    from orbitmq.remoting.taking import Taker

log = logging.getLogger("orbitmq.remoting")

TLS_HANDSHAKE = 0x16
"""The first byte of TLS; a frame that begins with it would be 369 MB long."""


@dataclasses.dataclass(slots=True)
class Entrance:
    """What connections to one server come in by."""

    endpoint: Endpoint
    certificates: ServerCertificates
    proxy_protocol: bool
    """Whether PROXY headers are believed."""
    open: bool = True


class Arrival(asyncio.Protocol):
    """Stands in for a connection until its first bytes have told what it is."""

    __slots__ = ("_begun", "_entrance", "_handlers", "_head", "_peer", "_proxy", "_since", "_taker", "_transport")

    _transport: asyncio.Transport

    def __init__(self, entrance: Entrance, handlers: dict[int, Handler], taker: Taker | None) -> None:
        self._entrance = entrance
        self._handlers = handlers
        self._taker = taker
        self._head = b""
        self._begun = False
        self._proxy: ProxyHeader | None = None if entrance.proxy_protocol else ProxyHeader()
        self._peer = ""
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        endpoint = self._entrance.endpoint
        if not self._entrance.open or endpoint.is_full():
            transport.close()
            return
        self._peer = address_of(transport.get_extra_info("peername"))
        self._since = endpoint.loop.time()
        endpoint.opening.add(self)

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._since = self._entrance.endpoint.loop.time()
        self._head += data
        if self._proxy is None and not self._read_proxy_header():
            return
        if not self._head:
            return
        if self._head[0] == TLS_HANDSHAKE:
            self._begin_tls()
        elif self._entrance.certificates.mode is TlsMode.ENFORCING:
            self._refuse("it does not speak TLS, which is enforced here")
        else:
            self._leave()
            self._hand_over(self._connection())

    def eof_received(self) -> None:
        """Closing is all that is left to do, and the transport does it."""

    def connection_lost(self, _: Exception | None) -> None:
        self._leave()

    def review(self, now: float) -> None:
        """Give up a connection that says nothing, or too slowly."""
        limits = self._entrance.endpoint.limits
        if now - self._since >= (limits.opening_seconds if self._begun else limits.idle_seconds):
            self.abort()

    def abort(self) -> None:
        self._transport.abort()

    def _read_proxy_header(self) -> bool:
        try:
            read = read_proxy_header(self._head)
        except ProxyHeaderError as error:
            self._refuse(str(error))
            return False
        if read is None:
            return False
        size, self._proxy = read
        self._head = self._head[size:]
        return True

    def _begin_tls(self) -> None:
        certificates = self._entrance.certificates
        if certificates.mode is TlsMode.DISABLED:
            self._refuse("it speaks TLS, which is disabled here")
            return
        context = certificates.context()
        if context is None:
            self._refuse("it speaks TLS, but no certificate is configured: set tls.server.certPath")
            return
        self._hand_over(TlsTransport(context, self._connection(), self._tls_done, server_side=True))

    def _tls_done(self, error: Exception | None) -> None:
        self._leave()
        if error is not None:
            log.warning("no TLS connection with %s: %s", self._peer, one_sentence(error))

    def _connection(self) -> Connection:
        proxy = self._proxy or ProxyHeader()
        return Connection(
            self._entrance.endpoint,
            self._handlers,
            is_server=True,
            remote_address=proxy.source or self._peer,
            attributes=proxy.attributes,
            taker=self._taker,
        )

    def _hand_over(self, protocol: Connection | TlsTransport) -> None:
        head, self._head = self._head, b""
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(head)

    def _refuse(self, why: str) -> None:
        log.warning("%s is closed: %s", self._peer, why)
        self._transport.close()

    def _leave(self) -> None:
        self._entrance.endpoint.opening.discard(self)
        self._entrance.endpoint.check_empty()
