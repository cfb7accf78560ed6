"""Audit log: what was done in the console, by whom, from where, with which result. Bounded."""

from __future__ import annotations

import collections
import dataclasses
import logging
from typing import TYPE_CHECKING

import orjson

from orbitmq.platform.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("orbitmq.dashboard")

MAX_ENTRIES = 10_000
"""Entries that are kept; the file is cut to them at the start and when it has twice as many."""
MAX_TEXT = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action, done or refused."""

    time_ms: int
    user: str
    address: str
    cluster: str
    action: str
    target: str
    result: str
    """``ok``, or the error."""


class AuditLog:
    """The newest entries in memory, and all of them in the file."""

    def __init__(self, path: Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._clock = clock
        self._entries: collections.deque[AuditEntry] = collections.deque(_read(path), MAX_ENTRIES)
        self._lines = MAX_ENTRIES * 2
        self._rewrite_if_long()

    def record(self, user: str, address: str, cluster: str, action: str, target: str, result: str = "ok") -> None:
        """Add an entry. A full disk is logged and does not undo the action."""
        entry = AuditEntry(
            self._clock.now_ms(), user[:MAX_TEXT], address, cluster, action, target[:MAX_TEXT], result[:MAX_TEXT]
        )
        self._entries.append(entry)
        try:
            with self._path.open("ab") as file:
                file.write(_line(entry))
            self._lines += 1
            self._rewrite_if_long()
        except OSError as error:
            log.error("audit: entry of %s not written, it is in memory only: %s", user, error)

    def entries(self) -> list[AuditEntry]:
        """All entries, newest first."""
        return list(reversed(self._entries))

    def _rewrite_if_long(self) -> None:
        if self._lines < MAX_ENTRIES * 2:
            return
        partial = self._path.with_suffix(".tmp")
        partial.write_bytes(b"".join(map(_line, self._entries)))
        partial.chmod(0o600)
        partial.replace(self._path)
        self._lines = len(self._entries)


def _line(entry: AuditEntry) -> bytes:
    return orjson.dumps(dataclasses.asdict(entry)) + b"\n"


def _read(path: Path) -> list[AuditEntry]:
    """The entries of a file; a damaged line is left out."""
    found = []
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    for line in lines[-MAX_ENTRIES:]:
        try:
            found.append(AuditEntry(**orjson.loads(line)))
        except (orjson.JSONDecodeError, TypeError):
            log.warning("audit: damaged line left out")
    return found
