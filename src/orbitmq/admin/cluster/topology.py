"""Topology: the brokers of a cluster with their addresses, and which of them a request is for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.admin.session import decode
from orbitmq.protocol.bodies import ClusterInfo
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orbitmq.admin.session import AdminSession

MASTER = 0


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class BrokerAddress:
    """A broker: a master (id 0) or a slave."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """All brokers that are registered, in the order of cluster, name and id."""

    brokers: tuple[BrokerAddress, ...]
    clusters: Mapping[str, tuple[str, ...]]
    """Broker names by cluster."""

    @classmethod
    def of(cls, info: ClusterInfo) -> Topology:
        brokers = [
            BrokerAddress(data.cluster or _cluster_of(info, name), name, broker_id, address)
            for name, data in info.broker_addr_table.items()
            for broker_id, address in data.broker_addrs.items()
        ]
        clusters = {name: tuple(sorted(members)) for name, members in sorted(info.cluster_addr_table.items())}
        return cls(tuple(sorted(brokers)), clusters)

    @property
    def masters(self) -> tuple[BrokerAddress, ...]:
        return tuple(broker for broker in self.brokers if broker.is_master)

    def without_master(self) -> list[str]:
        """Broker names whose master is not registered."""
        return sorted({broker.broker_name for broker in self.brokers} - {one.broker_name for one in self.masters})

    def readers(self, cluster: str = "") -> list[BrokerAddress]:
        """One broker per name, its master where there is one, for reads. Raises NotFoundError."""
        chosen: dict[str, BrokerAddress] = {}
        for broker in self.of_cluster(cluster):
            chosen.setdefault(broker.broker_name, broker)
        return list(chosen.values())

    def of_cluster(self, cluster: str = "") -> list[BrokerAddress]:
        """The brokers of a cluster, or all. Raises NotFoundError."""
        if cluster and cluster not in self.clusters:
            raise NotFoundError("cluster", cluster, _alternatives(self.clusters))
        return [broker for broker in self.brokers if not cluster or broker.cluster == cluster]

    def named(self, broker: str) -> list[BrokerAddress]:
        """The master and slaves with a name, or the one with an address. Raises NotFoundError."""
        found = [one for one in self.brokers if broker in {one.broker_name, one.address}]
        if not found and _is_address(broker):
            # A broker may be reachable and not registered, for example while it is taken out of service.
            found = [BrokerAddress("", broker, MASTER, broker)]
        if not found:
            raise NotFoundError("broker", broker, _alternatives({one.broker_name for one in self.brokers}))
        return found

    def targets(
        self, cluster: str = "", broker: str = "", *, slaves: bool = False, for_change: bool = True
    ) -> list[BrokerAddress]:
        """The brokers that a request is for: of a cluster, or one. Raises NotFoundError, InvalidRequestError.

        A change that names neither is for the only cluster, and is refused if there are several.
        """
        if broker:
            found = self.named(broker)
            chosen = found if slaves or broker == found[0].address else [one for one in found if one.is_master]
            if not chosen:
                raise NotFoundError("master of the broker", broker, "start it, or name the address of a slave")
            return chosen
        if not cluster and for_change and len(self.clusters) > 1:
            raise InvalidRequestError(f"name the cluster: there are {', '.join(self.clusters)}")
        if not cluster and not self.brokers:
            raise NotFoundError("broker", "any", "no broker is registered at the name server")
        members = self.of_cluster(cluster)
        return members if slaves else [one for one in members if one.is_master]

    def address_of(self, broker_name: str) -> str:
        """The address of a broker name: its master's, or else a slave's. Raises NotFoundError."""
        return self.named(broker_name)[0].address


async def fetch_topology(session: AdminSession) -> Topology:
    """The topology as the name server has it. Raises AdminError."""
    return Topology.of(await fetch_cluster_info(session))


async def fetch_cluster_info(session: AdminSession) -> ClusterInfo:
    """The name server's table of brokers, as it sends it. Raises AdminError."""
    answer = await session.call_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
    return decode(ClusterInfo, answer, "the name server")


def addresses(brokers: Iterable[BrokerAddress]) -> list[str]:
    return [broker.address for broker in brokers]


def _cluster_of(info: ClusterInfo, broker_name: str) -> str:
    return next((name for name, members in info.cluster_addr_table.items() if broker_name in members), "")


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal()


def _alternatives(names: Iterable[str]) -> str:
    known: Sequence[str] = sorted(names)
    if not known:
        return "none is registered at the name server"
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return f"there are {', '.join(known[:5])}{more}"
