"""The state of a cluster at a glance: rates, totals, and the findings of the health check."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, TypeVar

from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.admin.health.model import Severity, Thresholds
from orbitmq.admin.topic.model import TopicKind

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orbitmq.dashboard.clusters import ManagedCluster

T = TypeVar("T")

HEALTH_SECONDS = 20.0
"""Lifetime of a health check, which reads more than the figures."""
FIRST_CHECK_SECONDS = 1.0
LIMITS = Thresholds(max_groups=50)


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """A finding. ``severity`` is ``critical`` or ``warning``."""

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
    """The overview. What cannot be read is a problem in it. Raises AdminError without a name server."""
    descriptions = await cluster.clusters()
    brokers = [one for description in descriptions for one in description.brokers]
    problems: list[Problem] = []
    findings, topics, groups = await asyncio.gather(
        _or_problem(_findings(cluster), "health", problems),
        _or_problem(cluster.topics(), "topics", problems),
        _or_problem(cluster.groups(), "groups", problems),
    )
    problems += findings or ()
    own_groups = [one for one in groups or () if not one.is_system]
    return Overview(
        [one.summary.name for one in descriptions],
        len(brokers),
        sum(one.runtime is not None for one in brokers),
        sum(one.put_tps for one in descriptions),
        sum(one.get_tps for one in descriptions),
        sum(one.puts_today for one in descriptions),
        sum(one.gets_today for one in descriptions),
        sum(one.kind is TopicKind.NORMAL for one in topics or ()),
        len(own_groups),
        sum(one.lag or 0 for one in own_groups),
        sorted(problems, key=lambda one: (one.severity, one.subject)),
    )


async def _findings(cluster: ManagedCluster) -> list[Problem]:
    """The findings of the health check. The page does not wait for the first check of a large cluster."""
    check = cluster.cache.get(
        "health",
        HEALTH_SECONDS,
        lambda: cluster.background.read(lambda admin: admin.health.check(thresholds=LIMITS)),
        may_be_old=True,
    )
    try:
        report = await asyncio.wait_for(check, FIRST_CHECK_SECONDS)
    except TimeoutError:
        return [Problem("warning", "health", "the first check of this cluster still runs")]
    found = [one for one in report.findings if one.severity is not Severity.OK]
    return [Problem(one.severity.name.lower(), one.subject, one.text) for one in found]


async def _or_problem(work: Awaitable[T], subject: str, problems: list[Problem]) -> T | None:
    try:
        return await work
    except AdminError as error:
        problems.append(Problem("warning", subject, f"not read: {error}"))
        return None


def check_name_server(cluster: ManagedCluster, address: str) -> None:
    """Only name servers of the cluster are read: a console is no way to reach other hosts. Raises NotFoundError."""
    known = cluster.admin.config.name_servers
    if address and address not in known:
        raise NotFoundError("name server", address, f"the cluster has {', '.join(known)}")
