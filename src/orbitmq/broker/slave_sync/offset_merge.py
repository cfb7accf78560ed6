"""Consumer offsets of a slave: adopts those of the master, and returns to it what consumers committed here.

Consumers commit at the slave while the master is away. RocketMQ's slave overwrites those commits when the master is
back, and consumers get messages again. Here they go to the master, but never move a group back there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.slave_sync.master_client import MasterRefusedError
from orbitmq.broker.time_slices import in_slices
from orbitmq.platform.json_files import ConfigFile
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.broker.offsets.table import Offsets, OffsetTable
    from orbitmq.broker.slave_sync.master_client import MasterClient

log = logging.getLogger("orbitmq.broker")

SLAVE_COMMITS = ConfigFile("orbitmqSlaveCommits.json", ConsumerOffsetSerializeWrapper)
"""Commits of consumers at this slave that the master does not have yet. RocketMQ ignores the file."""

IN_FLIGHT = 64
"""Commits that are sent to the master at once."""

_UNKNOWN_THERE = frozenset(
    {
        int(ResponseCode.TOPIC_NOT_EXIST),
        int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        int(ResponseCode.INVALID_PARAMETER),
    }
)
"""Responses of a master that does not have the topic, group or queue."""


class OffsetMerge:
    """Merges the offset tables of a slave and its master."""

    def __init__(self, offsets: OffsetTable, writer: ConfigWriter) -> None:
        self._offsets = offsets
        self._writer = writer
        self._seen: set[str] = set()
        """Topics and groups that the master had at the last merge."""
        self._persisted: Offsets = {}

    def load(self) -> None:
        """Load commits that the master did not get before the last stop. Raises StoreError."""
        self._persisted = self._writer.load(SLAVE_COMMITS).offset_table
        self._offsets.unsent = {key: dict(queues) for key, queues in self._persisted.items()}

    @property
    def unsent(self) -> Offsets:
        """Commits of consumers at this slave that the master does not have yet."""
        assert self._offsets.unsent is not None, "not loaded"
        return self._offsets.unsent

    def persist(self) -> None:
        """Schedule a write of the unsent commits if they have changed."""
        if self.unsent != self._persisted:
            self._persisted = {key: dict(queues) for key, queues in self.unsent.items()}
            table = ConsumerOffsetSerializeWrapper(self._persisted)
            self._writer.mark(SLAVE_COMMITS, lambda: table, is_copy=True)

    async def adopt(self, table: ConsumerOffsetSerializeWrapper) -> None:
        """Take over the master's offsets, except where a consumer has committed more here."""
        async for key, queues in in_slices(table.offset_table.items()):
            offsets = {queue_id: offset for queue_id, offset in queues.items() if queue_id >= 0 and offset >= 0}
            own = self.unsent.get(key)
            for queue_id, offset in list(own.items()) if own else ():
                if offset > offsets.get(queue_id, -1):
                    offsets[queue_id] = offset
                else:
                    self._sent(key, queue_id, offset)
            self._offsets.adopt(key, offsets)
        for key in self._seen - table.offset_table.keys() - self.unsent.keys():
            self._offsets.forget(key)
        self._seen = set(table.offset_table)
        if table.data_version is not None:
            self._offsets.data_version = table.data_version

    async def give_back(self, master: MasterClient) -> int:
        """Commit at the master what it does not have; returns the number of commits.

        Raises MasterRefusedError, RemotingError, ProtocolError; what was not sent stays for the next call.
        """
        waiting = [
            (key, queue_id, offset) for key, queues in self.unsent.items() for queue_id, offset in queues.items()
        ]
        given = 0
        for start in range(0, len(waiting), IN_FLIGHT):
            some = waiting[start : start + IN_FLIGHT]
            given += sum(await asyncio.gather(*(self._give_one(master, *one) for one in some)))
        return given

    async def _give_one(self, master: MasterClient, key: str, queue_id: int, offset: int) -> int:
        topic, _, group = key.partition("@")
        try:
            # An Apache master would move the group back: consumers may have committed there meanwhile.
            if await master.query_offset(group, topic, queue_id) >= offset:
                self._sent(key, queue_id, offset)
                return 0
            await master.commit_offset(group, topic, queue_id, offset)
        except MasterRefusedError as error:
            if error.code not in _UNKNOWN_THERE:
                raise
            # The first heartbeat of a consumer creates its group at the master.
            log.debug("slave_sync: master does not take offset %d of %s, will retry: %s", offset, key, error)
            return 0
        self._sent(key, queue_id, offset)
        return 1

    def _sent(self, key: str, queue_id: int, offset: int) -> None:
        """Drop a commit that the master has, unless a consumer has committed again meanwhile."""
        queues = self.unsent.get(key)
        if queues is not None and queues.get(queue_id) == offset:
            del queues[queue_id]
            if not queues:
                del self.unsent[key]
