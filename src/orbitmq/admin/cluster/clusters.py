"""Clusters: their brokers, roles and totals."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.cluster.topology import fetch_cluster_info, fetch_topology

if TYPE_CHECKING:
    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.cluster.runtime import BrokerStatus
    from orbitmq.admin.session import AdminSession
    from orbitmq.protocol.bodies import ClusterInfo


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterSummary:
    """A cluster in a list."""

    name: str
    broker_names: tuple[str, ...]
    masters: int
    slaves: int
    without_master: tuple[str, ...]
    """Broker names without a registered master: nothing can be sent to them."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster with the live figures of its brokers."""

    summary: ClusterSummary
    brokers: tuple[BrokerStatus, ...]

    @property
    def put_tps(self) -> float:
        """Messages stored per second by the masters."""
        return sum(one.runtime.put_tps for one in self.brokers if one.runtime and one.broker.is_master)

    @property
    def get_tps(self) -> float:
        return sum(one.runtime.get_tps for one in self.brokers if one.runtime)

    @property
    def puts_today(self) -> int:
        return sum(one.runtime.puts_today for one in self.brokers if one.runtime and one.broker.is_master)

    @property
    def gets_today(self) -> int:
        return sum(one.runtime.gets_today for one in self.brokers if one.runtime)


class Clusters:
    """The clusters that the name servers know."""

    def __init__(self, session: AdminSession, brokers: Brokers) -> None:
        self._session = session
        self._brokers = brokers

    async def all(self) -> list[ClusterSummary]:
        """All clusters, in one request."""
        topology = await fetch_topology(self._session)
        orphans = set(topology.without_master())
        found = []
        for name, members in topology.clusters.items():
            brokers = topology.of_cluster(name)
            masters = sum(one.is_master for one in brokers)
            without = tuple(member for member in members if member in orphans)
            found.append(ClusterSummary(name, members, masters, len(brokers) - masters, without))
        return found

    async def describe(self, cluster: str = "") -> list[ClusterDescription]:
        """One cluster, or all, with the figures of their brokers: one request per broker. Raises NotFoundError."""
        statuses = await self._brokers.all(cluster)
        wanted = cluster or self._session.config.cluster
        return [
            ClusterDescription(
                summary, tuple(one for one in statuses if one.broker.broker_name in summary.broker_names)
            )
            for summary in await self.all()
            if not wanted or summary.name == wanted
        ]

    async def info(self) -> ClusterInfo:
        """The name server's table of brokers, as it sends it."""
        return await fetch_cluster_info(self._session)
