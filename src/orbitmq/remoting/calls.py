"""Own requests that wait for their answers: matched by opaque, ended by time or with their connection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from orbitmq.protocol.command import Command
from orbitmq.remoting.errors import CallTimeoutError, ConnectionLostError

if TYPE_CHECKING:
    import asyncio

    from orbitmq.protocol.frame import Frame
    from orbitmq.protocol.header import Header

INT32_MAX = 2**31 - 1


class OpaqueCounter:
    """Numbers for own requests, unique over all connections of one side.

    They start at 1, because the Node client takes 0 for no number at all, and after the largest int32 again.
    """

    __slots__ = ("_last",)

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def next(self) -> int:
        self._last = number = self._last + 1 if self._last < INT32_MAX else 1
        return number


class CallTable:
    """The calls of one connection."""

    __slots__ = ("_earliest", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[Command], float]] = {}
        self._earliest = math.inf
        """No call ends before this: until then there is nothing to look for among thousands."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def add(self, opaque: int, answer: asyncio.Future[Command], deadline: float) -> None:
        assert opaque not in self._waiting
        self._waiting[opaque] = answer, deadline
        self._earliest = min(self._earliest, deadline)

    def settle(self, frame: Frame, header: Header) -> None:
        """Hand an answer to whoever waits for it. One that nobody waits for (any more) is dropped."""
        entry = self._waiting.pop(header[1], None)
        if entry is not None and not entry[0].done():
            entry[0].set_result(Command.of(frame, header))

    def expire(self, now: float) -> None:
        """End the calls whose time is over, and forget those that nobody waits for any more."""
        if now < self._earliest:
            return
        earliest = math.inf
        over = []
        for opaque, (answer, deadline) in self._waiting.items():
            if deadline <= now or answer.done():
                over.append(opaque)
            elif deadline < earliest:
                earliest = deadline
        self._earliest = earliest
        for opaque in over:
            answer, _ = self._waiting.pop(opaque)
            if not answer.done():
                answer.set_exception(CallTimeoutError(f"no answer to request {opaque} came in time"))

    def lose(self, reason: str) -> None:
        """End all calls: their connection is gone."""
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(reason))
