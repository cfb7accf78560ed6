"""Answers that wait until what they say is on the disk: those of one turn of the loop wait together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.protocol.command import with_code
from orbitmq.protocol.flags import ONEWAY

if TYPE_CHECKING:
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection
    from orbitmq.store.service import StoreService

    Waiting = tuple[Connection, int, bytes, int | None]
    """Connection, how many requests it is about, the answers once they are safe, the code they have if they do not
    become so; None: the same."""


class FlushedAnswers:
    """Sends answers after the flush that covers what was appended before."""

    def __init__(self, service: StoreService, timeout_ms: int) -> None:
        self._service = service
        self._timeout = timeout_ms / 1000
        self._turn: list[Waiting] = []

    def wait(self, connection: Connection, header: Header, answer: bytes, late_code: int | None = None) -> None:
        """Send ``answer`` to a request for which the handler returns None after the next flush.

        If that takes too long or fails it is sent then, with this code.
        """
        if header[2] & ONEWAY:
            self._add(connection, 0, b"", None)
        else:
            self._add(connection, 1, answer, late_code)

    def wait_together(self, connection: Connection, count: int, answers: bytes, late_code: int) -> None:
        """The same for the answers to so many requests that no handler has seen."""
        connection.owe(count)
        self._add(connection, count, answers, late_code)

    def _add(self, connection: Connection, count: int, answers: bytes, late_code: int | None) -> None:
        if not self._turn:
            asyncio.get_running_loop().call_soon(self._begin)
        self._turn.append((connection, count, answers, late_code))

    def _begin(self) -> None:
        waiting, self._turn = self._turn, []
        flushed = self._service.flushed(self._service.store.log.end)
        timer = asyncio.get_running_loop().call_later(self._timeout, self._give_up, waiting)

        def settle(flushed: asyncio.Future[None]) -> None:
            timer.cancel()
            if flushed.cancelled() or flushed.exception() is not None:
                self._give_up(waiting)
                return
            for connection, count, answers, _ in waiting:
                connection.pay(count, answers)
            waiting.clear()

        flushed.add_done_callback(settle)

    @staticmethod
    def _give_up(waiting: list[Waiting]) -> None:
        for connection, count, answers, late_code in waiting:
            connection.pay(count, answers if late_code is None else with_code(answers, late_code))
        waiting.clear()
