"""RabbitMQ as a system of the suite: Debian's package, as a process with ports and files of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.server.systems import QUEUES, Server
from bench.suite.scenario import System
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The one on the path changes to another user and to the files of the machine's own server."""

_START_SECONDS = 60


class RabbitServer(Server):
    """A running RabbitMQ."""

    def make_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Nothing: by AMQP it is the clients that make queues."""


def unavailable() -> str | None:
    """None if RabbitMQ can be run here, otherwise the reason in one sentence."""
    return unavailable_at(SCRIPT, os.environ.get("PATH", os.defpath))


def unavailable_at(script: Path, path: str) -> str | None:
    if not os.access(script, os.X_OK) or not all(shutil.which(name, path=path) for name in ("erl", "epmd")):
        return "RabbitMQ is not installed: on Debian, apt-get install rabbitmq-server (its service need not run)"
    return None


def start_rabbitmq(home: Path) -> Server:
    """RabbitMQ with the settings it has by itself, but for names, ports and folders."""
    home.mkdir(parents=True)
    port, names_port, node_port = free_port(), free_port(), free_port()
    (home / "rabbitmq.conf").write_text(configuration(port), "utf-8")
    (home / "enabled_plugins").write_text("[].\n", "utf-8")
    environment = surroundings(home, names_port, node_port)
    with contextlib.ExitStack() as undo:
        # The server finds this one on its port, and starts none that would be left behind.
        command = ["epmd", "-port", str(names_port), "-address", "127.0.0.1"]
        names_home = home / "epmd"
        names_home.mkdir()
        names = PeerProcess("epmd", command, home=names_home, environment=environment)
        undo.callback(names.kill)
        names.wait_until(lambda: is_listening(f"127.0.0.1:{names_port}"), what="listening", seconds=_START_SECONDS)
        began = time.monotonic()
        broker = PeerProcess("RabbitMQ", [str(SCRIPT)], home=home, environment=environment)
        undo.callback(broker.kill)
        address = f"127.0.0.1:{port}"
        broker.wait_until(lambda: is_listening(address), what="listening", seconds=_START_SECONDS)
        server = RabbitServer(System.RABBITMQ.title, [names, broker], "", address)
        server.start_seconds = time.monotonic() - began
        undo.pop_all()
    return server


def configuration(port: int) -> str:
    """``rabbitmq.conf``: reachable from this machine only."""
    return f"listeners.tcp.default = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = error\n"


def surroundings(home: Path, names_port: int, node_port: int) -> Mapping[str, str]:
    """Environment variables that keep a server within its folder and on this machine."""
    return {
        "HOME": str(home),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_DIST_PORT": str(node_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        # With it the script becomes the server instead of waiting for it: who kills one kills the other.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
