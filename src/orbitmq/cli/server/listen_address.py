"""Listen address of the server commands: loopback unless one is given, and the machines that can reach it."""

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType

LOOPBACK = "127.0.0.1"
"""Default of the commands. Every client that reaches a server may read and write everything, so other machines are
let in only by an explicit ``--host`` or ``bindAddress``. RocketMQ's own default is 0.0.0.0."""

DEFAULTS: Mapping[str, str] = MappingProxyType({"bindAddress": LOOPBACK})
"""Defaults of the commands that differ from those of the settings classes."""

HOST_HELP = (
    "IP address to listen on; 0.0.0.0 for all network interfaces. [default: bindAddress of the settings file, "
    f"else {LOOPBACK}]"
)


def reachable_from(bind_address: str) -> str:
    """The clients that can connect to a server listening on this address, for its start-up message."""
    if is_loopback(bind_address):
        return "this machine only (for other machines: --host or bindAddress)"
    if _is_wildcard(bind_address):
        return "every machine that can connect to this one, on all network interfaces"
    return f"every machine that can connect to {bind_address}"


def is_loopback(bind_address: str) -> bool:
    if bind_address == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind_address.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_wildcard(bind_address: str) -> bool:
    try:
        return ipaddress.ip_address(bind_address.strip("[]")).is_unspecified
    except ValueError:
        return False
