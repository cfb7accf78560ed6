"""The plan of the next segment: the range of each queue, and expired messages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.archive.directory import ArchiveError
from orbitmq.spark.topic_source.offsets import described
from orbitmq.spark.topic_source.partitioning import shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.archive.directory import Range

QUEUES_AT_ONCE = 2000
"""Most of one segment: all of them are named in the options of its Spark job."""


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """One segment."""

    ranges: Mapping[MessageQueue, Range]
    """What is archived afterwards. Begins where the archive ends."""
    readable: Mapping[MessageQueue, Range]
    """What of it the brokers still had when it was planned."""
    recreated: frozenset[MessageQueue] = frozenset()

    @property
    def messages(self) -> int:
        return sum(end - start for start, end in self.readable.values())

    @property
    def lost(self) -> dict[MessageQueue, Range]:
        """The offsets that expired at the brokers."""
        begins = {queue: self.readable.get(queue, (end, end))[0] for queue, (_, end) in self.ranges.items()}
        return {queue: (start, begins[queue]) for queue, (start, _) in self.ranges.items() if start < begins[queue]}


def recreated_queues(
    ends: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]
) -> frozenset[MessageQueue]:
    """Queues that are shorter than what is archived of them: they are other queues of the same names."""
    return frozenset(queue for queue, found in bounds.items() if ends.get(queue, 0) > found.max)


def refuse_recreated(
    queues: frozenset[MessageQueue], ends: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]
) -> None:
    """Raises ArchiveError if there are any."""
    if queues:
        first = min(queues)
        raise ArchiveError(
            f"{described(queues)} is archived up to {ends[first]} but ends at {bounds[first].max}: if the topic "
            "was deleted and created again, --accept-recreated archives it from its new start, beside what is there"
        )


def waiting(ends: Mapping[MessageQueue, int], targets: Mapping[MessageQueue, int]) -> int:
    """The number of offsets that wait to be archived."""
    return sum(max(target - ends.get(queue, target), 0) for queue, target in targets.items())


def plan(
    ends: Mapping[MessageQueue, int],
    bounds: Mapping[MessageQueue, Bounds],
    targets: Mapping[MessageQueue, int],
    most: int,
    recreated: frozenset[MessageQueue] = frozenset(),
) -> Planned | None:
    """The next segment; None if there is nothing to archive.

    ``ends`` has the archived end of every queue of ``targets``, and the first offset of those that were
    ``recreated``. ``most`` messages are shared out among the queues.
    """
    open_ranges: dict[MessageQueue, Range] = {}
    for queue, target in targets.items():
        found = bounds.get(queue)
        end = 0 if found is None else min(target, found.max)
        if ends[queue] < end:
            open_ranges[queue] = (ends[queue], end)
    if not open_ranges:
        return None
    fullest = sorted(open_ranges, key=lambda queue: (open_ranges[queue][0] - open_ranges[queue][1], queue))
    chosen = sorted(fullest[:QUEUES_AT_ONCE])
    begins = {queue: min(max(open_ranges[queue][0], bounds[queue].min), open_ranges[queue][1]) for queue in chosen}
    sizes = {queue: open_ranges[queue][1] - begins[queue] for queue in chosen}
    given = shared(most, {queue: size for queue, size in sizes.items() if size})
    readable = {queue: (begins[queue], begins[queue] + size) for queue, size in given.items()}
    ranges = {queue: (open_ranges[queue][0], begins[queue] + given.get(queue, 0)) for queue in chosen}
    return Planned(ranges, readable, recreated & ranges.keys())
