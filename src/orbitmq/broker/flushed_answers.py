"""Answers that wait until what they say is on the disk: those of one turn of the loop wait together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection
    from orbitmq.store.service import StoreService

    Waiting = tuple[Connection, Header, bytes, bytes]
    """Connection and header of the request, the answer once it is safe, the answer if it does not become so."""


class FlushedAnswers:
    """Sends answers after the flush that covers what was appended before."""

    def __init__(self, service: StoreService, timeout_ms: int) -> None:
        self._service = service
        self._timeout = timeout_ms / 1000
        self._turn: list[Waiting] = []

    def wait(self, connection: Connection, header: Header, answer: bytes, late: bytes) -> None:
        """Send ``answer`` after the next flush, or ``late`` if it takes too long or fails."""
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._begin)
        self._turn.append((connection, header, answer, late))

    def _begin(self) -> None:
        waiting, self._turn = self._turn, []
        flushed = self._service.flushed(self._service.store.log.end)
        timer = asyncio.get_running_loop().call_later(self._timeout, self._give_up, waiting)

        def settle(flushed: asyncio.Future[None]) -> None:
            timer.cancel()
            if flushed.cancelled() or flushed.exception() is not None:
                self._give_up(waiting)
                return
            for connection, header, answer, _ in waiting:
                connection.answer(header, answer)
            waiting.clear()

        flushed.add_done_callback(settle)

    @staticmethod
    def _give_up(waiting: list[Waiting]) -> None:
        for connection, header, _, late in waiting:
            connection.answer(header, late)
        waiting.clear()
