"""Cold data: parts of the log outside the page cache, detected before a read and fetched by a worker thread.

A read of a page that is not resident blocks on the disk, and with it the whole server. So a caller that can hold a
request checks ``cold_ranges`` first. Consumers read front to back, so the next window is read ahead.

Not here: threads, and held requests. RocketMQ: ColdDataCheckService.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.platform.clock import Clock
    from orbitmq.store.commitlog.commit_log import CommitLog

Range = tuple[int, int]
"""Start and end offset in the log, both in one file."""

NEAR = 1 << 20
"""Everything this close to the end of the log was written a moment ago and is resident."""

WINDOW = 4 << 20
"""Bytes of the log that are fetched together: 8 ms from a disk that reads 500 MB/s."""

TRUSTED_SECONDS = 0.25
"""A resident window is not checked again for this long."""

MAX_CHECKED_RANGES = 64
"""Maximum number of units of one read that are checked; of more, a sample: their records are close together."""

_MAX_KNOWN = 1024


class ColdData:
    """Residency of the log in the page cache. For one thread."""

    def __init__(self, log: CommitLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.warm: dict[int, float] = {}
        """By start of a window, the time until which it is taken for resident. Native code reads this too."""
        self._requested: dict[int, float] = {}
        """The same for windows that are being read ahead, or were."""
        self.fetch_ahead: Callable[[Range], None] | None = None
        """Callback that reads a range ahead; if it is not set, nothing is fetched and no range counts as cold."""

    def cold_ranges(self, units: bytes) -> list[Range]:
        """Ranges to fetch before the records of these queue units can be read without blocking."""
        if self.fetch_ahead is None:
            return []
        now = self._clock.monotonic()
        first = int.from_bytes(units[:8], "big")
        at, size, _ = UNIT.unpack(units[-UNIT_SIZE:])
        last = at + size - 1
        if last - first < WINDOW and self._is_trusted(first, now) and self._is_trusted(last, now):
            return []
        places = self._ranges(units)
        if not places:
            return []
        windows = dict.fromkeys([self._window(at) for at, _ in places] + [self._window(places[-1][1] - 1)])
        if len(windows) > max(2, len(places) // 8):
            # Here and there one: only these.
            return [place for place in places if not self._is_in_memory(place)]
        cold = [window for window in windows if not self._is_resident(window, now)]
        if not cold:
            self._read_ahead(next(reversed(windows))[1], now)
        return cold

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

    def _ranges(self, units: bytes) -> list[Range]:
        step = -(-len(units) // (MAX_CHECKED_RANGES * UNIT_SIZE))
        start, end = self._log.start, self._log.committed
        found = [unit[:2] for unit in UNIT.iter_unpack(units)][::step]
        return [
            (at, at + size) for at, size in found if 0 < size < FILLER_SIZE and start <= at and at + size <= end
        ]

    def _is_trusted(self, at: int, now: float) -> bool:
        return self.warm.get(at - (at - self._base(at)) % WINDOW, 0.0) > now

    def _read_ahead(self, at: int, now: float) -> None:
        """Read ahead the window that begins at ``at``."""
        if at >= self._log.committed - NEAR or self._requested.get(at, 0.0) > now:
            return
        _keep(self._requested, at, now)
        window = self._window(at)
        if not self._is_resident(window, now) and self.fetch_ahead is not None:
            self.fetch_ahead(window)

    def _is_resident(self, window: Range, now: float) -> bool:
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
    if len(table) >= _MAX_KNOWN:
        table.clear()
    table[key] = now + TRUSTED_SECONDS
