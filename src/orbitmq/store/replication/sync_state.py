"""SyncState: the replicas that count for an acknowledgement in controller mode, and how far they have the log.

The effective set is the union of the set that the controller confirmed and of every set that this master has
requested since: a request without an answer may have been accepted, or may still be. It holds for replicas that
leave as for those that join, so that whichever set the controller elects from has every acknowledged message.
(Apache 5.5.0 drops a lost slave from its own set at once and loses messages by that.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.replication.slave_acks import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.store.replication.settings import ReplicationSettings


DOUBT_SECONDS = 60.0
"""A controller that is stopped for longer may apply a request that this master does not expect any more."""


class SyncState:
    """The sync state set of one master in one epoch."""

    def __init__(self, config: ReplicationSettings, own_id: int, members: Iterable[int], epoch: int) -> None:
        self._config = config
        self.own_id = own_id
        self.members = frozenset(members) | {own_id}
        """As the controller confirmed it."""
        self.epoch = epoch
        """Of the set, not of the master."""
        self._requested: frozenset[int] = frozenset()
        self._doubt_until = 0.0
        """Until then a request without an answer may still be applied."""
        self.confirmed = 0
        """The confirm offset: consumers read the log up to here. It never goes back."""

    @property
    def waits_for_all(self) -> bool:
        """True if a message counts only when every replica of the set has it."""
        return self._config.all_ack_in_sync_state_set

    # Changes

    def request(self, members: Iterable[int]) -> None:
        """Note a set that is sent to the controller now."""
        self._requested |= frozenset(members)

    def doubt(self, now: float) -> None:
        """The last request has no answer: it may wait in the buffer of a controller that is stopped."""
        self._doubt_until = now + DOUBT_SECONDS

    def refuse(self, now: float) -> None:
        """The controller refused the last request: it did not and will not become the set.

        An earlier one without an answer still may, so it counts on.
        """
        if now >= self._doubt_until:
            self._requested = frozenset()

    def confirm(self, members: Iterable[int], epoch: int) -> bool:
        """Take over the controller's set; False for one that is older than the known one.

        A newer epoch makes all requests of the older one void, which were made with its number.
        """
        if epoch < self.epoch:
            return False
        if epoch > self.epoch:
            self._requested = frozenset()
            self._doubt_until = 0.0
        self.members = frozenset(members) | {self.own_id}
        self.epoch = epoch
        return True

    @property
    def effective(self) -> frozenset[int]:
        """Every replica that may be elected with this set."""
        return self.members | self._requested

    # What the acknowledgements of slaves amount to

    @property
    def is_short(self) -> bool:
        """True if too few replicas are in sync to store anything (``minInSyncReplicas``)."""
        return len(self.members) < self._config.min_in_sync_replicas

    def acked_end(self, acks: Mapping[int, int]) -> int:
        """The log up to here is on enough replicas; -1 if a replica that counts is not connected.

        ``acks``: ends of the logs of connected slaves by their ids, learners excluded.
        """
        if self._config.all_ack_in_sync_state_set:
            return self._all(acks)
        slaves = self._config.in_sync_replicas - 1
        if slaves <= 0:
            return EVERYTHING
        ends = sorted(acks.values(), reverse=True)
        return ends[slaves - 1] if slaves <= len(ends) else -1

    def _all(self, acks: Mapping[int, int]) -> int:
        return min((acks.get(one, -1) for one in self.effective if one != self.own_id), default=EVERYTHING)

    def advance(self, log_end: int, acks: Mapping[int, int]) -> int:
        """Raise the confirm offset as far as the acknowledgements allow, and return it."""
        end = self._all(acks) if self._config.all_ack_in_sync_state_set else EVERYTHING
        self.confirmed = max(self.confirmed, min(log_end, end))
        return self.confirmed
