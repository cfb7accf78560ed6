"""The boundary between archive and brokers: the source of each row of a topic, so that none is read twice."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.archive.directory import Archive
from orbitmq.spark.topic_source.offsets import described

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.archive.directory import Segment

Range = tuple[int, int]
"""From an offset up to another one, which is not in it."""


class ArchiveMoment(Archive):
    """A snapshot of an archive: its ends and its files match."""

    def __init__(self, path: str) -> None:
        """Raises ArchiveError and OSError."""
        super().__init__(path)
        self._now = super().segments()

    def segments(self) -> list[Segment]:
        return self._now


@dataclasses.dataclass(frozen=True, slots=True)
class Seam:
    """The rows of one topic: archived ranges, and the ranges that are read from brokers."""

    topic: str
    queues: frozenset[MessageQueue]
    """Those that brokers have."""
    archived: Mapping[MessageQueue, list[Range]]
    live: Mapping[MessageQueue, list[Range]]
    """What brokers have and the archive has not, in the order of offsets. Mostly one range a queue: the newest."""
    gaps: Mapping[MessageQueue, list[Range]]
    """What neither has, though both an older and a newer message are there."""
    shrunk: Mapping[MessageQueue, tuple[int, int]]
    """Queues that end at their broker before they end in the archive: where there, and where here."""

    @property
    def layers(self) -> list[dict[MessageQueue, Range]]:
        """The live ranges, in as few parts as possible that have one range of each queue."""
        most = max(map(len, self.live.values()), default=0)
        return [
            {queue: ranges[number] for queue, ranges in self.live.items() if number < len(ranges)}
            for number in range(most)
        ]

    @property
    def live_messages(self) -> int:
        return sum(end - start for ranges in self.live.values() for start, end in ranges)

    @property
    def archive_ends(self) -> dict[MessageQueue, int]:
        return {queue: ranges[-1][1] for queue, ranges in self.archived.items()}

    def warnings(self) -> list[str]:
        """Warnings for readers of both as one table, a sentence each."""
        warnings = [
            f"the offsets {start} to {end - 1} of {described([queue])} are neither in the archive nor at the broker"
            " any more: they are missing from the answer"
            for queue, ranges in sorted(self.gaps.items())
            for start, end in ranges
        ]
        warnings += [
            f"{described([queue])} ends at {there} at its broker and at {here} in the archive: only what is"
            " archived is read of it up to there; was the topic deleted and created again?"
            for queue, (there, here) in sorted(self.shrunk.items())
        ]
        return warnings


def seam_of(topic: str, segments: Iterable[Segment], bounds: Mapping[MessageQueue, Bounds]) -> Seam:
    """Compute the ranges of a topic from archive segments and broker queues."""
    archived: dict[MessageQueue, list[Range]] = {}
    for segment in segments:
        for queue, (start, end) in segment.ranges.items():
            if queue in segment.recreated:
                # Offsets of before mean other messages, which are archived as well and nowhere else.
                archived.pop(queue, None)
            if queue.topic == topic and start < end:
                archived.setdefault(queue, []).append((start, end))
    archived = {queue: _merged(ranges) for queue, ranges in archived.items()}
    live = {
        queue: left
        for queue, ends in bounds.items()
        if (left := _without((ends.min, ends.max), archived.get(queue, [])))
    }
    gaps = {
        queue: between
        for queue in {*archived, *live}
        if (between := _between(_merged(archived.get(queue, []) + live.get(queue, []))))
    }
    shrunk = {
        queue: (ends.max, archived[queue][-1][1])
        for queue, ends in bounds.items()
        if queue in archived and ends.max < archived[queue][-1][1]
    }
    return Seam(topic, frozenset(bounds), archived, live, gaps, shrunk)


def _merged(ranges: Iterable[Range]) -> list[Range]:
    found: list[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _without(whole: Range, taken: Iterable[Range]) -> list[Range]:
    """A range minus other ranges, which are sorted."""
    start, end = whole
    left = []
    for first, last in taken:
        if start < min(first, end):
            left.append((start, min(first, end)))
        start = max(start, last)
    if start < end:
        left.append((start, end))
    return left


def _between(ranges: list[Range]) -> list[Range]:
    return [(left[1], right[0]) for left, right in itertools.pairwise(ranges)]
