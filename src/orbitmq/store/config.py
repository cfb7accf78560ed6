"""The store's settings, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.hosts import MAX_PORT
from orbitmq.settings import ConfigError, Int64, java_key, setting
from orbitmq.settings import from_settings as _from_settings
from orbitmq.store.kept_settings import KeptStoreSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST_TIMER_LOG = 52 + 16
"""A file of the timer log holds a unit and the mark behind the last one."""

KEEP = "keep"
DELETE = "delete"


class FlushDiskType(enum.Enum):
    """When an append counts as stored."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """In the page cache: survives the process, not the machine."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """On the disk: an fsync covers it before it is acknowledged or shown to a reader."""


class BrokerRole(enum.Enum):
    """What a broker is to the others of its name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclasses.dataclass(slots=True, kw_only=True)
class StoreConfig(KeptStoreSettings):
    """Settings of one store. Sizes are bytes, times milliseconds unless the name says otherwise."""

    store_path_root_dir: str = ""
    store_path_commit_log: str = setting("", optional=True)
    """One directory, or several separated by commas; empty means ``commitlog`` below the root."""
    read_only_commit_log_store_paths: str = setting("", optional=True)

    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: int = 300_000 * 20
    mapper_file_size_batch_consume_queue: int = 300_000 * 46
    enable_consume_queue_ext: bool = False
    mapped_file_size_consume_queue_ext: int = 48 * 1024 * 1024
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    sync_flush_timeout: int = 5_000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    commit_interval_commit_log: int = 200

    max_message_size: int = 4 * 1024 * 1024
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = setting(False, key="enabledAppendPropCRC")
    force_verify_prop_crc: bool = setting(False, key="forceVerifyPropCRC")
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32

    file_reserved_time: int = 72
    """Hours."""
    delete_when: str = "04"
    """Local hours of the day in which expired files are removed, separated by ``;``."""
    delete_file_batch_max: int = 10
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000

    # Not RocketMQ's: files of the log stay until an archiver has what is in them.
    archive_group: str = setting("", optional=True)
    """The consumer group that it commits to; empty: files go without being asked for."""
    archive_topics: str = setting("", optional=True)
    """A regular expression for the topics that have to be archived; empty: all but those that nobody sends to."""
    archive_full_policy: str = setting("", optional=True)
    """``keep`` (also if it is empty) or ``delete``: what becomes of files that are not archived on a full disk."""

    broker_ip1: str = setting("127.0.0.1", key="brokerIP1")
    """An IP address: with the port, what every record says of where it was stored."""
    listen_port: int = 10_911

    # What the broker around the store goes by.
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    ha_listen_port: int = 10_912
    flush_delay_offset_interval: Int64 = 10_000
    pull_batch_max_message_count: int = 160
    enable_schedule_message_stats: bool = True
    timer_wheel_enable: bool = True
    timer_precision_ms: int = 1000
    timer_roll_window_slot: int = 172_800
    timer_max_delay_sec: int = 259_200
    timer_flush_interval_ms: int = 1000
    mapped_file_size_timer_log: int = 104_857_600
    timer_congest_num_each_slot: int = 2_147_483_647
    timer_stop_enqueue: bool = False
    timer_stop_dequeue: bool = False
    append_topic_for_timer_delete_key: bool = False
    os_page_cache_busy_time_out_mills: Int64 = 1000
    store_type: str = "default"
    enable_d_leger_commit_log: bool = False

    def __post_init__(self) -> None:
        for name, unit in (
            ("mapped_file_size_consume_queue", 20),
            ("mapper_file_size_batch_consume_queue", 46),
        ):
            rounded = -(-getattr(self, name) // unit) * unit
            setattr(self, name, rounded)
        for name in (
            "mapped_file_size_commit_log",
            "mapped_file_size_consume_queue",
            "mapper_file_size_batch_consume_queue",
            "max_hash_slot_num",
            "max_index_num",
            "max_message_size",
            "flush_interval_commit_log",
            "flush_interval_consume_queue",
            "commit_interval_commit_log",
            "clean_resource_interval",
            "flush_delay_offset_interval",
            "timer_precision_ms",
            "timer_flush_interval_ms",
            "mapped_file_size_timer_log",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{java_key(name)} must be greater than 0")
        for name in ("listen_port", "ha_listen_port"):
            if getattr(self, name) > MAX_PORT:
                raise ConfigError(f"{java_key(name)}={getattr(self, name)}: a port is between 0 and {MAX_PORT}")
        for hour in self.delete_hours_text():
            if not hour.isdigit() or not 0 <= int(hour) <= 23:
                raise ConfigError(f"deleteWhen has {hour!r}; give hours 00 to 23 separated by ';'")
        try:
            re.compile(self.archive_topics)
        except re.error as error:
            raise ConfigError(f"archiveTopics={self.archive_topics} is no regular expression: {error}") from None
        if self.archive_full_policy not in {"", KEEP, DELETE}:
            raise ConfigError(f"archiveFullPolicy={self.archive_full_policy}: {KEEP} or {DELETE} is expected")
        delay_levels(self.message_delay_level)
        if self.mapped_file_size_timer_log < _LEAST_TIMER_LOG:
            raise ConfigError(f"mappedFileSizeTimerLog must be at least {_LEAST_TIMER_LOG}")

    @property
    def commit_log_dirs(self) -> tuple[str, ...]:
        """The commit log's directories, sorted as RocketMQ assigns files to them."""
        named = [part.strip() for part in self.store_path_commit_log.split(",") if part.strip()]
        return tuple(sorted(named)) or (os.path.join(self.store_path_root_dir, "commitlog"),)

    @property
    def read_only_dirs(self) -> frozenset[str]:
        parts = self.read_only_commit_log_store_paths.split(",")
        return frozenset(part.strip() for part in parts if part.strip())

    def delete_hours_text(self) -> list[str]:
        return [hour.strip() for hour in self.delete_when.split(";") if hour.strip()]

    @property
    def delete_hours(self) -> frozenset[int]:
        return frozenset(int(hour) for hour in self.delete_hours_text())

    def path(self, *parts: str) -> str:
        """A path below the store's root."""
        return os.path.join(self.store_path_root_dir, *parts)


def from_settings(settings: Mapping[str, str], **overrides: Any) -> tuple[StoreConfig, list[str]]:
    """Build a config from Java keys. Returns it and the keys that are not the store's. Raises ConfigError."""
    return _from_settings(StoreConfig, settings, **overrides)


def delay_levels(text: str) -> dict[int, int]:
    """The table of ``messageDelayLevel``: level (from 1) to milliseconds."""
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    levels: dict[int, int] = {}
    for level, part in enumerate(text.split(), start=1):
        if part[-1:] not in units or not part[:-1].isdigit():
            raise ConfigError(f"messageDelayLevel has {part!r}; give numbers with s, m, h or d")
        levels[level] = int(part[:-1]) * units[part[-1]]
    return levels
