"""The servers under test: a name server and a broker on free ports, as processes of their own.

They are OrbitMQ's. With ``ORBITMQ_CONFORMANCE_PEER=apache`` they are Apache's, which is how a test that is written
against unmodified clients shows that it asks for nothing but what the real thing does.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Protocol

from peers.apache import ApacheBroker, ApacheNameServer, free_broker_port
from peers.frames import GET_BROKER_CLUSTER_INFO, GET_BROKER_CONFIG, ask
from peers.ports import free_port
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BROKER_NAME = "broker-a"
CLUSTER = "DefaultCluster"

_START_SECONDS = 60
_STOP_SECONDS = 60


class Serving(Protocol):
    """A name server and a broker, both ready whenever they run."""

    @property
    def nameserver(self) -> str: ...

    @property
    def broker_address(self) -> str: ...

    @property
    def broker_name(self) -> str: ...

    def start(self) -> None:
        """Start what was stopped or killed, on the same store and the same ports."""

    def stop(self) -> None:
        """Shut the broker down as an operator does."""

    def kill(self) -> None:
        """End the broker without a chance to flush or tidy up."""

    def restart(self) -> None:
        """Stop and start."""


@contextlib.contextmanager
def serving(
    home: Path, settings: Mapping[str, str] | None = None, *, apache: bool | None = None
) -> Iterator[Serving]:
    """Servers with these ``broker.conf`` settings and an empty store; they are gone afterwards.

    ``apache`` says whose they are, whatever the environment says.
    """
    wanted = {"brokerName": BROKER_NAME, "brokerClusterName": CLUSTER, **(settings or {})}
    home.mkdir(parents=True, exist_ok=True)
    is_apache = against_apache() if apache is None else apache
    servers = _Apache(home, wanted) if is_apache else _OrbitMQ(home, wanted)
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


def against_apache() -> bool:
    """Whether the servers are Apache's."""
    return os.environ.get("ORBITMQ_CONFORMANCE_PEER", "") == "apache"


class _OrbitMQ:
    """``orbitmq serve``: both servers in one process, so both of them stop."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        nameserver_port, broker_port = free_port(), free_broker_port()
        self.nameserver = f"127.0.0.1:{nameserver_port}"
        self.broker_address = f"127.0.0.1:{broker_port}"
        self.broker_name = settings["brokerName"]
        self._home = home
        conf = home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        self._command = [sys.executable, "-m", "orbitmq", "serve", "--data", str(home / "data")]
        self._command += ["--host", "127.0.0.1", "--nameserver-port", str(nameserver_port)]
        self._command += ["--broker-port", str(broker_port), "-c", str(conf)]
        self._process: PeerProcess | None = None

    def start(self) -> None:
        process = PeerProcess("OrbitMQ", self._command, home=self._home, environment={})
        self._process = process
        process.wait_until(self._is_ready, what="answering and registered", seconds=_START_SECONDS)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(seconds=_STOP_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    close = kill

    def _is_ready(self) -> bool:
        try:
            answers = ask(self.broker_address, GET_BROKER_CONFIG).code == 0
            cluster = ask(self.nameserver, GET_BROKER_CLUSTER_INFO)
        except OSError:
            return False
        return answers and f'"{self.broker_address}"'.encode() in cluster.body


class _Apache:
    """Apache's servers, of which the name server runs on while the broker is stopped."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self._home = home
        self._settings = {"listenPort": str(free_broker_port()), **settings}
        self._nameserver = ApacheNameServer(home / "nameserver")
        self._broker: ApacheBroker | None = None
        self.nameserver = self._nameserver.address
        self.broker_address = f"127.0.0.1:{self._settings['listenPort']}"
        self.broker_name = settings["brokerName"]

    def start(self) -> None:
        self._broker = ApacheBroker(
            self._home / "store", self._settings, home=self._home / "broker", nameserver=self.nameserver
        )

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def kill(self) -> None:
        if self._broker is not None:
            self._broker.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        self.kill()
        self._nameserver.kill()
