"""Harness of the Spark tests: a server, a standalone cluster, and programs that use it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from orbitmq.spark.sessions import java
from peers.ports import free_port, is_listening
from peers.process import PeerProcess, tethered
from support.cli.command import WIDTH, Ran
from support.cli.server_process import SMALL_FILES, brokers_known_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java for tests: what the second compiler and another collector would win is never earned back."""

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_PROGRAM_SECONDS = 240.0


@contextlib.contextmanager
def server(home: Path, **settings: str) -> Iterator[str]:
    """A name server and a broker as a process of their own; gives the name server's address."""
    configuration = home / "broker.conf"
    configuration.write_text(SMALL_FILES + "".join(f"{name}={value}\n" for name, value in settings.items()))
    nameserver = f"{HOST}:{free_port()}"
    command = [sys.executable, "-m", "orbitmq", "serve", "--nameserver-port", nameserver.rpartition(":")[2]]
    command += ["--broker-port", "0", "--data", str(home / "data"), "-c", str(configuration)]
    process = PeerProcess("orbitmq serve", command, home=home, environment={**WIDTH, "HOME": str(home)})
    process.wait_until(lambda: _knows_a_broker(nameserver), what="up", seconds=_START_SECONDS)
    try:
        yield nameserver
    finally:
        process.stop(seconds=_STOP_SECONDS)


def _knows_a_broker(nameserver: str) -> bool:
    return is_listening(nameserver) and bool(brokers_known_at(nameserver))


@contextlib.contextmanager
def standalone_cluster(home: Path, workers: int = 2) -> Iterator[str]:
    """A Spark master and workers of one core each, as processes; gives the master's address, ``spark://...``."""
    port, page = free_port(), free_port()
    address = f"spark://{HOST}:{port}"
    with contextlib.ExitStack() as started:
        master = _spark_daemon("master", "Master", ["--port", port, "--webui-port", page], home)
        started.callback(master.stop, seconds=_STOP_SECONDS)
        log = home / "master" / "console.log"
        master.wait_until(lambda: "elected leader" in log.read_text(), what="up", seconds=_START_SECONDS)
        for number in range(1, workers + 1):
            name = f"worker-{number}"
            arguments = [
                "--cores",
                1,
                "--memory",
                "1g",
                "--webui-port",
                free_port(),
                "--work-dir",
                home / name / "work",
            ]
            worker = _spark_daemon(name, "Worker", [*arguments, address], home)
            started.callback(worker.stop, seconds=_STOP_SECONDS)
        has_all = f"all {workers} workers registered"
        master.wait_until(
            lambda: log.read_text().count("Registering worker") == workers, what=has_all, seconds=_START_SECONDS
        )
        yield address


def _spark_daemon(name: str, kind: str, arguments: list[object], home: Path) -> PeerProcess:
    folder = home / name
    folder.mkdir()
    command = [f"{_spark_home()}/bin/spark-class", f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", HOST]
    command += map(str, arguments)
    return PeerProcess(f"Spark {name}", command, home=folder, environment=spark_environment(folder))


def run_program(program: Path, home: Path, *arguments: object, **environment: str) -> Ran:
    """Run a Python program that uses Spark, in a process of its own and in a folder of its own, to its end."""
    return _run([sys.executable, program, *arguments], home, environment)


def submit_program(program: Path, home: Path, *options: object) -> Ran:
    """Have ``spark-submit`` run a program, as people do in a virtual environment that they have activated."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    return _run([f"{_spark_home()}/bin/spark-submit", *options, program], home, {"PATH": path})


def _run(command: list[object], home: Path, environment: dict[str, str]) -> Ran:
    done = subprocess.run(
        tethered([*map(str, command)]),
        cwd=home,
        env={**os.environ, **spark_environment(home), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PROGRAM_SECONDS,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def spark_environment(home: Path) -> dict[str, str]:
    """Variables for programs of Spark: this machine's Java, this interpreter, addresses of this machine only."""
    return {
        "HOME": str(home),
        "JAVA_HOME": java.find().home,
        "SPARK_HOME": _spark_home(),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_LOCAL_DIRS": str(home),
        "SPARK_SUBMIT_OPTS": SHORT_LIFE,
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIFE,
    }


def _spark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)
