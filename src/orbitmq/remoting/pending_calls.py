"""Calls in flight: own requests, matched with responses by opaque, failed by timeout or loss of the connection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.header import OPAQUE
from orbitmq.remoting.errors import CallTimeoutError, ConnectionLostError

if TYPE_CHECKING:
    import asyncio

    from orbitmq.protocol.command.frame import Frame
    from orbitmq.protocol.command.header import Header

INT32_MAX = 2**31 - 1


class OpaqueCounter:
    """Opaques of own requests, unique over all connections of one server or client.

    They start at 1, because the Node client treats 0 as missing, and again after the largest int32.
    """

    __slots__ = ("_last",)

    def __init__(self, last: int = 0) -> None:
        self._last = last

    def next(self) -> int:
        self._last = number = self._last + 1 if self._last < INT32_MAX else 1
        return number


class CallTable:
    """The calls in flight on one connection."""

    __slots__ = ("_earliest", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[Command], float]] = {}
        self._earliest = math.inf
        """No call times out before this, so that thousands of calls need not be scanned."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def add(self, opaque: int, answer: asyncio.Future[Command], deadline: float) -> None:
        assert opaque not in self._waiting
        self._waiting[opaque] = answer, deadline
        self._earliest = min(self._earliest, deadline)

    def complete(self, frame: Frame, header: Header) -> None:
        """Complete a call with its response. A response without a call (late, cancelled) is dropped."""
        entry = self._waiting.pop(header[OPAQUE], None)
        if entry is not None and not entry[0].done():
            entry[0].set_result(Command.of(frame, header))

    def expire(self, now: float) -> None:
        """Fail calls past their deadline, and drop cancelled ones."""
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
                answer.set_exception(CallTimeoutError(f"no response to request {opaque} before its timeout"))

    def fail_all(self, reason: str) -> None:
        """Fail all calls: their connection is lost."""
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(reason))
