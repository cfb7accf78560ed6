"""HAProxy's PROXY header, by which a proxy gives the address of the client at the start of a connection.

Version 1 is a line of text, version 2 is binary with optional type-length-value entries. Pure: bytes to values.
"""

from __future__ import annotations

import dataclasses
import struct

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import MAX_PORT, address_text, host_bytes, host_text

V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V1_SIGNATURE = b"PROXY"
V1_MAX_BYTES = 108

_V2_FIXED = struct.Struct(">12sBBH")
_PORTS = struct.Struct(">HH")
_LOCAL = 0x20
_PROXIED = 0x21
_TCP4 = 0x11
_TCP6 = 0x21


class ProxyHeaderError(ProtocolError):
    """A malformed PROXY header, or one from an untrusted peer."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProxyHeader:
    """The client of a proxied connection. Without a source (a health check) it is the proxy itself."""

    source: str = ""
    """``ip:port``."""
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)
    """The values that RocketMQ keeps, by RocketMQ's names."""


def read_proxy_header(data: bytes) -> tuple[int, ProxyHeader] | None:
    """Size and header at the start of a stream; size 0 without a header, None if more bytes are needed.

    A frame that begins with the same bytes would be over 200 MB long.
    """
    if data.startswith(V2_SIGNATURE):
        return _read_v2(data)
    if data.startswith(V1_SIGNATURE):
        return _read_v1(data)
    if V2_SIGNATURE.startswith(data) or V1_SIGNATURE.startswith(data):
        return None
    return 0, ProxyHeader()


def _read_v1(data: bytes) -> tuple[int, ProxyHeader] | None:
    end = data.find(b"\r\n", 0, V1_MAX_BYTES)
    if end < 0:
        if len(data) >= V1_MAX_BYTES:
            raise ProxyHeaderError(f"a PROXY line must end within {V1_MAX_BYTES} bytes")
        return None
    size = end + 2
    words = data[:end].split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return size, ProxyHeader()
    if len(words) != 6 or words[1] not in {b"TCP4", b"TCP6"}:
        raise ProxyHeaderError("a PROXY line must be: PROXY TCP4|TCP6 source destination port port")
    try:
        source, destination, source_port, destination_port = (word.decode("ascii") for word in words[2:])
        if (":" in source) is not (words[1] == b"TCP6"):
            raise ProxyHeaderError(f"{source} is not of the address family of its PROXY line")
        return size, _header(
            host_text(host_bytes(f"{_bracketed(source)}:{source_port}")),
            host_text(host_bytes(f"{_bracketed(destination)}:{destination_port}")),
        )
    except UnicodeDecodeError:
        raise ProxyHeaderError("a PROXY line must be ASCII") from None
    except ProxyHeaderError:
        raise
    except ProtocolError as error:
        raise ProxyHeaderError(f"PROXY line: {error}") from error


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _read_v2(data: bytes) -> tuple[int, ProxyHeader] | None:
    if len(data) < _V2_FIXED.size:
        return None
    _, command, family, rest = _V2_FIXED.unpack_from(data)
    if command not in {_LOCAL, _PROXIED}:
        raise ProxyHeaderError(f"version and command {command:#04x} of a PROXY header are unknown")
    size = _V2_FIXED.size + rest
    if len(data) < size:
        return None
    at = _V2_FIXED.size
    # Headers of a proxy's own connections, or of sockets that are not TCP, have no usable address.
    if command == _LOCAL or family not in {_TCP4, _TCP6}:
        return size, ProxyHeader()
    width = 4 if family == _TCP4 else 16
    ports_at = at + 2 * width
    if ports_at + _PORTS.size > size:
        raise ProxyHeaderError(f"{rest} bytes are too few for the addresses of a PROXY header")
    source_port, destination_port = _PORTS.unpack_from(data, ports_at)
    header = _header(
        _text(data[at : at + width], source_port), _text(data[at + width : ports_at], destination_port)
    )
    header.attributes.update(_read_entries(data[ports_at + _PORTS.size : size]))
    return size, header


def _text(address: bytes, port: int) -> str:
    return f"{_bracketed(address_text(address))}:{port}"


def _read_entries(data: bytes) -> dict[str, str]:
    """The entries whose value is printable text; their meaning is the proxy's."""
    entries = {}
    at = 0
    while at < len(data):
        value_at = at + 3
        end = value_at + int.from_bytes(data[at + 1 : value_at], "big")
        if value_at > len(data) or end > len(data):
            raise ProxyHeaderError("an entry of a PROXY header crosses its end")
        value = data[value_at:end]
        if value.isascii() and value:
            entries[f"proxy_protocol_tlv_0x{data[at]:02x}"] = value.decode("ascii")
        at = end
    return entries


def _header(source: str, destination: str) -> ProxyHeader:
    address, _, port = source.rpartition(":")
    server_address, _, server_port = destination.rpartition(":")
    assert int(port) <= MAX_PORT
    return ProxyHeader(
        source,
        {
            "proxy_protocol_addr": address.strip("[]"),
            "proxy_protocol_port": port,
            "proxy_protocol_server_addr": server_address.strip("[]"),
            "proxy_protocol_server_port": server_port,
        },
    )
