"""Activity: rates of topics and groups, from two snapshots of a cluster's offsets."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.names import is_system_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.admin.client import AdminClient
    from orbitmq.admin.cluster.runtime import BrokerStatus
    from orbitmq.admin.group.model import GroupLag

MAX_TOPIC_REQUESTS = 1000
"""Requests for the queues of topics in one snapshot: one per topic and broker.

Topics beyond that are known by the offsets of the groups that consume them.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicCount:
    """The messages of a topic: those that are stored, and the sum of the ends of its queues."""

    messages: int | None
    """None where its queues were not read."""
    end_offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupCount:
    """The progress of a group."""

    lag: int
    consumer_offset: int
    consume_tps: float
    """As its brokers measure it."""
    topics: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at one moment."""

    time_ms: int
    brokers: tuple[BrokerStatus, ...]
    topics: Mapping[str, TopicCount]
    groups: Mapping[str, GroupCount]
    skipped_topics: int
    """Topics beyond the limit that no group consumes."""


@dataclasses.dataclass(frozen=True, slots=True)
class TopicActivity:
    """A topic with its rate; None until there are two snapshots of it."""

    name: str
    put_rate: float | None
    messages: int | None
    groups: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupActivity:
    """A group with its rate. ``lag_change`` is messages per second: above 0 it falls behind."""

    name: str
    lag: int
    consume_rate: float
    lag_change: float | None
    topics: tuple[str, ...]


async def snapshot(admin: AdminClient, *, cluster: str = "") -> Snapshot:
    """The offsets of all groups and topics now. Raises AdminError."""
    statuses = await admin.brokers.all(cluster)
    names = await admin.topics.names(cluster=cluster)
    readers = (await admin.brokers.topology()).readers(cluster or admin.config.cluster)
    lags = await admin.lag.of_all_groups([one.address for one in readers])
    topics = _consumed(names, lags.values())
    tables, _ = await admin.session.gather(names[: MAX_TOPIC_REQUESTS // max(1, len(readers))], admin.topics.stats)
    for name, table in tables.items():
        ends = table.offset_table.values()
        stored = sum(one.max_offset - one.min_offset for one in ends)
        topics[name] = TopicCount(stored, sum(one.max_offset for one in ends))
    groups = {
        name: GroupCount(
            lag.lag,
            sum(queue.consumer_offset for queue in lag.queues),
            lag.consume_tps,
            tuple(sorted(lag.by_topic())),
        )
        for name, lag in lags.items()
        if not is_system_group(name)
    }
    return Snapshot(admin.session.now_ms(), tuple(statuses), topics, groups, len(set(names) - topics.keys()))


def _consumed(names: Iterable[str], lags: Iterable[GroupLag]) -> dict[str, TopicCount]:
    """The ends of the queues that groups consume, by topic."""
    ends: dict[str, dict[tuple[str, int], int]] = {name: {} for name in names}
    for lag in lags:
        for queue in lag.queues:
            if queue.topic in ends:
                ends[queue.topic][queue.broker_name, queue.queue_id] = queue.broker_offset
    return {name: TopicCount(None, sum(found.values())) for name, found in ends.items() if found}


def topic_activity(before: Snapshot | None, after: Snapshot) -> list[TopicActivity]:
    """The topics with their rates between two snapshots."""
    users: dict[str, int] = {}
    for group in after.groups.values():
        for topic in group.topics:
            users[topic] = users.get(topic, 0) + 1
    seconds = _seconds(before, after)
    found = []
    for name, count in after.topics.items():
        old = None if before is None else before.topics.get(name)
        rate = None if old is None else max(0, count.end_offset - old.end_offset) / seconds
        found.append(TopicActivity(name, rate, count.messages, users.get(name, 0)))
    return found


def group_activity(before: Snapshot | None, after: Snapshot) -> list[GroupActivity]:
    """The groups with their rates between two snapshots; with one, the rate that brokers measure."""
    seconds = _seconds(before, after)
    found = []
    for name, count in after.groups.items():
        old = None if before is None else before.groups.get(name)
        rate, change = count.consume_tps, None
        if old is not None:
            # A reset moves offsets back, which is no consumption.
            rate = max(0, count.consumer_offset - old.consumer_offset) / seconds
            change = (count.lag - old.lag) / seconds
        found.append(GroupActivity(name, count.lag, rate, change, count.topics))
    return found


def _seconds(before: Snapshot | None, after: Snapshot) -> float:
    return 1.0 if before is None else max(0.001, (after.time_ms - before.time_ms) / 1000)
