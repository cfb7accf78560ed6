"""Broker group: the replicas that share a broker name, their master, and the replicas that have everything."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orbitmq.platform.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_ID = 1
"""The first id of a group; RocketMQ counts from 1, and 0 is what name servers call the master."""


@dataclasses.dataclass(frozen=True, slots=True)
class Replica:
    """One broker of a group, as registered."""

    address: str
    check_code: str
    """``address;time`` of its first application, which proves that an id is its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerGroup:
    """The replicated state of one broker name (RocketMQ: BrokerReplicaInfo and SyncStateInfo)."""

    cluster: str
    name: str
    next_id: int = FIRST_ID
    replicas: Mapping[int, Replica] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    master_epoch: int = 0
    """Grows with every election; 0 until the first one."""
    set_epoch: int = 0
    """Grows with every change of the in-sync set."""
    in_sync: tuple[int, ...] = ()
    """Ids of the sync-state set, ascending."""
    master: int | None = None

    @property
    def master_address(self) -> str | None:
        return None if self.master is None else self.replicas[self.master].address

    def to_json(self) -> dict[str, Any]:
        """The plain form, as snapshots and etcd have it."""
        return {
            "clusterName": self.cluster,
            "brokerName": self.name,
            "nextAssignBrokerId": self.next_id,
            "brokers": {str(id_): [one.address, one.check_code] for id_, one in sorted(self.replicas.items())},
            "masterEpoch": self.master_epoch,
            "syncStateSetEpoch": self.set_epoch,
            "syncStateSet": list(self.in_sync),
            "masterBrokerId": self.master,
        }

    @classmethod
    def from_json(cls, value: Any) -> BrokerGroup:
        """The group of a plain form. Raises StoreDamagedError."""
        try:
            brokers = {int(id_): Replica(str(one[0]), str(one[1])) for id_, one in value["brokers"].items()}
            master = value["masterBrokerId"]
            group = cls(
                str(value["clusterName"]),
                str(value["brokerName"]),
                int(value["nextAssignBrokerId"]),
                MappingProxyType(brokers),
                int(value["masterEpoch"]),
                int(value["syncStateSetEpoch"]),
                tuple(sorted(int(one) for one in value["syncStateSet"])),
                None if master is None else int(master),
            )
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise StoreDamagedError(
                f"a broker group cannot be read: {error!r}; restore it from a backup"
            ) from error
        if not set(group.in_sync) <= brokers.keys() or (group.master is not None and group.master not in brokers):
            raise StoreDamagedError(
                f"broker group {group.name} names replicas that it does not have; restore it from a backup"
            )
        return group
