"""ReplicationSlave (RocketMQ: HAClient): copies the master's log, and reports how far.

Bytes are appended as they come, then dispatched by the code that recovery uses. A report follows each batch of
bytes; under SYNC_FLUSH it covers what is on the disk of the slave, else what is in its page cache, as in RocketMQ.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, cast

from orbitmq.broker.ha.handshake import connect_to_master
from orbitmq.protocol.broker_events import EventKind
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.addresses import host_and_port
from orbitmq.store.config import FlushDiskType
from orbitmq.store.errors import StoreError
from orbitmq.store.replication.flow_limit import FlowLimit
from orbitmq.store.replication.frames import REPORT, LogStream
from orbitmq.store.replication.slave_log import SlaveLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.auth.credentials import Credentials
    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.broker.ha.master_check import MasterCheck
    from orbitmq.broker.ha.role import ReplicaRole
    from orbitmq.remoting import ClientTls
    from orbitmq.store.background.service import StoreService

log = logging.getLogger("orbitmq.broker")

FIRST_PAUSE = 0.2
MAX_PAUSE = 5.0
"""Backoff in seconds between attempts to connect. RocketMQ always waits 5 s."""

DISPATCH_SECONDS = 0.002
"""Delay between the arrival of records and their dispatch to queues."""

DISPATCH_SLICE = 1000
"""Records dispatched before the event loop runs something else."""

MAX_UNDISPATCHED = 64 << 20
"""Bytes of one record, or of a file's end, that may have come without being a whole record yet."""

SEARCH_SECONDS = 3.0
"""Interval at which name servers are asked for a master that is not known."""


class ReplicationSlave:
    """Keeps the HA connection to the master between ``start`` and ``stop``."""

    search_seconds = SEARCH_SECONDS

    def __init__(
        self,
        role: ReplicaRole,
        service: StoreService,
        journal: EventJournal,
        search: Callable[[], None],
        check: MasterCheck | None = None,
    ) -> None:
        """``search`` makes name servers answer with the address of the master. ``check`` compares the logs."""
        self.tls: ClientTls | None = None
        self.credentials: Credentials | None = None
        """For the handshakes of the HA connection; None for RocketMQ's, which has none."""
        self._role = role
        self.service = service
        self.store = service.store
        self.log = SlaveLog(service.store)
        self._journal = journal
        self._search = search
        self._check = check
        self.connection: MasterConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._trouble = ""
        self._dispatching: asyncio.Handle | None = None

    def start(self) -> None:
        self._role.on_master_change.append(self._master_changed)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._dispatching is not None:
            self._dispatching.cancel()
        if self._check is not None:
            await self._check.close()

    def _master_changed(self) -> None:
        self._wake.set()
        connection = self.connection
        if connection is not None and connection.address != self._role.master_ha_address:
            connection.close(f"the master is at {self._role.master_ha_address} now")

    # Connecting

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            address = self._role.master_ha_address
            if not address:
                self._report("the address of the master is unknown: no name server has it, set haMasterAddress")
                self._search()
                await self._pause(self.search_seconds)
                continue
            try:
                did_copy = await self._copy_from(address)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                # Any error: a slave that ceases to copy without a word would be found out too late.
                if not isinstance(error, (OSError, TimeoutError, StoreError, ProtocolError)):
                    log.exception("ha: copying from master %s failed", address)
                self._report(f"copying from master {address} failed: {str(error) or type(error).__name__}")
                did_copy = False
            pause = FIRST_PAUSE if did_copy else min(pause * 2, MAX_PAUSE)
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def _copy_from(self, address: str) -> bool:
        """Copy until the connection ends. True if something came from the master."""
        if self._check is not None and self._role.master_address:
            await self._check.compare(self._role.master_address)
        if self.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            # The first report must be the end of the log, and counts as acknowledgement.
            await self.service.flushed(self.store.log.end)
        host, port = host_and_port(address)
        connection = cast(
            "MasterConnection",
            await connect_to_master(
                lambda: self._connect(address), host, port, tls=self.tls, credentials=self.credentials
            ),
        )
        self.connection = connection
        try:
            reason = await connection.closed
        finally:
            self.connection = None
            connection.abort()
        if connection.frames:
            self._trouble = ""
            log.warning("ha: disconnected from master %s at %d: %s", address, self.log.end, reason)
            self._journal.record(EventKind.MASTER_LOST, address, reason)
            return True
        self._report(
            f"master {address} closed the connection when this slave reported the end of its log, {self.log.end}, "
            f"see the master's log: {reason}"
        )
        return False

    def _connect(self, address: str) -> MasterConnection:
        return MasterConnection(self, address)

    def begun(self, connection: MasterConnection) -> None:
        """Handle the first frame of a master."""
        self._trouble = ""
        log.info("ha: copying from master %s, from %d", connection.address, self.log.end)
        self._journal.record(EventKind.MASTER_CONNECTED, connection.address, f"from {self.log.end}")

    def _report(self, trouble: str) -> None:
        """Log a failure once, not at every attempt."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.error("ha: %s; will retry", trouble)
            self._journal.record(EventKind.REPLICATION_STOPPED, self._role.master_ha_address, trouble)

    # Dispatch

    def dispatch_soon(self) -> None:
        """Dispatch after the report, which the master's answers wait for, and some batches together."""
        if self._dispatching is None:
            self._dispatching = asyncio.get_running_loop().call_later(DISPATCH_SECONDS, self._dispatch)

    def _dispatch(self) -> None:
        self._dispatching = None
        store = self.store
        if store.catch_up(DISPATCH_SLICE) >= DISPATCH_SLICE:
            self._dispatching = asyncio.get_running_loop().call_soon(self._dispatch)
            return
        most = max(MAX_UNDISPATCHED, 2 * store.config.max_message_size)
        if store.visible_end - store.dispatcher.position > most and store.dispatcher.fault is None:
            self._report(
                f"what was copied is not a log from {store.dispatcher.position} on: messages behind that are not "
                "readable here. This log and the master's had differed: remove this slave's store to copy it again"
            )


