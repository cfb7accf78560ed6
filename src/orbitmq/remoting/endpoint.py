"""Shared state of the connections of one server or client: their table, one timer, one flush per loop iteration."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Protocol

from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.remoting.errors import one_sentence
from orbitmq.remoting.limits.address_share import AddressShare
from orbitmq.remoting.limits.descriptors import connections_allowed
from orbitmq.remoting.limits.fair_scheduling import FairScheduler
from orbitmq.remoting.limits.memory_guard import MemoryGuard
from orbitmq.remoting.pending_calls import OpaqueCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting.connection import Connection
    from orbitmq.remoting.interceptor import FrameInterceptor
    from orbitmq.remoting.limits.connection_limits import Limits

log = logging.getLogger("orbitmq.remoting")

SHARES = 10
"""Number of sweeps that review all connections once, a share in each: 65,000 at once would take 10 ms."""


class Pending(Protocol):
    """A connection whose first bytes (PROXY header, TLS handshake) are not complete."""

    def review(self, now: float) -> None:
        """Abort it if it takes too long."""

    @property
    def is_silent(self) -> bool:
        """It has not sent a byte."""

    def abort(self) -> None: ...


class RequestSigner(Protocol):
    """Adds the signature of a user to requests, before they are sent."""

    def sign(self, command: Command, /) -> None: ...

    def sign_frames(self, frames: bytes, /) -> bytes:
        """Whole encoded frames, signed."""
        ...


class Endpoint:
    """The connections of one server or client. Must be made inside its event loop."""

    def __init__(
        self,
        limits: Limits,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, Exception | None], None] | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.scheduler = FairScheduler(self.loop)
        self.guard = None if budget is None else MemoryGuard(self, budget)
        """None for a client, which chooses its peers itself."""
        self.limits = limits
        self.opaques = OpaqueCounter()
        self.connections: set[Connection] = set()
        self.pending: dict[Pending, None] = {}
        """In the order of their arrival."""
        self._allowed = limits.connections
        """Limit of the connections of all endpoints that share the budget: they also share file descriptors."""
        if budget is not None:
            self._allowed = connections_allowed(limits.connections, limits.reserved_descriptors)
        self._shares = AddressShare(limits.connections_per_address or max(self._allowed // 2, 1))
        self.calling: set[Connection] = set()
        """Connections with calls in flight."""
        self._on_open = on_open
        self._on_close = on_close
        self.observer: Callable[[Connection, bytes], None] | None = None
        """Sees deferred responses before they are sent, for metrics: the beginning of a frame, with its header."""
        self.signer: RequestSigner | None = None
        """Signs the requests of a client."""
        self._received: dict[FrameInterceptor, list[tuple[Connection, bytes]]] = {}
        self._unflushed: list[Connection] = []
        self._end_is_scheduled = False
        """``_end_iteration`` is scheduled."""
        self._to_review: list[Connection | Pending] = []
        self._share = 0
        self._full_was_logged = False
        self._emptied: asyncio.Event = asyncio.Event()
        self._timer = self.loop.call_later(limits.sweep_seconds, self._sweep)

    def is_full(self) -> bool:
        """The connection limit is reached, and no silent connection could be closed to make room.

        Logged once each time the limit is reached.
        """
        count = self._connection_count()
        full = count >= self._allowed and not self._close_oldest_silent()
        if full and not self._full_was_logged:
            log.warning(
                "remoting: connection limit reached, refusing new connections: there are %d; see "
                "remotingMaxConnections, and ulimit -n minus reservedFileDescriptors",
                count,
            )
        self._full_was_logged = full
        if full:
            count_refusal(Limit.CONNECTIONS)
        return full

    def _connection_count(self) -> int:
        members = (self,) if self.guard is None else self.guard.budget.members
        return sum(len(member.connections) + len(member.pending) for member in members)

    def _close_oldest_silent(self) -> bool:
        for pending in self.pending:
            if pending.is_silent:
                pending.abort()
                return True
        return False

    def add(self, connection: Connection) -> None:
        # A client chooses its peers itself.
        if self.guard is not None and not self._shares.take(connection.remote_address):
            connection.abort()
            return
        self.connections.add(connection)
        if self._on_open is not None:
            try:
                self._on_open(connection)
            except Exception as error:
                log.exception("remoting: on_open of %s failed", connection.remote_address)
                connection.close(error)

    def remove(self, connection: Connection, error: Exception | None) -> None:
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        if self.guard is not None:
            self._shares.give_back(connection.remote_address)
        self.calling.discard(connection)
        connection.release_charge()
        if self._on_close is not None:
            try:
                self._on_close(connection, error)
            except Exception:
                log.exception("remoting: on_close of %s failed", connection.remote_address)
        self.check_empty()

    def check_empty(self) -> None:
        """Must be called when something went out of ``connections`` or ``opening``."""
        if not self.connections and not self.pending:
            self._emptied.set()

    async def empty(self, seconds: float) -> bool:
        """Wait until no connection is left; False after a timeout of this many seconds."""
        self._emptied.clear()
        self.check_empty()
        if self._emptied.is_set():
            return True
        try:
            await asyncio.wait_for(self._emptied.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def flush_soon(self, connection: Connection) -> None:
        """Flush a connection at the end of this loop iteration, together with all others."""
        if not self._end_is_scheduled:
            self.schedule_iteration_end()
        self._unflushed.append(connection)

    def intercept_at_end(self, connection: Connection, interceptor: FrameInterceptor, data: bytes) -> None:
        """Pass these bytes to the interceptor at the end of this loop iteration, batched with other connections."""
        if not self._end_is_scheduled:
            self.schedule_iteration_end()
        waiting = self._received.get(interceptor)
        if waiting is None:
            waiting = self._received[interceptor] = []
        waiting.append((connection, data))

    def intercept_received(self) -> None:
        """Pass all batched bytes to their interceptors now."""
        if not self._received:
            return
        received, self._received = self._received, {}
        for interceptor, batch in received.items():
            for connection, _ in batch:
                connection.has_batched_input = False
            try:
                sizes = interceptor.take_together(batch)
            except Exception as error:
                log.exception("remoting: interceptor failed, closing %d connections", len(batch))
                for connection, _ in batch:
                    connection.abort(error)
                continue
            for (connection, data), size in zip(batch, sizes, strict=True):
                if size < len(data):
                    self._intercept_rest(connection, interceptor, data[size:])

    @staticmethod
    def _intercept_rest(connection: Connection, interceptor: FrameInterceptor, data: bytes) -> None:
        try:
            connection.intercept(data, interceptor)
        except Exception as error:
            log.exception("remoting: interceptor failed, closing %s", connection.remote_address)
            connection.abort(error)

    def begin_iteration(self) -> FairScheduler:
        """The scheduler, with the time of this loop iteration running."""
        scheduler = self.scheduler
        if scheduler.until == math.inf:
            scheduler.begin()
            if not self._end_is_scheduled:
                self.schedule_iteration_end()
        return scheduler

    def schedule_iteration_end(self) -> None:
        """Schedule ``_end_iteration`` for this loop iteration."""
        if not self._end_is_scheduled:
            self._end_is_scheduled = True
            self.loop.call_soon(self._end_iteration)

    def _end_iteration(self) -> None:
        """Intercept what was received in this iteration, and write its responses."""
        try:
            self.intercept_received()
        finally:
            # Also after an error: without the end of the iteration no connection would be served any more.
            self._end_is_scheduled = False
            self._flush_collected()
            self.scheduler.end()
        guard = self.guard
        if guard is not None and guard.budget.used > guard.budget.tight_from:
            guard.review(self.loop.time())

    def _flush_collected(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            try:
                connection.flush()
            except Exception as error:
                log.error("remoting: closing %s: write failed: %s", connection.remote_address, one_sentence(error))
                connection.abort(error)

    def _sweep(self) -> None:
        now = self.loop.time()
        self._timer = self.loop.call_later(self.limits.sweep_seconds, self._sweep)
        for connection in tuple(self.calling):
            if not connection.expire_calls(now):
                self.calling.discard(connection)
        if not self._to_review:
            self._to_review = [*self.connections, *self.pending]
            self._share = len(self._to_review) // SHARES + 1
        share = self._to_review[-self._share :]
        del self._to_review[-self._share :]
        for watched in share:
            try:
                watched.review(now)
            except Exception:
                # Otherwise no other connection would be closed when it is idle or stalled.
                log.exception("remoting: closing a connection: its review failed")
                watched.abort()
        if self.guard is not None:
            self.guard.sweep(now)

    def close(self) -> None:
        """Stop the timer. All connections must be closed before."""
        self._timer.cancel()
