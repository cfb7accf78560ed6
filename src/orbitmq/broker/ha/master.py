"""ReplicationMaster (RocketMQ: HAService, GroupTransferService): the HA listener, and answers that wait for slaves.

The log is pushed at the end of every loop iteration in which an answer waits for slaves, and every few milliseconds
otherwise: a timer costs less than a hook in every append.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from typing import TYPE_CHECKING, Any

from orbitmq.broker.ha.handshake import MasterGate, PendingSlave
from orbitmq.broker.ha.slave_connection import UNKNOWN, SlaveConnection
from orbitmq.platform.event_loop import close_servers
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.broker_events import EventKind
from orbitmq.remoting import ListenError
from orbitmq.remoting.processor import run_in_background
from orbitmq.store.commitlog.cold_data import NEAR, WINDOW
from orbitmq.store.replication.settings import BrokerRole
from orbitmq.store.replication.slave_acks import SlaveAcks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.store import MessageStore
    from orbitmq.store.background.service import StoreService

log = logging.getLogger("orbitmq.broker")

PUSH_SECONDS = 0.005
"""Interval at which appended bytes are pushed that no answer waits for."""

TICKS_PER_CHECK = 20
"""Heartbeats, housekeeping and lags are checked once in this many pushes."""

MAX_REPORTED = 256
"""Addresses of slaves whose refusal was logged and is not logged again."""


class ReplicationMaster:
    """Serves the slaves of one broker between ``start`` and ``stop``."""

    may_answer = True
    """False while answers to sends must not leave, in controller mode."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        service: StoreService,
        journal: EventJournal,
        admits: Callable[[str], str | None] | None = None,
        gate: MasterGate | None = None,
    ) -> None:
        """``admits`` gets the address of a peer and returns why it may not copy the log, None if it may.

        ``gate`` demands handshakes of those who are admitted.
        """
        self.gate = gate or MasterGate()
        self._config = config
        self.store = store
        self._service = service
        self._journal = journal
        self._admits = admits
        self.slaves: set[SlaveConnection] = set()
        self.acks: SlaveAcks[SlaveConnection] = SlaveAcks(store.config)
        self.on_change: Callable[[], None] | None = None
        """Called when the number of slaves in sync may have changed."""
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self._in_sync = 1
        self._is_stopped = False
        self._reported: dict[str, str] = {}

    # Starting and stopping

    async def start(self, host: str, port: int) -> None:
        """Listen for slaves. Raises ListenError."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._accepted, host, port)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{port} for slaves: {error.strerror or error}; set haListenPort"
            ) from error
        # As for the other ports, the commands print the addresses.
        log.debug("ha: listening for slaves on %s:%d", host, self.port)

    def _accepted(self) -> asyncio.Protocol:
        slave = self._connection()
        return slave if self.gate.is_open else PendingSlave(self.gate, slave)

    async def stop(self) -> None:
        # A connection that was accepted already may be set up later.
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            await close_servers(self._server)
        self.gate.close()
        # The rest of the log that is written already, for a short time.
        for _ in range(100):
            if all(slave.acked >= self.store.log.committed or slave.next == UNKNOWN for slave in self.slaves):
                break
            for slave in list(self.slaves):
                slave.push()
            await asyncio.sleep(0.01)
        for slave in list(self.slaves):
            slave.abort()
        self._complete(1 << 62)

    def _connection(self) -> SlaveConnection:
        return SlaveConnection(self)

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1]) if self._server and self._server.sockets else 0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        run_in_background(work)

    # Waiting for slaves

    @property
    def _may_act(self) -> bool:
        return self._config.enable_slave_acting_master

    @property
    def is_short(self) -> bool:
        """True if a message would not get enough copies, so that it is not stored in the first place."""
        store = self.store
        return store.config.broker_role is BrokerRole.SYNC_MASTER and self.acks.is_short(
            store.log.committed, may_act=self._may_act
        )

    def replicated(self, end: int) -> asyncio.Future[None] | None:
        """A future that completes when enough slaves have the log up to ``end``; None if they have it already."""
        self.store.log.commit()  # the transient pool; its periodic commit would come late
        if end <= self._acked_end(end):
            return None
        while self._waiting and self._waiting[0][1].done():
            self._waiting.popleft()  # too late, and no slave is there whose report would remove it
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((end, future))
        for slave in list(self.slaves):
            self._serve(slave, slave.push)
        return future

    @property
    def may_lose_end(self) -> bool:
        """True while the end of the log may be cut off, because another master is elected that does not have it."""
        return False

    def acknowledged(self, slave: SlaveConnection) -> None:
        self.acks.update(slave, slave.acked)
        self._check_waiting()

    def _check_waiting(self) -> None:
        if self._waiting:
            self._complete(self._acked_end(self.store.log.committed))

    def _acked_end(self, log_end: int) -> int:
        """The end of the log that enough replicas have for an answer to leave."""
        return self.acks.acked_end(log_end, may_act=self._may_act)

    def _complete(self, end: int) -> None:
        waiting = self._waiting
        while waiting and (waiting[0][0] <= end or waiting[0][1].done()):
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    # Slaves

    def refusal_of(self, address: str) -> str | None:
        if self._is_stopped:
            return "this broker stops, or changes its role"
        limit = self.store.config.max_ha_connections
        if len(self.slaves) >= limit:
            count_refusal(Limit.SLAVES)
            return f"there are {limit} slaves already (maxHaConnections)"
        return None if self._admits is None else self._admits(address)

    def connected(self, slave: SlaveConnection) -> None:
        self.slaves.add(slave)
        self._schedule()

    def begun(self, slave: SlaveConnection) -> None:
        self._reported.pop(_host(slave.address), None)
        behind = self.store.log.committed - slave.next
        log.info(
            "ha: slave %s connected, copies the log from %d, %d bytes behind", slave.address, slave.next, behind
        )
        self._journal.record(EventKind.SLAVE_CONNECTED, slave.address, f"from {slave.next}, {behind} bytes behind")
        self.acknowledged(slave)
        self._count_in_sync()

    def disconnected(self, slave: SlaveConnection, error: Exception | None) -> None:
        if slave not in self.slaves:
            return
        self.slaves.discard(slave)
        self.acks.remove(slave)
        if slave.next != UNKNOWN:
            behind = self.store.log.committed - slave.acked
            why = str(error) if error is not None else "closed"
            log.warning("ha: slave %s disconnected, %d bytes behind: %s", slave.address, behind, why)
            self._journal.record(EventKind.SLAVE_LOST, slave.address, f"{behind} bytes behind: {why}")
        self._count_in_sync()

    def report_refusal(self, address: str, reason: str) -> None:
        """Log why a slave was disconnected, once per host and reason: slaves try again every few seconds."""
        host = _host(address)
        if self._reported.get(host) == reason:
            return
        if len(self._reported) >= MAX_REPORTED:
            self._reported.clear()
        self._reported[host] = reason
        log.error("ha: refused slave %s: %s", address, reason)
        self._journal.record(EventKind.SLAVE_REFUSED, address, reason)

    def _count_in_sync(self) -> None:
        count = self.acks.in_sync(self.store.log.committed)
        if count != self._in_sync:
            log.info("ha: %d of %d slaves in sync", count - 1, len(self.acks))
            self._in_sync = count
        # Fewer may be needed now (enableAutoInSyncReplicas).
        self._check_waiting()
        if self.on_change is not None:
            self.on_change()

    @property
    def oldest_needed(self) -> int:
        """Start of the part of the log that a connected slave has not acknowledged yet."""
        return min((slave.acked for slave in self.slaves if slave.next != UNKNOWN), default=1 << 62)

    def lags(self) -> dict[str, tuple[int, float]]:
        """Lag of each slave in bytes and seconds, by its address."""
        now, end = self.now(), self.store.log.committed
        return {
            slave.address: (end - slave.acked, slave.lag_seconds(now))
            for slave in sorted(self.slaves, key=lambda slave: slave.address)
            if slave.next != UNKNOWN
        }

    # Timer

    def _schedule(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PUSH_SECONDS, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.slaves:
            return
        self._schedule()
        self._ticks += 1
        if self._ticks % TICKS_PER_CHECK:
            for slave in list(self.slaves):
                self._serve(slave, slave.push)
            return
        now = self.now()
        for slave in list(self.slaves):
            self._serve(slave, slave.tick, now)
            slave.lag_seconds(now)
        self._count_in_sync()

    def _serve(self, slave: SlaveConnection, work: Callable[..., None], *args: float) -> None:
        """Do the work of one slave. An error closes its connection, and the others are served."""
        try:
            work(*args)
        except Exception as error:
            log.exception("ha: serving slave %s failed", slave.address)
            slave.close(f"serving it failed: {error}")

    # Parts of the log that are not in the page cache

    def is_cold(self, slave: SlaveConnection, end: int) -> bool:
        """True if the next part of the log must be read by a worker thread first: the slave is far behind."""
        offset = slave.next
        if end - offset <= NEAR or offset < slave.warm_until:
            return False
        files = self.store.log.files
        base = offset - offset % files.file_size
        if base not in files:
            return False
        start = offset - base
        stop = min(start + WINDOW, files.file_size)
        if files.mapped(base).is_in_memory(start, stop):
            slave.warm_until = base + stop
            return False
        return True

    async def fetch(self, offset: int) -> None:
        """Read the log at ``offset`` into memory."""
        files = self.store.log.files
        base = offset - offset % files.file_size
        mapped, start = files.mapped(base), offset - base
        await self._service.run_blocking(lambda: mapped.fetch([(start, min(start + WINDOW, files.file_size))]))


def _host(address: str) -> str:
    return address.rpartition(":")[0]
