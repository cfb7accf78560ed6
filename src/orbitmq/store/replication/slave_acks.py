"""SlaveAcks: how far each slave has the log, and how far enough of them have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import ItemsView

    from orbitmq.store.replication.settings import ReplicationSettings

SlaveT = TypeVar("SlaveT")

EVERYTHING = 1 << 63
"""The offset up to which no slave is needed: all of them."""


class SlaveAcks(Generic[SlaveT]):
    """Acknowledged ends of the log by slave, and RocketMQ's rules of how many count."""

    def __init__(self, config: ReplicationSettings) -> None:
        self._config = config
        self._ends: dict[SlaveT, int] = {}
        self.alive_replicas = config.total_replicas
        """Brokers of this name that are alive, this one included, as far as known. For acting masters only."""

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def ends(self) -> ItemsView[SlaveT, int]:
        return self._ends.items()

    def update(self, slave: SlaveT, end: int) -> None:
        self._ends[slave] = end

    def remove(self, slave: SlaveT) -> None:
        self._ends.pop(slave, None)

    def is_in_sync(self, acked: int, log_end: int) -> bool:
        return log_end - acked < self._config.max_gap_in_sync

    def in_sync(self, log_end: int) -> int:
        """Brokers that are in sync, this one included."""
        return 1 + sum(self.is_in_sync(acked, log_end) for acked in self._ends.values())

    def needed(self, log_end: int, *, may_act: bool) -> int:
        """Brokers that must have a message, this one included. ``may_act``: slaves may act as master here.

        Only such a group lowers the number (``enableAutoInSyncReplicas``), as in RocketMQ.
        """
        config = self._config
        if may_act and config.enable_auto_in_sync_replicas:
            available = min(self.alive_replicas, self.in_sync(log_end))
            return max(min(config.in_sync_replicas, available), config.min_in_sync_replicas)
        return config.in_sync_replicas

    def is_short(self, log_end: int, *, may_act: bool) -> bool:
        """True if a group with acting masters has fewer replicas in sync than a message needs."""
        if not may_act:
            return False
        needed = self.needed(log_end, may_act=True)
        return needed > 1 and needed > min(self.alive_replicas, self.in_sync(log_end))

    def acked_end(self, log_end: int, *, may_act: bool) -> int:
        """The log up to here is on enough brokers; -1 while there are not enough slaves at all."""
        slaves = self.needed(log_end, may_act=may_act) - 1
        acked = sorted(self._ends.values(), reverse=True)
        end = EVERYTHING
        if slaves > 0:
            end = acked[slaves - 1] if slaves <= len(acked) else -1
        if self._config.all_ack_in_sync_state_set:
            # Without a controller: every connected slave that is not too far behind.
            end = min([end, *(one for one in acked if self.is_in_sync(one, log_end))])
        return end
