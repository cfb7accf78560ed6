"""TCP ports that are free at the moment of asking, and not given to anybody else until this process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_RANGE = range(20000, 32000)
"""Below the ports that Linux gives to outgoing connections, so that none of those takes one first."""


_kept: dict[int, int] = {}
"""The lock files of ports that were given out here. A Java broker takes seconds until it listens, and other test
processes look for ports meanwhile."""


def free_port(*neighbours: int) -> int:
    """A port that is free, with ``neighbours`` (distances from it) that are free too."""
    for _ in range(1000):
        port = random.choice(_RANGE)
        if all(_is_free(port + distance) and _keep(port + distance) for distance in (0, *neighbours)):
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


def _keep(port: int) -> bool:
    """Take a port for this process; False if somebody has it."""
    if port in _kept:
        return False
    folder = Path(tempfile.gettempdir()) / f"orbitmq-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    file = os.open(folder / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _kept[port] = file
    return True
