"""Election policy: the replica that becomes master of a group."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.controller.machine.group import BrokerGroup

MAX_EPOCH = (1 << 31) - 1
"""Epochs are int32 on the wire."""

MAX_LEAD = 1 << 20
"""Epochs that a log can be ahead of its group. A report beyond it is damaged: it must not use up the numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """The last heartbeat of a replica."""

    epoch: int
    max_offset: int
    confirm_offset: int
    priority: int
    """``brokerElectionPriority``: the smaller one wins among equals."""

    @property
    def position(self) -> tuple[int, int]:
        """The end of its log: what an election compares first."""
        return self.epoch, self.max_offset


class Replicas(Protocol):
    """Liveness of one group's replicas at one moment."""

    def report(self, broker_id: int) -> Report | None:
        """The last heartbeat; None if the replica is not alive."""

    def is_gone(self, broker_id: int) -> bool:
        """True if the replica is known to be dead; False also while a new controller has yet to hear of it."""


def candidates(group: BrokerGroup, replicas: Replicas, *, unclean: bool) -> tuple[int, ...]:
    """Ids that may become master: in sync and alive; all alive ones if there is none of these and ``unclean``."""
    alive = _alive(group.in_sync, replicas)
    return alive if alive or not unclean else _alive(sorted(group.replicas), replicas)


def elected(group: BrokerGroup, replicas: Replicas, *, designated: int | None, unclean: bool) -> int | None:
    """The winner of an election, which may be the present master; None without a candidate."""
    found = candidates(group, replicas, unclean=unclean)
    if designated is not None:
        return designated if designated in found else None
    if group.master is not None and group.master in found:
        return group.master
    return best(found, replicas)


def best(found: Iterable[int], replicas: Replicas) -> int | None:
    """The candidate with the newest epoch and longest log, then the smallest priority, then the smallest id."""

    def rank(broker_id: int) -> tuple[int, int, int, int]:
        report = replicas.report(broker_id)
        assert report is not None, "candidates are alive"
        return -report.epoch, -report.max_offset, report.priority, broker_id

    return min(found, key=rank, default=None)


def next_epoch(group: BrokerGroup, replicas: Replicas) -> int:
    """The epoch that an election begins: above that of the group, and of every log of its living replicas.

    Logs are ahead of the group only if the controller has lost its state; their brokers would refuse older epochs.
    """
    reports = [replicas.report(broker_id) for broker_id in group.replicas]
    limit = group.master_epoch + MAX_LEAD
    epochs = [one.epoch for one in reports if one is not None and one.epoch <= limit]
    return max(group.master_epoch, *epochs, 0) + 1


def _alive(ids: Iterable[int], replicas: Replicas) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in ids if replicas.report(broker_id) is not None)
