"""Apache Kafka as a process, and the Spark that can talk to it, in an environment of its own.

Spark's Kafka connector has to be of Spark's version, and 4.0.0 is the newest of which Maven Central has every part.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.server.systems import java
from peers.cache import filled
from peers.jdk import Jars, first_error
from peers.ports import free_port, is_listening
from peers.process import PeerError, PeerProcess, run

if TYPE_CHECKING:
    from collections.abc import Sequence

SPARK_VERSION = "4.0.0"

_SERVER_JARS = Jars("kafka", Path(__file__).with_name("kafka.pom.xml"))
_CONNECTOR_JARS = Jars("spark-kafka", Path(__file__).with_name("connector.pom.xml"))
_ENVIRONMENT = f"spark-{SPARK_VERSION}-{sys.implementation.cache_tag}"
_INSTALL_SECONDS = 900
_START_SECONDS = 90
_FORMAT_SECONDS = 60


@functools.cache
def unavailable() -> str | None:
    """None if Kafka and its Spark can be run here, otherwise the reason in one sentence. It fetches them."""
    for jars in (_SERVER_JARS, _CONNECTOR_JARS):
        if reason := jars.unavailable("Kafka"):
            return reason
    try:
        interpreter()
    except PeerError as error:
        return f"pyspark {SPARK_VERSION} could not be installed: {first_error(str(error))}"
    return None


def interpreter() -> Path:
    """A Python with the pyspark that the connector is for, made once."""

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder / "venv")], environment={}, seconds=_INSTALL_SECONDS)
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run([*pip, f"pyspark=={SPARK_VERSION}"], environment={}, seconds=_INSTALL_SECONDS)

    return filled(_ENVIRONMENT, install) / "venv" / "bin" / "python"


def connector_jars() -> str:
    """The connector and what it needs, as Spark's ``spark.jars`` takes them."""
    return ",".join(str(jar) for jar in sorted(_CONNECTOR_JARS.folder().glob("*.jar")))


class Kafka:
    """One node, broker and controller; leaving it as a context kills it."""

    def __init__(self, home: Path, partitions: int) -> None:
        home.mkdir(parents=True)
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        conf = home / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(home / "logs"),
            "num.partitions": str(partitions),
            # It is halted while the other system has its turn, and must not be taken for dead after that.
            "broker.session.timeout.ms": "3600000",
            "controller.quorum.fetch.timeout.ms": "3600000",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        cluster = run(_command("kafka.tools.StorageTool", "random-uuid"), environment={}, seconds=_FORMAT_SECONDS)
        run(
            _command("kafka.tools.StorageTool", "format", "-t", cluster.split()[-1], "-c", str(conf)),
            environment={},
            seconds=_FORMAT_SECONDS,
        )
        self.process = PeerProcess("Kafka", _command("kafka.Kafka", str(conf)), home=home, environment={})
        self.process.wait_until(lambda: is_listening(self.address), what="listening", seconds=_START_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()


def _command(main: str, *arguments: str) -> Sequence[str]:
    # The heap is that of Kafka's own start script.
    return [java(), "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", f"{_SERVER_JARS.folder()}/*", main, *arguments]
