"""Lag of all groups of a cluster, with the sums that lists and plots show."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.group.model import GroupTotals
    from orbitmq.admin.group.progress import GroupProgress


@dataclasses.dataclass(frozen=True, slots=True)
class LagTable:
    """The progress of all groups at one time. The sums are made once, by the thread that reads it."""

    read_at: float
    """By the monotonic clock."""
    progress: Mapping[str, GroupProgress]
    totals: Mapping[str, GroupTotals]
    ends: Mapping[str, int]
    """By topic: the sum of the offsets of the next message, in the queues that groups have consumed."""

    @classmethod
    def of(cls, progress: Mapping[str, GroupProgress], read_at: float) -> LagTable:
        queues: dict[str, dict[tuple[str, int], int]] = {}
        for one in progress.values():
            for topic, broker_name, queue_id, end, *_ in one.rows:
                queues.setdefault(topic, {})[broker_name, queue_id] = end
        ends = {topic: sum(parts.values()) for topic, parts in queues.items()}
        return cls(read_at, progress, {group: one.totals() for group, one in progress.items()}, ends)
