"""The gRPC client of PyPI, in an environment of its own, and the unmodified Apache proxy that it talks to."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.server.systems import java
from peers.cache import filled, is_filled
from peers.jdk import Jars
from peers.ports import free_port, is_listening
from peers.process import PeerError, PeerProcess, run

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "5.1.2"
NAME = f"rocketmq-python-client {VERSION}"
PROXY = "Apache's proxy"

_ENVIRONMENT = f"grpc-client-{VERSION}-{sys.implementation.cache_tag}"
_JARS = Jars("proxy", Path(__file__).with_name("pom.xml"))
_INSTALL_SECONDS = 300
_START_SECONDS = 90
_SETTLE_SECONDS = 0.3
_FLAGS = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:-UsePerfData")


@functools.cache
def unavailable() -> str | None:
    """None if client and proxy can be run here, otherwise the reason in one sentence. It fetches them."""
    reason = _JARS.unavailable(PROXY)
    if reason is not None:
        return reason
    try:
        interpreter()
    except PeerError as error:
        return f"it could not be installed: {_last_line(str(error))}"
    return None


def interpreter() -> Path:
    """A Python that has the client, made once."""

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder / "venv")], environment={}, seconds=_INSTALL_SECONDS)
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run([*pip, f"rocketmq-python-client=={VERSION}"], environment={}, seconds=_INSTALL_SECONDS)

    return filled(_ENVIRONMENT, install) / "venv" / "bin" / "python"


def is_fetched() -> bool:
    """True if ``unavailable`` has nothing left to fetch."""
    return is_filled(_ENVIRONMENT) and is_filled(_JARS.name)


class Proxy:
    """Apache's proxy, as a process of its own; leaving it as a context kills it."""

    def __init__(self, home: Path, name_server: str) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        home.mkdir(parents=True)
        settings = {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": name_server,
            "grpcServerPort": port,
            "remotingListenPort": free_port(),
        }
        conf = home / "rmq-proxy.json"
        conf.write_text(json.dumps(settings), "utf-8")
        command = [java(), *_FLAGS, f"-Duser.home={home}", "-cp", f"{_JARS.folder()}/*"]
        command += ["org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(conf), "-pm", "cluster", "-n", name_server]
        self._process = PeerProcess(PROXY, command, home=home, environment={"ROCKETMQ_HOME": str(home)})
        self._process.wait_until(lambda: is_listening(self.address), what="listening", seconds=_START_SECONDS)

    def halt(self) -> None:
        """Keep it from running outside its turns."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        os.killpg(self._process.pid, signal.SIGCONT)
        time.sleep(_SETTLE_SECONDS)
        yield
        self.halt()

    def quote(self) -> str:
        return self._process.quote()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason was given"
