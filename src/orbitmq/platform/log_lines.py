"""Log output that peers cannot abuse: one event is one line, and a flood of events is rate-limited.

Peers choose the names of topics, groups and clients, which appear in log lines. ``escaped`` shows control
characters as escapes, so that a line end in a name cannot forge a line. ``RateLimit`` limits the lines of one call
site, and further those about one peer, and reports how many it suppressed.

The commands install both. A program that embeds a server gives them to the handlers that it logs with::

    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(RateLimit(handler))
"""

from __future__ import annotations

import logging
import re
import time
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE_LENGTH = 4096
"""Maximum length of a message in characters; the names in it may have thousands each."""

WINDOW_SECONDS = 60.0
SITE_LINES = 200
"""Maximum lines of one call site per window."""
PEER_LINES = 20
"""Maximum lines of one call site about one peer per window."""
MAX_COUNTED = 4096
"""Maximum number of call sites and peers that are counted; beyond that the oldest windows end early."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks that change the direction of text, and halves of characters."""

_ADDRESS = re.compile(r"^\[?([0-9A-Fa-f.:]+?)\]?:\d{1,5}$")

Key: TypeAlias = tuple[str, int, str]
"""File and line of the call, and the peer, or an empty string for all peers."""


def escaped(text: str) -> str:
    """The text on one line, with control characters as escapes, truncated if it is very long."""
    if len(text) > MAX_MESSAGE_LENGTH:
        text = f"{text[:MAX_MESSAGE_LENGTH]}... ({len(text) - MAX_MESSAGE_LENGTH} characters more)"
    return _CONTROLS.sub(_escape, text)


def escaped_lines(text: str) -> str:
    """A traceback with each line indented, so that quoted text cannot look like the beginning of an event."""
    return "\n".join("    " + escaped(line) for line in re.split("\r\n|[\r\n]", text))


def escaped_json(text: str) -> str:
    """A JSON document with JSON escapes for characters that JSON permits and a terminal interprets."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    letter = match[0]
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(letter) or (
        f"\\x{ord(letter):02x}" if letter < "\u0100" else f"\\u{ord(letter):04x}"
    )


class SafeFormatter(logging.Formatter):
    """A formatter that escapes messages and indents tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: logging._SysExcInfoType) -> str:  # noqa: N802 - logging's name
        return escaped_lines(super().formatException(ei))


class _Count:
    __slots__ = ("lines", "record", "since", "suppressed")

    def __init__(self, since: float) -> None:
        self.since = since
        self.lines = 0
        self.suppressed = 0
        self.record: logging.LogRecord | None = None
        """The last suppressed record."""


class RateLimit(logging.Filter):
    """Rate limit for log lines, per call site and per call site and peer."""

    def __init__(
        self,
        handler: logging.Handler,
        *,
        site_lines: int = SITE_LINES,
        peer_lines: int = PEER_LINES,
        window: float = WINDOW_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``handler`` is the filtered one: it also gets the lines that report how many were suppressed."""
        super().__init__()
        self._handler = handler
        self._site_lines = site_lines
        self._peer_lines = peer_lines
        self._window = window
        self._clock = clock
        self._counts: dict[Key, _Count] = {}
        """The oldest first."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_summary", False):
            return True
        now = self._clock()
        self._end_windows(now)
        site = (record.pathname, record.lineno, "")
        counts = [(self._count(site, now), self._site_lines)]
        if (peer := _peer_of(record)) is not None:
            counts.append((self._count((record.pathname, record.lineno, peer), now), self._peer_lines))
        for count, most in counts:
            if count.lines >= most:
                count.suppressed += 1
                count.record = record
                return False
        for count, _ in counts:
            count.lines += 1
        return True

    def flush(self) -> None:
        """Report the number of lines suppressed so far."""
        self._end_windows(float("inf"))

    def _count(self, key: Key, now: float) -> _Count:
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= MAX_COUNTED:
                self._end(next(iter(self._counts)))
            count = self._counts[key] = _Count(now)
        return count

    def _end_windows(self, now: float) -> None:
        while self._counts:
            key, count = next(iter(self._counts.items()))
            if now - count.since < self._window:
                return
            self._end(key)

    def _end(self, key: Key) -> None:
        count = self._counts.pop(key)
        last = count.record
        if last is None:
            return
        about = f" about {key[2]}" if key[2] else ""
        text = f"suppressed {count.suppressed} similar lines{about}; the last was: {last.getMessage()}"
        summary = logging.LogRecord(last.name, last.levelno, last.pathname, last.lineno, text, None, None)
        summary.is_summary = True
        self._handler.handle(summary)


def _peer_of(record: logging.LogRecord) -> str | None:
    """The host of the first address among the arguments of a record."""
    arguments = record.args
    if isinstance(arguments, tuple):
        for argument in arguments:
            if isinstance(argument, str) and len(argument) < 64 and (found := _ADDRESS.match(argument)) is not None:
                return found[1]
    return None
