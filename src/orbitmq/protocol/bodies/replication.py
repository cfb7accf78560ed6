"""Masters and slaves: sync state sets, elections, epochs, and what a broker knows of its replicas."""

import dataclasses
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.bodies.routing import BrokerMemberGroup


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SyncStateSet(Body):
    """The replicas that have everything (1001, 1003, 1004, 1008)."""

    sync_state_set: list[int] = field(default_factory=list)
    sync_state_set_epoch: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ElectMasterResponseBody(Body):
    """Result of an election (1002)."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ReplicaIdentity(Body):
    """One replica as the controller knows it."""

    broker_name: str = ""
    broker_id: int | None = None
    broker_address: str | None = None
    alive: bool | None = None
    # Of its last heartbeat; sent by OrbitMQ's controller only. Java ignores them.
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    election_priority: int | None = None
    heartbeat_age_millis: int | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ReplicasInfo(Body):
    """The replicas that share a broker name."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BrokerReplicasInfo(Body):
    """Replicas by broker name (1006)."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


LAST_END_OFFSET = 2**63 - 1
"""The end of an epoch that goes on."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class EpochEntry(Body):
    """The stretch of the commit log that one master wrote."""

    epoch: int = 0
    start_offset: int = 0
    end_offset: int = LAST_END_OFFSET


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class EpochEntryCache(Body):
    """All epochs of a broker's commit log (1007)."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class HAConnectionRuntimeInfo(Body):
    """A slave as its master sees it."""

    addr: str | None = None
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class HAClientRuntimeInfo(Body):
    """A master as its slave sees it."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class HARuntimeInfo(Body):
    """A broker's replication as of now (907)."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
