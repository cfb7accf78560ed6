"""The two systems: a server each, and a Spark driver that talks to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.server.systems import ORBITMQ, QUEUES, start_orbitmq
from bench.spark.kafka import connector_jars, interpreter
from bench.spark.usage import session_seconds
from peers.kafka import Kafka
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KAFKA = "Kafka"

_DRIVER = str(Path(__file__).with_name("driver.py"))
_SETTLE_SECONDS = 0.3

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.log.level": "ERROR",
    # Renames instead of a helper program a file: the same for both.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Rows and seconds of one request."""

    rows: int
    seconds: float
    processor_seconds: float
    """Of the server and of Spark with all its workers."""


class System:
    """A server with its driver, halted outside its turns. Leaving it as a context kills both."""

    def __init__(
        self, name: str, servers: list[int], driver: PeerProcess, settings: Mapping[str, Any], home: Path
    ) -> None:
        self.name = name
        self._home = home
        self._driver = driver
        self._groups = [*servers, driver.pid]
        self._tell(settings)
        self.halt()

    @property
    def store(self) -> str:
        """The store directory that it made, if it is one that can be scanned."""
        found = sorted(self._home.glob("**/commitlog"))
        return str(found[0].parent) if found else ""

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """One thing done within a turn."""
        before = self._processor_seconds()
        answer = self._tell(request)
        return Answer(answer["rows"], answer["seconds"], self._processor_seconds() - before)

    def _processor_seconds(self) -> float:
        return sum(map(session_seconds, self._groups))

    def halt(self) -> None:
        for group in self._groups:
            os.killpg(group, signal.SIGSTOP)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        for group in self._groups:
            os.killpg(group, signal.SIGCONT)
        time.sleep(_SETTLE_SECONDS)
        yield
        self.halt()

    def _tell(self, request: Mapping[str, Any]) -> dict[str, Any]:
        to_driver, from_driver = self._driver.pipes
        to_driver.write(json.dumps(request).encode() + b"\n")
        to_driver.flush()
        line = from_driver.readline()
        if not line:
            raise PeerError(f"the driver of {self.name} has ended\n{self._driver.quote()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(f"Spark over {self.name} failed: {answer['error']}\n{self._driver.quote()}")
        return answer


@contextlib.contextmanager
def orbitmq(home: Path, topics: list[str]) -> Iterator[System]:
    """OrbitMQ's server, and Spark with its data sources."""
    with start_orbitmq(home / "server") as server:
        for topic in topics:
            server.make_topic(topic)
        settings = {
            "format": "orbitmq",
            "options": {"nameserver": server.nameserver},
            "body": "body",
            "conf": _CONF | {"spark.python.unix.domain.socket.enabled": "true"},
        }
        with _driver(sys.executable, home / "driver") as driver:
            yield System(ORBITMQ, [server.pid], driver, settings, home / "server")


@contextlib.contextmanager
def kafka(home: Path) -> Iterator[System]:
    """Kafka, and the Spark of its connector."""
    with Kafka(home / "server", QUEUES) as server:
        settings = {
            "format": "kafka",
            "options": {"kafka.bootstrap.servers": server.address},
            "body": "value",
            "conf": _CONF
            | {
                "spark.jars": connector_jars(),
                # Where Spark 4.0 has the class of the same name.
                "spark.sql.streaming.checkpointFileManagerClass": (
                    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
                ),
            },
        }
        with _driver(str(interpreter()), home / "driver") as driver:
            yield System(KAFKA, [server.process.pid], driver, settings, home / "server")


@contextlib.contextmanager
def _driver(python: str, home: Path) -> Iterator[PeerProcess]:
    home.mkdir(parents=True)
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python, "SPARK_LOCAL_DIRS": str(home)}
    process = PeerProcess("Spark", [python, _DRIVER], home=home, environment=environment, conversation=True)
    try:
        yield process
    finally:
        process.kill()
