"""Failovers of real processes, one after the other, under load: what is lost, and for how long sends fail.

Masters are killed, stopped, and cut off from the others by relays between the processes.

``python -m faults.ha.failover_run KILLS`` (``make failover``) prints the figures. Timings are those of
``orbitmq serve --replicas 3``.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import itertools
import logging
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from orbitmq.cli.server.serve import HANGS_MS
from orbitmq.protocol.message.record import decode_record
from peers.java_client import NEW, JavaClient, JavaClientError, JavaProducer, unavailable
from support.broker.failover_group import TOPIC, FailoverGroup, Member
from support.broker.own_controller import OwnController
from support.broker.process_network import ProcessNetwork
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

log = logging.getLogger("failover")

KILL, STOP = "kill -9", "SIGSTOP"
CUT, DEAF, MUTE, ALONE = "cut off", "deaf", "mute", "alone"
"""The master is cut off from controller and slaves: both ways, what they send, what it sends; from everything."""

KINDS = (KILL, STOP, CUT, DEAF, MUTE, ALONE)
SETTINGS = ("minInSyncReplicas=2", f"controllerHeartBeatTimeoutMills={HANGS_MS}")
LONGEST = {KILL: 2.0, **dict.fromkeys((STOP, CUT, MUTE, ALONE), 8.0), DEAF: 12.0}
"""Seconds without a successful send that are accepted."""

MEDIAN = {**LONGEST, KILL: 0.5}
SENDER_PAUSE = 0.005
JAVA_TIMEOUT_MS = 3000
"""Of a send, the default of the Java client."""

JAVA_POLL_MS = 200
"""Between two lookups of the route; docs/failover.md recommends it."""

RECOVERY_SECONDS = 45
MORE = 50
"""Messages that are acknowledged before and after each fault."""


@dataclasses.dataclass(slots=True)
class Outage:
    """One fault: the seconds until each client's first message that another broker acknowledged."""

    kind: str
    began: float
    old_port: int
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    def acknowledged(self, client: str, message_id: str) -> None:
        if client not in self.seconds and port_in(message_id) != self.old_port:
            self.seconds[client] = time.monotonic() - self.began


def port_in(message_id: str) -> int:
    """The broker's port in the id that it gave to a message; of a broker with an IPv4 address."""
    return int(message_id[8:16], 16)


