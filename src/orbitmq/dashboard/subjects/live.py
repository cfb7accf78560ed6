"""Clients and events of a cluster, for pages and REST."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import UnsupportedError
from orbitmq.admin.group.model import Member
from orbitmq.protocol.broker_events import MAX_EVENTS
from orbitmq.protocol.names import TRACE_PRODUCER_GROUP_PREFIX, is_system_group
from orbitmq.protocol.versions import version_name

if TYPE_CHECKING:
    from orbitmq.admin.cluster.events import Event
    from orbitmq.dashboard.clusters import ManagedCluster


@dataclasses.dataclass(frozen=True, slots=True)
class Events:
    """Events of all brokers, newest first, or why there are none."""

    events: list[Event]
    reason: str


def is_internal(group: str) -> bool:
    """True for groups that clients join by themselves: for retries, traces, and RocketMQ's own tools."""
    return is_system_group(group) or group.startswith(TRACE_PRODUCER_GROUP_PREFIX)


async def producers(cluster: ManagedCluster) -> dict[str, list[Member]]:
    """The members of all producer groups."""
    return await cluster.cache.get("producers", 5.0, cluster.admin.members.all_producers)


async def events(cluster: ManagedCluster, *, since_ms: int = 0, kinds: str = "", limit: int = 200) -> Events:
    """The newest events of all brokers. Raises InvalidRequestError; brokers of Apache keep no history."""
    wanted = [kind for kind in kinds.split(",") if kind.strip()]
    try:
        found = await cluster.admin.events.read(since_ms=since_ms, kinds=wanted, limit=min(limit, MAX_EVENTS))
    except UnsupportedError:
        return Events([], "The brokers keep no history: they are not brokers of OrbitMQ.")
    return Events(list(reversed(found)), "")


MAX_GROUPS = 3000
"""Groups whose members are read for the list of consumers: one request per group and broker."""
CONSUMERS_SECONDS = 15.0


async def connected_consumers(cluster: ManagedCluster) -> dict[str, list[Member]]:
    """The members of all consumer groups that have some."""
    return await cluster.cache.get("consumers", CONSUMERS_SECONDS, lambda: _read_consumers(cluster))


async def _read_consumers(cluster: ManagedCluster) -> dict[str, list[Member]]:
    """One request per group and broker, within the session's limit of concurrent requests."""
    addresses = [status.broker.address for status in await cluster.brokers() if status.runtime is not None]
    groups = [group.name for group in await cluster.groups()][:MAX_GROUPS]
    pairs = [(group, address) for group in groups for address in addresses]
    done, _ = await cluster.admin.session.gather(
        pairs, lambda pair: cluster.admin.members.consumer_table(pair[1], pair[0])
    )
    found: dict[str, dict[str, Member]] = {}
    for (group, _address), table in done.items():
        for one in table.connection_set:
            member = Member(one.client_id, one.client_addr, one.language or "", version_name(max(one.version, 0)))
            found.setdefault(group, {})[member.client_id] = member
    return {group: sorted(members.values()) for group, members in sorted(found.items())}
