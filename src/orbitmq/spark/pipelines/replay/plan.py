"""The plan of a replay: the queues of each sender and their targets. Whole queues, to preserve order."""

from __future__ import annotations

import dataclasses
import heapq
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orbitmq.spark.pipelines.replay.counter import Counted


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run."""

    rows: Mapping[MessageQueue, int]
    """By source queue; of none there is nothing to send."""
    senders: Mapping[MessageQueue, int]
    """By source queue its sender, counted from 0."""
    routes: Mapping[MessageQueue, MessageQueue]
    """By source queue the one that its messages go to."""
    done: Mapping[MessageQueue, int]
    """By source queue the position up to which they were sent before."""
    first_us: int
    last_us: int
    has_gone_back: bool

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @property
    def span_seconds(self) -> float:
        """The time span of the archived messages."""
        return (self.last_us - self.first_us) / 1e6

    @property
    def rows_by_sender(self) -> list[int]:
        found = [0] * (max(self.senders.values()) + 1)
        for queue, sender in self.senders.items():
            found[sender] += self.rows[queue]
        return found


def plan(
    counted: Mapping[MessageQueue, Counted],
    routes: Mapping[MessageQueue, MessageQueue],
    done: Mapping[MessageQueue, int],
    senders: int,
) -> Plan:
    """``counted`` has what is left to send, and is not empty."""
    rows = {queue: of.rows for queue, of in counted.items()}
    return Plan(
        rows,
        shared_out(rows, senders),
        {queue: routes[queue] for queue in counted},
        {queue: done[queue] for queue in counted if queue in done},
        min(of.first_us for of in counted.values()),
        max(of.last_us for of in counted.values()),
        any(of.has_gone_back for of in counted.values()),
    )


def shared_out(rows: Mapping[MessageQueue, int], senders: int) -> dict[MessageQueue, int]:
    """By queue its sender, of which each has about the same to do: the longest queue to who has least."""
    loads = [(0, number) for number in range(min(senders, len(rows)))]
    found = {}
    for queue in sorted(rows, key=lambda queue: (-rows[queue], queue)):
        load, number = heapq.heappop(loads)
        found[queue] = number
        heapq.heappush(loads, (load + rows[queue], number))
    return found


def routed(
    sources: Iterable[MessageQueue], to_topic: str | None, targets: Mapping[str, Sequence[MessageQueue]]
) -> dict[MessageQueue, MessageQueue]:
    """By source queue the queue of its target topic: the one of the same broker and number, or else one in turn."""
    found = {}
    turns = dict.fromkeys(targets, 0)
    for source in sorted(sources):
        topic = to_topic or source.topic
        same = MessageQueue(topic, source.broker_name, source.queue_id)
        queues = sorted(targets[topic])
        found[source] = same if same in queues else queues[turns[topic] % len(queues)]
        turns[topic] += 1
    return found
