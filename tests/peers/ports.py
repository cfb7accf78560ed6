"""TCP ports that are free at the moment of asking."""

from __future__ import annotations

import contextlib
import random
import socket

_RANGE = range(20000, 32000)
"""Below the ports that Linux gives to outgoing connections, so that none of those takes one first."""


def free_port(*neighbours: int) -> int:
    """A port that is free, with ``neighbours`` (distances from it) that are free too."""
    for _ in range(1000):
        port = random.choice(_RANGE)
        if all(_is_free(port + distance) for distance in (0, *neighbours)):
            return port
    raise OSError(f"no free port between {_RANGE.start} and {_RANGE.stop}")


def is_listening(address: str) -> bool:
    """Whether a connection to ``host:port`` is accepted."""
    with contextlib.suppress(OSError), socket.create_connection(endpoint(address), timeout=1):
        return True
    return False


def endpoint(address: str) -> tuple[str, int]:
    """The host and the port of ``host:port``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
