"""The store's settings, with RocketMQ's names and defaults."""

from __future__ import annotations

import dataclasses
import enum
import os
from typing import TYPE_CHECKING, Any

from orbitmq.platform.settings import MAX_MILLISECONDS, ConfigError, Int64, check_values, setting
from orbitmq.platform.settings import from_settings as _from_settings
from orbitmq.store.replication.settings import ReplicationSettings
from orbitmq.store.retention.topic_pattern import topic_pattern
from orbitmq.store.setting_ranges import MAX_MAPPED_FILE, STORE_RANGES

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DELAY_LEVELS = 64
"""Each has a queue and a timer of its own."""
KEEP = "keep"
DELETE = "delete"


class FlushDiskType(enum.Enum):
    """When an append counts as stored (RocketMQ's ``flushDiskType``)."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """In the page cache: survives a crash of the process, not of the machine."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """On the disk: an fsync covers it before it is acknowledged or visible to readers."""


@dataclasses.dataclass(slots=True, kw_only=True)
class StoreConfig(ReplicationSettings):
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

    # Not RocketMQ's: handling of a damaged log in recovery.
    quarantine_max_bytes: Int64 = setting(4_294_967_296, optional=True)
    """Maximum size of the ``quarantine`` folder for bytes that recovery cuts off the log; 0 disables it."""

    accept_lost_log: bool = setting(False, optional=True)
    """Open a store whose last log files are missing: their messages are lost, queue offsets continue behind
    them."""

    # Not RocketMQ's: log files are retained until an archiver has copied them.
    archive_group: str = setting("", optional=True)
    """The consumer group with which the archiver commits its progress; empty: retention waits for no archiver."""
    archive_topics: str = setting("", optional=True)
    """A regular expression (RE2) for topics that must be archived; empty: all except the broker's internal ones."""
    archive_full_policy: str = setting("", optional=True)
    """``keep`` (the default) or ``delete``: policy for files that are not archived when the disk is full."""

    broker_ip1: str = setting("127.0.0.1", key="brokerIP1")
    """An IP address; with the port it is the store host in every record."""
    listen_port: int = 10_911

    # Settings of the broker that the store depends on.
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
        check_values(self, STORE_RANGES)
        for name, unit in (
            ("mapped_file_size_consume_queue", 20),
            ("mapper_file_size_batch_consume_queue", 46),
        ):
            rounded = -(-getattr(self, name) // unit) * unit
            setattr(self, name, rounded)
        if (size := 40 + 4 * self.max_hash_slot_num + 20 * self.max_index_num) > MAX_MAPPED_FILE:
            raise ConfigError(
                f"maxHashSlotNum={self.max_hash_slot_num} and maxIndexNum={self.max_index_num} make index files of "
                f"{size} bytes; at most {MAX_MAPPED_FILE} are allowed"
            )
        for hour in self.delete_hours_text():
            if not (hour.isascii() and hour.isdigit() and len(hour) <= 2 and int(hour) <= 23):
                raise ConfigError(f"deleteWhen has {hour!r}; give hours 00 to 23 separated by ';'")
        if self.archive_topics:
            try:
                topic_pattern(self.archive_topics)
            except ConfigError as error:
                raise ConfigError(f"archiveTopics={self.archive_topics} {error}") from None
        if self.archive_full_policy not in {"", KEEP, DELETE}:
            raise ConfigError(f"archiveFullPolicy={self.archive_full_policy}: {KEEP} or {DELETE} is expected")
        delay_levels(self.message_delay_level)

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
    """Build a config from Java keys. Returns it and the keys that are not store settings. Raises ConfigError."""
    return _from_settings(StoreConfig, settings, **overrides)


def delay_levels(text: str) -> dict[int, int]:
    """The table of ``messageDelayLevel``: level (from 1) to milliseconds."""
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    levels: dict[int, int] = {}
    parts = text.split()
    if len(parts) > MAX_DELAY_LEVELS:
        raise ConfigError(f"messageDelayLevel has {len(parts)} levels; at most {MAX_DELAY_LEVELS} are allowed")
    for level, part in enumerate(parts, start=1):
        number = part[:-1]
        if part[-1:] not in units or not (number.isascii() and number.isdigit()):
            raise ConfigError(f"messageDelayLevel has {part!r}; give numbers with s, m, h or d")
        if len(number) > 15 or int(number) * units[part[-1]] > MAX_MILLISECONDS:
            longest = MAX_MILLISECONDS // units["d"]
            raise ConfigError(f"messageDelayLevel has {part[:40]!r}; a level has at most {longest}d")
        levels[level] = int(number) * units[part[-1]]
    return levels
