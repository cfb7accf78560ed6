"""Host info: the interface between settings and the machine, for defaults such as its own address."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """Functions that look up machine properties; tests and simulators replace them."""

    host_name: Callable[[], str]
    address: Callable[[], str]
    """An IP address under which other machines reach this one."""
    resolve: Callable[[str], str]
    """The IP address of a host name, or OSError. Blocks."""
    environment: Mapping[str, str]
    home: str


def this_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(socket.gethostname, own_address, resolve, os.environ, os.path.expanduser("~"))


def own_address() -> str:
    """The address that this machine uses to reach others; loopback if it has no network."""
    # Addresses reserved for documentation: not assigned, so the route to them is the default route. Connecting a
    # datagram socket sends nothing.
    for family, somewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((somewhere, 9))
            return str(asking.getsockname()[0])
    return LOOPBACK


def resolve(host: str) -> str:
    """The first address of a host, IPv4 if it has one."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = sorted(found, key=lambda one: one[0] != socket.AF_INET)
    return str(addresses[0][4][0])
