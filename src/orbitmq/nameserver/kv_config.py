"""Key-value configuration: the only table that a name server persists (``kvConfig.json``).

Brokers and clients use one namespace of it, ``ORDER_TOPIC_CONFIG``; tools may store any values.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.platform.errors import DiskFaultError
from orbitmq.platform.json_files import ConfigFile
from orbitmq.protocol.bodies import Body
from orbitmq.protocol.remarks import hide_paths
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking

log = logging.getLogger("orbitmq.nameserver")

Table: TypeAlias = dict[str, dict[str, str]]
"""Values by namespace and key."""

Changes: TypeAlias = dict[tuple[str, str], str | None]
"""New values by namespace and key; None deletes."""


@dataclasses.dataclass(slots=True)
class KvConfigTable(Body):
    """Content of the file."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KvConfig:
    """Values by namespace and key. A change is on disk before it is visible.

    A thread encodes and writes the file. Changes that arrive meanwhile are written together by the next write, so
    any number of them costs two writes.
    """

    def __init__(self, disk: Disk, path: str, limits: NameServerLimits, run_blocking: RunBlocking) -> None:
        self._disk = disk
        directory, name = os.path.split(path)
        self._directory = directory or "."
        self._file = ConfigFile(name, KvConfigTable, pretty=False)
        self._limits = limits
        self._run = run_blocking
        self._table: Table = {}
        self._pending: Changes = {}
        """Changes for the next write."""
        self._in_flight: Changes = {}
        """Changes of the write in progress."""
        self._writing: asyncio.Task[None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        """Done when the pending changes are on disk."""
        self._entries = self._characters = 0
        """Of the table including all pending and in-flight changes."""
        self.writes = 0
        """Number of writes of the file."""

    def load(self) -> None:
        """Load the file if it exists. Raises StoreError."""
        self._table = self._file.load(self._disk, self._directory).config_table
        self._count()

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All values of a namespace; None if it never existed."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value, and return when it is on disk. Raises RequestRefusedError."""
        present = self._newest(namespace, key)
        entries = self._entries + (present is None)
        characters = self._characters + len(value)
        if present is None:
            characters += len(key) + (0 if namespace in self._table else len(namespace))
        else:
            characters -= len(present)
        self._check_room(entries, characters)
        self._entries, self._characters = entries, characters
        await self._change(namespace, key, value)

    async def delete(self, namespace: str, key: str) -> None:
        """Delete a value. Its namespace stays, even if empty. Raises RequestRefusedError."""
        present = self._newest(namespace, key)
        if present is not None:
            self._entries -= 1
            self._characters -= len(key) + len(present)
            await self._change(namespace, key, None)

    async def stop(self) -> None:
        """Wait for writes in progress."""
        if self._writing is not None:
            await self._writing

    def _newest(self, namespace: str, key: str) -> str | None:
        """The value of a key with all pending and in-flight changes."""
        for changes in (self._pending, self._in_flight):
            if (namespace, key) in changes:
                return changes[namespace, key]
        return self.get(namespace, key)

    def _check_room(self, entries: int, characters: int) -> None:
        if entries > self._limits.kv_entries:
            raise RequestRefusedError(
                f"{entries - 1} key-value entries exist, at most {self._limits.kv_entries} are allowed "
                "(maxKvConfigEntries)"
            )
        if characters > self._limits.kv_characters:
            raise RequestRefusedError(
                f"the key-value configuration would have {characters} characters, at most "
                f"{self._limits.kv_characters} are allowed (maxKvConfigCharacters)"
            )

    def _count(self) -> None:
        self._entries = sum(map(len, self._table.values()))
        self._characters = sum(map(len, self._table)) + sum(
            len(key) + len(value) for values in self._table.values() for key, value in values.items()
        )

    async def _change(self, namespace: str, key: str, value: str | None) -> None:
        self._pending[namespace, key] = value
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop().create_future()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
        try:
            await asyncio.shield(self._waiting)
        except DiskFaultError as error:
            raise RequestRefusedError(hide_paths(str(error))) from error

    async def _write_all(self) -> None:
        try:
            while self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                self._in_flight, self._pending = self._pending, {}
                try:
                    self._table = await self._run(self._written_with(self._in_flight))
                except DiskFaultError as error:
                    # Pending changes fail too: they were checked against the changes that failed.
                    self._fail(waiting, error)
                else:
                    waiting.set_result(None)
                    if not self._pending:
                        self._count()
                self._in_flight = {}
        finally:
            self._writing = None

    def _fail(self, waiting: asyncio.Future[None], error: DiskFaultError) -> None:
        log.error("kv config: write failed: %s", error)
        waiting.set_exception(error)
        if self._waiting is not None:
            self._waiting.set_exception(error)
            self._waiting = None
        self._pending = {}
        self._count()

    def _written_with(
        self, changes: Mapping[tuple[str, str], str | None]
    ) -> Callable[[], dict[str, dict[str, str]]]:
        """Write the table with these changes, and return it. Runs in a thread."""
        before = self._table

        def write() -> Table:
            table = dict(before)
            for namespace in {namespace for namespace, _ in changes}:
                table[namespace] = dict(table.get(namespace, {}))
            for (namespace, key), value in changes.items():
                if value is None:
                    table[namespace].pop(key, None)
                else:
                    table[namespace][key] = value
            self._file.persist(self._disk, self._directory, KvConfigTable(table))
            self.writes += 1
            return table

        return write
