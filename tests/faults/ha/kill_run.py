"""Kill run of a pair: master and slave as processes, killed with SIGKILL under load, then their stores compared."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
from typing import TYPE_CHECKING

from faults.broker.kill_9_run import (
    SETTINGS,
    Ledger,
    Peer,
    commit_transaction,
    send_batch,
    send_delayed,
    send_plain,
    send_timed,
)
from orbitmq.broker import load_settings
from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode
from orbitmq.store import LocalDisk, MessageStore
from peers.frames import ask
from peers.ports import endpoint, free_port
from support.broker.replica_harness import index_entries
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

WORKERS = 4
ATTEMPTS = 5
STEPS: tuple[Callable[[Peer, Ledger], Awaitable[None]], ...] = (
    *(send_plain, send_batch, send_delayed, send_timed, commit_transaction),
)
WEIGHTS = (10, 4, 3, 3, 3)


class PairMember:
    """One broker of the pair: a process that is started again on the same store and port."""

    def __init__(self, home: Path, *settings: str) -> None:
        home.mkdir()
        self.home = home
        self.port = free_port(-2, 1)
        self._own = (*settings, f"listenPort={self.port}", f"storePathRootDir={home / 'store'}")
        self.process: ServerProcess | None = None
        self._exit = contextlib.AsyncExitStack()

    def change(self, *settings: str) -> None:
        """Other settings for the next start."""
        kept = [line for line in self._own if line.startswith(("listenPort", "storePathRootDir"))]
        self._own = (*settings, *kept)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def start(self) -> None:
        conf = self.home / "broker.conf"
        shared = [line for line in SETTINGS if not line.startswith("listenPort")]
        conf.write_text(SMALL_FILES + "\n".join((*shared, "haSendHeartbeatInterval=100", *self._own)) + "\n")
        self.process = await self._exit.enter_async_context(orbitmq(self.home, "broker", "-c", conf))
        await self.process.says(r"listens on (\S+),")

    async def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        await self.process.stopped(number)
        await self._exit.aclose()
        self._exit = contextlib.AsyncExitStack()

    def log_end(self) -> int:
        answer = ask(self.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(KVTable.decode(answer.body).table["commitLogMaxOffset"])

    @contextlib.contextmanager
    def store(self) -> Iterator[MessageStore]:
        """The store after the process has ended."""
        settings, _ = load_settings(LocalDisk(), str(self.home / "broker.conf"))
        with MessageStore.open(settings.store) as store:
            yield store


class Pair:
    """A master and its slave."""

    def __init__(self, folder: Path, flush: str, seed: int, *of_master: str) -> None:
        flushing = f"flushDiskType={flush}"
        self._of_master = (flushing, *of_master)
        self.master = PairMember(folder / "master", *self._of_master)
        self.slave = PairMember(
            *(folder / "slave", flushing, "brokerRole=SLAVE", "brokerId=1"),
            f"haMasterAddress={HOST}:{self.master.port + 1}",
        )
        self.ledger = Ledger(seed)
        self._rng = random.Random(seed)

    async def start(self) -> None:
        await self.master.start()
        await self.slave.start()

    async def kill_one(self, steps: int) -> None:
        """Kill either or both while clients send, and start what was killed."""
        victims = self._rng.choice(([self.master], [self.slave], [self.master, self.slave]))

        async def kill() -> None:
            for victim in victims:
                await victim.end(signal.SIGKILL)

        await self._sent_until(steps, kill)
        for victim in victims:
            await victim.start()

    async def send(self, steps: int) -> None:
        """Let clients send."""

        async def nothing() -> None:
            pass

        await self._sent_until(steps, nothing)

    async def kill_and_promote(self, steps: int) -> None:
        """Lose the master and its disk while clients send; the slave takes its place."""
        await self._sent_until(steps, self._promote)

    async def _sent_until(self, steps: int, kill: Callable[[], Awaitable[None]]) -> None:
        """Let clients send, and after so many acknowledged steps do what ends that."""
        wanted = self.ledger.acknowledged + steps
        self.ledger.life += 1
        peer = Peer(*await asyncio.open_connection(*endpoint(self.master.address), limit=1 << 26))
        await peer.produces()
        tasks = [asyncio.create_task(self._work(peer)) for _ in range(WORKERS)]
        try:
            async with asyncio.timeout(PATIENCE):
                while self.ledger.acknowledged < wanted:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await kill()
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await peer.leave()
        assert all(isinstance(end, asyncio.CancelledError | ConnectionError) for end in ends), ends

    async def _promote(self) -> None:
        """Throw the master away and make the slave the master, by the steps of docs/replication.md."""
        await self.master.end(signal.SIGKILL)
        shutil.rmtree(self.master.home)
        await self.slave.end(signal.SIGTERM)
        self.slave.change(*self._of_master, "inSyncReplicas=1")
        self.master = self.slave
        await self.master.start()

    async def _work(self, peer: Peer) -> None:
        while True:
            await self._rng.choices(STEPS, WEIGHTS)[0](peer, self.ledger)
            self.ledger.acknowledged += 1

    async def settle_and_stop(self) -> None:
        """End both in an orderly way, with logs of the same length: the master delivered nothing meanwhile."""
        for _ in range(ATTEMPTS):
            await eventually(lambda: self.slave.log_end() == self.master.log_end())
            await self.master.end(signal.SIGTERM)
            await self.slave.end(signal.SIGTERM)
            with self.master.store() as master, self.slave.store() as slave:
                if master.log.end == slave.log.end:
                    return
            await self.start()
        raise AssertionError("the slave never has all of the log")

    def check(self) -> None:
        """Logs, queues and index are the same, and the slave has everything that was acknowledged."""
        with self.master.store() as master, self.slave.store() as slave:
            assert master.log.end == slave.log.end
            for base in master.log.files.bases:
                size = min(master.log.end - base, master.log.file_size)
                mine, theirs = (bytes(store.log.files.mapped(base).buffer[:size]) for store in (slave, master))
                assert mine == theirs, f"the log file at {base} differs"
            for topic in master.queues.names():
                for queue_id in master.queues.queue_ids(topic):
                    assert _units(slave, topic, queue_id) == _units(master, topic, queue_id), (topic, queue_id)
            entries = index_entries(master)
            assert entries, "nothing was indexed"
            assert index_entries(slave) == entries
            self._check_acknowledged(slave)

    def check_promoted(self) -> None:
        """The slave that took the place of its master has everything that was acknowledged."""
        with self.master.store() as store:
            self._check_acknowledged(store)

    def _check_acknowledged(self, store: MessageStore) -> None:
        assert self.ledger.placed
        for (topic, queue_id, offset), body in self.ledger.placed.items():
            found = store.get(topic, queue_id, offset, 1)
            assert body in b"".join(map(bytes, found.slices)), (topic, queue_id, offset)


def _units(store: MessageStore, topic: str, queue_id: int) -> tuple[int, int, bytes]:
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return low, high, b""
    units, at = bytearray(), low
    while at < high:
        part = bytes(queue.units(at, high - at))  # type: ignore[union-attr]
        units += part
        at += len(part) // 20
    return low, high, bytes(units)
