"""RocketMQ's store settings that have no effect here; accepted and shown for files and tools that have them."""

from __future__ import annotations

import dataclasses

from orbitmq.platform.settings import Int64, setting


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class IgnoredStoreSettings:
    """Settings of threads, maps and locks that do not exist here, and of features that this store does not have."""

    # RocksDB, which is not used here
    bottom_most_compression_type_for_consume_queue_store: str = "zstd"
    clean_rocksdb_dirty_cq_interval_min: Int64 = dataclasses.field(
        default=60, metadata={"key": "cleanRocksDBDirtyCQIntervalMin"}
    )
    combine_assign_offset_cq_type: str = setting("default", key="combineAssignOffsetCQType")
    combine_cq_enable_check_self: bool = setting(False, key="combineCQEnableCheckSelf")
    combine_cq_loading_cq_types: str = setting("default;defaultRocksDB", key="combineCQLoadingCQTypes")
    combine_cq_max_extra_search_commit_log_files: int = setting(3, key="combineCQMaxExtraSearchCommitLogFiles")
    combine_cq_prefer_cq_type: str = setting("default", key="combineCQPreferCQType")
    combine_cq_use_rocksdb_for_lmq: bool = setting(False, key="combineCQUseRocksdbForLmq")
    enable_rocksdb_log: bool = setting(False, key="enableRocksDBLog")
    index_rocksdb_enable: bool = setting(False, key="indexRocksDBEnable")
    iterator_when_use_rocksdb_consume_queue: bool = True
    max_rocksdb_index_query_days: int = setting(7, key="maxRocksDBIndexQueryDays")
    mem_table_flush_interval_ms: Int64 = 3_600_000
    real_time_persist_rocksdb_config: bool = setting(True, key="realTimePersistRocksDBConfig")
    rocksdb_compression_type: str = "lz4"
    rocksdb_cq_double_write_enable: bool = setting(False, key="rocksdbCQDoubleWriteEnable")
    rocksdb_flush_wal_frequency: int = 1024
    rocksdb_wal_file_rolling_threshold: Int64 = 1_073_741_824
    stat_rocksdb_cq_interval_sec: Int64 = dataclasses.field(
        default=10, metadata={"key": "statRocksDBCQIntervalSec"}
    )
    timer_rocksdb_enable: bool = setting(False, key="timerRocksDBEnable")
    timer_rocksdb_precision_ms: Int64 = dataclasses.field(default=1000, metadata={"key": "timerRocksDBPrecisionMs"})
    timer_rocksdb_roll_interval_hours: int = setting(1, key="timerRocksDBRollIntervalHours")
    timer_rocksdb_roll_max_tps: float = setting(8000.0, key="timerRocksDBRollMaxTps")
    timer_rocksdb_roll_range_hours: int = setting(2, key="timerRocksDBRollRangeHours")
    timer_rocksdb_stop_scan: bool = setting(False, key="timerRocksDBStopScan")
    timer_rocksdb_time_expired_max_tps: float = setting(200000.0, key="timerRocksDBTimeExpiredMaxTps")
    trans_rocksdb_enable: bool = setting(False, key="transRocksDBEnable")
    use_separate_store_path_for_rocksdb_cq: bool = setting(False, key="useSeparateStorePathForRocksdbCQ")

    # Messages for any time, in the timer wheel
    commit_log_recover_max_num: int = 10
    disappear_time_after_start: int = -1
    timer_check_metrics_when: str = "05"
    timer_cold_data_check_interval_ms: int = 60_000
    timer_enable_check_metrics: bool = True
    timer_enable_disruptor: bool = False
    timer_enable_retry_until_success: bool = False
    timer_get_message_thread_num: int = 3
    timer_intercept_delay_level: bool = False
    timer_metric_small_threshold: int = 1_000_000
    timer_progress_log_interval_ms: int = 10_000
    timer_put_message_thread_num: int = 3
    timer_recall_to_time_wheel_enable: bool = True
    timer_recall_to_timeline_enable: bool = True
    timer_reput_service_core_pool_size: int = 6
    timer_reput_service_max_pool_size: int = 6
    timer_reput_service_queue_capacity: int = 10_000
    timer_skip_unknown_error: bool = False
    timer_warm_enable: bool = False
    timer_wheel_snapshot_flush: bool = False
    timer_wheel_snapshot_interval_ms: int = 10_000

    # Replication
    max_checksum_range: Int64 = 1_073_741_824
    max_slave_resend_length: Int64 = 268_435_456
    put_message_timeout: int = 8000
    replicas_per_disk_partition: int = 1
    sync_master_flush_offset_when_startup: bool = False

    # DLedger, an older way of replication
    d_leger_group: str = setting("", optional=True)
    d_leger_peers: str = setting("", optional=True)
    d_leger_self_id: str = setting("", optional=True)
    enable_batch_push: bool = False
    preferred_leader_id: str = setting("", optional=True)
    store_path_d_ledger_commit_log: str = setting("", optional=True)

    # Compacted topics, with the last value per key
    compaction_cq_mapped_file_size: int = 10_485_760
    compaction_mapped_file_size: int = 104_857_600
    compaction_schedule_internal: int = 900_000
    compaction_thread_num: int = 6
    enable_compaction: bool = True
    max_offset_map_size: int = 104_857_600

    # Isolation of consumers of old messages
    access_message_in_memory_hot_ratio: int = 26
    cold_data_flow_control_enable: bool = False
    cold_data_scan_enable: bool = False
    data_read_ahead_enable: bool = True
    max_consume_queue_scan: int = 20_000
    sample_count_threshold: int = 5000
    sample_steps: int = 32

    # Threads and shared resources
    batch_dispatch_request_thread_pool_nums: int = 16
    debug_lock_enable: bool = False
    dispatch_cq_cache_num: int = 4096
    dispatch_cq_threads: int = 10
    dispatch_from_sender_thread: bool = False
    enable_async_reput: bool = True
    enable_build_consume_queue_concurrently: bool = False
    enable_schedule_async_deliver: bool = False
    max_async_put_message_requests: int = 5000
    recheck_reput_offset_from_cq: bool = False
    schedule_async_deliver_max_pending_limit: int = 2000
    schedule_async_deliver_max_resend_num2_blocked: int = 3
    spin_lock_collision_retreat_optimal_degree: int = 1000
    topic_queue_lock_num: int = 32
    use_abs_lock: bool = setting(False, key="useABSLock")
    use_reentrant_lock_when_put_message: bool = True

    # Maps, buffers and the page cache, which are left to the kernel
    clean_swaped_map_interval: Int64 = 300_000
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    commit_log_force_swap_map_interval: Int64 = 43_200_000
    commit_log_swap_map_interval: Int64 = 3_600_000
    commit_log_swap_map_reserve_file_num: int = 100
    fast_fail_if_no_buffer_in_store_pool: bool = False
    flush_commit_log_timed: bool = True
    flush_least_pages_when_warm_maped_file: int = 4096
    logic_queue_force_swap_map_interval: Int64 = 43_200_000
    logic_queue_swap_map_interval: Int64 = 3_600_000
    logic_queue_swap_map_reserve_file_num: int = 20
    mapped_file_swap_enable: bool = True
    put_consume_queue_data_by_file_channel: bool = True
    put_msg_index_hight_water: int = 600_000
    shared_byte_buffer_num: int = 16
    wake_commit_when_put_message: bool = True
    wake_flush_when_put_message: bool = False
    warm_maped_file_enable: bool = False
    write_without_mmap: bool = False

    # Others
    bit_map_length_consume_queue_ext: int = 64
    check_commit_log_offset_on_recover: bool = False
    check_crc_on_recover: bool = setting(True, key="checkCRCOnRecover")
    correct_logic_min_offset_force_interval: int = 300_000
    correct_logic_min_offset_sleep_interval: int = 1
    delete_commit_log_files_interval: int = 100
    delete_consume_queue_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    disk_fall_recorded: bool = True
    duplication_enable: bool = False
    enable_accelerated_recovery: bool = False
    enable_clean_expired_offset: bool = False
    enable_lmq_quota: bool = False
    enable_log_consume_queue_repeatedly_build_when_recover: bool = False
    enable_running_flags_in_flush: bool = False
    index_file_read_enable: bool = True
    index_file_write_enable: bool = True
    logical_disk_space_clean_forcibly_threshold: float = 0.8
    max_batch_delete_files_num: int = 50
    max_recovery_commitlog_files: int = 30
    max_topic_length: int = 127
    message_index_safe: bool = False
    read_un_committed: bool = False
    redelete_hanged_file_interval: int = 120_000
    search_bcq_by_cache_enable: bool = True
    trans_write_origin_trans_half_enable: bool = True
    travel_cq_file_num_when_get_message: int = 1
