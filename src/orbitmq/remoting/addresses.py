"""Addresses as text, in the form of RocketMQ's tables: ``1.2.3.4:10911``, ``[0:0:0:0:0:0:0:1]:10911``."""

from __future__ import annotations

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import MAX_PORT, host_bytes, host_text


def address_of(name: object) -> str:
    """The text of a transport's ``peername`` or ``sockname``.

    An IPv4 client of a socket that listens on IPv6 has its IPv4 address.
    """
    if not isinstance(name, tuple) or len(name) < 2:
        return str(name or "")
    host, port = name[:2]
    if ":" not in host:
        return f"{host}:{port}"
    return host_text(host_bytes(f"[{host}]:{port}"))


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``host:port``, split at the last colon; brackets around the host are for IPv6.

    Raises ProtocolError: addresses come from configurations, but from routes as well.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise ProtocolError(f"{address!r} is not host:port")
    return host, int(port)
