"""The plan of a migration round: source offsets and target queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.migrate.endpoints import Queue, Span
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def left_of(
    bounds: Mapping[Queue, tuple[int, int]], done: Mapping[Queue, int], name: str
) -> dict[Queue, tuple[int, int]]:
    """By queue what is not migrated yet, where there is something. Raises PipelineError if some of it is gone."""
    found = {}
    for queue, (first, end) in bounds.items():
        start = done.get(queue, first)
        if start > end:
            raise PipelineError(
                f"{queue} was migrated up to {start} and ends at {end}: it was made again; begin another migration "
                f"than {name!r} with --name"
            )
        if start < first:
            raise PipelineError(
                f"{queue} has lost the messages from {start} to {first} before they were migrated; begin another "
                f"migration than {name!r} with --name"
            )
        if start < end:
            found[queue] = (start, end)
    return found


def next_spans(left: Mapping[Queue, tuple[int, int]], most: int) -> list[Span]:
    """The next round: at most so many offsets of all queues together, but something of each."""
    open_ones = sorted(left.items(), key=lambda item: item[1][1] - item[1][0])
    shares: dict[Queue, int] = {}
    for number, (queue, (start, end)) in enumerate(open_ones):
        # What short queues leave of their shares, longer ones may have.
        shares[queue] = share = min(end - start, max(most // (len(open_ones) - number), 1))
        most = max(most - share, 0)
    ordered = sorted(left, key=lambda queue: queue.order)
    return [Span(queue, left[queue][0], left[queue][0] + shares[queue]) for queue in ordered]


def routed(
    sources: Iterable[Queue], targets: Mapping[str, Sequence[Queue]], topics: Mapping[str, str]
) -> dict[Queue, Queue]:
    """By source queue the one that its messages go to: that of its name, or of its place among the others.

    ``topics`` are target topics by those they come from, ``targets`` their queues.
    """
    by_topic: dict[str, list[Queue]] = {}
    for queue in sources:
        by_topic.setdefault(queue.topic, []).append(queue)
    found = {}
    for topic, queues in by_topic.items():
        ordered = sorted(targets[topics[topic]], key=lambda queue: queue.order)
        has_all = {queue.name for queue in queues} <= {queue.name for queue in ordered}
        for place, queue in enumerate(sorted(queues, key=lambda queue: queue.order)):
            found[queue] = Queue(topics[topic], queue.name) if has_all else ordered[place % len(ordered)]
    return found


def narrowed(spans: Iterable[Span], written: Mapping[Queue, int]) -> list[Span]:
    """The rest of a round: the messages of a queue are written in order."""
    found = []
    for span in spans:
        start = max(span.start, written.get(span.queue, span.start - 1) + 1)
        if start < span.end:
            found.append(Span(span.queue, start, span.end))
    return found


def topics_of(given: Sequence[str]) -> dict[str, str]:
    """By topic the one that it becomes, from ``name`` and ``name:other`` texts. Raises PipelineError."""
    found: dict[str, str] = {}
    for text in given:
        topic, colon, other = (part.strip() for part in text.partition(":"))
        if not topic or (colon and not other):
            raise PipelineError(f"{text!r} is not a topic: write name, or name:other to rename it in the target")
        if topic in found:
            raise PipelineError(f"the topic {topic!r} is named twice")
        found[topic] = other or topic
    if not found:
        raise PipelineError("say which topics to migrate")
    if len(set(found.values())) < len(found):
        raise PipelineError("two topics cannot become one: their queues would be mixed; give each its own name")
    return found
