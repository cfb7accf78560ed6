"""Reading from replicas: when a master sends a slow reader to its slave, and how a slave answers pulls.

A slave may lack the newest messages, and the oldest: a new one copies the log from the last file on. So it never
moves a consumer to another offset, unless ``offsetCheckInSlave`` allows it. While its master answers it sends there
whoever finds nothing here; otherwise it holds the pull like a master. RocketMQ's slave answers such pulls at once,
and its consumers repeat them without a pause until the master is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.pull.request import PullRequest
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.store.reader import GetResult

MASTER_ID = 0

SLAVE_MARGIN = 10
"""Per cent of memory by which a reader has to be nearer to the end of the log before a slave sends it back to the
master, as in RocketMQ: at the same distance it would go back and forth."""

_FOUND = int(ResponseCode.SUCCESS)
_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)
_AGAIN = int(ResponseCode.PULL_RETRY_IMMEDIATELY)


class ReplicaReads:
    """Decisions about pulls that depend on the role of the broker."""

    def __init__(self, runtime: BrokerRuntime, groups: GroupTable) -> None:
        self._config = runtime.config
        self._store_config = runtime.store.config
        self._reader = runtime.store.reader
        self._role = runtime.role
        self._groups = groups

    def check(self) -> None:
        """Raise RequestRefusedError on a slave whose operator does not allow reading, or that has no master yet."""
        role = self._role
        is_allowed = (self._config.slave_read_enable or role.acts_as_master) and not role.is_isolated
        if role.is_slave and not is_allowed:
            raise RequestRefusedError(
                "[REJECTREQUEST]system busy, start flow control for a while", ResponseCode.SYSTEM_BUSY
            )

    def code(self, code: int, result: GetResult, request: PullRequest) -> int:
        """The code to answer with, for the code that a master would use. May change ``next_begin_offset``."""
        role = self._role
        if not role.is_slave or code == _FOUND:
            return code
        if code == _MOVED and not self._store_config.offset_check_in_slave:
            result.next_begin_offset = request.offset
            code = _NOT_FOUND
        return _AGAIN if role.is_master_alive and code == _NOT_FOUND else code

    def suggested(self, group: str, behind: int = 0) -> int:
        """The id of the broker that a group should pull from next.

        ``behind``: bytes of the log between the last record that it was given and the end. The answer for a group
        near the end changes with the role, the settings and the group only.
        """
        if not self._config.slave_read_enable:
            return MASTER_ID
        config, role = self._groups.configs[group], self._role
        if role.acts_as_master:
            return MASTER_ID  # routes show it with this id
        if role.is_slave and not role.is_master_alive:
            return role.broker_id  # the route of the client may still have the master
        if behind > self.far:
            return config.which_broker_when_consume_slowly
        return MASTER_ID if role.is_slave else config.broker_id

    @property
    def far(self) -> int:
        """Bytes to the end of the log beyond which a reader is slow."""
        window = self._reader.memory_window
        if not self._role.is_slave:
            return window
        ratio = self._store_config.access_message_in_memory_max_ratio
        return window * max(ratio - SLAVE_MARGIN, 0) // max(ratio, 1)
