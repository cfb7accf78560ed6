"""The state of a cluster at a glance: rates, totals, and what needs attention."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.admin.topic.model import TopicKind

if TYPE_CHECKING:
    from orbitmq.admin.cluster.runtime import BrokerStatus
    from orbitmq.admin.group.model import GroupSummary
    from orbitmq.admin.topic.model import TopicSummary
    from orbitmq.dashboard.clusters import ManagedCluster

DISK_WARNING = 0.75
DISK_CRITICAL = 0.85
LAG_WARNING = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs attention. ``severity`` is ``critical`` or ``warning``."""

    severity: str
    subject: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Overview:
    """The figures of the first page."""

    clusters: list[str]
    brokers: int
    brokers_up: int
    put_tps: float
    get_tps: float
    puts_today: int
    gets_today: int
    topics: int
    groups: int
    lag: int
    problems: list[Problem]


async def overview_of(cluster: ManagedCluster) -> Overview:
    """The overview. A broker that does not respond is a problem in it. Raises AdminError without a name server."""
    descriptions = await cluster.clusters()
    brokers = [one for description in descriptions for one in description.brokers]
    problems = _broker_problems(brokers)
    for description in descriptions:
        for name in description.summary.without_master:
            problems.append(Problem("critical", name, "no master is registered: nothing can be sent to it"))
    for server in await cluster.name_server_list():
        if not server.is_reachable:
            problems.append(Problem("critical", server.address, f"name server: {server.reason}"))
    topics, groups = await asyncio.gather(_topics(cluster, problems), _groups(cluster, problems))
    problems += [
        Problem("warning", one.name, f"lag of {one.lag:,} messages")
        for one in groups
        if not one.is_system and (one.lag or 0) >= LAG_WARNING
    ]
    return Overview(
        [one.summary.name for one in descriptions],
        len(brokers),
        sum(one.runtime is not None for one in brokers),
        sum(one.put_tps for one in descriptions),
        sum(one.get_tps for one in descriptions),
        sum(one.puts_today for one in descriptions),
        sum(one.gets_today for one in descriptions),
        sum(one.kind is TopicKind.NORMAL for one in topics),
        sum(not one.is_system for one in groups),
        sum(one.lag or 0 for one in groups if not one.is_system),
        sorted(problems, key=lambda one: (one.severity, one.subject)),
    )


async def _topics(cluster: ManagedCluster, problems: list[Problem]) -> list[TopicSummary]:
    try:
        return await cluster.topics()
    except AdminError as error:
        problems.append(Problem("warning", "topics", f"not counted: {error}"))
        return []


async def _groups(cluster: ManagedCluster, problems: list[Problem]) -> list[GroupSummary]:
    try:
        return await cluster.groups()
    except AdminError as error:
        problems.append(Problem("warning", "groups", f"not counted: {error}"))
        return []


def _broker_problems(brokers: list[BrokerStatus]) -> list[Problem]:
    found = []
    for status in brokers:
        name = f"{status.broker.broker_name} ({status.broker.address})"
        if status.runtime is None:
            found.append(Problem("critical", name, f"does not respond: {status.reason}"))
        elif status.runtime.disk_ratio >= DISK_WARNING:
            severity = "critical" if status.runtime.disk_ratio >= DISK_CRITICAL else "warning"
            found.append(Problem(severity, name, f"the disk is {status.runtime.disk_ratio:.0%} full"))
    return found


def check_name_server(cluster: ManagedCluster, address: str) -> None:
    """Only name servers of the cluster are read: a console is no way to reach other hosts. Raises NotFoundError."""
    known = cluster.admin.config.name_servers
    if address and address not in known:
        raise NotFoundError("name server", address, f"the cluster has {', '.join(known)}")
