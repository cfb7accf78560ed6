"""Ignored broker settings: accepted and listed for files and tools that have them, without effect."""

from __future__ import annotations

import dataclasses
import os

from orbitmq.auth.settings import AuthSettings
from orbitmq.platform.settings import Int64, setting

PROCESSORS = os.cpu_count() or 1


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class IgnoredBrokerSettings(AuthSettings):
    """Settings of threads, buffers and features that do not exist here."""

    # Threads and their queues
    ack_message_thread_pool_nums: int = 16
    ack_thread_pool_queue_capacity: int = 100_000
    admin_broker_thread_pool_nums: int = 16
    admin_broker_thread_pool_queue_capacity: int = 10_000
    client_async_semaphore_value: int = 65_535
    client_callback_executor_threads: int = PROCESSORS
    client_manage_thread_pool_nums: int = 32
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    client_oneway_semaphore_value: int = 65_535
    client_worker_threads: int = 4
    consumer_manage_thread_pool_nums: int = 32
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    disable_callback_executor: bool = False
    disable_netty_worker_group: bool = False
    end_transaction_pool_queue_capacity: int = 100_000
    end_transaction_thread_pool_nums: int = max(8 + PROCESSORS * 2, min(PROCESSORS, 4) * 4)
    heartbeat_thread_pool_nums: int = min(32, PROCESSORS)
    heartbeat_thread_pool_queue_capacity: int = 50_000
    lite_pull_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    lite_pull_thread_pool_queue_capacity: int = 100_000
    load_balance_processor_thread_pool_nums: int = 32
    load_balance_thread_pool_queue_capacity: int = 100_000
    process_reply_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    pull_message_thread_pool_nums: int = 16 + PROCESSORS * 2
    pull_thread_pool_queue_capacity: int = 100_000
    put_message_future_thread_pool_nums: int = min(PROCESSORS, 4)
    put_thread_pool_queue_capacity: int = 10_000
    query_message_thread_pool_nums: int = 8 + PROCESSORS
    query_thread_pool_queue_capacity: int = 20_000
    recover_concurrently: bool = False
    recover_thread_pool_nums: int = 32
    reply_thread_pool_queue_capacity: int = 10_000
    send_message_thread_pool_nums: int = min(PROCESSORS, 4)
    send_thread_pool_queue_capacity: int = 10_000
    server_async_semaphore_value: int = 64
    server_callback_executor_threads: int = 0
    server_netty_worker_group_enable: bool = True
    server_oneway_semaphore_value: int = 256
    server_selector_threads: int = 3
    server_worker_threads: int = 8
    transaction_check_rocksdb_core_threads: int = 2
    transaction_check_rocksdb_max_threads: int = 5
    transaction_check_rocksdb_queue_capacity: int = 2000
    wait_time_mills_in_ack_queue: Int64 = 3000
    wait_time_mills_in_admin_broker_queue: Int64 = 5000
    wait_time_mills_in_heartbeat_queue: Int64 = 31_000
    wait_time_mills_in_lite_pull_queue: Int64 = 5000
    wait_time_mills_in_transaction_queue: Int64 = 3000

    # Sockets and their buffers
    channel_not_active_interval: Int64 = 60_000
    client_channel_max_idle_time_seconds: int = 120
    client_close_socket_if_timeout: bool = True
    client_pooled_byte_buf_allocator_enable: bool = False
    client_socket_rcv_buf_size: int = 0
    client_socket_snd_buf_size: int = 0
    connect_timeout_millis: int = 3000
    enable_net_work_flow_control: bool = False
    enable_reconnect_for_go_away: bool = True
    enable_shutdown_gracefully: bool = False
    max_reconnect_interval_time_seconds: Int64 = 60
    server_pooled_byte_buf_allocator_enable: bool = True
    server_socket_backlog: int = 1024
    server_socket_rcv_buf_size: int = 0
    server_socket_snd_buf_size: int = 0
    shutdown_wait_time_seconds: int = 30
    socks_proxy_config: str = "{}"
    use_epoll_native_selector: bool = False
    use_tls: bool = setting(False, key="useTLS")
    write_buffer_high_water_mark: int = 0
    write_buffer_low_water_mark: int = 0

    # POP
    append_ack_async: bool = False
    append_ck_async: bool = False
    enable_notify_before_pop_calculate_lag: bool = True
    enable_pop_batch_ack: bool = False
    enable_pop_buffer_merge: bool = False
    enable_pop_log: bool = False
    enable_skip_long_awaiting_ack: bool = False
    max_message_filter_num_for_notification: int = 64
    pop_ck_max_buffer_size: int = 200_000
    pop_ck_offset_max_queue_size: int = 20_000
    pop_ck_stay_buffer_time: int = 10_000
    pop_ck_stay_buffer_time_out: int = 3000
    pop_consumer_fs_service_init: bool = setting(True, key="popConsumerFSServiceInit")
    pop_consumer_kv_service_enable: bool = setting(False, key="popConsumerKVServiceEnable")
    pop_consumer_kv_service_init: bool = setting(False, key="popConsumerKVServiceInit")
    pop_consumer_kv_service_log: bool = setting(False, key="popConsumerKVServiceLog")
    pop_long_polling_force_notify_interval: Int64 = 800
    pop_polling_map_expire_time_seconds: int = 600
    pop_polling_map_size: int = 100_000
    pop_revive_concurrency: int = 32
    pop_revive_max_attempt_times: int = 16
    pop_revive_max_return_size_per_read: int = 16_384
    pop_revive_skip_if_group_absent: bool = True
    revive_ack_wait_ms: Int64 = 180_000
    revive_max_slow: Int64 = 3
    revive_scan_time: Int64 = 10_000
    use_separate_retry_queue: bool = False

    # Lite topics
    enable_lite_event_mode: bool = True
    enable_lite_pop_log: bool = False
    lite_event_check_interval: Int64 = 10_000
    lite_event_full_dispatch_delay_time: Int64 = 10_000
    lite_event_full_dispatch_delay_time_for_wildcard_group: Int64 = 10_000
    lite_lag_count_metrics_enable: bool = False
    lite_lag_latency_collect_enable: bool = False
    lite_lag_latency_metrics_enable: bool = False
    lite_lag_latency_top_k: int = 50
    max_client_event_count: int = 100
    persist_consumer_offset_incrementally: bool = False

    # Replication, and brokers that stand in for their master
    clean_offline_broker_interval: int = 30_000
    forward_timeout: Int64 = 3000
    send_heartbeat_timeout_millis: int = 1000

    # Statistics
    account_stats_enable: bool = True
    account_stats_print_zero_values: bool = True
    commercial_base_count: int = 1
    commercial_size_per_msg: int = 4096
    enable_lmq_stats: bool = False

    # Throttling of cold reads
    cg_cold_read_threshold: Int64 = 3_145_728
    cold_ctr_strategy_enable: bool = False
    global_cold_read_threshold: Int64 = 104_857_600
    use_pid_cold_ctr_strategy: bool = setting(True, key="usePIDColdCtrStrategy")

    # Others
    async_send_enable: bool = True
    config_manager_version: str = "v1"
    enable_fast_channel_event_process: bool = False
    fetch_name_srv_addr_by_dns_lookup: bool = False
    fetch_namesrv_addr_by_address_server: bool = False
    fetch_namesrv_addr_interval: Int64 = 10_000
    high_speed_mode: bool = False
    is_broker_container: bool = False
    is_in_broker_container: bool = False
    is_scan_available_name_srv: bool = True
    isolate_log_enable: bool = False
    message_store_plug_in: str = ""
    print_channel_groups: bool = False
    print_channel_groups_min_num: int = 5
    transfer_msg_by_heap: bool = True
    use_single_rocksdb_for_all_configs: bool = setting(False, key="useSingleRocksDBForAllConfigs")
