"""TLS layer between a transport and a connection: a protocol to the one, a transport to the other.

The TLS of event loops starts with the first byte of a socket. A server that detects TLS has already read the first
bytes, so records are decrypted here, in memory, on any event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_READ_SIZE = 65536
"""Records hold up to 16 KiB, and one read returns one record."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One TLS connection, passed to ``protocol`` when the handshake is done.

    ``on_done`` is called once: with None when the handshake is done, before ``connection_made`` of the protocol, or
    with its error.
    """

    __slots__ = (
        "_encrypted_in",
        "_encrypted_out",
        "_error",
        "_handshake_done",
        "_on_done",
        "_protocol",
        "_tls",
        "_transport",
    )

    _transport: asyncio.Transport

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: asyncio.Protocol,
        on_done: Callable[[Exception | None], None],
        *,
        server_side: bool,
        server_name: str | None = None,
    ) -> None:
        """``server_name`` is the host or IP address that a client connects to."""
        super().__init__()
        self._encrypted_in = ssl.MemoryBIO()
        self._encrypted_out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._encrypted_in, self._encrypted_out, server_side=server_side, server_hostname=server_name
        )
        self._protocol = protocol
        self._on_done: Callable[[Exception | None], None] | None = on_done
        self._handshake_done = False
        self._error: Exception | None = None

    # Protocol of the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # The client speaks first; for a server there is nothing to read yet.
        self._handshake()

    def data_received(self, data: bytes) -> None:
        self._encrypted_in.write(data)
        if not self._handshake_done:
            self._handshake()
        if self._handshake_done:
            self._decrypt()

    def eof_received(self) -> None:
        if self._handshake_done:
            self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._handshake_done:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._handshake_done:
            self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._handshake_done:
            self._protocol.connection_lost(self._error or error)
        else:
            self._done(error or ConnectionResetError("the peer closed the connection during the TLS handshake"))

    def _handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._write_out()
        except ssl.SSLError as error:
            # Sends the TLS alert.
            self._write_out()
            self._transport.close()
            self._done(error)
        else:
            self._write_out()
            self._handshake_done = True
            self._done(None)
            self._protocol.connection_made(self)

    def _done(self, error: Exception | None) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(error)

    def _decrypt(self) -> None:
        """Pass on all decrypted bytes in one call, so that the responses leave in one write."""
        plain: list[bytes] = []
        ended = False
        try:
            while data := self._tls.read(_READ_SIZE):
                plain.append(data)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            self._error = error
        self._write_out()
        if plain:
            self._protocol.data_received(plain[0] if len(plain) == 1 else b"".join(plain))
        if self._error is not None:
            self._transport.abort()
        elif ended:
            self._protocol.eof_received()

    def _write_out(self) -> None:
        if self._encrypted_out.pending:
            self._transport.write(self._encrypted_out.read())

    # Transport of the connection

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._transport.is_closing():
            self._tls.write(data)
            self._write_out()

    def close(self) -> None:
        if not self._transport.is_closing():
            self._send_close_notify()
            self._transport.close()

    def _send_close_notify(self) -> None:
        # Raises because it also waits for the close notify of the peer, which is not needed.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._write_out()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_reading(self) -> bool:
        return self._transport.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        return self._transport.get_extra_info(name, default)
