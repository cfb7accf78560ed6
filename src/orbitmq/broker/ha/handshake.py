"""Handshakes of the HA connection, TLS and the proof of identity, before master and slave speak their protocol.

Neither is RocketMQ's: without ``haTlsEnable`` and ``haAuthenticationEnabled`` nothing here is used.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Protocol, cast

from orbitmq.broker.ha.proof import MAGIC, MasterProof, SlaveProof
from orbitmq.platform.settings import ConfigError
from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.errors import one_sentence
from orbitmq.remoting.tls.transport import TlsTransport
from orbitmq.store.replication.frames import FrameError
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.auth.credentials import Credentials
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.tls.context import ServerCertificates
    from orbitmq.store.config import StoreConfig

SECONDS = 5.0
"""Time for both handshakes together."""

MAX_PENDING = 64
"""Connections in a handshake. The oldest one is closed for the next: strangers keep no slave out."""


def check_handshakes(broker: BrokerConfig, store: StoreConfig) -> None:
    """Raise ConfigError for handshakes that this broker could not do."""
    is_slave = store.broker_role is BrokerRole.SLAVE
    if store.ha_authentication_enabled and not (broker.authentication_enabled or broker.acl_enable):
        raise ConfigError("haAuthenticationEnabled=true needs authenticationEnabled=true and its users")
    if store.ha_authentication_enabled and not broker.inner_client_authentication_credentials and is_slave:
        raise ConfigError("haAuthenticationEnabled=true of a slave needs innerClientAuthenticationCredentials")
    if store.ha_tls_enable and is_slave and not broker.tls_enable:
        raise ConfigError("haTlsEnable=true of a slave needs tls.enable=true, and tls.client.trustCertPath")
    if store.ha_tls_enable and not is_slave and not broker.tls_server_cert_path:
        raise ConfigError("haTlsEnable=true of a master needs a certificate: set tls.server.certPath")


# The master's side


@dataclasses.dataclass(slots=True)
class MasterGate:
    """Demands of a master on peers that connect to its HA port."""

    certificates: ServerCertificates | None = None
    secret_of: Callable[[str], bytes | None] | None = None
    pending: dict[PendingSlave, None] = dataclasses.field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """True if nothing is demanded."""
        return self.certificates is None and self.secret_of is None

    def close(self) -> None:
        for one in list(self.pending):
            one.abort()


class SlaveProtocol(Protocol):
    """The protocol behind the handshakes."""

    address: str

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def close(self, reason: str, /) -> None: ...
    def refuse(self, address: str, reason: str, /) -> None: ...
    def refusal_at(self, address: str, /) -> str | None: ...


class PendingSlave(asyncio.Protocol):
    """An accepted HA connection until its handshakes are done."""

    def __init__(self, gate: MasterGate, slave: SlaveProtocol) -> None:
        self._gate = gate
        self._slave = slave
        self._proof = None if gate.secret_of is None else MasterProof(gate.secret_of)
        self._socket: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._address = ""

    # Protocol of the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._address = address_of(transport.get_extra_info("peername"))
        refusal = self._slave.refusal_at(self._address)
        if refusal is not None:
            self._refuse(refusal)
            return
        pending = self._gate.pending
        while len(pending) >= MAX_PENDING:
            next(iter(pending)).abort()
        pending[self] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SECONDS, self._refuse, f"its handshake took longer than {SECONDS:.0f} s")
        certificates = self._gate.certificates
        if certificates is None:
            self._begin(self._socket)
            return
        context = certificates.context()
        assert context is not None, "checked at the start"
        inner = _Inner(self._begin, self._proof_received, self._lost)
        tls = TlsTransport(context, inner, self._tls_done, server_side=True)
        self._socket.set_protocol(tls)
        tls.connection_made(self._socket)

    def data_received(self, data: bytes) -> None:
        self._proof_received(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._lost()

    def _tls_done(self, error: Exception | None) -> None:
        if error is not None:
            self._refuse(f"TLS handshake failed: {one_sentence(error)}")

    # Behind TLS

    def _begin(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self._proof is None:
            self._pass_on(b"")

    def _proof_received(self, data: bytes) -> None:
        if self._proof is None or self._transport is None or self._transport.is_closing():
            return
        try:
            answer = self._proof.feed(data)
        except FrameError as error:
            self._refuse(str(error))
            return
        if answer:
            self._transport.write(answer)
        if self._proof.is_done:
            self._pass_on(self._proof.rest)

    def _pass_on(self, rest: bytes) -> None:
        self._lost()
        transport = self._transport
        assert transport is not None
        transport.set_protocol(cast("asyncio.Protocol", self._slave))
        self._slave.connection_made(transport)
        if rest:
            self._slave.data_received(rest)

    def _refuse(self, reason: str) -> None:
        self._slave.refuse(self._address, reason)
        self.abort()

    def _lost(self) -> None:
        self._gate.pending.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        self._lost()
        if self._socket is not None:
            self._socket.abort()


class _Inner(asyncio.Protocol):
    """Protocol that a TlsTransport delivers to until the protocol behind the handshakes takes over."""

    def __init__(
        self, begin: Callable[[asyncio.Transport], None], receive: Callable[[bytes], None], lost: Callable[[], None]
    ) -> None:
        self._begin, self._receive, self._lost = begin, receive, lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._begin(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._lost()


# The slave's side


async def connect_to_master(
    make: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    *,
    tls: ClientTls | None = None,
    credentials: Credentials | None = None,
) -> asyncio.Protocol:
    """The protocol of a connection whose handshakes are done. Raises OSError, TimeoutError, FrameError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(SECONDS):
        if tls is None and credentials is None:
            return (await loop.create_connection(make, host, port))[1]
        pending = _PendingMaster(make, credentials)
        context = None if tls is None else tls.context()

        def factory() -> asyncio.Protocol:
            if context is None:
                return pending
            return TlsTransport(context, pending, pending.tls_done, server_side=False, server_name=host)

        transport, _ = await loop.create_connection(factory, host, port)
        try:
            return await pending.done
        except BaseException:
            transport.abort()
            raise


class _PendingMaster(asyncio.Protocol):
    """A connection to a master until its handshakes are done."""

    def __init__(self, make: Callable[[], asyncio.Protocol], credentials: Credentials | None) -> None:
        self._make = make
        self._proof = None if credentials is None else SlaveProof(credentials)
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[asyncio.Protocol] = asyncio.get_running_loop().create_future()

    def tls_done(self, error: Exception | None) -> None:
        if error is not None:
            self._fail(FrameError(f"TLS handshake failed: {one_sentence(error)}"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._proof is None:
            self._pass_on(b"")
        else:
            self._transport.write(MAGIC)

    def data_received(self, data: bytes) -> None:
        if self._proof is None or self._transport is None or self.done.done():
            return
        try:
            answer = self._proof.feed(data)
        except FrameError as error:
            self._fail(error)
            return
        if answer:
            self._transport.write(answer)
        if self._proof.is_done:
            self._pass_on(self._proof.rest)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or FrameError("the master closed the connection during the handshake, see its log"))

    def _pass_on(self, rest: bytes) -> None:
        assert self._transport is not None
        if self.done.done():
            return
        protocol = self._make()
        self._transport.set_protocol(protocol)
        self.done.set_result(protocol)
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
        if self._transport is not None:
            self._transport.abort()
