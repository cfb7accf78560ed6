"""Memory guard: throttles and closes connections when the memory budget of the process is tight or exceeded.

Tight: reading pauses on connections that hold more than the average. Exceeded: the connections that hold most are
closed, largest first, until the rest fits. A connection that holds next to nothing is never throttled or closed.
After a flood, freed memory is returned to the system.
"""

from __future__ import annotations

import ctypes
import logging
import operator
import threading
from typing import TYPE_CHECKING

from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.remoting.errors import MemoryBudgetError

if TYPE_CHECKING:
    from orbitmq.platform.memory_budget import MemoryBudget
    from orbitmq.remoting.connection import Connection
    from orbitmq.remoting.endpoint import Endpoint

log = logging.getLogger("orbitmq.remoting")

SETTING = "remotingMemoryBudget"

MIN_HELD = 65536
"""A connection that holds less than this is neither paused nor closed: it would not help."""

ROOM_PART = 7 / 8
"""Connections are closed until no more than this part of the limit is used, so that the next byte does not close
another one."""

REVIEW_SECONDS = 0.05
"""Minimum interval between reviews of a tight budget: sorting thousands of connections takes milliseconds."""

LARGE_RELEASE = 32 << 20
"""Freed memory is returned to the system when this much less is held than at the last peak, or with a small budget
when ``RELEASE_PART`` of it is."""

RELEASE_PART = 1 / 4


class MemoryGuard:
    """Keeps the connections of one endpoint, and of others on its loop, within the budget."""

    __slots__ = ("_endpoint", "_next_review", "_paused", "_peak", "_used_before", "budget")

    def __init__(self, endpoint: Endpoint, budget: MemoryBudget) -> None:
        self.budget = budget
        self._endpoint = endpoint
        self._paused: set[Connection] = set()
        """Connections on which reading is paused."""
        self._next_review = 0.0
        self._peak = 0
        self._used_before = 0
        budget.members.add(endpoint)

    def review(self, now: float) -> None:
        """Must be called when the budget is tight at the end of a loop iteration."""
        budget = self.budget
        if budget.is_exceeded:
            self._close_largest()
        elif budget.is_tight:
            if now >= self._next_review:
                self._next_review = now + REVIEW_SECONDS
                self._pause_reading()
        elif self._paused:
            self._resume_reading()

    def sweep(self, now: float) -> None:
        """Must be called periodically."""
        self.review(now)
        used, before = self.budget.used, self._used_before
        self._used_before = used
        # Not ``used`` alone: a flood may come and be cut off between two sweeps.
        self._peak = max(self._peak, self.budget.take_peak())
        if self._peak - used >= min(LARGE_RELEASE, self.budget.limit * RELEASE_PART) and used >= before:
            # The use no longer falls: everything of the peak is released.
            self._peak = used
            release_freed_memory()

    def forget(self, connection: Connection) -> None:
        self._paused.discard(connection)

    def _holders(self) -> list[tuple[int, Connection]]:
        """The connections of this event loop that hold much memory, largest first."""
        found = []
        for member in self.budget.members:
            if member.loop is self._endpoint.loop:
                for connection in member.connections:
                    held = connection.update_charge()
                    if held >= MIN_HELD:
                        found.append((held, connection))
        found.sort(key=operator.itemgetter(0), reverse=True)
        return found

    def _pause_reading(self) -> None:
        holders = self._holders()
        if not holders or not self.budget.is_tight:
            return
        share = sum(held for held, _ in holders) / len(holders)
        paused = [connection for held, connection in holders if held >= share and connection.pause_reading()]
        self._paused.update(paused)
        if paused:
            log.warning(
                "memory: reading paused on %d connections: %d of %d bytes of %s are used",
                *(len(paused), self.budget.used, self.budget.limit, SETTING),
            )

    def _resume_reading(self) -> None:
        paused, self._paused = self._paused, set()
        for connection in paused:
            connection.resume_reading()

    def _close_largest(self) -> None:
        budget = self.budget
        room = int(budget.limit * ROOM_PART)
        for held, connection in self._holders():
            if budget.used <= room:
                return
            text = (
                f"memory: closing {connection.remote_address}: it holds {held} bytes, and {budget.used} of "
                f"{budget.limit} bytes of {SETTING} are used"
            )
            log.warning("%s", text)
            connection.abort(MemoryBudgetError(text))
            count_refusal(Limit.MEMORY)
            connection.update_charge()


def release_freed_memory() -> None:
    """Return free pages of the allocator to the system, in a thread: for a large heap it takes many milliseconds.

    glibc keeps what is freed in the middle of its heap. Other allocators return it by themselves.
    """
    trim = _malloc_trim()
    if trim is not None:
        threading.Thread(target=trim, args=(0,), name="malloc-trim", daemon=True).start()


def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    return trim
