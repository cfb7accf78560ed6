"""What a name server knows about brokers, as values."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

    from orbitmq.protocol.bodies import DataVersion, TopicQueueMappingInfo

MASTER_ID = 0

DEFAULT_HEARTBEAT_TIMEOUT_MS = 120_000
"""For brokers that do not say how long their silence may last."""

BrokerKey: TypeAlias = tuple[str, str]
"""Cluster and address: which broker this is, whatever its name and id."""


class Queues(NamedTuple):
    """A topic's queues on one broker."""

    read: int
    write: int
    perm: int
    sys_flag: int


@dataclasses.dataclass(slots=True)
class Registration:
    """What a broker says about itself (103)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion
    topics: dict[str, Queues]
    mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    """Static topics and which of their logical queues the broker leads."""
    filter_servers: list[str] | None = None
    """None if nothing is said about them, as by brokers before 3.0.11: then they stay what they are."""
    heartbeat_timeout_ms: int = DEFAULT_HEARTBEAT_TIMEOUT_MS
    enable_acting_master: bool | None = None
    """None is a broker before 5.0, which cannot act as a master."""
    zone: str | None = None


@dataclasses.dataclass(slots=True)
class Broker:
    """A broker that is alive."""

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    data_version: DataVersion
    heartbeat_timeout_ms: int
    last_seen_ms: int
    connection: Hashable
    filter_servers: list[str]

    @property
    def key(self) -> BrokerKey:
        return self.cluster, self.address


@dataclasses.dataclass(slots=True)
class BrokerGroup:
    """The brokers that share a name: a master and its slaves by their ids. There is always at least one."""

    cluster: str
    name: str
    members: dict[int, Broker] = field(default_factory=dict)
    zone: str | None = None
    enable_acting_master: bool = False

    @property
    def addresses(self) -> dict[int, str]:
        return {broker_id: self.members[broker_id].address for broker_id in sorted(self.members)}


@dataclasses.dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """Another broker has the smallest id of its group now: who is to hear of it, and what (905)."""

    min_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: tuple[str, ...]

    @classmethod
    def joined(cls, group: BrokerGroup, ha_address: str) -> MinBrokerIdChange:
        """A broker with a smaller id came. Everybody else hears of it, or it does itself if it is alone."""
        addresses = group.addresses
        smallest = min(addresses)
        others = tuple(address for broker_id, address in addresses.items() if broker_id != smallest)
        return cls(smallest, addresses[smallest], None, ha_address, others or (addresses[smallest],))

    @classmethod
    def left(cls, group: BrokerGroup, offline_address: str) -> MinBrokerIdChange:
        """The broker with the smallest id went. All that are left hear of it."""
        addresses = group.addresses
        smallest = min(addresses)
        return cls(smallest, addresses[smallest], offline_address, None, tuple(addresses.values()))


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """What came of a registration: where the master is, if it is known and somebody else, and who has to hear."""

    master_address: str | None = None
    ha_address: str | None = None
    change: MinBrokerIdChange | None = None
