"""Settings of the name server, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from orbitmq.auth.settings import AuthSettings
from orbitmq.nameserver.limits import NameServerLimits
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

_MIN_SCAN_INTERVAL = 10
"""Milliseconds. With less, the name server would do nothing but scan."""

RANGES: dict[str, Range] = {
    "listen_port": Range(0, MAX_PORT),
    "server_channel_max_idle_time_seconds": Range(1, INT32_MAX),
    "scan_not_active_broker_interval": Range(_MIN_SCAN_INTERVAL, MAX_MILLISECONDS),
    "wait_seconds_for_service": Range(0, INT32_MAX),
    "max_brokers": Range(1, INT32_MAX),
    "max_topics": Range(1, INT32_MAX),
    "max_topic_places": Range(1, INT32_MAX),
    "max_kv_config_entries": Range(1, INT32_MAX),
    "max_kv_config_characters": Range(1, INT32_MAX),
    **REMOTING_RANGES,
}
"""Valid ranges: a name server works with every value in them."""

FIXED = ("bindAddress", "listenPort", "enableControllerInNamesrv")
"""Settings that cannot change at run time: an address depends on the machine, and a controller is started."""


def _below_home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), "namesrv", *parts)


def _rocketmq_home() -> str:
    return os.environ.get("ROCKETMQ_HOME", "")


@dataclasses.dataclass(slots=True, kw_only=True)
class NameServerConfig(AuthSettings):
    """Settings of one name server. Times are milliseconds unless the name says otherwise."""

    listen_port: int = 9876
    bind_address: str = "0.0.0.0"  # noqa: S104  # as in RocketMQ
    server_channel_max_idle_time_seconds: int = 120

    rocketmq_home: str = dataclasses.field(default_factory=_rocketmq_home)
    kv_config_path: str = dataclasses.field(default_factory=lambda: _below_home("kvConfig.json"))
    config_store_path: str = dataclasses.field(default_factory=lambda: _below_home("namesrv.properties"))
    """File for changes at run time: the settings file, if there is one."""
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"

    order_message_enable: bool = False
    """Adds the order configuration of a topic to its route."""
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval: Int64 = 5000
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    delete_topic_with_broker_registration: bool = False
    enable_controller_in_namesrv: bool = False
    """Run a controller in this process, with the controller's keys of the same file."""

    # Limits, which RocketMQ does not have. They are listed only if they differ from the default.
    max_brokers: int = setting(10_000, optional=True)
    max_topics: int = setting(500_000, optional=True)
    max_topic_places: int = setting(2_000_000, optional=True)
    max_kv_config_entries: int = setting(10_000, optional=True)
    max_kv_config_characters: int = setting(4_194_304, optional=True)

    # Ignored settings, listed for files and tools that have them. They concern threads, thread queues, buffers and
    # features that this name server does not have.
    product_env_name: str = "center"
    cluster_test: bool = False
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
        check_values(self, RANGES)
        self.check_remoting()
        self.check_auth()
        if not self.bind_address:
            raise ConfigError("bindAddress must not be empty")
        for key, path in (("kvConfigPath", self.kv_config_path), ("configStorePath", self.config_store_path)):
            if not os.path.basename(path):
                raise ConfigError(f"{key} must name a file")

    @property
    def limits(self) -> NameServerLimits:
        """The limits of the tables that peers fill."""
        return NameServerLimits(
            brokers=self.max_brokers,
            topics=self.max_topics,
            places=self.max_topic_places,
            kv_entries=self.max_kv_config_entries,
            kv_characters=self.max_kv_config_characters,
        )

    @property
    def black_list(self) -> frozenset[str]:
        """Keys that cannot be changed at run time."""
        always = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
        return frozenset((*always, *self.config_black_list.split(";")))

    def changed(self, settings: Mapping[str, str]) -> NameServerConfig:
        """A copy with changed values. Unknown keys are ignored. Raises ConfigError."""
        return changed_running(self, settings, FIXED, "name server")

    def as_properties(self) -> str:
        """All settings as ``key=value`` lines, sorted by key."""
        return as_properties(texts_of(self))
