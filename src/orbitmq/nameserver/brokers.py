"""Values of the route table: brokers, broker groups, registrations and their results."""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

    from orbitmq.protocol.bodies import DataVersion, TopicQueueMappingInfo

MASTER_ID = 0

DEFAULT_HEARTBEAT_TIMEOUT_MS = 120_000
"""For brokers that register without a heartbeat timeout."""

BrokerKey: TypeAlias = tuple[str, str]
"""Cluster and address: the identity of a broker, whatever its name and id."""


class Queues(NamedTuple):
    """The queues of a topic on one broker."""

    read: int
    write: int
    perm: int
    sys_flag: int


@dataclasses.dataclass(slots=True)
class Registration:
    """The content of a registration (103)."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    data_version: DataVersion
    topics: dict[str, Queues]
    mappings: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    """Static topics, with the logical queues that this broker leads."""
    filter_servers: list[str] | None = None
    """None if the registration has none, as those of brokers before 3.0.11: they stay unchanged."""
    heartbeat_timeout_ms: int = DEFAULT_HEARTBEAT_TIMEOUT_MS
    enable_acting_master: bool | None = None
    """None is a broker before 5.0, which cannot act as a master."""
    zone: str | None = None


@dataclasses.dataclass(slots=True)
class Broker:
    """A registered broker."""

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
    """The brokers of one name, by id: a master and its slaves. Never empty."""

    cluster: str
    name: str
    members: dict[int, Broker] = field(default_factory=dict)
    zone: str | None = None
    enable_acting_master: bool = False

    @property
    def addresses(self) -> dict[int, str]:
        # Of a copy: a thread may read while members change.
        members = dict(self.members)
        return {broker_id: members[broker_id].address for broker_id in sorted(members)}


@dataclasses.dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """A change of the smallest broker id of a group, with the recipients of its notification (905)."""

    min_id: int
    min_address: str
    offline_address: str | None
    ha_address: str | None
    recipients: tuple[str, ...]

    @classmethod
    def joined(cls, group: BrokerGroup, ha_address: str) -> MinBrokerIdChange:
        """A broker with a smaller id joined. The other members are notified, or itself if it is alone."""
        addresses = group.addresses
        smallest = min(addresses)
        others = tuple(address for broker_id, address in addresses.items() if broker_id != smallest)
        return cls(smallest, addresses[smallest], None, ha_address, others or (addresses[smallest],))

    @classmethod
    def left(cls, group: BrokerGroup, offline_address: str) -> MinBrokerIdChange:
        """The broker with the smallest id left. All others are notified."""
        addresses = group.addresses
        smallest = min(addresses)
        return cls(smallest, addresses[smallest], offline_address, None, tuple(addresses.values()))


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """Result of a registration: the address of the master, if it is another known broker, and the notification."""

    master_address: str | None = None
    ha_address: str | None = None
    change: MinBrokerIdChange | None = None
