"""Settings of replication, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses
import enum

from orbitmq.platform.settings import INT32_MAX, INT64_MAX, Int64, Range, setting
from orbitmq.store.ignored_settings import IgnoredStoreSettings

MAX_FRAME_BODY = 4 * 1024 * 1024 - 12
"""Log bytes of one frame: Apache's slave reads a frame with its head of 12 bytes into a buffer of 4 MiB."""


class BrokerRole(enum.Enum):
    """Role of a broker among those of its name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    """Answers a send without waiting for slaves."""
    SYNC_MASTER = "SYNC_MASTER"
    """Answers a send when ``inSyncReplicas`` brokers have it, itself included."""
    SLAVE = "SLAVE"
    """Copies the log of its master and accepts no messages."""


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationSettings(IgnoredStoreSettings):
    """Settings of the HA connection and of synchronous replication. Times are milliseconds, sizes bytes."""

    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    ha_listen_port: int = 10_912
    ha_master_address: str = setting("", optional=True)
    """Where a slave finds its master; empty: the name server's answer to a registration has it."""
    ha_send_heartbeat_interval: int = 5000
    ha_housekeeping_interval: int = 20_000
    """A connection on which nothing arrives for so long is closed."""
    sync_from_last_file: bool = False
    """An empty slave gets the newest log file only. Here that holds without a controller too; RocketMQ's master
    then never sends the older ones."""
    ha_transfer_batch_size: int = 32_768
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: Int64 = 104_857_600
    ha_max_gap_not_in_sync: int = 268_435_456
    """A slave that is further behind does not count as in sync."""
    ha_slave_fallbehind_max: int = setting(0, optional=True)
    """The name of ``haMaxGapNotInSync`` in RocketMQ 4; 0 if it is not set."""
    max_ha_connections: int = setting(64, optional=True)
    """Not RocketMQ's: slaves that a master serves at a time."""
    ha_allowed_peers: str = setting("", optional=True)
    """Not RocketMQ's: addresses or CIDR blocks, separated by commas, from which the log may be copied. Empty:
    everywhere, and only this machine if the broker authenticates its clients."""
    ha_authentication_enabled: bool = setting(False, optional=True)
    """Not RocketMQ's: slave and master prove to each other that they know the secret of a super user of the master,
    the slave that of ``innerClientAuthenticationCredentials``, before a byte of the log is sent."""
    ha_tls_enable: bool = setting(False, optional=True)
    """Not RocketMQ's: the HA connection is encrypted, with the certificates of the other connections."""
    slave_timeout: int = 3000
    """A send that waits longer for slaves is answered with FLUSH_SLAVE_TIMEOUT."""
    total_replicas: int = 1
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False
    all_ack_in_sync_state_set: bool = False
    ha_max_time_slave_not_catchup: Int64 = 15_000
    """In controller mode: a slave that was not at the end of the log for so long leaves the sync state set."""
    async_learner: bool = False
    """In controller mode: this slave copies the log, but never counts for an acknowledgement or an election."""
    store_path_epoch_file: str = setting("", optional=True)
    """In controller mode: where the epochs of the log are; ``epochFileCheckpoint`` below the root if empty."""
    store_path_broker_identity: str = setting("", optional=True)
    """In controller mode: where the id of this broker is; ``brokerIdentity`` below the root if empty."""
    offset_check_in_slave: bool = False
    """A slave moves a consumer whose offset it does not have; otherwise that consumer waits for the master."""

    @property
    def max_gap_in_sync(self) -> int:
        """Bytes that a slave in sync may be behind."""
        return self.ha_slave_fallbehind_max or self.ha_max_gap_not_in_sync


REPLICATION_RANGES: dict[str, Range] = {
    # RocketMQ uses the port after listenPort for 0 and below.
    "ha_listen_port": Range(-INT32_MAX - 1, 65_535),
    "ha_send_heartbeat_interval": Range(1, INT32_MAX),
    "ha_housekeeping_interval": Range(1, INT32_MAX),
    "ha_transfer_batch_size": Range(1, MAX_FRAME_BODY),
    "max_ha_transfer_byte_in_second": Range(1, INT64_MAX),
    "ha_max_gap_not_in_sync": Range(0, INT32_MAX),
    "ha_slave_fallbehind_max": Range(0, INT32_MAX),
    "max_ha_connections": Range(1, 1024),
    "ha_max_time_slave_not_catchup": Range(1, INT64_MAX),
    "slave_timeout": Range(0, INT32_MAX),
    "total_replicas": Range(0, INT32_MAX),
    "in_sync_replicas": Range(0, INT32_MAX),
    "min_in_sync_replicas": Range(0, INT32_MAX),
}
