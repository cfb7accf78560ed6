"""Consumer offsets: on brokers for clustering groups, in a local file for broadcasting ones.

Both stores update offsets in memory and write them in ``persist``.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from typing import TYPE_CHECKING, Protocol

from orbitmq.client.errors import BrokerError, NoRouteError, OrbitMQError
from orbitmq.protocol.bodies import OffsetSerializeWrapper
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.json_files import ConfigFile
    from orbitmq.protocol.bodies import MessageQueue

log = logging.getLogger("orbitmq.client")

OFFSET_SECONDS = 5.0
"""Timeout of offset requests, as in Java."""


class OffsetStore(Protocol):
    """The offsets of one group."""

    def read(self, queue: MessageQueue) -> int | None:
        """The offset in memory, or None."""

    async def fetch(self, queue: MessageQueue) -> int | None:
        """The persisted offset of the group, or None. Raises OrbitMQError, RemotingError."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """Set the offset in memory."""

    def remove(self, queue: MessageQueue) -> None:
        """Drop the offset in memory, after the queue moved to another member. The persisted one stays."""

    def table(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offsets in memory of a topic's queues."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None, *, confirmed: bool = False) -> None:
        """Persist the offsets of these queues, or of all. Failures are logged, the next call retries.

        ``confirmed`` waits for the broker's response.
        """

    async def close(self) -> None:
        """Release resources."""


class _OffsetTable:
    """Offsets in memory, for both stores."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        if not increase_only or offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)

    def table(self, topic: str) -> Mapping[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if not topic or queue.topic == topic}


class RemoteOffsets(_OffsetTable):
    """Offsets on the brokers, each with those of its queues."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

    async def fetch(self, queue: MessageQueue) -> int | None:
        command = self._command(RequestCode.QUERY_CONSUMER_OFFSET, queue)
        try:
            answer = await self._instance.call(await self._address(queue), command, OFFSET_SECONDS)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return int(answer.ext_fields["offset"])

    async def persist(self, queues: Iterable[MessageQueue] | None = None, *, confirmed: bool = False) -> None:
        chosen = list(self._offsets if queues is None else queues)
        await asyncio.gather(
            *(self._persist(queue, self._offsets[queue], confirmed) for queue in chosen if queue in self._offsets)
        )

    async def close(self) -> None:
        pass

    async def _persist(self, queue: MessageQueue, offset: int, confirmed: bool) -> None:
        command = self._command(RequestCode.UPDATE_CONSUMER_OFFSET, queue)
        command.ext_fields["commitOffset"] = str(offset)
        try:
            address = await self._address(queue)
            if confirmed:
                await self._instance.call(address, command, OFFSET_SECONDS)
            else:
                (await self._instance.connection(address)).call_oneway(command)
        except (OrbitMQError, RemotingError) as error:
            log.warning("offsets: could not commit those of %s for %s, will retry: %s", self._group, queue, error)

    def _command(self, code: RequestCode, queue: MessageQueue) -> Command:
        fields = {
            "consumerGroup": self._group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "bname": queue.broker_name,
        }
        return Command(code, ext_fields=fields, language=LanguageCode.PYTHON)

    async def _address(self, queue: MessageQueue) -> str:
        return await broker_address(self._instance, queue)


class LocalOffsets(_OffsetTable):
    """Offsets in a local file, with the path and format of Java's clients."""

    def __init__(self, directory: str, client_id: str, group: str, disk: Disk | None = None) -> None:
        """``directory`` is the one for all clients; empty for ``.rocketmq_offsets`` in the home directory."""
        # Lazy: only broadcasting consumers need a disk.
        from orbitmq.platform.json_files import ConfigFile  # noqa: PLC0415
        from orbitmq.platform.local_disk import LocalDisk  # noqa: PLC0415

        super().__init__()
        root = directory or os.path.join(os.path.expanduser("~"), ".rocketmq_offsets")
        self.directory = os.path.join(root, client_id, group)
        self._disk = disk or LocalDisk()
        self._file: ConfigFile[OffsetSerializeWrapper] = ConfigFile("offsets.json", OffsetSerializeWrapper)
        self._persisted: dict[MessageQueue, int] = {}
        """What the file contains, or will after the write in flight."""
        self._is_saved = True
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None

    def load(self) -> None:
        """Read the file, or its ``.bak``. Raises StoreError."""
        self._persisted = dict(self._file.load(self._disk, self.directory).offset_table)

    async def fetch(self, queue: MessageQueue) -> int | None:
        return self._persisted.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None, *, confirmed: bool = False) -> None:  # noqa: ARG002
        """Writes the whole file; it is synced when this returns."""
        chosen = self._offsets if queues is None else {queue: self._offsets.get(queue) for queue in queues}
        changed = {queue: offset for queue, offset in chosen.items() if offset is not None}
        if self._is_saved and all(self._persisted.get(queue) == offset for queue, offset in changed.items()):
            return
        self._persisted.update(changed)
        self._is_saved = True
        data = self._file.encode(OffsetSerializeWrapper(dict(self._persisted)))
        if self._thread is None:
            self._thread = concurrent.futures.ThreadPoolExecutor(1, "orbitmq-offsets")
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._file.replace, self._disk, self.directory, data)
        except Exception as error:
            self._is_saved = False
            log.warning("offsets: could not write %s, will retry: %s", self.directory, error)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()


async def broker_address(instance: ClientInstance, queue: MessageQueue) -> str:
    """Address of a queue's master, or one of its slaves. Raises NoRouteError and errors of the route look-up."""
    address = instance.address(queue.topic, queue.broker_name, only_this=False)
    if address is None:
        await instance.refresh(queue.topic)
        address = instance.address(queue.topic, queue.broker_name, only_this=False)
    if address is None:
        raise NoRouteError(queue.topic, f"the broker {queue.broker_name} is not known")
    return address
