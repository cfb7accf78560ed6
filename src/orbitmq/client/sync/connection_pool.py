"""ConnectionPool: the blocking connections over which threads send, next to the loop's connection to a broker.

They follow the loop's connection, which carries the heartbeats and notices that a broker is gone: they are opened
only while it is open, and end with it, which wakes the threads that wait for a response over them.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import threading
from typing import TYPE_CHECKING

from orbitmq.remoting import ConnectError, Limits
from orbitmq.remoting.connect.blocking import BlockingConnection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

SWEEP_SECONDS = 0.1
"""Between two looks for overdue requests, as on the connections of the loop."""

CHECK_AFTER = 0.1
"""Seconds without use after which the peer may have closed a connection."""

IDLE_SECONDS = 60.0
"""Unused connections are closed after this; brokers close them after two minutes."""

CONNECT_SECONDS = 0.5
"""The loop is connected to the same address, so that connecting takes a moment, or does not work."""

PAUSE_SECONDS = 10.0
"""After a connection that could not be opened or was lost, sends take the loop for so long."""


class _BrokerConnections:
    """The connections next to one connection of the loop."""

    __slots__ = ("idle", "is_ended", "members", "paused_until")

    def __init__(self) -> None:
        self.idle: collections.deque[tuple[BlockingConnection, float]] = collections.deque()
        """With the time of their last use; the last one was used last."""
        self.members: set[BlockingConnection] = set()
        self.paused_until = -math.inf
        self.is_ended = False

    def end(self) -> set[BlockingConnection]:
        """Close the idle connections, and return the others, which their threads close."""
        self.is_ended = True
        in_use = set(self.members)
        while self.idle:
            with contextlib.suppress(IndexError):
                connection, _ = self.idle.pop()
                in_use.discard(connection)
                connection.close()
        return in_use


class ConnectionPool:
    """Blocking connections of one client. Any thread may borrow one; the loop ends what is overdue.

    Borrowing and giving back take no lock: threads that wait for one while they wait for the interpreter as well
    halve each other's rate.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int, monotonic: Callable[[], float]) -> None:
        """``most`` connections are opened to a broker. Made on the loop."""
        self._loop = loop
        self._monotonic = monotonic
        self._most = most
        self._guard = threading.RLock()
        """For the tables of brokers and members. A signal handler may send while its thread does."""
        self._brokers: dict[Connection, _BrokerConnections] = {}
        self._limits = Limits()
        self._is_swept = False
        self._is_closed = False

    def borrow(self, shared: Connection) -> BlockingConnection | None:
        """A connection to the peer of a connection of the loop. None if there is none to have now."""
        broker = self._brokers.get(shared)
        if broker is None:
            broker = self._add(shared)
            if broker is None:
                return None
        while True:
            try:
                connection, used_at = broker.idle.pop()
            except IndexError:
                return self._open(shared, broker)
            if self._monotonic() - used_at < CHECK_AFTER or not connection.is_stale():
                return connection
            self._discard(shared, connection)

    def _add(self, shared: Connection) -> _BrokerConnections | None:
        with self._guard:
            if self._is_closed or shared.is_closing:
                return None
            return self._brokers.setdefault(shared, _BrokerConnections())

    def _open(self, shared: Connection, broker: _BrokerConnections) -> BlockingConnection | None:
        if len(broker.members) >= self._most or self._monotonic() < broker.paused_until:
            return None
        try:
            connection = BlockingConnection.open(shared.remote_address, self._limits, CONNECT_SECONDS)
        except ConnectError as error:
            log.info("connection: none but the shared one to %s for now: %s", shared.remote_address, error)
            self._pause(shared)
            return None
        with self._guard:
            if not broker.is_ended and len(broker.members) < self._most:
                broker.members.add(connection)
                if not self._is_swept:
                    self._is_swept = True
                    self._loop.call_soon_threadsafe(self._sweep)
                return connection
        # The shared one was lost meanwhile, or other threads have opened the last ones.
        connection.close()
        return None

    def give_back(self, shared: Connection, connection: BlockingConnection) -> None:
        """Return a connection after a response."""
        broker = self._brokers.get(shared)
        if broker is None or not connection.rest():
            self._discard(shared, connection)
            return
        broker.idle.append((connection, self._monotonic()))
        if broker.is_ended:
            broker.end()

    def give_up(self, shared: Connection, connection: BlockingConnection, *, is_lost: bool) -> None:
        """Close a connection after an error. If it was lost alone, the peer may limit their number."""
        if is_lost and not connection.is_interrupted:
            self._pause(shared)
        self._discard(shared, connection)

    def _pause(self, shared: Connection) -> None:
        """Open no connection for a while."""
        broker = self._brokers.get(shared)
        if broker is not None:
            broker.paused_until = self._monotonic() + PAUSE_SECONDS

    def _discard(self, shared: Connection, connection: BlockingConnection) -> None:
        with self._guard:
            broker = self._brokers.get(shared)
            if broker is not None:
                broker.members.discard(connection)
        connection.close()

    # On the loop

    def _sweep(self) -> None:
        """Interrupt overdue requests, and close what is not used any more."""
        now = self._monotonic()
        with self._guard:
            for broker in self._brokers.values():
                for connection in broker.members:
                    connection.interrupt_overdue(now)
                self._trim(broker, now - IDLE_SECONDS)
            self._is_swept = any(broker.members for broker in self._brokers.values())
            if self._is_swept:
                self._loop.call_later(SWEEP_SECONDS, self._sweep)

    @staticmethod
    def _trim(broker: _BrokerConnections, used_before: float) -> None:
        with contextlib.suppress(IndexError):
            while broker.idle[0][1] < used_before:
                connection, used_at = broker.idle.popleft()
                if used_at >= used_before:
                    broker.idle.append((connection, used_at))
                else:
                    broker.members.discard(connection)
                    connection.close()

    def shared_was_lost(self, shared: Connection) -> None:
        """End the connections next to one of the loop."""
        with self._guard:
            broker = self._brokers.pop(shared, None)
            if broker is not None:
                for connection in broker.end():
                    connection.interrupt()

    def close(self) -> None:
        """Close all connections, and open no others.

        A thread that closes its producer in a signal handler in the middle of a send gets the response afterwards.
        """
        now = self._monotonic()
        with self._guard:
            self._is_closed = True
            brokers, self._brokers = self._brokers, {}
            for broker in brokers.values():
                for connection in broker.end():
                    connection.limit(connection.deadline - now)
