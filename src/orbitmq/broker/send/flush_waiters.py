"""Flush waiters (RocketMQ: GroupCommitRequest): responses that wait for a flush of the log under SYNC_FLUSH.

The responses of one iteration of the event loop share one flush.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.protocol.command.command import with_code
from orbitmq.protocol.command.header import FLAG
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.protocol.message.properties import find
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from orbitmq.metrics.instrument import Histogram
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection
    from orbitmq.store.background.service import StoreService

    Waiting = tuple[Connection, int, bytes, int | None]
    """Connection, number of requests, the responses, and the code that replaces theirs if the flush fails or is
    late; None: the same code."""


_WAIT = names.WAIT_STORE_OK.encode()


class FlushWaiters:
    """Sends responses after the flush that covers what was appended before."""

    def __init__(self, service: StoreService, timeout_ms: int, waits: Histogram | None = None) -> None:
        """``waits`` gets the seconds that each group of responses waited for its flush."""
        self._waits = waits
        self._service = service
        self._timeout = timeout_ms / 1000
        self._is_sync_flush = service.store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._waiting: list[Waiting] = []

    def respond(
        self,
        connection: Connection,
        header: Header,
        response: bytes,
        *,
        properties: bytes = b"",
        late_code: int | None = None,
    ) -> bytes | None:
        """The result of a handler that has appended something: the response, or None if it follows after the flush.

        It waits for the flush under SYNC_FLUSH, unless ``properties`` have WAIT=false or the request is oneway.
        ``late_code`` replaces its code if the flush fails or takes too long.
        """
        if not self._is_sync_flush or header[FLAG] & ONEWAY or find(properties, _WAIT) == b"false":
            return response
        self.wait(connection, header, response, late_code)
        return None

    def wait(self, connection: Connection, header: Header, answer: bytes, late_code: int | None = None) -> None:
        """Send ``answer`` after the next flush; the handler returns None.

        If the flush fails or takes too long it is sent then, with ``late_code``.
        """
        if header[FLAG] & ONEWAY:
            self._add(connection, 0, b"", None)
        else:
            self._add(connection, 1, answer, late_code)

    def wait_batch(self, connection: Connection, count: int, answers: bytes, late_code: int) -> None:
        """The same for the responses to ``count`` requests of the fast path."""
        connection.defer_responses(count)
        self._add(connection, count, answers, late_code)

    def _add(self, connection: Connection, count: int, answers: bytes, late_code: int | None) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._begin)
        self._waiting.append((connection, count, answers, late_code))

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        flushed = self._service.flushed(self._service.store.log.end)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        timer = loop.call_later(self._timeout, self._give_up, waiting)

        def complete(flushed: asyncio.Future[None]) -> None:
            timer.cancel()
            if self._waits is not None:
                self._waits.observe(loop.time() - begun)
            if flushed.cancelled() or flushed.exception() is not None:
                self._give_up(waiting)
                return
            for connection, count, answers, _ in waiting:
                connection.complete_responses(count, answers)
            waiting.clear()

        flushed.add_done_callback(complete)

    @staticmethod
    def _give_up(waiting: list[Waiting]) -> None:
        for connection, count, answers, late_code in waiting:
            connection.complete_responses(count, answers if late_code is None else with_code(answers, late_code))
        waiting.clear()
