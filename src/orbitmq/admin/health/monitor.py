"""Monitor: what RocketMQ's monitoring service looks at, one consumer group at a time.

A group is looked at if it has a retry topic and members. Members say by themselves what they do.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError
from orbitmq.protocol.bodies import PROP_CONSUME_ORDERLY, PROP_CONSUME_TYPE, PROP_CONSUMER_START_TIMESTAMP
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.client import AdminClient
    from orbitmq.admin.group.model import QueueLag
    from orbitmq.protocol.bodies import ConsumerRunningInfo, MessageQueue, ProcessQueueInfo

PUSH = "CONSUME_PASSIVELY"
SETTLED_MS = 120_000
"""Subscriptions are compared once a member has run for so long: a release changes them one member at a time."""
BLOCKED_MS = 60_000
"""A queue whose member has messages and consumed none for longer is reported."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backlog:
    """What a group has not consumed of a topic."""

    group: str
    topic: str
    total: int
    largest: int
    """Of one queue."""
    delay_ms: int
    """The largest time between the last message stored in a queue and the last one consumed."""


class Trouble(enum.StrEnum):
    """What is wrong with a queue of a member."""

    NOT_LOCKED = "not locked"
    NOT_UNLOCKED = "not unlocked"
    BLOCKED = "blocked"


@dataclasses.dataclass(frozen=True, slots=True)
class StuckQueue:
    """A queue that a member does not get on with."""

    client_id: str
    queue: MessageQueue
    trouble: Trouble
    amount: int
    """Milliseconds, or attempts to unlock it."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupReport:
    """What one round says about a group."""

    group: str
    backlogs: tuple[Backlog, ...] = ()
    subscriptions_agree: bool = True
    stuck: tuple[StuckQueue, ...] = ()


async def monitored_groups(admin: AdminClient) -> list[str]:
    """The groups with a retry topic. Raises UnreachableError."""
    names = await admin.topics.all_names()
    return sorted({name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX)})


async def report_on(admin: AdminClient, group: str) -> GroupReport | None:
    """The state of a group; None if it has no members. Raises AdminError if brokers do not respond."""
    try:
        connections = await admin.members.connections(group)
    except AdminError:
        return None
    lag = await admin.lag.of_group(group, may_be_empty=True)
    by_topic: dict[str, list[QueueLag]] = {}
    for queue in lag.queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    backlogs = [await _backlog(admin, group, topic, queues) for topic, queues in sorted(by_topic.items())]
    done, _ = await admin.session.gather(
        [member.client_id for member in connections.members],
        lambda client: admin.members.running_info(group, client),
    )
    now_ms = admin.session.now_ms()
    stuck = [one for client, info in sorted(done.items()) for one in stuck_queues(client, info, now_ms)]
    return GroupReport(group, tuple(backlogs), subscriptions_agree(done, now_ms), tuple(stuck))


async def _backlog(admin: AdminClient, group: str, topic: str, queues: list[QueueLag]) -> Backlog:
    try:
        stats = await admin.topics.stats(topic)
    except AdminError:
        # Deleted in between, or without queues: how far behind it is in time is not known.
        stored = {}
    else:
        stored = {
            (queue.broker_name, queue.queue_id): ends.last_update_timestamp
            for queue, ends in stats.offset_table.items()
        }
    delays = [
        stored.get((one.broker_name, one.queue_id), 0) - one.last_timestamp_ms
        for one in queues
        if one.last_timestamp_ms > 0
    ]
    lags = [one.lag for one in queues]
    return Backlog(group, topic, sum(lags), max(lags, default=0), max(0, *delays) if delays else 0)


def subscriptions_agree(members: Mapping[str, ConsumerRunningInfo], now_ms: int) -> bool:
    """False if push consumers that have run for a while subscribe to different things."""
    found = {
        tuple(sorted((one.topic, one.sub_string, one.expression_type or "") for one in info.subscription_set))
        for info in members.values()
        if _is_push(info) and now_ms - _number(info.properties.get(PROP_CONSUMER_START_TIMESTAMP)) > SETTLED_MS
    }
    return len(found) <= 1


def stuck_queues(client_id: str, info: ConsumerRunningInfo, now_ms: int) -> list[StuckQueue]:
    """The queues of a push consumer that it cannot lock or unlock, or whose messages it does not consume."""
    if not _is_push(info):
        return []
    is_orderly = info.properties.get(PROP_CONSUME_ORDERLY) == "true"
    found = []
    for queue, state in sorted(info.mq_table.items()):
        trouble = _orderly_trouble(state, now_ms) if is_orderly else _trouble(state, now_ms)
        if trouble is not None:
            found.append(StuckQueue(client_id, queue, *trouble))
    return found


def _orderly_trouble(state: ProcessQueueInfo, now_ms: int) -> tuple[Trouble, int] | None:
    if not state.locked:
        return Trouble.NOT_LOCKED, now_ms - state.last_lock_timestamp
    if state.droped and state.try_unlock_times > 0:
        return Trouble.NOT_UNLOCKED, state.try_unlock_times
    return None


def _trouble(state: ProcessQueueInfo, now_ms: int) -> tuple[Trouble, int] | None:
    idle_ms = now_ms - state.last_consume_timestamp
    return (Trouble.BLOCKED, idle_ms) if idle_ms > BLOCKED_MS and state.cached_msg_count > 0 else None


def _is_push(info: ConsumerRunningInfo) -> bool:
    return info.properties.get(PROP_CONSUME_TYPE) == PUSH


def _number(text: str | None) -> int:
    try:
        return int(text or "0")
    except ValueError:
        return 0
