"""Event log: the groups of the only controller, in one append-only file.

Each event is synced before it counts. The file begins with a snapshot of all groups. It is replaced by a new one
at each start, which drops a torn end, and whenever events outweigh the snapshot. One controller, no fault
tolerance: its disk is the only copy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from typing import TYPE_CHECKING

import orjson

from orbitmq.controller.machine.events import apply, decode, encode
from orbitmq.controller.machine.group import BrokerGroup
from orbitmq.controller.storage.frames import encode_frame, read_frames
from orbitmq.controller.storage.interface import CommitError, Leadership
from orbitmq.platform.errors import DiskFaultError, StoreDamagedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.controller.machine.events import Event
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking

log = logging.getLogger("orbitmq.controller")

FILE = "events.log"
LOCK = "lock"
COMPACTED_FROM = 1 << 20
"""Bytes of events, at least those of the snapshot, at which the file is replaced."""

_SNAPSHOT = struct.pack(">h", 0)
"""Id of the record with all groups; RocketMQ has no event 0."""


class EventLog:
    """The storage of a controller that has no others."""

    def __init__(self, disk: Disk, directory: str, controller_id: str, run_blocking: RunBlocking) -> None:
        self._disk = disk
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._id = controller_id
        self._run = run_blocking
        self.address = ""
        self.on_lead: Callable[[], None] | None = None
        self._groups: dict[str, BrokerGroup] = {}
        self._size = self._snapshot_size = self._sequence = 0
        self._waiting: list[tuple[Event, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._release: Callable[[], None] | None = None

    @property
    def groups(self) -> Mapping[str, BrokerGroup]:
        return self._groups

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._size

    def leadership(self) -> Leadership:
        leads = self._release is not None and self._failure is None
        peers = ((self._id, self.address),)
        return Leadership(leads, self._id if leads else "", self.address if leads else "", peers)

    async def start(self) -> None:
        """Read the file, and begin a new one. Raises StoreError."""
        try:
            self._release = self._disk.lock(os.path.join(self._directory, LOCK))
        except BlockingIOError:
            raise StoreError(
                f"another controller uses {self._directory}: give each its own controllerStorePath"
            ) from None
        except OSError as error:
            raise DiskFaultError(f"cannot use {self._directory}: {error.strerror or error}") from error
        try:
            self._groups = self._recovered()
            self._replace()
        except BaseException:
            await self.stop()
            raise
        if self.on_lead is not None:
            self.on_lead()

    async def stop(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        release, self._release = self._release, None
        if release is not None:
            release()

    async def commit(self, event: Event) -> None:
        """Append an event; several that come together share one sync."""
        if self._failure is not None or self._release is None:
            raise CommitError(self._failure or "the controller is stopped")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((event, done))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        await asyncio.shield(done)

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            frame = encode_frame(self._sequence, [encode(event) for event, _ in batch])
            error = await self._append(frame)
            if error is None:
                for event, _ in batch:
                    _apply(self._groups, event)
                self._size += len(frame)
                self._sequence += 1
                if self._size - self._snapshot_size > max(COMPACTED_FROM, self._snapshot_size):
                    error = await self._compact()
            for _, done in batch:
                if done.done():
                    continue
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(CommitError(error))
        self._writer = None

    async def _append(self, frame: bytes) -> str | None:
        if self._failure is None:
            try:
                await self._run(lambda: self._write_frame(frame))
            except OSError as error:
                self._fail(error)
        return self._failure

    async def _compact(self) -> str | None:
        try:
            await self._run(self._replace)
        except StoreError as error:
            self._fail(error)
        return self._failure

    def _fail(self, error: Exception) -> None:
        # What is on the disk is unknown now, also whether a later sync would make it durable.
        self._failure = f"the event log {self._path} cannot be written: {error}; free the disk and restart"
        log.error("event log: %s", self._failure)

    def _write_frame(self, frame: bytes) -> None:
        at = 0
        while at < len(frame):
            at += self._disk.pwrite(self._path, self._size + at, frame[at:])
        self._disk.sync(self._path)

    def _recovered(self) -> dict[str, BrokerGroup]:
        groups: dict[str, BrokerGroup] = {}
        try:
            if self._disk.stat(self._path) is None:
                return groups
            data = self._disk.read(self._path)
        except OSError as error:
            raise DiskFaultError(f"cannot read {self._path}: {error.strerror or error}") from error
        number = -1
        try:
            for number, batch in enumerate(read_frames(data)):
                for record in batch:
                    if number == 0:
                        groups = _groups_of(record)
                    else:
                        _apply(groups, decode(record))
        except StoreDamagedError as error:
            raise StoreDamagedError(f"{self._path}: {error}") from error
        if number < 0:
            raise StoreDamagedError(f"{self._path} has no snapshot at its beginning; restore it from a backup")
        return groups

    def _replace(self) -> None:
        """Begin a new file with all groups. Raises DiskFaultError."""
        groups = [group.to_json() for _, group in sorted(self._groups.items())]
        data = encode_frame(0, [_SNAPSHOT + orjson.dumps({"groups": groups})])
        try:
            self._disk.write(self._path + ".tmp", data)
            self._disk.sync(self._path + ".tmp")
            self._disk.rename(self._path + ".tmp", self._path)
            self._disk.sync_dir(self._directory)
        except OSError as error:
            raise DiskFaultError(f"cannot write {self._path}: {error.strerror or error}") from error
        self._size = self._snapshot_size = len(data)
        self._sequence = 1


def _apply(groups: dict[str, BrokerGroup], event: Event) -> None:
    after = apply(groups.get(event.name), event)
    if after is None:
        del groups[event.name]
    else:
        groups[event.name] = after


def _groups_of(record: bytes) -> dict[str, BrokerGroup]:
    if record[: len(_SNAPSHOT)] != _SNAPSHOT:
        raise StoreDamagedError("the event log does not begin with its snapshot; restore it from a backup")
    try:
        groups = [BrokerGroup.from_json(value) for value in orjson.loads(record[len(_SNAPSHOT) :])["groups"]]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(f"the snapshot of the event log cannot be read: {error!r}") from error
    return {group.name: group for group in groups}
