"""Event journal: the newest events of a broker, bounded by bytes, in a file of their own under ``config/``.

The file has one JSON object per line. It is rewritten when there are new events, at most every ten seconds, and
read at the start, where a line that is damaged is left out: a history must never keep a broker from starting.
"""

from __future__ import annotations

import collections
import logging
import os
from typing import TYPE_CHECKING

import orjson

from orbitmq.protocol.broker_events import BrokerEvent, BrokerEvents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.broker_events import EventKind

log = logging.getLogger("orbitmq.broker")

FILE = "brokerEvents.jsonl"

MAX_TEXT = 512
"""Characters of a subject and of a detail."""

MAX_PER_MINUTE = 200
"""Events of one kind in a minute; further ones are counted, and the next minute begins with their number."""

MINUTE_MS = 60_000


class EventJournal:
    """Events in memory, with their encoded lines. Recording one takes a few microseconds."""

    def __init__(self, disk: Disk, directory: str, clock: Clock, max_bytes: int) -> None:
        """``max_bytes``: of all lines. 0 turns the journal off."""
        self._disk = disk
        self._path = os.path.join(directory, FILE)
        self._clock = clock
        self._max_bytes = max_bytes
        self._events: collections.deque[tuple[BrokerEvent, bytes]] = collections.deque()
        self._size = 0
        self._next = 1
        self._is_changed = False
        self._minute = 0
        self._in_minute: collections.Counter[str] = collections.Counter()
        self.counts: collections.Counter[str] = collections.Counter()
        """Events since the start by kind, with those that were left out."""

    def __len__(self) -> int:
        return len(self._events)

    # Recording

    def record(self, kind: EventKind, subject: str = "", detail: str = "") -> None:
        """Record an event that happens now."""
        self.counts[kind] += 1
        if not self._max_bytes:
            return
        now = self._clock.now_ms()
        if not 0 <= now - self._minute < MINUTE_MS:
            self._end_minute(now)
        self._in_minute[kind] += 1
        if self._in_minute[kind] <= MAX_PER_MINUTE:
            self._add(BrokerEvent(self._next, now, str(kind), _short(subject), _short(detail)))

    def _end_minute(self, now: int) -> None:
        ended, self._in_minute, self._minute = self._in_minute, collections.Counter(), now
        for kind, count in ended.items():
            if count > MAX_PER_MINUTE:
                left_out = f"{count - MAX_PER_MINUTE} more events of this kind in the minute before"
                self._add(BrokerEvent(self._next, now, kind, "", left_out))

    def _add(self, event: BrokerEvent) -> None:
        line = _line(event)
        self._events.append((event, line))
        self._size += len(line)
        self._next = event.sequence + 1
        self._is_changed = True
        while self._size > self._max_bytes and self._events:
            _, dropped = self._events.popleft()
            self._size -= len(dropped)

    # Reading

    def find(self, since_ms: int, after_sequence: int, kinds: Collection[str], limit: int) -> BrokerEvents:
        """The newest events that match, oldest first."""
        found: list[BrokerEvent] = []
        for event, _ in reversed(self._events):
            if event.sequence <= after_sequence or len(found) >= limit:
                break
            # Not sorted by time: the clock may have been set back.
            if event.timestamp >= since_ms and (not kinds or event.kind in kinds):
                found.append(event)
        found.reverse()
        return BrokerEvents(found, self._events[0][0].sequence if self._events else 0, self._next)

    # The file

    def load(self) -> None:
        """Read the file of an earlier run. Never fails."""
        if not self._max_bytes:
            return
        try:
            stat = self._disk.stat(self._path)
            if stat is None:
                return
            length = min(stat.size, 2 * self._max_bytes + MAX_TEXT * 16)
            data = self._disk.pread(self._path, stat.size - length, length)
        except OSError as error:
            log.warning("events: %s cannot be read, the history begins empty: %s", self._path, error)
            return
        damaged = 0
        for line in data.split(b"\n"):
            event = _decoded(line)
            if event is not None and event.sequence >= self._next:
                self._add(event)
            elif line:
                damaged += 1
        if damaged:
            log.warning("events: %d lines of %s are damaged and left out", damaged, self._path)
        self._is_changed = False

    async def persist(self, run_blocking: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Write the file if there are new events."""
        if not self._is_changed:
            return
        self._is_changed = False
        lines = [line for _, line in self._events]
        try:
            await run_blocking(lambda: self._replace(b"".join(lines)))
        except OSError as error:
            self._is_changed = True
            log.warning("events: %s cannot be written, will retry: %s", self._path, error)

    def _replace(self, data: bytes) -> None:
        partial = f"{self._path}.tmp"
        self._disk.write(partial, data)
        self._disk.sync(partial)
        self._disk.rename(partial, self._path)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _line(event: BrokerEvent) -> bytes:
    values = [
        event.sequence,
        event.timestamp,
        event.kind,
        *(_writable(text) for text in (event.subject, event.detail)),
    ]
    return orjson.dumps(dict(zip(_KEYS, values, strict=True))) + b"\n"


def _writable(text: str) -> str:
    """The text without lone surrogates, which names given by peers may contain and JSON cannot."""
    return text.encode("utf-8", "replace").decode()


_KEYS = ("sequence", "timestamp", "kind", "subject", "detail")


def _decoded(line: bytes) -> BrokerEvent | None:
    """The event of a line, None if it is damaged."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(fields, dict):
        return None
    sequence, timestamp = fields.get("sequence"), fields.get("timestamp")
    texts = [text for key in _KEYS[2:] if isinstance(text := fields.get(key), str) and len(text) <= MAX_TEXT]
    if type(sequence) is not int or type(timestamp) is not int or not 0 < sequence < 1 << 62:
        return None
    return BrokerEvent(sequence, timestamp, *texts) if len(texts) == len(_KEYS) - 2 else None
