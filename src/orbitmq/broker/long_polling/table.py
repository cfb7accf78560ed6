"""Hold table: requests that wait for a message (long polling), with a deadline heap and one sweep for all of them.

``PullHold``, ``PopHold`` and ``PullPriority`` are tables of this kind. They differ in what a request waits for; the
table here keeps the deadlines, ends the requests of connections that close, and releases all when the broker stops.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
import itertools
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from orbitmq.remoting.error_responses import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection

SWEEP_SECONDS = 0.25
"""Interval of the sweep, and so the precision of time-outs."""

SLICE_SECONDS = 0.005
SLICE_REQUESTS = 200
"""One iteration of the event loop ends so many requests, or for so long; the next iteration continues."""

MAX_STALE = 1000
"""Heap entries of requests that were answered early are dropped when there are more than this."""

_DONE = object()


@dataclasses.dataclass(slots=True, eq=False, kw_only=True)
class HeldRequest:
    """A request that may be held."""

    connection: Connection
    header: Header
    serialize_type: int
    deadline_ms: int
    is_held: bool = False


RequestT = TypeVar("RequestT", bound=HeldRequest)


class HoldTable(Generic[RequestT]):
    """Base of the tables of held requests."""

    def __init__(
        self, now_ms: Callable[[], int], sweep_seconds: Callable[[], float] = lambda: SWEEP_SECONDS
    ) -> None:
        self._now_ms = now_ms
        self._sweep_seconds = sweep_seconds
        self._count = 0
        self._due: list[tuple[int, int, RequestT]] = []
        """A heap of the times at which the sweep checks each request. Answered requests leave it lazily."""
        self._numbers = itertools.count()
        self._of_connection: dict[Connection, dict[RequestT, None]] = {}
        self._sweeping: Iterator[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        return self._count

    def release(self) -> None:
        """Answer all requests with what there is and hold no more, because the broker stops.

        Clients repeat the request as soon as they are answered, and would be held again without an end.
        """
        self._is_stopped = True
        self.answer_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def answer_all(self) -> None:
        """Answer all requests with what there is."""
        for requests in tuple(self._of_connection.values()):
            for request in tuple(requests):
                if request.is_held:
                    self._expire(request)

    # For subclasses

    def _check(self, request: RequestT, now: int, /) -> int | None:
        """Answer a request that is due, and return None; otherwise return the time of its next check."""
        raise NotImplementedError

    def _expire(self, request: RequestT) -> None:
        """Remove a request and answer it with what there is."""
        raise NotImplementedError

    def _before_sweep(self, now: int) -> None:
        """Called at the beginning of every sweep."""

    def _hold(self, request: RequestT, check_ms: int) -> None:
        """Enter a request; the sweep checks it at this time."""
        self._mark_held(request)
        heapq.heappush(self._due, (check_ms, next(self._numbers), request))
        if self._timer is None and self._sweeping is None:
            self._timer = asyncio.get_running_loop().call_later(self._sweep_seconds(), self._sweep)

    def _mark_held(self, request: RequestT) -> None:
        request.is_held = True
        self._count += 1
        self._of_connection.setdefault(request.connection, {})[request] = None

    def _unmark_held(self, request: RequestT) -> None:
        request.is_held = False
        self._count -= 1
        others = self._of_connection[request.connection]
        del others[request]
        if not others:
            del self._of_connection[request.connection]

    def respond(self, request: RequestT, answer: Callable[[RequestT], None]) -> None:
        """Let ``answer`` answer a request that is not held any more; a failure must not stop the others."""
        connection, header = request.connection, request.header
        try:
            if connection.is_closing:
                # No one reads the response, but the connection waits for it before it closes.
                connection.answer(header, b"")
            else:
                answer(request)
        except Exception as error:
            self.fail(request, error)

    @staticmethod
    def fail(request: RequestT, error: Exception) -> None:
        connection, header = request.connection, request.header
        connection.answer(header, failed(error, header, request.serialize_type, connection.remote_address))

    # Sweep

    def _sweep(self) -> None:
        """Continue the sweep in progress, or begin one. A call ends after a slice, or with the last request."""
        self._timer = None
        is_done = True
        try:
            if self._sweeping is None:
                self._sweeping = self._slices(self._now_ms())
            is_done = next(self._sweeping, _DONE) is _DONE
        finally:
            # Always reschedule: otherwise held requests would never time out.
            if is_done:
                self._sweeping = None
                self._compact()
            if not self._is_stopped and (self._count or not is_done):
                delay = self._sweep_seconds() if is_done else 0
                self._timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _slices(self, now: int) -> Iterator[None]:
        """Check the requests that are due; every item is the end of a slice."""
        failure: Exception | None = None
        again: list[tuple[int, RequestT]] = []
        try:
            self._before_sweep(now)
            end, left = time.monotonic() + SLICE_SECONDS, SLICE_REQUESTS
            for request in itertools.chain(self._closing(), self._those_due(now)):
                if not request.is_held:
                    continue
                try:
                    check_ms: int | None
                    if request.connection.is_closing:
                        self._expire(request)
                        check_ms = None
                    else:
                        check_ms = self._check(request, now)
                except Exception as error:
                    # A queue that cannot be read must not hold up the requests for others.
                    failure, check_ms = failure or error, now
                if check_ms is not None:
                    again.append((check_ms, request))
                left -= 1
                if left <= 0 or time.monotonic() >= end:
                    yield
                    end, left = time.monotonic() + SLICE_SECONDS, SLICE_REQUESTS
        finally:
            for check_ms, request in again:
                if request.is_held:
                    heapq.heappush(self._due, (check_ms, next(self._numbers), request))
        if failure is not None:
            raise failure

    def _closing(self) -> Iterator[RequestT]:
        for connection in tuple(self._of_connection):
            if connection.is_closing:
                yield from [one for one in self._of_connection.get(connection, ()) if one.is_held]

    def _those_due(self, now: int) -> Iterator[RequestT]:
        while self._due and (self._due[0][0] <= now or not self._due[0][2].is_held):
            request = heapq.heappop(self._due)[2]
            if request.is_held:
                yield request

    def _compact(self) -> None:
        if not self._count:
            self._due.clear()
        elif len(self._due) > 2 * self._count + MAX_STALE:
            self._due = [entry for entry in self._due if entry[2].is_held]
            heapq.heapify(self._due)
