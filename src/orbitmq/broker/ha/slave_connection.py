"""SlaveConnection: the master's end of the HA connection of one slave. Pushes slices of the log's mapped files."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from orbitmq.remoting.addresses import address_of
from orbitmq.remoting.gather_write import parts_writer
from orbitmq.store.errors import StoreError
from orbitmq.store.replication.flow_limit import FlowLimit
from orbitmq.store.replication.frames import HEAD, FrameError, ReportStream

if TYPE_CHECKING:
    from orbitmq.broker.ha.master import ReplicationMaster

log = logging.getLogger("orbitmq.broker")

WRITE_BUFFER = 1 << 20
"""Bytes that wait for the network before no more are read from the log."""

TURN_BYTES = 1 << 20
"""Bytes sent to one slave before the event loop runs something else."""

UNKNOWN = -1
"""The next offset of a slave that has not reported yet."""


class SlaveConnection(asyncio.Protocol):
    """One connected slave."""

    def __init__(self, master: ReplicationMaster) -> None:
        self._master = master
        self._store = master.store
        self._config = master.store.config
        self._reports = ReportStream()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_fetching = False
        self._turn: asyncio.Handle | None = None
        self.address = ""
        self.next = UNKNOWN
        """Offset of the first byte that was not sent."""
        self.acked = UNKNOWN
        self.started_at = UNKNOWN
        """Offset of the first byte that was sent."""
        self.warm_until = 0
        """The log up to here was in the page cache a moment ago."""
        self.last_read = 0.0
        self._last_write = 0.0
        self._behind_since: tuple[float, int] | None = None
        """A time, and the end of the log then, which the slave has not reached."""

    # Connecting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.address = address_of(transport.get_extra_info("peername"))
        now = self._master.now()
        self.last_read = self._last_write = now
        self.flow = FlowLimit(self._config, now)
        refusal = self._master.refusal_of(self.address)
        if refusal is not None:
            self.close(refusal)
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._write = parts_writer(self._transport)
        self._master.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._turn is not None:
            self._turn.cancel()
        self._master.disconnected(self, exc)

    def close(self, reason: str) -> None:
        """Close the connection for a reason that the operator has to see."""
        self._master.report_refusal(self.address, reason)
        self.abort()

    def refusal_at(self, address: str) -> str | None:
        """Why a peer may not copy the log, before a handshake."""
        return self._master.refusal_of(address)

    def refuse(self, address: str, reason: str) -> None:
        """Report that a handshake with a peer failed."""
        self._master.report_refusal(address, reason)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    # Reports of the slave

    def data_received(self, data: bytes) -> None:
        self.last_read = self._master.now()
        try:
            end = self._read(data)
        except FrameError as error:
            self.close(str(error))
            return
        if end is not None and not self.is_closing:
            self._report(end)

    def _read(self, data: bytes) -> int | None:
        """The newest report in received bytes; None if they have none. Raises FrameError."""
        return self._reports.feed(data)

    def _report(self, end: int) -> None:
        """Handle a report: the end of the slave's log."""
        if self.next == UNKNOWN:
            self._begin(end)
        elif end > self.next:
            self.close(f"it acknowledges the log up to {end}, but was sent {self.next} only")
        elif end > self.acked:
            self.acked = end
            self._master.acknowledged(self)

    @property
    def _starts_at_last_file(self) -> bool:
        """True if a slave without a log gets the newest file only."""
        return self._config.sync_from_last_file

    def _begin(self, end: int) -> None:
        """Handle the first report: where the slave's log ends, 0 if it is empty."""
        files, log_end = self._store.log.files, self._store.log.committed
        if end > log_end:
            self.close(
                f"its log ends at {end}, this master's at {log_end}: the master lost what it had not flushed, or "
                "they never were of one group. Nothing is copied and nothing cut off: promote the slave, or remove "
                "its store"
            )
            return
        start = end
        if end == 0:
            start = files.bases[-1] if self._starts_at_last_file and len(files) else files.start
        elif end < files.start:
            self.close(
                f"its log ends at {end}, but this master's begins at {files.start} by now: remove the slave's "
                "store, it is then copied from the beginning"
            )
            return
        self.next = self.started_at = start
        self.acked = end
        self._master.begun(self)
        self.push()

    # Pushing the log

    def push(self) -> None:
        """Send what was appended since the last call, as far as the network takes it."""
        if (
            self.next == UNKNOWN
            or self._is_paused
            or self._is_fetching
            or self.is_closing
            or self._turn is not None
        ):
            return
        store_log, config = self._store.log, self._config
        end, batch, file_size = store_log.committed, config.ha_transfer_batch_size, store_log.file_size
        if self.next >= end or self.is_closing:
            return
        now = self._master.now()
        budget = min(TURN_BYTES, self.flow.room(now))
        if self._master.is_cold(self, end):
            self._fetch()
            return
        start = self.next
        # One gathering write for all frames: the slices are not copied.
        parts: list[bytes | memoryview] = []
        while self.next < end and budget > 0:
            size = min(batch, end - self.next, file_size - self.next % file_size, budget)
            head, size = self._head(size)
            data = store_log.slice(self.next, size)
            if data is None:
                self.close(f"the log file at {self.next} was removed before the slave had it")
                return
            parts += (head, data)
            self.next += size
            budget -= size
        if parts:
            self._write(parts)
            self.flow.sent(self.next - start, now)
            self._last_write = now
        if self.next < end and budget <= 0 and self.flow.room(now) > 0:
            self._turn = asyncio.get_running_loop().call_soon(self._go_on)

    def _head(self, size: int) -> tuple[bytes, int]:
        """The head of the next frame, and its size, which may be smaller than the given one."""
        return HEAD.pack(self.next, size), size

    def _go_on(self) -> None:
        self._turn = None
        self.push()

    def _fetch(self) -> None:
        self._is_fetching = True

        async def fetch() -> None:
            try:
                await self._master.fetch(self.next)
            except (OSError, StoreError) as error:
                log.warning("ha: reading the log at %d for slave %s failed: %s", self.next, self.address, error)
            finally:
                self._is_fetching = False
            self._go_on()

        self._master.run(fetch())

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.push()

    # Timers

    def tick(self, now: float) -> None:
        """Send a heartbeat if nothing was sent for long, close if nothing arrived for long."""
        if now - self.last_read > self._config.ha_housekeeping_interval / 1000:
            self.close(f"it sent nothing for haHousekeepingInterval={self._config.ha_housekeeping_interval} ms")
            return
        self.push()
        is_idle = now - self._last_write > self._config.ha_send_heartbeat_interval / 1000
        if is_idle and self.next != UNKNOWN and not self._is_paused:
            self._last_write = now
            self._write([self._head(0)[0]])

    def lag_seconds(self, now: float) -> float:
        """Age in seconds of the record at which the slave is; an estimate from the times of ``acknowledged``."""
        end = self._store.log.committed
        if self.acked >= end:
            self._behind_since = None
        elif self._behind_since is None or self.acked >= self._behind_since[1]:
            self._behind_since = now, end
        return 0.0 if self._behind_since is None else now - self._behind_since[0]
