"""What of the log is not in memory when it is to be read: found out before, and fetched by somebody's thread.

A read of a page that is not in memory waits for the disk, and with it everything else that a server does. So who
can let a single reader wait asks for the gap first. Readers go from front to back: what comes next is fetched while
they read.

Not here: threads, and who is answered what.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.store.commit_log import CommitLog

Range = tuple[int, int]
"""From one offset of the log to another, both in one file."""

NEAR = 1 << 20
"""So close to the end of the log everything was written a moment ago."""

WINDOW = 4 << 20
"""Bytes of the log that are fetched together: 8 ms from a disk that reads 500 MB/s."""

TRUSTED_SECONDS = 0.25
"""What was in memory is not looked at again for so long."""

MOST_LOOKED_AT = 64
"""Units of one read that are looked at. Of more, some: readers of so many find them close together."""

_MOST_KNOWN = 1024


class ColdLog:
    """The log as far as it may have to be fetched. For one thread."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.warm: dict[int, float] = {}
        """By where a window begins, until when it is taken for in memory. The kernel looks here too."""
        self._asked: dict[int, float] = {}
        """The same for those that were fetched ahead, or are just now."""
        self.fetch_ahead: Callable[[Range], None] | None = None
        """Has a range fetched that is wanted soon. Where it is not set nobody fetches, and there are no gaps."""

    def gap(self, units: bytes) -> list[Range]:
        """What has to be fetched for the records that these units of a queue lead to."""
        if self.fetch_ahead is None:
            return []
        now = time.monotonic()
        first = int.from_bytes(units[:8], "big")
        at, size, _ = UNIT.unpack(units[-UNIT_SIZE:])
        last = at + size - 1
        if last - first < WINDOW and self._is_trusted(first, now) and self._is_trusted(last, now):
            return []
        places = self._places(units)
        if not places:
            return []
        windows = dict.fromkeys([self._window(at) for at, _ in places] + [self._window(places[-1][1] - 1)])
        if len(windows) > max(2, len(places) // 8):
            # Here and there one: only these.
            return [place for place in places if not self._is_in_memory(place)]
        gap = [window for window in windows if not self._is_warm(window, now)]
        if not gap:
            self._go_ahead(next(reversed(windows))[1], now)
        return gap

    def fetching(self, ranges: Iterable[Range]) -> Callable[[], None]:
        """A blocking call that has ranges in memory, for a worker thread."""
        inside: dict[int, list[Range]] = {}
        for start, end in ranges:
            base = self._base(start)
            inside.setdefault(base, []).append((start - base, end - base))
        files = self._log.files
        work = [(files.mapped(base), parts) for base, parts in inside.items() if base in files]

        def fetch() -> None:
            for mapped, parts in work:
                mapped.fetch(parts)

        return fetch

    def _places(self, units: bytes) -> list[Range]:
        step = -(-len(units) // (MOST_LOOKED_AT * UNIT_SIZE))
        start, end = self._log.start, self._log.committed
        found = [unit[:2] for unit in UNIT.iter_unpack(units)][::step]
        return [
            (at, at + size) for at, size in found if 0 < size < FILLER_SIZE and start <= at and at + size <= end
        ]

    def _is_trusted(self, at: int, now: float) -> bool:
        return self.warm.get(at - (at - self._base(at)) % WINDOW, 0.0) > now

    def _go_ahead(self, at: int, now: float) -> None:
        """Have the window that begins at ``at`` fetched, before somebody comes there."""
        if at >= self._log.committed - NEAR or self._asked.get(at, 0.0) > now:
            return
        _keep(self._asked, at, now)
        window = self._window(at)
        if not self._is_warm(window, now) and self.fetch_ahead is not None:
            self.fetch_ahead(window)

    def _is_warm(self, window: Range, now: float) -> bool:
        start, _ = window
        if self.warm.get(start, 0.0) > now:
            return True
        if not self._is_in_memory(window):
            return False
        _keep(self.warm, start, now)
        return True

    def _is_in_memory(self, of: Range) -> bool:
        base = self._base(of[0])
        files = self._log.files
        return base not in files or files.mapped(base).is_in_memory(of[0] - base, of[1] - base)

    def _window(self, at: int) -> Range:
        base = self._base(at)
        start = at - (at - base) % WINDOW
        return start, min(start + WINDOW, base + self._log.file_size, self._log.committed)

    def _base(self, at: int) -> int:
        return at - at % self._log.file_size


def _keep(table: dict[int, float], key: int, now: float) -> None:
    if len(table) >= _MOST_KNOWN:
        table.clear()
    table[key] = now + TRUSTED_SECONDS
