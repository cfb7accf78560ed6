"""The servers under load, as processes with an empty store."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING

from conformance.grpc.grpc_servers import Servers
from peers.apache import ApacheNameServer
from peers.grpc.clients import ApacheProxy
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

START_SECONDS = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Running:
    servers: Servers
    group: int
    """The process group."""


@contextlib.contextmanager
def orbitmq(home: Path) -> Iterator[Running]:
    home.mkdir(parents=True, exist_ok=True)
    grpc, names, broker = free_port(), free_port(), free_port(-2, 1)
    command = [
        *(sys.executable, "-m", "orbitmq", "serve", "--data", str(home / "data")),
        *("--grpc-port", str(grpc), "--nameserver-port", str(names), "--broker-port", str(broker)),
    ]
    process = PeerProcess("OrbitMQ", command, home=home, environment={})
    try:
        endpoints = f"127.0.0.1:{grpc}"
        process.wait_until(lambda: is_listening(endpoints), what="listening", seconds=START_SECONDS)
        yield Running(Servers(endpoints, f"127.0.0.1:{names}", f"127.0.0.1:{broker}"), process.pid)
    finally:
        process.kill()


@contextlib.contextmanager
def apache(home: Path) -> Iterator[Running]:
    with (
        ApacheNameServer(home / "nameserver") as nameserver,
        ApacheProxy(home / "proxy", nameserver.address, {}) as proxy,
    ):
        yield Running(Servers(proxy.endpoints, nameserver.address, proxy.broker_address), proxy.pid)


SYSTEMS: dict[str, Callable[[Path], AbstractContextManager[Running]]] = {"Apache": apache, "OrbitMQ": orbitmq}
