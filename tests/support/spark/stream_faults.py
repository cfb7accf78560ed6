"""Faults for streaming queries: a server, a writer that never rests, and a driver, each of which may be killed."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from orbitmq import Message, Producer
from orbitmq.client.errors import OrbitMQError
from peers.ports import free_port
from peers.process import PeerProcess
from support.cli.command import WIDTH
from support.cli.server_process import SMALL_FILES, brokers_known_at, is_running
from support.spark.spark_harness import HOST, spark_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

PATIENCE = 90.0
"""Seconds for whatever has to happen sooner or later: a driver of Spark takes twenty on a busy machine to begin."""

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.05


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something is so, and fail by name if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not {what} within {seconds:g} s"
        time.sleep(_POLL_SECONDS)


class MortalServer:
    """A name server and a broker in one process, which may be killed and started again on the same store."""

    def __init__(self, home: Path) -> None:
        self._home = home
        home.mkdir()
        configuration = home / "broker.conf"
        configuration.write_text(f"{SMALL_FILES}defaultTopicQueueNums=2\n")
        port, broker_port = free_port(), free_port(-2, 1)
        self.nameserver = f"{HOST}:{port}"
        self._command = [sys.executable, "-m", "orbitmq", "serve", "--nameserver-port", str(port)]
        self._command += ["--broker-port", str(broker_port), "--data", str(home / "data"), "-c", str(configuration)]
        self._process: PeerProcess | None = None

    def start(self) -> None:
        environment = {**WIDTH, "HOME": str(self._home)}
        self._process = PeerProcess("orbitmq serve", self._command, home=self._home, environment=environment)
        self._process.wait_until(self._knows_a_broker, what="up", seconds=_START_SECONDS)

    def _knows_a_broker(self) -> bool:
        # One process: while the broker looks through its log, the name server does not answer.
        with contextlib.suppress(OSError):
            return bool(brokers_known_at(self.nameserver))
        return False

    def kill(self) -> None:
        assert self._process is not None
        assert self._process.running, self._process.quote()
        self._process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(seconds=_STOP_SECONDS)


class Writing:
    """Messages ``0``, ``1``, ``2``... written to a topic by a thread. What fails is sent again, perhaps twice."""

    def __init__(self, nameserver: str, topic: str, *, at_once: int, pause: float) -> None:
        self._nameserver = nameserver
        self._topic = topic
        self._at_once = at_once
        self._pause = pause
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0

    def start(self) -> None:
        self._thread.start()
        wait_for(lambda: self.written, "a message written")

    def stop(self) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)
            assert not self._thread.is_alive(), "the writer does not end"

    def _write(self) -> None:
        with Producer(self._nameserver, group="numbers") as producer:
            while not self._is_over.wait(self._pause):
                first = self.written
                messages = [
                    Message(self._topic, str(number), tags=f"t{number % 3}", keys=f"number-{number}")
                    for number in range(first, first + self._at_once)
                ]
                with contextlib.suppress(OrbitMQError):
                    producer.send_batch(messages)
                    self.written += self._at_once


class Driver:
    """A program that runs streaming queries, with all the processes of its Spark. It is started again and again."""

    def __init__(self, home: Path, program: Path, *arguments: object, environment: Mapping[str, str]) -> None:
        self._home = home
        home.mkdir()
        self._command = [sys.executable, str(program), *map(str, arguments)]
        self._environment = {**spark_environment(home), **environment}
        self._process: PeerProcess | None = None
        self._seen: set[int] = set()
        self._log = home / "console.log"
        self._logged = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        self._logged = self._log.stat().st_size if self._log.exists() else 0
        self._process = PeerProcess("driver", self._command, home=self._home, environment=self._environment)

    @property
    def output(self) -> str:
        """Its output since its last start."""
        return self._log.read_bytes()[self._logged :].decode("utf-8", "replace")

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait until something is so that needs the driver.

        By an error of ours it may never end. Where Spark itself fails it is started again, as after other faults.
        """

        def is_so() -> object:
            if not self.running:
                assert not re.search(r"\borbitmq\.\S+Error", self.output), self.output
                log.warning("the driver has ended by itself: %s", self.output[-2000:])
                self.wait_until_alone()
                self.start()
            return condition()

        wait_for(is_so, what)

    def pythons(self, module: str) -> list[int]:
        """The processes of its Spark that run this module, without those that only start others."""
        found = self.processes()
        parents = {_parent(pid) for pid in found}
        return [pid for pid, command in found.items() if module in command.split() and pid not in parents]

    def processes(self) -> dict[int, str]:
        """It and all that it has started, directly or not, with their command lines."""
        if self._process is None:
            return {}
        pid = self._process.pid
        below: dict[int, list[int]] = {}
        for one in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            below.setdefault(_parent(one), []).append(one)
        found: dict[int, str] = {}
        left = [pid]
        while left:
            one = left.pop()
            found[one] = _command_line(one)
            left += below.get(one, ())
        self._seen |= found.keys()
        return found

    def kill(self) -> None:
        """The driver and its JVM. The workers of Spark have groups of their own and notice it by themselves."""
        assert self._process is not None
        self.processes()
        self._process.kill()

    def kill_all(self) -> None:
        """Everything at the same moment, as when a machine fails."""
        for pid in self.processes():
            kill(pid)
        self.kill()

    def wait_until_alone(self) -> None:
        """Wait until nothing is left of a driver that has ended."""
        try:
            wait_for(lambda: not any(map(is_running, self._seen)), "rid of its processes", _STOP_SECONDS)
        finally:
            for pid in self._seen:
                kill(pid)
            self._seen.clear()

    def end(self) -> None:
        """Leave nothing of it."""
        if self._process is not None:
            self.kill_all()
            self.wait_until_alone()


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def ancestor(pid: int, name: str) -> int:
    """The process that has started this one, directly or not, and has this in its command line."""
    while name not in _command_line(pid):
        pid = _parent(pid)
        assert pid > 1, f"no {name} has started it"
    return pid


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command_line(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\0", " ")
    except OSError:
        return ""
