"""Quarantine: records that a background service of the broker cannot process and therefore skips.

One such record must not stop redelivery, checks, timers or delays of all others. A service reports it here: the
quarantine writes one log line with its position, counts it, and the service continues behind it. The record
itself stays in the commit log until retention removes it.

Transient failures (a full disk, a closed store) do not belong here: the service keeps the record, backs off and
retries. ``is_transient`` distinguishes the two.
"""

from __future__ import annotations

import collections
import logging
import time
from typing import TYPE_CHECKING

from orbitmq.protocol.errors import ProtocolError
from orbitmq.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("orbitmq.broker")

MAX_ATTEMPTS = 3
"""Attempts at a record that fails for a reason unknown to its service, before it is skipped."""

LINES_PER_MINUTE = 100
"""Log lines of one service; records skipped beyond that are counted in the next line."""

MAX_RECENT = 1024
"""Skipped records that are remembered: a service that repeats a pass meets them again."""

REVIVE = "revive"
TRANSACTIONS = "transactions"
TIMER = "timer"
SCHEDULE = "schedule"


def is_transient(error: BaseException) -> bool:
    """True if the cause is the environment and not the record, so that a retry may succeed."""
    return isinstance(error, StoreError | OSError | MemoryError)


class Quarantine:
    """Counts and logs skipped records, by service."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """``now`` is a monotonic clock in seconds."""
        self._now = now
        self.counts: dict[str, int] = {}
        """Records skipped since the start, by service."""
        self._failing: dict[tuple[str, object], tuple[object, int]] = {}
        """By service and queue, the record that fails and its attempts: a service has one such per queue."""
        self._recent: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()
        self._windows: dict[str, tuple[float, int, int]] = {}
        """By service, the start of its minute, the lines written in it and the lines left out."""

    def skip(self, service: str, record: str, reason: object) -> None:
        """Count and log a record that a service skips. The same record counts once."""
        if (service, record) in self._recent:
            return
        self._recent[service, record] = None
        if len(self._recent) > MAX_RECENT:
            self._recent.popitem(last=False)
        self.counts[service] = self.counts.get(service, 0) + 1
        now = self._now()
        began, lines, left_out = self._windows.get(service, (now, 0, 0))
        if now - began >= 60:
            began, lines = now, 0
        if lines >= LINES_PER_MINUTE:
            self._windows[service] = began, lines, left_out + 1
            return
        self._windows[service] = began, lines + 1, 0
        more = f" (and {left_out} records before it)" if left_out else ""
        log.error("%s: skipped %s%s: %s", service, record, more, reason)

    def failed(self, service: str, queue: object, key: object, record: str, error: Exception) -> bool:
        """Count a failed attempt at a record; True if the service has to skip it now.

        ``key`` identifies the record within ``queue``. Until then the service tries the same record again.
        """
        if isinstance(error, ProtocolError):
            # Malformed bytes stay malformed: no retry.
            self.skip(service, record, error)
            return True
        known, attempts = self._failing.get((service, queue), (None, 0))
        attempts = attempts + 1 if known == key else 1
        if attempts < MAX_ATTEMPTS:
            self._failing[service, queue] = key, attempts
            log.exception("%s: attempt %d of %d failed for %s", service, attempts, MAX_ATTEMPTS, record)
            return False
        self._failing.pop((service, queue), None)
        self.skip(service, record, f"{type(error).__name__}: {error}")
        return True

    def figures(self) -> dict[str, str]:
        """The counters as GET_BROKER_RUNTIME_INFO shows them, for services that skipped records."""
        return {f"quarantined_{service}": str(count) for service, count in self.counts.items()}
