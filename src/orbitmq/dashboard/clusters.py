"""The clusters of a console: an operator's client each, with short caches for what pages read again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from orbitmq.admin import AdminClient
from orbitmq.admin.errors import NotFoundError
from orbitmq.admin.topic.model import TopicKind
from orbitmq.dashboard.cache import Cache

if TYPE_CHECKING:
    from orbitmq.admin.cluster.clusters import ClusterDescription
    from orbitmq.admin.cluster.name_servers import NameServerStatus
    from orbitmq.admin.cluster.runtime import BrokerStatus
    from orbitmq.admin.group.model import GroupDescription, GroupSummary
    from orbitmq.admin.message.dead_letters import DeadLetterQueue
    from orbitmq.admin.topic.model import TopicDescription, TopicSummary
    from orbitmq.dashboard.config import ClusterTarget, DashboardConfig

LIVE_SECONDS = 2.0
"""Lifetime of figures of brokers and of one topic or group."""
LIST_SECONDS = 5.0
"""Lifetime of lists of topics and groups, which read whole tables."""

MAX_CONCURRENT_REQUESTS = 16
"""Requests at one time to each cluster, of all viewers together."""


class ManagedCluster:
    """The clusters behind one set of name servers."""

    def __init__(self, target: ClusterTarget, config: DashboardConfig) -> None:
        self.name = target.name
        self.name_servers = target.name_servers
        self.admin = AdminClient(
            target.name_servers,
            access_key=config.access_key,
            secret_key=config.secret_key,
            max_concurrent_requests=MAX_CONCURRENT_REQUESTS,
        )
        self.cache = Cache(time.monotonic)

    async def brokers(self) -> list[BrokerStatus]:
        """All brokers with their live figures."""
        return await self.cache.get("brokers", LIVE_SECONDS, self.admin.brokers.all)

    async def clusters(self) -> list[ClusterDescription]:
        """All clusters with the figures of their brokers."""
        return await self.cache.get("clusters", LIVE_SECONDS, self.admin.clusters.describe)

    async def cluster_names(self) -> list[str]:
        return [one.summary.name for one in await self.clusters()]

    async def name_server_list(self) -> list[NameServerStatus]:
        return await self.cache.get("name servers", LIVE_SECONDS, self.admin.name_servers.all)

    async def topics(self) -> list[TopicSummary]:
        """All topics, of all kinds."""
        kinds = tuple(TopicKind)
        return await self.cache.get("topics", LIST_SECONDS, lambda: self.admin.topics.all(kinds=kinds))

    async def topic(self, name: str) -> TopicDescription:
        """One topic with queues and groups. Raises NotFoundError."""
        return await self.cache.get(("topic", name), LIVE_SECONDS, lambda: self.admin.topics.describe(name))

    async def groups(self) -> list[GroupSummary]:
        """All groups with their lag, those of RocketMQ itself too."""
        return await self.cache.get(
            "groups", LIST_SECONDS, lambda: self.admin.groups.all(with_system=True, with_lag=True)
        )

    async def group(self, name: str) -> GroupDescription:
        """One group with members, subscriptions and lag. Raises NotFoundError."""
        return await self.cache.get(("group", name), LIVE_SECONDS, lambda: self.admin.groups.describe(name))

    async def dead_letters(self) -> list[DeadLetterQueue]:
        """The dead letter topics with their number of messages."""
        return await self.cache.get("dead letters", LIST_SECONDS, self.admin.dead_letters.all)


class ClusterSet:
    """All clusters of a console, by name."""

    def __init__(self, config: DashboardConfig) -> None:
        self._clusters = {target.name: ManagedCluster(target, config) for target in config.targets}

    def all(self) -> list[ManagedCluster]:
        return list(self._clusters.values())

    @property
    def first(self) -> ManagedCluster:
        return next(iter(self._clusters.values()))

    def get(self, name: str) -> ManagedCluster:
        """Raises NotFoundError."""
        if name not in self._clusters:
            raise NotFoundError("cluster", name, f"this console has {', '.join(self._clusters)}")
        return self._clusters[name]

    async def start(self) -> None:
        """Make ready. Nothing is sent, so that a console starts while its clusters are down."""
        for cluster in self._clusters.values():
            await cluster.admin.start()

    async def close(self) -> None:
        for cluster in self._clusters.values():
            await cluster.admin.close()
