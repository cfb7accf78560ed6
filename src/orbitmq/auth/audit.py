"""Audit log: who did what administrative thing, when, from where, and with which outcome, as JSON lines.

Lines are buffered and written by a thread once a second; the file is rotated and the number of its predecessors is
limited. A flood of refusals is summed up: of one sender and reason one line a second is written, with the count.
"""

from __future__ import annotations

import asyncio
import collections
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from orbitmq.auth.secret_box import make_private
from orbitmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from orbitmq.platform.errors import DiskFaultError
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.command.header import CODE, EXT_FIELDS
from orbitmq.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer

log = logging.getLogger("orbitmq.auth")

FILE = "audit.jsonl"
KEPT_FILES = 4
MAX_WAITING = 10_000
"""Lines in memory. More are dropped and counted: a flood must not fill it."""
MAX_TEXT = 256
"""Characters of one field: names and remarks come from the network."""
SECONDS = 1.0

NOT_LOGGED = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, "secretKey", "password", "value"})
"""Header fields that are secret, or may be."""

PERIODIC = frozenset(
    int(code)
    for code in (
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
    )
)
"""Requests that brokers repeat. Only refusals are logged."""


class AuditLog:
    """The audit log of one server."""

    def __init__(
        self, disk: Disk, directory: str, max_bytes: int, now_ms: Callable[[], int], run_blocking: RunBlocking
    ) -> None:
        self._disk = disk
        self._path = os.path.join(directory, FILE)
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._run = run_blocking
        self._lines: collections.deque[dict[str, Any]] = collections.deque()
        self._refusals: dict[tuple[str, int, str], dict[str, Any]] = {}
        """Of this second, by sender, code and reason."""
        self.dropped = 0
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        """The last write of the task, which goes on if the task ends: its thread would not stop either."""

    def refused(self, header: Header, remote_address: str, reason: str) -> None:
        """Record a request that the guard has refused."""
        host = remote_address.rpartition(":")[0]
        known = self._refusals.get((host, header[CODE], reason))
        if known is not None:
            known["count"] = known.get("count", 1) + 1
            return
        entry = self._entry(header, header[EXT_FIELDS].get(ACCESS_KEY, ""), remote_address, "refused", reason)
        if entry is not None:
            self._refusals[host, header[CODE], reason] = entry

    def served(self, header: Header, user: str, remote_address: str, answer: Answer) -> None:
        """Record an administrative request, with the outcome in its response. A deferred one is ``accepted``."""
        if header[CODE] not in PERIODIC:
            outcome, remark = _outcome(answer)
            self._entry(header, user, remote_address, outcome, remark)

    def _entry(self, header: Header, user: str, remote: str, outcome: str, reason: str) -> dict[str, Any] | None:
        if len(self._lines) >= MAX_WAITING:
            self.dropped += 1
            return None
        code, fields = header[CODE], header[EXT_FIELDS]
        entry: dict[str, Any] = {
            "time": self._now_ms(),
            "user": user[:MAX_TEXT],
            "from": remote[:MAX_TEXT],
            "request": name_of(code),
            "fields": {name: text[:MAX_TEXT] for name, text in list(fields.items())[:32] if name not in NOT_LOGGED},
            "outcome": outcome,
        }
        if reason:
            entry["reason"] = reason[:MAX_TEXT]
        self._lines.append(entry)
        return entry

    # Writing

    def start(self) -> None:
        """Begin to write. Servers that share this log start it more than once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_periodically())

    async def stop(self) -> None:
        """Write what is waiting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._writing is not None:
            await asyncio.gather(self._writing, return_exceptions=True)
        await self.persist()

    async def _write_periodically(self) -> None:
        while True:
            await asyncio.sleep(SECONDS)
            try:
                self._writing = asyncio.get_running_loop().create_task(self.persist())
                await asyncio.shield(self._writing)
            except Exception:
                # Any error: otherwise nothing would be recorded until the next start.
                log.exception("audit: writing failed, will retry")

    async def persist(self) -> None:
        """Write the waiting lines now. A failure is logged, and they are kept."""
        if not self._lines:
            return
        lines = list(self._lines)
        self._refusals.clear()
        data = "".join(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n" for line in lines).encode()
        try:
            await self._run(lambda: self._append(data))
        except DiskFaultError as error:
            log.error("audit: writing failed, will retry: %s", error)
            return
        for _ in lines:
            self._lines.popleft()
        if self.dropped:
            log.warning("audit: %d lines dropped: more came than can be written", self.dropped)
            self.dropped = 0

    def _append(self, data: bytes) -> None:
        path, disk = self._path, self._disk
        try:
            found = disk.stat(path)
            size = 0 if found is None else found.size
            if size and size + len(data) > self._max_bytes:
                for number in range(KEPT_FILES - 1, 0, -1):
                    if disk.stat(f"{path}.{number}") is not None:
                        disk.rename(f"{path}.{number}", f"{path}.{number + 1}")
                disk.rename(path, f"{path}.1")
                size = 0
            if not size:
                make_private(disk, path)
                disk.write(path, data)
            else:
                disk.pwrite(path, size, data)
            disk.sync(path)
        except OSError as error:
            raise DiskFaultError(f"cannot write {path}: {error.strerror or error}") from error


def name_of(code: int) -> str:
    """The name of a request code, or its number."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def _outcome(answer: Answer) -> tuple[str, str]:
    """``done``, ``failed`` or ``accepted``, and the remark of a response."""
    if answer is None:
        return "accepted", ""
    frame = answer if isinstance(answer, bytes) else b"".join(answer)
    try:
        command = Command.decode(FrameParser().feed(frame)[0]) if frame else None
    except (ProtocolError, IndexError):
        return "accepted", ""
    if command is None or command.code == 0:
        return "done", ""
    return "failed", f"code {command.code}: {command.remark or ''}"
