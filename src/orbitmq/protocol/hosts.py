"""Host bytes of a record (address, then a 4-byte port) and their text, ``1.2.3.4:10911``.

The text is Java's: IPv6 addresses stand in brackets with all eight groups written out, and an
IPv4-mapped one is the IPv4 address it means. Names are not resolved here: a host is an address.
"""

from __future__ import annotations

import functools
import ipaddress
import struct

from orbitmq.protocol.errors import ProtocolError

V4_SIZE = 8
V6_SIZE = 20

LONGEST_TEXT = 128
"""Characters of an address with its port. A scope has no limit of its own, and the texts are cached."""

MAX_PORT = 65535

_V6_GROUPS = struct.Struct(">8H")
_MAPPED = bytes(10) + b"\xff\xff"


@functools.lru_cache(maxsize=4096)
def host_text(host: bytes) -> str:
    """``ip:port`` of 8 or 20 host bytes. Cached: a host is a connection, and sends many messages."""
    if len(host) not in {V4_SIZE, V6_SIZE}:
        raise ProtocolError(f"{len(host)} bytes are not a host: it has {V4_SIZE} or {V6_SIZE}")
    port = int.from_bytes(host[-4:], "big")
    if port > MAX_PORT:
        raise ProtocolError(f"{port} is not a port")
    text = address_text(host[:-4])
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"


def address_text(address: bytes) -> str:
    """The text of 4 or 16 address bytes, IPv6 without brackets."""
    if len(address) == 16:
        if not address.startswith(_MAPPED):
            return "{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}:{:x}".format(*_V6_GROUPS.unpack(address))
        address = address[12:]
    if len(address) != 4:
        raise ProtocolError(f"{len(address)} bytes are not an address: it has 4 or 16")
    return "{}.{}.{}.{}".format(*address)


@functools.lru_cache(maxsize=4096)
def host_bytes(text: str) -> bytes:
    """The 8 or 20 host bytes of ``ip:port``.

    Any spelling of an IPv6 address is taken, and brackets may be missing, because Java splits at the
    last colon. A scope (``%eth0``) is dropped: the bytes have no place for it.
    """
    if len(text) > LONGEST_TEXT:
        raise ProtocolError(f"the address has {len(text)} characters, at most {LONGEST_TEXT} are allowed")
    address, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise ProtocolError(f"{text!r} is not an address and a port")
    bracketed = address.startswith("[") and address.endswith("]")
    try:
        parsed = ipaddress.ip_address(address[1:-1] if bracketed else address)
    except ValueError as error:
        raise ProtocolError(f"{text!r} does not begin with an IP address") from error
    if bracketed and parsed.version == 4:
        raise ProtocolError(f"{text!r}: brackets are for IPv6")
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return parsed.packed + int(port).to_bytes(4, "big")
