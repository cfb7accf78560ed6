"""Values about consumer groups: in a list, their members, their lag, and the settings of a change."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.bodies import SubscriptionGroupConfig


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of a group. None leaves a value as it is, or as brokers create it."""

    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    consume_message_orderly: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    group_retry_policy: Mapping[str, object] | None = None
    """As RocketMQ writes it: ``{"type": "EXPONENTIAL", "exponentialRetryPolicy": {…}}``."""
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None
    consume_timeout_minute: int | None = None
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remove_attributes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPlacement:
    """The settings of a group at one broker."""

    broker_name: str
    config: SubscriptionGroupConfig


@dataclasses.dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group in a list. ``lag`` is None where it was not read."""

    name: str
    is_system: bool
    placements: tuple[GroupPlacement, ...]
    lag: int | None = None
    inflight: int | None = None
    consume_tps: float | None = None
    topics: tuple[str, ...] = ()
    """The topics with committed offsets, where the lag was read."""

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(place.broker_name for place in self.placements)

    def with_lag(self, totals: GroupTotals | None) -> GroupSummary:
        """The same with its lag. None: no broker has offsets of it."""
        known = NO_LAG if totals is None else totals
        return GroupSummary(
            self.name,
            self.is_system,
            self.placements,
            known.lag,
            known.inflight,
            known.consume_tps,
            known.topics,
        )


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Member:
    """A client that is connected for a group."""

    client_id: str
    address: str
    language: str
    version: str


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Subscription:
    """The part of a topic that a group, or one member, subscribes to."""

    topic: str
    expression: str
    expression_type: str


@dataclasses.dataclass(frozen=True, slots=True)
class Connections:
    """The members of a group, as its brokers know them."""

    group: str
    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    consume_type: str
    message_model: str
    consume_from: str


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriptionCheck:
    """The subscriptions of each member of a group. They must all be equal, or messages are lost."""

    by_member: Mapping[str, tuple[Subscription, ...]]
    unknown: Mapping[str, str]
    """Members that did not report, with the reason."""

    @property
    def agree(self) -> bool:
        """All members that reported subscribe to the same."""
        return len(set(self.by_member.values())) <= 1


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class QueueLag:
    """The progress of a group in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp_ms: int
    """Store time of the last consumed message; 0 if unknown."""
    client_id: str = ""
    """The member that has the queue, where that was read."""

    @property
    def lag(self) -> int:
        """Messages that are not consumed. An offset behind the end, after a lost log, counts as none."""
        return max(0, self.broker_offset - self.consumer_offset)

    @property
    def inflight(self) -> int:
        """Messages that members have and have not consumed; 0 where the broker does not report it."""
        return max(0, self.pull_offset - self.consumer_offset)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupLag:
    """The progress of a group in all its queues."""

    group: str
    queues: tuple[QueueLag, ...]
    consume_tps: float

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def inflight(self) -> int:
        return sum(queue.inflight for queue in self.queues)

    def by_topic(self) -> dict[str, int]:
        """The lag of each topic."""
        found: dict[str, int] = {}
        for queue in self.queues:
            found[queue.topic] = found.get(queue.topic, 0) + queue.lag
        return found


@dataclasses.dataclass(frozen=True, slots=True)
class GroupTotals:
    """The progress of a group as lists show it."""

    lag: int
    inflight: int
    consume_tps: float
    topics: tuple[str, ...]
    """The topics with committed offsets, sorted."""


NO_LAG = GroupTotals(0, 0, 0.0, ())


@dataclasses.dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with settings, members, subscriptions and lag."""

    name: str
    placements: tuple[GroupPlacement, ...]
    connections: Connections | None
    """None if no member is connected."""
    check: SubscriptionCheck | None
    lag: GroupLag
    dead_letters: int
    """Messages in its dead letter topic."""

    @property
    def is_online(self) -> bool:
        return self.connections is not None


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group
