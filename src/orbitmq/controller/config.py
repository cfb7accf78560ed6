"""Settings of a controller, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orbitmq.auth.settings import AuthSettings
from orbitmq.controller.peers import Peer, dledger_peers, jraft_peers
from orbitmq.platform.settings import (
    INT32_MAX,
    MAX_MILLISECONDS,
    ConfigError,
    Int64,
    Range,
    as_properties,
    changed_running,
    check_values,
    setting,
    texts_of,
)
from orbitmq.protocol.hosts import MAX_PORT
from orbitmq.remoting.config import REMOTING_RANGES

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 19876
"""As ``mqcontroller`` has it. With ``controllerDLegerPeers`` the port is that of the controller's own entry."""

DLEDGER, JRAFT = "DLedger", "jRaft"
FILE, ETCD = "file", "etcd"

RANGES: dict[str, Range] = {
    "listen_port": Range(0, MAX_PORT),
    "server_channel_max_idle_time_seconds": Range(1, INT32_MAX),
    "scan_not_active_broker_interval": Range(10, MAX_MILLISECONDS),
    "scan_inactive_master_interval": Range(10, MAX_MILLISECONDS),
    "elect_master_max_retry_count": Range(1, 1000),
    "etcd_lease_seconds": Range(2, 600),
    "metrics_prom_exporter_port": Range(0, MAX_PORT),
    "max_broker_groups": Range(1, INT32_MAX),
    "max_brokers": Range(1, INT32_MAX),
    "max_replicas_of_group": Range(1, INT32_MAX),
    **REMOTING_RANGES,
}
"""Valid ranges: a controller works with every value in them."""

METRICS_TYPES = {"DISABLE": False, "0": False, "PROM": True, "2": True}
"""Values of ``metricsExporterType``, and whether there is an endpoint."""

FIXED = ("bindAddress", "listenPort", "metricsExporterType", "metricsPromExporterHost", "metricsPromExporterPort")
"""Settings that cannot change at run time."""


def _home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), *parts)