class FailoverRun:
    """Three brokers and a controller as processes, and clients that send all the time."""

    def __init__(self, folder: Path, *, java: bool = False) -> None:
        self._folder = folder
        self._network = ProcessNetwork()
        self._controller = OwnController(folder / "controller", network=self._network)
        self.group = FailoverGroup(folder / "group", self._controller.address, 3, *SETTINGS, network=self._network)
        self.group.pause = SENDER_PAUSE
        self.outages: list[Outage] = []
        self.clients = ["python", *(["java"] if java else [])]
        self.duplicates = 0
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._network)
            stack.push_async_callback(self._controller.close)
            await self._controller.start()
            await stack.enter_async_context(self.group)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def run(self, kinds: Sequence[str]) -> None:
        """Let the masters fail one after the other, and compare what is left with what was acknowledged."""
        async with self.group.sending(), self._java_sending():
            for kind in kinds:
                await self._fail(kind)
        await self.group.settle()
        self.group.check()
        self.duplicates = self._duplicates()

    async def _fail(self, kind: str) -> None:
        group = self.group
        await group.acknowledges(MORE)
        # Not always at the same moment between two heartbeats.
        await asyncio.sleep(random.random())
        old = group.master()
        outage = Outage(kind, time.monotonic(), old.port)
        group.ledger.on_acknowledged = outage.acknowledged
        self.outages.append(outage)
        if kind == KILL:
            await old.end(signal.SIGKILL)
        elif kind == STOP:
            old.tell(signal.SIGSTOP)
        else:
            group.cut_off(old, hears=kind == MUTE, speaks=kind == DEAF, alone=kind == ALONE)
        await self._recovered(outage)
        log.info("%s: %s", kind, outage.seconds)
        await group.acknowledges(MORE)
        await self._bring_back(old, kind)
        await eventually(lambda: len(group.in_sync()) == len(group.members))

    async def _recovered(self, outage: Outage) -> None:
        """Wait until every client has a message acknowledged by another broker."""
        for _ in range(RECOVERY_SECONDS * 100):
            if outage.seconds.keys() >= set(self.clients):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{outage} goes on, the controller names {self.group.master_address()}")

    async def _bring_back(self, old: Member, kind: str) -> None:
        if kind == KILL:
            await old.start()
        elif kind == STOP:
            old.tell(signal.SIGCONT)
        else:
            self.group.heal()

    # Java

    @contextlib.asynccontextmanager
    async def _java_sending(self) -> AsyncIterator[None]:
        if "java" not in self.clients:
            yield
            return
        home = self._folder / "java"
        with (
            JavaClient(NEW, home=home, nameserver=self.group.name_server) as jvm,
            JavaProducer(jvm, "j", timeout_ms=JAVA_TIMEOUT_MS, poll_ms=JAVA_POLL_MS) as sender,
        ):
            stop = asyncio.Event()
            task = asyncio.create_task(self._send_from_java(sender, stop))
            try:
                yield
            finally:
                stop.set()
                await task

    async def _send_from_java(self, sender: JavaProducer, stop: asyncio.Event) -> None:
        ledger = self.group.ledger
        while not stop.is_set():
            body = next(ledger.bodies)
            try:
                sent = await asyncio.to_thread(sender.send, TOPIC, body)
            except JavaClientError:
                ledger.refused += 1
                await asyncio.sleep(0.02)
                continue
            if sent.status == "SEND_OK":
                ledger.acknowledged((TOPIC, sent.queue.id, sent.queue_offset), body, "java", sent.offset_id)
            else:
                ledger.refused += 1
            await asyncio.sleep(SENDER_PAUSE)

    # The figures

    def _duplicates(self) -> int:
        """Messages that are stored more than once: their first answer did not arrive."""
        stored = collections.Counter[bytes]()
        with self.group.members[0].store() as store:
            for queue_id in {queue_id for _, queue_id, _ in self.group.ledger.placed}:
                for offset in range(store.max_offset(TOPIC, queue_id)):
                    found = store.get(TOPIC, queue_id, offset, 1)
                    stored[bytes(decode_record(b"".join(map(bytes, found.slices))).body)] += 1
        return sum(count - 1 for count in stored.values())

    def recovery(self, kind: str, client: str = "python") -> list[float]:
        """Seconds of each outage of this kind."""
        return [outage.seconds[client] for outage in self.outages if outage.kind == kind]

    def report(self) -> str:
        """The figures, as a table."""
        ledger = self.group.ledger
        lines = [
            f"{len(self.outages)} failovers: {len(ledger.placed)} messages acknowledged, 0 lost, "
            f"{self.duplicates} stored twice, {ledger.refused} sends failed; the logs are equal",
            "fault      client    n  median   worst  (seconds until another broker acknowledges)",
        ]
        lines += [
            f"{kind:9}  {client:7} {len(times):3}  {statistics.median(times):6.2f}  {max(times):6.2f}"
            for kind in KINDS
            for client in self.clients
            if (times := self.recovery(kind, client))
        ]
        return "\n".join(lines)

    def missed_bars(self) -> list[str]:
        """What took longer than it may."""
        missed = []
        for kind, client in itertools.product(KINDS, self.clients):
            if times := self.recovery(kind, client):
                middle = statistics.median(times)
                if middle > MEDIAN[kind]:
                    missed.append(f"{kind}, {client}: median {middle:.2f} s, at most {MEDIAN[kind]}")
                if max(times) > LONGEST[kind]:
                    missed.append(f"{kind}, {client}: worst {max(times):.2f} s, at most {LONGEST[kind]}")
        return missed


async def main() -> None:
    parser = argparse.ArgumentParser(
        description="Kill, stop and cut off masters under load, and print how long it took."
    )
    parser.add_argument("kills", type=int)
    parser.add_argument("--no-java", dest="java", action="store_false", help="Python's client only.")
    parser.add_argument("--kind", choices=KINDS, help="Only this fault.")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("orbitmq").setLevel(logging.ERROR)
    reason = unavailable(NEW) if given.java else "not wanted"
    if reason is not None:
        sys.stdout.write(f"without Java: {reason}\n")
    task = asyncio.current_task()
    assert task is not None
    # As with Ctrl-C: no broker is left behind.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="orbitmq-failover-") as folder:
        async with FailoverRun(Path(folder), java=reason is None) as run:
            await run.run([given.kind or KINDS[number % len(KINDS)] for number in range(given.kills)])
    sys.stdout.write(f"{run.report()}\n")
    if missed := run.missed_bars():
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    asyncio.run(main())
