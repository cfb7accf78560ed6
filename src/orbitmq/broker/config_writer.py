"""Tables on their way into ``config/``: encoded on the loop, written in a thread, each in its newest state."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.protocol.bodies import Body
from orbitmq.store import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store.config_json import ConfigFile
    from orbitmq.store.disk import Disk
    from orbitmq.store.service import RunBlocking

log = logging.getLogger("orbitmq.broker")

BodyT = TypeVar("BodyT", bound=Body)

RETRY_SECONDS = 5.0
"""A table that could not be written is tried again so often, until the disk takes it."""


class ConfigWriter:
    """Replaces files of ``config/`` one after another. A table that changes meanwhile is written once more."""

    def __init__(self, disk: Disk, directory: str, run_blocking: RunBlocking) -> None:
        self.disk = disk
        self.directory = directory
        self._run = run_blocking
        self._changed: dict[ConfigFile[Any], Callable[[], Any]] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    def load(self, file: ConfigFile[BodyT]) -> BodyT:
        """The table as it lies on the disk; a new one if there is none. Raises StoreError."""
        return file.load(self.disk, self.directory)

    def mark(self, file: ConfigFile[BodyT], table: Callable[[], BodyT]) -> None:
        """Say that a table has changed. ``table`` is called when it is time to encode it."""
        self._changed[file] = table
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    def saved(self) -> asyncio.Future[None]:
        """Done when everything marked until now is on the disk, or failed with DiskFaultError."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._writing is None:
            future.set_result(None)
        else:
            self._waiting.append(future)
        return future

    async def stop(self) -> None:
        """Write what is marked. Raises DiskFaultError if the disk does not take it."""
        self._stopping.set()
        if self._writing is not None:
            await self._writing
        waiting, self._waiting = self._waiting, []
        try:
            while self._changed:
                await self._write_next()
        except DiskFaultError as error:
            _settle(waiting, error)
            raise
        _settle(waiting, None)

    async def _write_all(self) -> None:
        try:
            while True:
                waiting, self._waiting = self._waiting, []
                try:
                    while self._changed:
                        await self._write_next()
                except DiskFaultError as error:
                    log.error("%s: it is tried again", error)
                    _settle(waiting, error)
                    try:
                        await asyncio.wait_for(self._stopping.wait(), RETRY_SECONDS)
                    except TimeoutError:
                        continue
                    return
                _settle(waiting, None)
                if not self._changed and not self._waiting:
                    return
        finally:
            self._writing = None

    async def _write_next(self) -> None:
        file, table = next(iter(self._changed.items()))
        del self._changed[file]
        data = file.encode(table())
        try:
            await self._run(lambda: file.replace(self.disk, self.directory, data))
        except DiskFaultError:
            self._changed.setdefault(file, table)
            raise


def _settle(waiting: list[asyncio.Future[None]], error: DiskFaultError | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