@dataclasses.dataclass(slots=True, kw_only=True)
class ControllerConfig(AuthSettings):
    """Settings of one controller. Times are milliseconds unless the name says otherwise."""

    listen_port: int = DEFAULT_PORT
    bind_address: str = "0.0.0.0"  # noqa: S104  # as in RocketMQ
    server_channel_max_idle_time_seconds: int = 120
    rocketmq_home: str = dataclasses.field(default_factory=lambda: os.environ.get("ROCKETMQ_HOME", ""))
    config_store_path: str = dataclasses.field(default_factory=lambda: _home("controller", "controller.properties"))
    """File for changes at run time: the settings file, if there is one."""
    config_black_list: str = "configBlackList;configStorePath"

    controller_type: str = DLEDGER
    """``DLedger`` or ``jRaft``: which of the keys below names the controllers."""
    controller_d_leger_group: str = setting("", key="controllerDLegerGroup")
    controller_d_leger_peers: str = setting("", key="controllerDLegerPeers")
    """``n0-host:port;n1-host:port``: all controllers of the group."""
    controller_d_leger_self_id: str = setting("", key="controllerDLegerSelfId")
    j_raft_group_id: str = setting("jRaft-Controller", key="jRaftGroupId")
    j_raft_server_id: str = setting("localhost:9880", key="jRaftServerId")
    j_raft_init_conf: str = setting("localhost:9880,localhost:9881,localhost:9882", key="jRaftInitConf")
    j_raft_controller_rpc_addr: str = setting(
        "localhost:9770,localhost:9771,localhost:9772", key="jRaftControllerRPCAddr"
    )
    controller_store_path: str = ""
    """Directory of the event log; by default ``DLedgerController`` or ``jRaftController`` in the home directory."""

    elect_master_max_retry_count: int = 3
    enable_elect_unclean_master: bool = False
    notify_broker_role_changed: bool = True
    scan_not_active_broker_interval: Int64 = 500
    """RocketMQ: 5000. A scan takes microseconds, and its interval adds to the time without a master."""
    scan_inactive_master_interval: Int64 = 5000

    metrics_exporter_type: str = "DISABLE"
    """``PROM``: an endpoint for Prometheus."""
    metrics_prom_exporter_host: str = ""
    """IP address of the endpoint. Empty: 127.0.0.1."""
    metrics_prom_exporter_port: int = 5557

    # Settings that RocketMQ does not have. They are listed only if they differ from the default.
    controller_store_type: str = setting(FILE, optional=True)
    """``file``: one controller on a local file. ``etcd``: several controllers, one of which leads."""
    controller_address: str = setting("", optional=True)
    """``host:port`` at which brokers reach this controller, where it is not the address that it listens on."""
    etcd_endpoints: str = setting("http://127.0.0.1:2379", optional=True)
    """URLs of the members of an etcd cluster, separated by commas."""
    etcd_key_prefix: str = setting("/orbitmq/controller", optional=True)
    """Keys are below it and the group of the controllers."""
    etcd_lease_seconds: int = setting(5, optional=True)
    """Time after which another controller leads if this one is gone; a leader steps down before it is over."""
    etcd_user: str = setting("", optional=True)
    etcd_password: str = setting("", optional=True, secret=True)
    etcd_ca_file: str = setting("", optional=True)
    etcd_cert_file: str = setting("", optional=True)
    etcd_key_file: str = setting("", optional=True)
    max_broker_groups: int = setting(10_000, optional=True)
    max_brokers: int = setting(20_000, optional=True)
    max_replicas_of_group: int = setting(256, optional=True)

    # Ignored settings, listed for files and tools that have them. They concern Raft and threads.
    mapped_file_size: int = 1_073_741_824
    process_read_event: bool = False
    controller_thread_pool_nums: int = 16
    controller_request_thread_pool_queue_capacity: int = 50_000
    j_raft_election_timeout_ms: int = setting(1000, key="jRaftElectionTimeoutMs")
    j_raft_scan_wait_timeout_ms: int = setting(1000, key="jRaftScanWaitTimeoutMs")
    j_raft_snapshot_interval_secs: int = setting(3600, key="jRaftSnapshotIntervalSecs")

    def __post_init__(self) -> None:
        check_values(self, RANGES)
        self.check_remoting()
        self.check_auth()
        if not self.bind_address:
            raise ConfigError("bindAddress must not be empty")
        if self.controller_type not in {DLEDGER, JRAFT}:
            raise ConfigError(f"controllerType={self.controller_type}: {DLEDGER} or {JRAFT} is expected")
        if self.controller_store_type not in {FILE, ETCD}:
            raise ConfigError(f"controllerStoreType={self.controller_store_type}: {FILE} or {ETCD} is expected")
        if self.metrics_exporter_type.upper() not in METRICS_TYPES:
            raise ConfigError(f"metricsExporterType={self.metrics_exporter_type}: DISABLE or PROM is expected")
        if not os.path.basename(self.config_store_path):
            raise ConfigError("configStorePath must name a file")
        if self.controller_store_type == FILE and len(self.peers) > 1:
            # Each would be the only one that it knows: two masters.
            raise ConfigError(
                f"there are {len(self.peers)} controllers, but controllerStoreType=file keeps the groups of one: "
                "give etcd, or name one controller"
            )
        if self.is_on_etcd:
            check_endpoints(self.etcd_endpoints)
            if bool(self.etcd_cert_file) != bool(self.etcd_key_file):
                raise ConfigError("etcdCertFile and etcdKeyFile belong together: give both or none")

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The controllers that the settings name. Raises ConfigError."""
        if self.controller_type == JRAFT:
            return jraft_peers(self.j_raft_init_conf, self.j_raft_controller_rpc_addr)
        return dledger_peers(self.controller_d_leger_peers)

    @property
    def own_peer(self) -> Peer | None:
        """The entry of this controller among them. Raises ConfigError."""
        own_id = self.j_raft_server_id if self.controller_type == JRAFT else self.controller_d_leger_self_id
        peers = self.peers
        if not peers:
            return None
        for peer in peers:
            if peer.id == own_id:
                return peer
        key = "jRaftServerId" if self.controller_type == JRAFT else "controllerDLegerSelfId"
        raise ConfigError(f"{key}={own_id}: one of {', '.join(peer.id for peer in peers)} is expected")

    @property
    def exports_metrics(self) -> bool:
        return METRICS_TYPES[self.metrics_exporter_type.upper()]

    @property
    def is_on_etcd(self) -> bool:
        return self.controller_store_type == ETCD

    @property
    def etcd_urls(self) -> tuple[str, ...]:
        """Endpoints of etcd. Raises ConfigError."""
        return check_endpoints(self.etcd_endpoints)

    @property
    def group(self) -> str:
        """Name of the group of controllers."""
        return self.j_raft_group_id if self.controller_type == JRAFT else self.controller_d_leger_group

    @property
    def store_path(self) -> str:
        """Directory of the event log, of users and of the audit log."""
        default = "jRaftController" if self.controller_type == JRAFT else "DLedgerController"
        return self.controller_store_path or _home(default)

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that cannot be changed at run time."""
        always = ("configBlackList", "configStorePath", "rocketmqHome")
        return frozenset((*always, *self.config_black_list.split(";")))

    def changed(self, settings: Mapping[str, str]) -> ControllerConfig:
        """A copy with changed values. Unknown keys are ignored. Raises ConfigError."""
        return changed_running(self, settings, FIXED, "controller")

    def as_properties(self) -> str:
        """All settings as ``key=value`` lines, sorted by key."""
        return as_properties(texts_of(self))


IGNORED = (
    *("mappedFileSize", "processReadEvent", "controllerThreadPoolNums"),
    *("controllerRequestThreadPoolQueueCapacity", "jRaftElectionTimeoutMs", "jRaftScanWaitTimeoutMs"),
    "jRaftSnapshotIntervalSecs",
)
"""Keys that are accepted without effect."""


def check_endpoints(text: str) -> tuple[str, ...]:
    """The URLs of ``etcdEndpoints``. Raises ConfigError."""
    found = tuple(part.strip().rstrip("/") for part in text.split(",") if part.strip())
    for url in found:
        try:
            parts = urlsplit(url)
            is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port is not None
        except ValueError:
            is_valid = False
        if not is_valid or parts.path or parts.query:
            raise ConfigError(f"etcdEndpoints has {url!r}: http://host:port or https://host:port is expected")
    if not found:
        raise ConfigError("etcdEndpoints must name an etcd member, as http://host:port")
    return found