class MasterConnection(asyncio.Protocol):
    """The slave's end of an HA connection."""

    def __init__(self, slave: ReplicationSlave, address: str) -> None:
        self._slave = slave
        self._config = slave.store.config
        self._stream = LogStream()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_sync_flush = self._config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._reason = "closed by the master"
        self.address = address
        self.closed: asyncio.Future[str] = self._loop.create_future()
        """Completes with the reason when the connection has ended."""
        self.frames = 0
        """Parts of frames that came, heartbeats included."""
        self.flow = FlowLimit(self._config, self._loop.time())
        self.last_read = self.last_write = 0.0
        self.reported = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.last_read = self._loop.time()
        self._open()
        self._tick()

    def _open(self) -> None:
        self._send(self._slave.log.end)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(self._reason if exc is None else str(exc))

    def close(self, reason: str) -> None:
        self._reason = reason
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closed.done() or self._transport is None or self._transport.is_closing():
            return
        self.last_read = self._loop.time()
        try:
            self._receive(data)
        except (OSError, StoreError) as error:
            self._fail(error)
        self._report()
        self._slave.dispatch_soon()

    def _receive(self, data: bytes) -> None:
        if not self.frames:
            self._slave.begun(self)
        for offset, part in self._stream.feed(data):
            self.frames += 1
            self.flow.sent(len(part), self.last_read)
            self._slave.log.accept(offset, part)

    def _fail(self, error: Exception) -> None:
        if not self.closed.done():
            self.closed.set_exception(error)
        self.abort()

    def _report(self) -> None:
        end = self._slave.log.end
        if end <= self.reported or self.closed.done():
            return
        if not self._is_sync_flush:
            self._send(end)
            return
        flushed = self._slave.service.flushed(end)
        flushed.add_done_callback(self._flushed)

    def _flushed(self, flushed: asyncio.Future[None]) -> None:
        if flushed.cancelled():
            return
        error = flushed.exception()
        if error is not None:
            self._fail(StoreError(str(error)))
        elif self._slave.store.log.flushed > self.reported:
            self._send(self._slave.store.log.flushed)
            self._slave.dispatch_soon()

    def _send(self, end: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self.reported = end
        self.last_write = self._loop.time()
        self._transport.write(self._encode(end))

    def _encode(self, end: int) -> bytes:
        return REPORT.pack(end)

    def _heartbeat(self) -> None:
        interval = self._config.ha_send_heartbeat_interval / 1000
        if self._loop.time() - self.last_write >= interval:
            self._send(self.reported)

    def _tick(self) -> None:
        now = self._loop.time()
        interval = self._config.ha_send_heartbeat_interval / 1000
        if now - self.last_read > self._config.ha_housekeeping_interval / 1000:
            self.close(
                f"the master sent nothing for haHousekeepingInterval={self._config.ha_housekeeping_interval} ms"
            )
            return
        self._heartbeat()
        self._timer = self._loop.call_later(min(max(interval / 4, 0.01), 1.0), self._tick)
