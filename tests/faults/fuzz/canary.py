"""The canary: a client in a process of its own that uses the servers all the time and checks every answer.

``python -m faults.fuzz.canary BROKER NAME_SERVER REPORT`` runs until its standard input ends and then writes the
report as JSON. Its times are those of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, TypeVar

from faults.fuzz.safety import BROKER_NAME
from faults.fuzz.talk import Client, records
from orbitmq.protocol.codes import RequestCode, ResponseCode
from peers.process import tethered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from orbitmq.protocol.command.command import Command

TOPIC, POP_TOPIC, GROUP, POP_GROUP = "canary", "canary-pop", "canary-group", "canary-pop-group"
QUEUES = 4
SLOW_SECONDS = 0.25
"""The promise to clients on an idle machine."""
_PAUSE = 0.002
_BUSY_SECONDS = 5.0
_MOST_KEPT = 200

_T = TypeVar("_T")


@dataclasses.dataclass(slots=True)
class Report:
    """What the canary saw."""

    answers: int = 0
    slowest: float = 0.0
    slow: list[tuple[float, float, str]] = dataclasses.field(default_factory=list)
    """Answers that took longer than ``SLOW_SECONDS``: when, how long, and of what request."""
    busy: int = 0
    """Sends that flow control refused, and that were repeated: a busy machine is slow to write."""
    wrong: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    acknowledged: list[int] = dataclasses.field(default_factory=lambda: [0] * QUEUES)
    """How many messages each queue has."""


class Canary:
    """Sends, pulls, pops and acknowledges, in rounds."""

    def __init__(self, broker: str, name_server: str) -> None:
        self._addresses = broker, name_server
        self._broker, self._names = Client(broker), Client(name_server)
        self.report = Report()
        for topic in (TOPIC, POP_TOPIC):
            answer = self._broker.create_topic(topic, QUEUES)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    def round(self, number: int) -> None:
        """One message through; every tenth round with POP, and a look at the route."""
        try:
            self._send_and_pull(number % QUEUES)
            if number % 10 == 0:
                self._pop(number)
                self._route()
        except (OSError, AssertionError) as error:
            self.wrong(f"{type(error).__name__}: {error}")
            for client in (self._broker, self._names):
                client.close()
            broker, name_server = self._addresses
            self._broker, self._names = Client(broker), Client(name_server)

    def wrong(self, what: str) -> None:
        if len(self.report.wrong) < _MOST_KEPT:
            self.report.wrong.append((time.monotonic(), what))

    def _send_and_pull(self, queue_id: int) -> None:
        offset = self.report.acknowledged[queue_id]
        body = canary_body(queue_id, offset)
        sent = self._send(TOPIC, body, queue_id)
        assert int(sent.ext_fields["queueOffset"]) == offset, f"send: offset {sent.ext_fields} instead of {offset}"
        self.report.acknowledged[queue_id] = offset + 1
        deadline = time.monotonic() + 5
        while True:
            pulled = self._timed("pull", lambda: self._broker.pull(TOPIC, offset, queue_id, group=GROUP))
            if found := records(pulled):
                assert [record.body for record in found] == [body], f"pull: {found} instead of {body!r}"
                return
            assert time.monotonic() < deadline, f"pull: {pulled.code} {pulled.remark} for a message that was taken"

    def _send(self, topic: str, body: bytes, queue_id: int) -> Command:
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            sent = self._timed("send", lambda: self._broker.send(topic, body, queue_id, group="canary-producers"))
            if sent.code != ResponseCode.SYSTEM_BUSY or time.monotonic() > deadline:
                break
            self.report.busy += 1
            time.sleep(_PAUSE)
        assert sent.code == ResponseCode.SUCCESS, f"send: {sent.code} {sent.remark}"
        return sent

    def _pop(self, number: int) -> None:
        body = f"popped {number}".encode()
        self._send(POP_TOPIC, body, number % QUEUES)
        deadline = time.monotonic() + 5
        bodies: list[bytes] = []
        while body not in bodies:
            assert time.monotonic() < deadline, f"pop: {body!r} was not delivered"
            for popped in self._timed("pop", lambda: self._broker.pop(POP_TOPIC, POP_GROUP)):
                acked = self._timed("ack", lambda popped=popped: self._broker.ack(popped, POP_GROUP))  # type: ignore[misc]
                assert acked.code == ResponseCode.SUCCESS, f"ack: {acked.code} {acked.remark}"
                bodies.append(popped.record.body)

    def _route(self) -> None:
        answer = self._timed("route", lambda: self._names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}))
        assert answer.code == ResponseCode.SUCCESS, f"route: {answer.code} {answer.remark}"
        assert BROKER_NAME.encode() in (answer.body or b""), f"route: {answer.body!r}"

    def _timed(self, what: str, ask: Callable[[], _T]) -> _T:
        began = time.monotonic()
        try:
            return ask()
        finally:
            took = time.monotonic() - began
            report = self.report
            report.answers += 1
            report.slowest = max(report.slowest, took)
            if took > SLOW_SECONDS and len(report.slow) < _MOST_KEPT:
                report.slow.append((began, took, what))


def canary_body(queue_id: int, offset: int) -> bytes:
    """The body of the message at this place."""
    return f"canary {queue_id} {offset}".encode()


class CanaryProcess:
    """A canary that runs until ``finish``."""

    def __init__(self, broker: str, name_server: str, home: Path, environment: Mapping[str, str]) -> None:
        self._report = home / "canary.json"
        with open(home / "canary.log", "ab") as log:
            self._process = subprocess.Popen(
                tethered([sys.executable, "-m", "faults.fuzz.canary", broker, name_server, str(self._report)]),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=dict(environment),
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> Report:
        """Have it end, and read what it saw."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self.kill()
        if not self._report.exists():
            return Report(wrong=[(time.monotonic(), f"the canary ended with {self._process.returncode}")])
        return Report(**json.loads(self._report.read_text()))

    def kill(self) -> None:
        if self.running:
            self._process.kill()
        self._process.wait()


def main(broker: str, name_server: str, report: str) -> None:
    canary = Canary(broker, name_server)
    number = 0
    try:
        while not select.select([sys.stdin], [], [], _PAUSE)[0] and len(canary.report.wrong) < _MOST_KEPT:
            canary.round(number)
            number += 1
    except OSError as error:
        canary.wrong(f"the server is gone: {error}")
    with open(report, "w") as file:
        json.dump(dataclasses.asdict(canary.report), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
