"""Fair scheduling of connections: the time limit of a loop iteration, and the queue of connections with a backlog.

A connection that has sent many requests is served in slices. When the time of an iteration is used up, connections
with requests left are queued and continue in the next iteration, after the event loop has served its other sockets
and timers: first those that had no slice yet, so that a single request does not wait for all deep pipelines.
"""

from __future__ import annotations

import collections
import logging
import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from orbitmq.remoting.connection import Connection

log = logging.getLogger("orbitmq.remoting")

ITERATION_SECONDS = 0.008
"""Time for the requests of all connections in one loop iteration. With the request that crosses it, and the writing
of the responses, an iteration stays below 20 ms."""


class FairScheduler:
    """The time limit of the current iteration, and the connections with work left for the next ones."""

    __slots__ = ("_current", "_fresh", "_is_scheduled", "_loop", "_waiting", "clock", "until")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._fresh: collections.deque[Connection] = collections.deque()
        """Connections that have received something and were not served yet: they go first."""
        self._waiting: collections.deque[Connection] = collections.deque()
        """Connections that had a slice and have requests left."""
        self._current: Connection | None = None
        """The connection whose slice it is."""
        self._is_scheduled = False
        # Not the loop's clock: uvloop's does not advance during an iteration.
        self.clock = time.monotonic
        self.until = math.inf
        """End of the time of this iteration; infinite until its first request."""

    def begin(self) -> None:
        """Start the time of an iteration if ``until`` is infinite. The caller must ``end`` it."""
        self.until = self.clock() + ITERATION_SECONDS

    def end(self) -> None:
        self.until = math.inf

    def queue(self, connection: Connection) -> None:
        """Let a connection process its backlog in the next iteration."""
        (self._waiting if connection is self._current else self._fresh).append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._process_queued)

    def _process_queued(self) -> None:
        """Serve the queued connections, each once, until the time of the iteration is used up.

        A slice of those that had one before is served in any case, so that many new ones do not starve them.
        """
        self._is_scheduled = False
        fresh, waiting = self._fresh, self._waiting
        left = len(waiting)
        for _ in range(len(fresh)):
            self._serve(fresh.popleft())
            if self.clock() >= self.until:
                left = min(left, 1)
                break
        for _ in range(left):
            self._serve(waiting.popleft())
            if self.clock() >= self.until:
                break
        if fresh or waiting:
            self._schedule()

    def _serve(self, connection: Connection) -> None:
        self._current = connection
        try:
            connection.process_backlog()
        except Exception as error:
            log.exception("remoting: requests of %s failed", connection.remote_address)
            connection.abort(error)
        finally:
            self._current = None
