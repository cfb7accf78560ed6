"""Broker settings, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses

from orbitmq.broker.config.host_info import LOOPBACK
from orbitmq.broker.config.limits import LimitSettings
from orbitmq.broker.config.ranges import BROKER_RANGES
from orbitmq.platform.settings import ConfigError, Int64, check_values, java_key, setting
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.addresses import host_and_port

MAX_NAME_BYTES = 127
"""Of a broker or cluster name: topics are named after them."""
_NO_MORE_AT_RUNTIME = frozenset(["brokerConfigPath", "rocketmqHome", "configBlackList"])


@dataclasses.dataclass(slots=True, kw_only=True)
class BrokerConfig(LimitSettings):
    """Settings of one broker. Times are milliseconds unless the name says otherwise."""

    broker_name: str = "DEFAULT_BROKER"
    broker_cluster_name: str = "DefaultCluster"
    broker_id: Int64 = 0
    broker_ip1: str = setting(LOOPBACK, key="brokerIP1")
    """Address under which clients reach the broker."""
    broker_ip2: str = setting(LOOPBACK, key="brokerIP2")
    """Address under which other brokers reach it."""
    listen_port: int = 10_911
    bind_address: str = "0.0.0.0"  # noqa: S104  # as in RocketMQ
    server_channel_max_idle_time_seconds: int = 120
    namesrv_addr: str = setting("", optional=True)
    broker_permission: int = 6
    region_id: str = "DefaultRegion"
    rocketmq_home: str = setting("", optional=True)
    broker_config_path: str = setting("", optional=True)
    acl_enable: bool = False
    """RocketMQ's first access control, with the accounts of ``conf/plain_acl.yml`` below ``rocketmqHome``."""
    config_black_list: str = "configBlackList;brokerConfigPath"

    # Topics and groups
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    default_topic_queue_nums: int = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    trace_on: bool = True
    revive_queue_num: int = 8
    enable_create_sys_group: bool = True
    enable_mixed_message_type: bool = False
    validate_system_topic_when_update_topic: bool = True
    clear_retry_topic_when_delete_topic: bool = True
    enable_split_metadata: bool = True
    split_metadata_size: int = 2000

    # Registration
    register_name_server_period: int = 30_000
    register_broker_timeout_mills: int = 24_000
    update_name_server_addr_period: int = 120_000
    force_register: bool = True
    compressed_register: bool = False
    enable_single_topic_register: bool = False
    enable_split_registration: bool = False
    split_registration_size: int = 800
    enable_slave_acting_master: bool = False
    sync_broker_member_group_period: int = 1000
    enable_remote_escape: bool = False
    skip_pre_online: bool = False
    broker_heartbeat_interval: int = 1000
    broker_not_active_timeout_millis: Int64 = 10_000
    compatible_with_old_name_srv: bool = True

    copy_cluster_metadata: bool = setting(False, optional=True)
    """A new master takes over the topics and groups of the other masters of its cluster before it registers."""

    # A slave's copies of the tables of its master
    slave_metadata_check_period: Int64 = setting(3000, optional=True)
    """Between two comparisons with the master's tables; RocketMQ's slaves follow the timer's progress so often."""
    slave_metadata_full_period: Int64 = setting(60_000, optional=True)
    """Between two full copies of what has no version or is large; RocketMQ's slaves copy all tables so often."""

    # Clients
    channel_expired_timeout: Int64 = 120_000
    subscription_expired_timeout: Int64 = 600_000
    notify_consumer_ids_changed_enable: bool = True
    real_time_notify_consumer_change: bool = True
    enable_register_producer: bool = True
    use_static_subscription: bool = False
    lock_in_strict_mode: bool = False

    # Sending
    start_accept_send_request_time_stamp: Int64 = 0
    store_reply_message_enable: bool = True
    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: Int64 = 200

    # Recall of deferred messages
    recall_message_enable: bool = False
    allow_recall_when_broker_not_writeable: bool = True

    # Transactions
    reject_transaction_message: bool = False
    transaction_time_out: Int64 = 6000
    """Minimum age of a half message before its first check."""
    transaction_check_interval: Int64 = 30_000
    transaction_check_max: int = 15
    transaction_op_batch_interval: int = 3000
    transaction_op_msg_max_size: int = 4096
    """Bytes."""
    transaction_metric_flush_interval: Int64 = 10_000

    # Pulling
    long_polling_enable: bool = True
    short_polling_time_mills: Int64 = 1000
    wait_time_mills_in_pull_queue: Int64 = 5000
    slave_read_enable: bool = False
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: Int64 = 16 * 1024 * 1024 * 1024
    """Bytes."""
    estimate_accumulation: bool = True

    # POP
    revive_interval: Int64 = 1000
    pop_from_retry_probability: int = 20
    """Percentage of pops that read retry topics first."""
    pop_from_retry_probability_for_priority: int = 0
    priority_order_asc: bool = True
    """True: the last queue of a topic has the highest priority and is popped first."""
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    pop_response_return_actual_retry_topic: bool = False
    init_pop_offset_by_check_msg_in_mem: bool = True
    max_pop_polling_size: Int64 = 100_000
    pop_polling_size: int = 1024
    enable_pop_message_threshold: bool = False
    pop_inflight_message_threshold: Int64 = 10_000
    enable_notify_after_pop_order_lock_release: bool = True
    use_message_filter_for_notification: bool = True
    skip_when_ck_re_put_reach_max_times: bool = setting(False, key="skipWhenCKRePutReachMaxTimes")
    server_load_balancer_enable: bool = True
    load_balance_poll_name_server_interval: Int64 = 30_000
    default_message_request_mode: str = "PULL"
    default_pop_share_queue_num: int = -1

    # Lite topics
    max_lite_subscription_count: Int64 = 100_000
    """Pairs of a client and a lite topic."""
    lite_subscription_check_interval: Int64 = 120_000
    lite_subscription_check_timeout_mills: Int64 = 180_000
    lite_ttl_check_interval: Int64 = 120_000
    min_lite_ttl: Int64 = setting(900_000, key="minLiteTTl")
    """Milliseconds for which a lite topic is kept at least, and after which the first is deleted after a start."""

    # Filters
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    filter_support_retry: bool = False
    filter_data_clean_time_span: Int64 = 86_400_000
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    """Per cent."""

    # Offsets
    flush_consumer_offset_interval: int = 5000
    flush_consumer_offset_history_interval: int = 60_000
    consumer_offset_update_version_step: Int64 = 500
    delay_offset_update_version_step: Int64 = 200
    use_server_side_reset_offset: bool = True
    enable_broadcast_offset_store: bool = True
    broadcast_offset_expire_second: Int64 = 120
    broadcast_offset_expire_max_second: Int64 = 300

    # Statistics
    enable_detail_stat: bool = True
    auto_delete_unused_stats: bool = True
    max_stats_idle_time_in_minutes: int = -1

    def __post_init__(self) -> None:
        self.check_remoting()
        self.check_metrics()
        self.check_auth()
        if self.metrics_prom_exporter_tls and not self.tls_server_cert_path:
            raise ConfigError("metricsPromExporterTls=true needs a certificate: set tls.server.certPath")
        self.check_failover()
        for name in ("broker_name", "broker_cluster_name", "bind_address"):
            if not getattr(self, name):
                raise ConfigError(f"{java_key(name)} must not be empty")
        for name in ("broker_name", "broker_cluster_name"):
            value = getattr(self, name)
            if len(value.encode("utf-8", "replace")) > MAX_NAME_BYTES or not value.isprintable() or "/" in value:
                raise ConfigError(
                    f"{java_key(name)}={value[:MAX_NAME_BYTES]!r}: a name has at most {MAX_NAME_BYTES} bytes, no "
                    "slash and no control character"
                )
        if self.region_id and not self.region_id.isprintable():
            # It is a property of every message, and properties are separated by control characters.
            raise ConfigError(f"regionId={self.region_id!r}: control characters are not allowed")
        check_values(self, BROKER_RANGES)
        if self.default_message_request_mode not in {"PULL", "POP"}:
            raise ConfigError(f"defaultMessageRequestMode={self.default_message_request_mode}: give PULL or POP")
        for address in self.name_servers:
            try:
                host_and_port(address)
            except ProtocolError:
                raise ConfigError(
                    f"namesrvAddr has {address!r}; give host:port, and several separated by ';'"
                ) from None

    @property
    def broker_address(self) -> str:
        """Address of the broker as it registers it: ``ip:port``."""
        return address_text(self.broker_ip1, self.listen_port)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Name servers to register with."""
        return tuple(part.strip() for part in self.namesrv_addr.split(";") if part.strip())

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that cannot be changed at run time."""
        return _NO_MORE_AT_RUNTIME | frozenset(self.config_black_list.split(";"))


def address_text(host: str, port: int) -> str:
    """``ip:port``; an IPv6 address is bracketed."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
