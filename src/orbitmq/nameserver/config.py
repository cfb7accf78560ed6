"""The name server's settings, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses
import os

from orbitmq.settings import ConfigError, Int64, as_properties, texts_of

_LEAST_SCAN_INTERVAL = 10
"""Milliseconds. Less than this would be nothing but scanning."""


def _below_home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), "namesrv", *parts)


def _rocketmq_home() -> str:
    return os.environ.get("ROCKETMQ_HOME", "")


@dataclasses.dataclass(slots=True, kw_only=True)
class NameServerConfig:
    """Settings of one name server. Times are milliseconds unless the name says otherwise."""

    listen_port: int = 9876
    bind_address: str = "0.0.0.0"  # noqa: S104  # as in RocketMQ
    server_channel_max_idle_time_seconds: int = 120

    rocketmq_home: str = dataclasses.field(default_factory=_rocketmq_home)
    kv_config_path: str = dataclasses.field(default_factory=lambda: _below_home("kvConfig.json"))
    config_store_path: str = dataclasses.field(default_factory=lambda: _below_home("namesrv.properties"))
    """Where changes at runtime are written: the file that the settings came from, if they came from one."""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    order_message_enable: bool = False
    """Whether routes carry the order configuration of their topic."""
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval: Int64 = 5000
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    delete_topic_with_broker_registration: bool = False

    # Kept and shown, for the sake of files and tools that have them. They are about threads, queues between
    # threads and buffers that are not there, or about things that a name server here does not do.
    product_env_name: str = "center"
    cluster_test: bool = False
    enable_controller_in_namesrv: bool = False
    client_request_thread_pool_nums: int = 8
    client_request_thread_pool_queue_capacity: int = 50_000
    default_thread_pool_nums: int = 16
    default_thread_pool_queue_capacity: int = 10_000
    un_register_broker_queue_capacity: int = 3000
    enable_shutdown_gracefully: bool = False
    shutdown_wait_time_seconds: int = 30
    server_async_semaphore_value: int = 64
    server_oneway_semaphore_value: int = 256
    server_callback_executor_threads: int = 0
    server_selector_threads: int = 3
    server_worker_threads: int = 8
    server_netty_worker_group_enable: bool = True
    server_pooled_byte_buf_allocator_enable: bool = True
    server_socket_backlog: int = 1024
    server_socket_rcv_buf_size: int = 0
    server_socket_snd_buf_size: int = 0
    use_epoll_native_selector: bool = False
    write_buffer_high_water_mark: int = 0
    write_buffer_low_water_mark: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port < 65536:
            raise ConfigError(f"listenPort={self.listen_port}: a port is between 0 and 65535")
        if self.scan_not_active_broker_interval < _LEAST_SCAN_INTERVAL:
            raise ConfigError(f"scanNotActiveBrokerInterval must be at least {_LEAST_SCAN_INTERVAL}")
        if self.server_channel_max_idle_time_seconds <= 0:
            raise ConfigError("serverChannelMaxIdleTimeSeconds must be greater than 0")
        for key, path in (("kvConfigPath", self.kv_config_path), ("configStorePath", self.config_store_path)):
            if not os.path.basename(path):
                raise ConfigError(f"{key} must name a file")

    @property
    def black_list(self) -> frozenset[str]:
        """The keys that cannot be changed at runtime."""
        always = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
        return frozenset((*always, *self.config_black_list.split(";")))

    def as_properties(self) -> str:
        """All settings, ``key=value`` and a line each, in the order of their keys."""
        return as_properties(texts_of(self))
