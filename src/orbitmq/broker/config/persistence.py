"""Config writer: persists the tables of ``config/`` in a thread, each in its newest state.

The event loop encodes small tables. A large one is copied, and the writing thread encodes the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from orbitmq.protocol.bodies import Body
from orbitmq.store import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.platform.disk import Disk
    from orbitmq.platform.json_files import ConfigFile
    from orbitmq.platform.threads import RunBlocking

log = logging.getLogger("orbitmq.broker")

BodyT = TypeVar("BodyT", bound=Body)

_Waiting: TypeAlias = "tuple[asyncio.Future[None], tuple[ConfigFile[Any], ...]]"
"""The future that ``saved`` returned, and the tables that it needs."""

RETRY_SECONDS = 5.0
"""Retry interval for a table that could not be written."""

RETRY_PAUSE_SECONDS = 0.2
"""Backoff after a failed write even if requests wait for the next one, which then begins at once: they get their
error before their clients time out, and a failing disk gets at most five writes a second."""


class ConfigWriter:
    """Writes files of ``config/`` one after another. A table that changes meanwhile is written again."""

    def __init__(self, disk: Disk, directory: str, run_blocking: RunBlocking) -> None:
        self.disk = disk
        self.directory = directory
        self._run = run_blocking
        self._changed: dict[ConfigFile[Any], tuple[Callable[[], Any], bool]] = {}
        self._waiting: list[_Waiting] = []
        self._skipped: set[ConfigFile[Any]] = set()
        """Tables of this round that could not be encoded."""
        self._writing: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        """Set when a retry must not wait any longer: a request waits for it, or the writer stops."""
        self._is_stopping = False

    def load(self, file: ConfigFile[BodyT]) -> BodyT:
        """Load a table from disk; an empty one if there is no file. Raises StoreError."""
        return file.load(self.disk, self.directory)

    def mark(
        self,
        file: ConfigFile[BodyT],
        table: Callable[[], BodyT | Coroutine[None, None, BodyT]],
        *,
        is_copy: bool = False,
    ) -> None:
        """Mark a table as changed. ``table`` is called when it is encoded.

        ``is_copy``: it returns an immutable copy, so a thread may encode it.
        """
        self._changed[file] = table, is_copy
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    def saved(self, *needed: ConfigFile[Any]) -> asyncio.Future[None]:
        """Future that completes when everything marked until now is on disk, or fails with DiskFaultError.

        A table that cannot be encoded is skipped, which fails only the futures of those that need it.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._writing is None:
            future.set_result(None)
        else:
            self._waiting.append((future, needed))
            self._wanted.set()
        return future

    async def stop(self) -> None:
        """Write everything marked. Raises DiskFaultError if the disk refuses it."""
        self._is_stopping = True
        self._wanted.set()
        if self._writing is not None:
            await self._writing
        waiting, self._waiting = self._waiting, []
        try:
            while self._changed:
                await self._write_next()
        except DiskFaultError as error:
            _settle(waiting, error)
            raise
        self._settle_saved(waiting)

    async def _write_all(self) -> None:
        try:
            while True:
                waiting, self._waiting = self._waiting, []
                try:
                    while self._changed:
                        await self._write_next()
                except DiskFaultError as error:
                    log.error("config: failed to persist tables, will retry: %s", error)
                    _settle(waiting, error)
                    if not await self._pause():
                        return
                    continue
                self._settle_saved(waiting)
                if not self._changed and not self._waiting:
                    return
        finally:
            self._writing = None

    async def _pause(self) -> bool:
        """Wait before the next attempt; False if the writer stops."""
        if not self._is_stopping:
            await asyncio.sleep(RETRY_PAUSE_SECONDS)
            if not self._waiting and not self._is_stopping:
                self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wanted.wait(), RETRY_SECONDS)
        return not self._is_stopping

    async def _write_next(self) -> None:
        file, (table, is_copy) = next(iter(self._changed.items()))
        del self._changed[file]
        data: bytes | None = None

        def encode() -> bytes | None:
            try:
                return file.encode(body)
            except Exception:
                # Other tables must still be written, and this one after its next change.
                log.exception("config: %s cannot be encoded, skipped until it changes", file.name)
                return None

        def write() -> bool:
            encoded = encode() if is_copy else data
            if encoded is not None:
                file.replace(self.disk, self.directory, encoded)
            return encoded is not None

        try:
            body = table()
            if asyncio.iscoroutine(body):
                body = await body
        except Exception:
            log.exception("config: %s cannot be copied, skipped until it changes", file.name)
            self._skipped.add(file)
            return
        if not is_copy:
            data = encode()
        try:
            if await self._run(write):
                self._skipped.discard(file)
            else:
                self._skipped.add(file)
        except DiskFaultError:
            self._changed.setdefault(file, (table, is_copy))
            raise

    def _settle_saved(self, waiting: list[_Waiting]) -> None:
        """Complete futures: everything marked is on disk, except for tables that cannot be encoded."""
        skipped, self._skipped = self._skipped, set()
        for future, needed in waiting:
            lost = skipped.intersection(needed)
            error = DiskFaultError(f"{next(iter(lost)).name} cannot be encoded") if lost else None
            _settle([(future, needed)], error)


def _settle(waiting: list[_Waiting], error: DiskFaultError | None) -> None:
    for future, _ in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
