"""Apache Kafka as a process: one node, with a folder of its own."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Self

from peers.jdk import Jars, tool
from peers.ports import free_port, is_listening
from peers.process import PeerProcess, run

if TYPE_CHECKING:
    from collections.abc import Sequence

_JARS = Jars("kafka", Path(__file__).with_name("kafka.pom.xml"))
_START_SECONDS = 90
_FORMAT_SECONDS = 60


@functools.cache
def unavailable() -> str | None:
    """None if Kafka can be run here, otherwise the reason in one sentence. It fetches it."""
    return _JARS.unavailable("Kafka")


class Kafka:
    """One node, broker and controller; leaving it as a context kills it."""

    def __init__(self, home: Path, partitions: int, *options: str) -> None:
        """``options`` are Java's; without any, those of Kafka's own start script."""
        home.mkdir(parents=True)
        options = options or ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
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
            # A benchmark halts it while another system has its turn, and it must not be taken for dead after that.
            "broker.session.timeout.ms": "3600000",
            "controller.quorum.fetch.timeout.ms": "3600000",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        cluster = run(
            _command(options, "kafka.tools.StorageTool", "random-uuid"), environment={}, seconds=_FORMAT_SECONDS
        )
        run(
            _command(options, "kafka.tools.StorageTool", "format", "-t", cluster.split()[-1], "-c", str(conf)),
            environment={},
            seconds=_FORMAT_SECONDS,
        )
        self.process = PeerProcess("Kafka", _command(options, "kafka.Kafka", str(conf)), home=home, environment={})
        self.process.wait_until(lambda: is_listening(self.address), what="listening", seconds=_START_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()


def _command(options: Sequence[str], main: str, *arguments: str) -> Sequence[str]:
    return [tool("java") or "java", *options, "-cp", f"{_JARS.folder()}/*", main, *arguments]
