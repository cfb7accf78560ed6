"""A cluster of ``orbitmq serve --replicas 3``, senders, and one fault of its master, written down."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import itertools
import os
import re
import signal
import sys
import time
from typing import TYPE_CHECKING

from orbitmq.aio import Message, OrbitMQError, Producer, SendStatus
from peers.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BEFORE_SECONDS = 3.0
AFTER_SECONDS = 4.0
RECOVERY_SECONDS = 30.0
START_SECONDS = 30.0
SENDERS = 8
PAUSE_SECONDS = 0.004
"""Between two sends of a sender: the cluster is not to be busy, so that a gap stands out."""

TOPIC = "failover"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_LOGGED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) \w+ +(.*)")
EVENTS = (
    (re.compile(r"controller: broker .* is dead: (.*)"), "controller: {} of a broker"),
    (re.compile(r"election: .*: master (\d+) .*, epoch (\d+)"), "controller elects replica {}"),
    (re.compile(r"controller: this broker \(id (\d+)\) is master now"), "replica {} is master"),
    (re.compile(r"nameserver: .* \(\S+, id 0\) registered"), "name server knows it"),
    (re.compile(r"ha: sync state set is \{(.*)\}"), "in sync: {}"),
)
"""Lines of the log that tell what happens, and what they are called."""


@dataclasses.dataclass(slots=True)
class Failover:
    """What was seen. Times are seconds from the fault."""

    fault: str
    acknowledged: list[float] = dataclasses.field(default_factory=list)
    failed: list[float] = dataclasses.field(default_factory=list)
    events: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    @property
    def outage(self) -> tuple[float, float]:
        """Beginning and end of the longest time without an acknowledgement after the fault."""
        times = sorted(self.acknowledged)
        pairs = [pair for pair in itertools.pairwise(times) if pair[1] > 0]
        return max(pairs, key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))


class ServeError(Exception):
    """The cluster did not come up, or not back."""


async def run(fault: str, folder: Path) -> Failover:
    """Send, let the master fail, and go on until it is back. Raises ServeError."""
    found = Failover(fault)
    log = folder / "log"
    async with _serving(folder, log) as (name_servers, master):
        base = time.time()
        async with _sending(name_servers, base, found):
            await asyncio.sleep(BEFORE_SECONDS)
            fault_at = time.time()
            os.kill(master, SIGNALS[fault])
            await _recovered(found, fault_at - base)
            await asyncio.sleep(AFTER_SECONDS / 2)
            if fault == "stop":
                found.events.append((time.time() - fault_at, "SIGCONT"))
                os.kill(master, signal.SIGCONT)
            await asyncio.sleep(AFTER_SECONDS)
            end = time.time()
    shift = fault_at - base
    found.acknowledged = [at - shift for at in found.acknowledged]
    found.failed = [at - shift for at in found.failed]
    found.events += [(at - fault_at, what) for at, what in _logged(log.read_text()) if fault_at - 0.01 < at < end]
    found.events.append((0.0, "kill -9 of the master" if fault == "kill" else "SIGSTOP of the master"))
    found.events.sort()
    return found


@contextlib.asynccontextmanager
async def _serving(folder: Path, log: Path) -> AsyncIterator[tuple[str, int]]:
    """The cluster: its name server, and the process id of its master."""
    port = free_port(-2, 1, 8, 10, 11, 18, 20, 21)
    arguments = ["serve", "--replicas", "3", "--data", str(folder / "data"), "--broker-port", str(port)]
    arguments += ["--nameserver-port", "0", "--controller-port", "0", "--grpc-port", "0"]
    with log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orbitmq", *arguments), stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        banner = await _banner(process)
        name_server = re.search(r"name server +(\S+)", banner)
        master = re.search(r"pid (\d+), master", banner)
        if name_server is None or master is None:
            raise ServeError(f"the cluster did not come up:\n{banner}")
        yield name_server[1], int(master[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _banner(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    lines = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_SECONDS):
            while line := await process.stdout.readline():
                lines.append(line.decode())
                if line.startswith(b"Ctrl-C"):
                    break
    return "".join(lines)


@contextlib.asynccontextmanager
async def _sending(name_servers: str, base: float, found: Failover) -> AsyncIterator[None]:
    async with Producer(name_servers, group="bench-failover") as producer:
        tasks = [asyncio.create_task(_send(producer, base, found)) for _ in range(SENDERS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _send(producer: Producer, base: float, found: Failover) -> None:
    while True:
        try:
            receipt = await producer.send(Message(TOPIC, b"x" * 128))
        except OrbitMQError:
            found.failed.append(time.time() - base)
            await asyncio.sleep(0.02)
            continue
        times = found.acknowledged if receipt.status is SendStatus.SEND_OK else found.failed
        times.append(time.time() - base)
        await asyncio.sleep(PAUSE_SECONDS)


async def _recovered(found: Failover, fault_at: float) -> None:
    """Wait for acknowledgements that cannot be the old master's."""
    until = time.time() + RECOVERY_SECONDS
    while time.time() < until:
        await asyncio.sleep(0.05)
        times = [at for at in found.acknowledged[-SENDERS:] if at > fault_at]
        gap = Failover(found.fault, [at - fault_at for at in found.acknowledged]).outage
        if (
            times
            and gap[1] - gap[0] > 0.03
            and len(found.acknowledged)
            and found.acknowledged[-1] > fault_at + gap[1]
        ):
            return
    raise ServeError(f"no other broker took over within {RECOVERY_SECONDS:.0f} s")


def _logged(text: str) -> list[tuple[float, str]]:
    """When what happened, by the log of all processes."""
    found = []
    for line in text.splitlines():
        if (logged := _LOGGED.match(line)) is None:
            continue
        for pattern, name in EVENTS:
            if (match := pattern.search(logged[2])) is not None:
                at = datetime.datetime.fromisoformat(logged[1]).timestamp()
                found.append((at, name.format(*match.groups())))
    return found
