"""The servers under test: a name server and a broker in one process, with every feature on."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from faults.fuzz.safety import BROKER_NAME
from orbitmq.protocol.codes import RequestCode
from peers.frames import ask
from peers.ports import free_port
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SETTINGS = {
    "brokerName": BROKER_NAME,
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxIndexNum": "100000",
    "enablePropertyFilter": "true",
    "enableCalcFilterBitMap": "true",
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "2000",
    "registerNameServerPeriod": "10000",
}
START_SECONDS = 30.0
STOP_SECONDS = 60.0

_FAULT = re.compile(
    r"Traceback \(most recent call last\)|was never retrieved|was never awaited|[Uu]nhandled|"
    r"request -?\d+ of \S+ failed: |Fatal Python error|AddressSanitizer|runtime error: |Exception ignored in"
)
_HANDLER = re.compile(r"request (-?\d+) of \S+ failed: (.*)")


class FuzzedServer:
    """``orbitmq serve`` in a folder; it can be stopped and started again on the same ports and data."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment
        self._conf = home / "broker.conf"
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
        self.name_server = f"127.0.0.1:{free_port()}"
        self.broker = f"127.0.0.1:{free_port(-2, 1)}"
        self._read = 0
        self._process: PeerProcess | None = None

    def start(self) -> None:
        """Start it, and wait until the name server knows the broker."""
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "orbitmq",
            "serve",
            "--data",
            str(self._home / "data"),
        ]
        command += ["--nameserver-port", self.name_server.rpartition(":")[2]]
        command += ["--broker-port", self.broker.rpartition(":")[2], "--conf", str(self._conf)]
        self._process = PeerProcess("orbitmq serve", command, home=self._home, environment=self._environment)
        self._process.wait_until(self._registered, what="registered", seconds=START_SECONDS)

    def _registered(self) -> bool:
        try:
            found = ask(self.name_server, RequestCode.GET_BROKER_CLUSTER_INFO).body
        except OSError:
            return False
        return self.broker.encode() in found

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def memory(self) -> int:
        """Bytes of memory that are the process's own and in use; 0 if it is gone."""
        assert self._process is not None
        try:
            with open(f"/proc/{self._process.pid}/status") as file:
                found = re.search(r"RssAnon:\s+(\d+) kB", file.read())
        except OSError:
            return 0
        return int(found[1]) * 1024 if found else 0

    def processor_seconds(self) -> float:
        """The processor time that the loop's thread has used."""
        assert self._process is not None
        with open(f"/proc/{self._process.pid}/task/{self._process.pid}/schedstat") as file:
            return int(file.read().split()[0]) / 1e9

    def stop(self) -> str | None:
        """SIGTERM, and wait; what was wrong with the way it ended."""
        assert self._process is not None
        if not self._process.running:
            return f"the server had ended by itself\n{self._process.quote()}"
        began = time.monotonic()
        try:
            self._process.stop(seconds=STOP_SECONDS)
        except PeerError as error:
            return str(error)
        code = self._process.exit_code
        took = time.monotonic() - began
        return None if code == 0 else f"the server ended with code {code} after {took:.1f} s"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def new_faults(self) -> list[str]:
        """Errors that no frame should cause, as far as the log has grown since the last look: each in a line."""
        log = self._home / "console.log"
        if not log.exists() or os.path.getsize(log) == self._read:
            return []
        with open(log, "rb") as file:
            file.seek(self._read)
            text = file.read().decode("utf-8", "replace")
            self._read = file.tell()
        return faults_in(text)


def faults_in(log: str) -> list[str]:
    """The faults that a log tells of: a traceback by its place and its last line."""
    lines = log.splitlines()
    found = []
    for at, line in enumerate(lines):
        if _FAULT.search(line) is None:
            continue
        if "Traceback" in line:
            found.append(_traceback(lines, at))
        elif (handler := _HANDLER.search(line)) is not None:
            found.append(f"request {handler[1]} failed: {handler[2]}")
        else:
            found.append(line.strip()[:300])
    return found


def _traceback(lines: list[str], start: int) -> str:
    """``RangeError: text (file.py:12)`` of the traceback that begins there, after the log line above it."""
    place = ""
    for line in lines[start + 1 :]:
        if (found := re.match(r'\s+File "([^"]+)", line (\d+)', line)) is not None:
            place = f"{os.path.basename(found[1])}:{found[2]}"
        elif line and not line.startswith(" "):
            said = re.sub(r"^\S+ \S+ ", "", lines[start - 1])[:200] if start else ""
            return f"{line[:300]} ({place}); logged as: {said}"
    return f"a traceback without an end ({place})"
