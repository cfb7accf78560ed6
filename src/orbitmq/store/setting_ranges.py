"""Valid ranges of the store's numeric settings: a store opens and works with every value in them."""

from __future__ import annotations

from orbitmq.platform.settings import INT32_MAX, INT64_MAX, MAX_MILLISECONDS, Range
from orbitmq.protocol.hosts import MAX_PORT
from orbitmq.store.replication.settings import REPLICATION_RANGES

MAX_MAPPED_FILE = INT32_MAX
"""Bytes. Java maps files with 32-bit positions."""
MIN_TIMER_LOG = 52 + 16
"""A file of the timer log holds a unit and the blank behind the last one."""

_MILLISECONDS = Range(1, INT32_MAX)
_COUNT = Range(1, INT32_MAX)
_PER_CENT = Range(1, 100)

STORE_RANGES: dict[str, Range] = {
    "quarantine_max_bytes": Range(0, INT64_MAX),
    "mapped_file_size_commit_log": Range(256, MAX_MAPPED_FILE),
    # Rounded up to whole units, and the result must fit into 32 bits.
    "mapped_file_size_consume_queue": Range(1, MAX_MAPPED_FILE // 20 * 20),
    "mapper_file_size_batch_consume_queue": Range(1, MAX_MAPPED_FILE // 46 * 46),
    "mapped_file_size_consume_queue_ext": Range(1, MAX_MAPPED_FILE),
    "mapped_file_size_timer_log": Range(MIN_TIMER_LOG, MAX_MAPPED_FILE),
    "max_hash_slot_num": Range(1, INT32_MAX),
    # Entries are numbered from 1, so a file for one entry would hold none.
    "max_index_num": Range(2, INT32_MAX),
    "flush_interval_commit_log": _MILLISECONDS,
    "flush_commit_log_least_pages": Range(0, INT32_MAX),
    "flush_commit_log_thorough_interval": Range(0, INT32_MAX),
    "flush_interval_consume_queue": _MILLISECONDS,
    "flush_consume_queue_least_pages": Range(0, INT32_MAX),
    "flush_consume_queue_thorough_interval": Range(0, INT32_MAX),
    "sync_flush_timeout": Range(0, INT32_MAX),
    "transient_store_pool_size": Range(0, 1024),
    "commit_interval_commit_log": _MILLISECONDS,
    "max_message_size": Range(1, 1 << 30),
    "max_lmq_consume_queue_num": Range(0, INT32_MAX),
    "max_transfer_bytes_on_message_in_memory": _COUNT,
    "max_transfer_count_on_message_in_memory": _COUNT,
    "max_transfer_bytes_on_message_in_disk": _COUNT,
    "max_transfer_count_on_message_in_disk": _COUNT,
    "access_message_in_memory_max_ratio": Range(0, 100),
    "max_filter_message_size": Range(0, INT32_MAX),
    "max_msgs_num_batch": _COUNT,
    "default_query_max_num": _COUNT,
    "file_reserved_time": Range(0, INT32_MAX),
    "delete_file_batch_max": _COUNT,
    "disk_max_used_space_ratio": _PER_CENT,
    "disk_space_clean_forcibly_ratio": _PER_CENT,
    "disk_space_warning_level_ratio": _PER_CENT,
    "clean_resource_interval": _MILLISECONDS,
    "listen_port": Range(0, MAX_PORT),
    "flush_delay_offset_interval": Range(1, MAX_MILLISECONDS),
    "pull_batch_max_message_count": _COUNT,
    "timer_precision_ms": Range(1, 86_400_000),
    # A value that does not fit the timer wheel means half of the wheel, as in RocketMQ.
    "timer_roll_window_slot": Range(-INT32_MAX - 1, INT32_MAX),
    "timer_max_delay_sec": Range(0, MAX_MILLISECONDS // 1000),
    "timer_flush_interval_ms": _MILLISECONDS,
    "timer_congest_num_each_slot": _COUNT,
    "os_page_cache_busy_time_out_mills": Range(0, MAX_MILLISECONDS),
    **REPLICATION_RANGES,
}
