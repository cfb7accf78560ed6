"""How far a group has come: kept by the brokers for members that share, in a file for one that gets everything.

Both remember in memory what they are told and make it last when ``persist`` is called.
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
from orbitmq.protocol.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.store.config_json import ConfigFile
    from orbitmq.store.disk import Disk

log = logging.getLogger("orbitmq.client")

OFFSET_SECONDS = 5.0
"""How long a broker has to answer, as in Java."""


class OffsetStore(Protocol):
    """The offsets of one group."""

    def read(self, queue: MessageQueue) -> int | None:
        """What was last told here; None if nothing was."""

    async def fetch(self, queue: MessageQueue) -> int | None:
        """What was last persisted, by whomever; None if nothing was. Raises OrbitMQError, RemotingError."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        """The group has come so far."""

    def remove(self, queue: MessageQueue) -> None:
        """The queue is somebody else's now; what was persisted stays."""

    def table(self, topic: str) -> Mapping[MessageQueue, int]:
        """What was told of the queues of a topic."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None, *, confirmed: bool = False) -> None:
        """Make what was told of these queues, or of all, last. Problems are logged: there is a next time.

        ``confirmed`` waits until it is sure.
        """

    async def close(self) -> None:
        """Keep nothing open."""


class _Told:
    """What both kinds have in memory."""

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


class RemoteOffsets(_Told):
    """Offsets that the brokers keep, each those of its own queues."""

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
        wanted = list(self._offsets if queues is None else queues)
        await asyncio.gather(
            *(self._persist(queue, self._offsets[queue], confirmed) for queue in wanted if queue in self._offsets)
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
            log.warning("the offset of %s in %s is not persisted yet: %s", self._group, queue, error)

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


class LocalOffsets(_Told):
    """Offsets in a file of this machine, where Java's clients have theirs and in their form."""

    def __init__(self, directory: str, client_id: str, group: str, disk: Disk | None = None) -> None:
        """``directory`` is the one for all clients; empty for ``.rocketmq_offsets`` in the home directory."""
        # The store is for those who broadcast only; other clients start faster without it.
        from orbitmq.store.config_json import ConfigFile  # noqa: PLC0415
        from orbitmq.store.disk import LocalDisk  # noqa: PLC0415

        super().__init__()
        root = directory or os.path.join(os.path.expanduser("~"), ".rocketmq_offsets")
        self.directory = os.path.join(root, client_id, group)
        self._disk = disk or LocalDisk()
        self._file: ConfigFile[OffsetSerializeWrapper] = ConfigFile("offsets.json", OffsetSerializeWrapper)
        self._kept: dict[MessageQueue, int] = {}
        """What is in the file, or is being written to it."""
        self._is_saved = True
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None

    def load(self) -> None:
        """Read the file, or its ``.bak``. Raises StoreError."""
        self._kept = dict(self._file.load(self._disk, self.directory).offset_table)

    async def fetch(self, queue: MessageQueue) -> int | None:
        return self._kept.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None, *, confirmed: bool = False) -> None:  # noqa: ARG002
        """The whole file is written in any case, and it is sure when this returns."""
        told = self._offsets if queues is None else {queue: self._offsets.get(queue) for queue in queues}
        changed = {queue: offset for queue, offset in told.items() if offset is not None}
        if self._is_saved and all(self._kept.get(queue) == offset for queue, offset in changed.items()):
            return
        self._kept.update(changed)
        self._is_saved = True
        data = self._file.encode(OffsetSerializeWrapper(dict(self._kept)))
        if self._thread is None:
            self._thread = concurrent.futures.ThreadPoolExecutor(1, "orbitmq-offsets")
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._file.replace, self._disk, self.directory, data)
        except Exception as error:
            self._is_saved = False
            log.warning("the offsets in %s are not persisted yet: %s", self.directory, error)

    async def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()


async def broker_address(instance: ClientInstance, queue: MessageQueue) -> str:
    """Where the master of a queue is, or one of its slaves. Raises NoRouteError and what asking for routes does."""
    address = instance.address(queue.topic, queue.broker_name, only_this=False)
    if address is None:
        await instance.refresh(queue.topic)
        address = instance.address(queue.topic, queue.broker_name, only_this=False)
    if address is None:
        raise NoRouteError(queue.topic, f"the broker {queue.broker_name} is not known")
    return address
