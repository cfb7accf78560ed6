"""What the connections of one server or one client share: their table, one timer, one flush a turn of the loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from orbitmq.remoting.calls import OpaqueCounter
from orbitmq.remoting.errors import one_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.remoting.connection import Connection
    from orbitmq.remoting.limits import Limits
    from orbitmq.remoting.taking import Taker

log = logging.getLogger("orbitmq.remoting")

SHARES = 10
"""All connections are looked at once in so many sweeps, a share in each: 65,000 at once would take 10 ms."""


class Opening(Protocol):
    """A connection whose first bytes are still being looked at."""

    def review(self, now: float) -> None:
        """Give up if it takes too long."""

    def abort(self) -> None: ...


class Endpoint:
    """The side of all connections of one server or client. To be made inside the loop that it belongs to."""

    def __init__(
        self,
        limits: Limits,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection, Exception | None], None] | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.opaques = OpaqueCounter()
        self.connections: set[Connection] = set()
        self.opening: set[Opening] = set()
        self.calling: set[Connection] = set()
        """Those that have made calls lately."""
        self._on_open = on_open
        self._on_close = on_close
        self._received: dict[Taker, list[tuple[Connection, bytes]]] = {}
        self._unflushed: list[Connection] = []
        self._turn_ends = False
        """Whether the end of this turn of the loop is asked for already."""
        self._to_review: list[Connection | Opening] = []
        self._share = 0
        self._said_full = False
        self._emptied: asyncio.Event = asyncio.Event()
        self._timer = self.loop.call_later(limits.sweep_seconds, self._sweep)

    def is_full(self) -> bool:
        """Whether no further connection may come in. Said in the log once each time that it comes to this."""
        full = len(self.connections) + len(self.opening) >= self.limits.connections
        if full and not self._said_full:
            log.warning("no more connections are accepted: there are %d already", self.limits.connections)
        self._said_full = full
        return full

    def add(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._on_open is not None:
            try:
                self._on_open(connection)
            except Exception as error:
                log.exception("opening of %s failed", connection.remote_address)
                connection.close(error)

    def remove(self, connection: Connection, error: Exception | None) -> None:
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        self.calling.discard(connection)
        if self._on_close is not None:
            try:
                self._on_close(connection, error)
            except Exception:
                log.exception("cleaning up after %s failed", connection.remote_address)
        self.check_empty()

    def check_empty(self) -> None:
        """To be called when something went out of ``connections`` or ``opening``."""
        if not self.connections and not self.opening:
            self._emptied.set()

    async def empty(self, seconds: float) -> bool:
        """Wait until there is no connection left, but not longer than this; say whether it came to that."""
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
        """Write out at the end of this turn of the loop what a connection has collected, with all others."""
        if not self._turn_ends:
            self._ask_for_end()
        self._unflushed.append(connection)

    def take_soon(self, connection: Connection, taker: Taker, data: bytes) -> None:
        """Have taken at the end of this turn of the loop what a connection received, with that of all others."""
        if not self._turn_ends:
            self._ask_for_end()
        waiting = self._received.get(taker)
        if waiting is None:
            waiting = self._received[taker] = []
        waiting.append((connection, data))

    def take_received(self) -> None:
        """The same now."""
        received, self._received = self._received, {}
        for taker, together in received.items():
            for connection, _ in together:
                connection.waits = False
            try:
                sizes = taker.take_together(together)
            except Exception as error:
                log.exception("what %d connections sent could not be taken", len(together))
                for connection, _ in together:
                    connection.abort(error)
                continue
            for (connection, data), size in zip(together, sizes, strict=True):
                if size < len(data):
                    self._offer_rest(connection, taker, data[size:])

    @staticmethod
    def _offer_rest(connection: Connection, taker: Taker, data: bytes) -> None:
        try:
            connection.offer(data, taker)
        except Exception as error:
            log.exception("what %s sent could not be taken", connection.remote_address)
            connection.abort(error)

    def _ask_for_end(self) -> None:
        self._turn_ends = True
        self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Everything that came in this turn is taken, and everything that was answered leaves."""
        self.take_received()
        self._turn_ends = False
        unflushed, self._unflushed = self._unflushed, []
        for connection in unflushed:
            try:
                connection.flush()
            except Exception as error:
                log.error("writing to %s failed: %s", connection.remote_address, one_sentence(error))
                connection.abort(error)

    def _sweep(self) -> None:
        now = self.loop.time()
        self._timer = self.loop.call_later(self.limits.sweep_seconds, self._sweep)
        for connection in tuple(self.calling):
            if not connection.expire_calls(now):
                self.calling.discard(connection)
        if not self._to_review:
            self._to_review = [*self.connections, *self.opening]
            self._share = len(self._to_review) // SHARES + 1
        for watched in self._to_review[-self._share :]:
            watched.review(now)
        del self._to_review[-self._share :]

    def close(self) -> None:
        """Stop the timer. Connections have to be gone by now."""
        self._timer.cancel()
