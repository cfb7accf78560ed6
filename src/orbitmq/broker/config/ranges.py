"""Ranges of numeric broker settings: a broker starts and works with every value in them."""

from __future__ import annotations

from orbitmq.platform.settings import INT32_MAX, INT64_MAX, MAX_MILLISECONDS, Range
from orbitmq.protocol.hosts import MAX_PORT
from orbitmq.remoting.config import REMOTING_RANGES

MAX_REVIVE_QUEUES = 1024
"""Each has a service of its own and a queue that is opened at the start."""
MAX_DEFAULT_QUEUES = 65_535
"""Maximum number of queues of a topic."""

_MILLISECONDS = Range(1, INT32_MAX)
_LONG_MILLISECONDS = Range(1, MAX_MILLISECONDS)
_LONG_WAIT = Range(0, MAX_MILLISECONDS)
_COUNT = Range(1, INT32_MAX)
_PER_CENT = Range(0, 100)

BROKER_RANGES: dict[str, Range] = {
    "broker_id": Range(-INT64_MAX - 1, INT64_MAX),
    "listen_port": Range(0, MAX_PORT),
    "server_channel_max_idle_time_seconds": _COUNT,
    "broker_permission": Range(0, 7),
    "default_topic_queue_nums": Range(1, MAX_DEFAULT_QUEUES),
    "revive_queue_num": Range(1, MAX_REVIVE_QUEUES),
    "split_metadata_size": _COUNT,
    "register_name_server_period": _MILLISECONDS,
    "register_broker_timeout_mills": _MILLISECONDS,
    "update_name_server_addr_period": _MILLISECONDS,
    "split_registration_size": _COUNT,
    "broker_heartbeat_interval": _MILLISECONDS,
    "broker_not_active_timeout_millis": _LONG_MILLISECONDS,
    "sync_broker_member_group_period": _MILLISECONDS,
    "controller_heart_beat_timeout_mills": _LONG_MILLISECONDS,
    "sync_broker_metadata_period": _LONG_MILLISECONDS,
    "sync_controller_metadata_period": _LONG_MILLISECONDS,
    "check_sync_state_set_period": _LONG_MILLISECONDS,
    "broker_election_priority": Range(-INT32_MAX - 1, INT32_MAX),
    "slave_metadata_check_period": _LONG_MILLISECONDS,
    "slave_metadata_full_period": _LONG_MILLISECONDS,
    "channel_expired_timeout": _LONG_MILLISECONDS,
    "subscription_expired_timeout": _LONG_MILLISECONDS,
    "start_accept_send_request_time_stamp": Range(0, INT64_MAX),
    "wait_time_mills_in_send_queue": _LONG_WAIT,
    "transaction_time_out": _LONG_WAIT,
    "transaction_check_interval": _LONG_MILLISECONDS,
    "transaction_check_max": Range(0, INT32_MAX),
    "transaction_op_batch_interval": Range(0, INT32_MAX),
    "transaction_op_msg_max_size": _COUNT,
    "transaction_metric_flush_interval": _LONG_MILLISECONDS,
    "short_polling_time_mills": _LONG_MILLISECONDS,
    "wait_time_mills_in_pull_queue": _LONG_WAIT,
    "consumer_fallbehind_threshold": Range(0, INT64_MAX),
    "revive_interval": _LONG_MILLISECONDS,
    "pop_from_retry_probability": _PER_CENT,
    "pop_from_retry_probability_for_priority": _PER_CENT,
    "max_pop_polling_size": Range(0, INT64_MAX),
    "pop_polling_size": Range(0, INT32_MAX),
    "pop_inflight_message_threshold": Range(0, INT64_MAX),
    "load_balance_poll_name_server_interval": _LONG_MILLISECONDS,
    "default_pop_share_queue_num": Range(-1, INT32_MAX),
    "max_lite_subscription_count": Range(0, INT64_MAX),
    "lite_subscription_check_interval": _LONG_MILLISECONDS,
    "lite_subscription_check_timeout_mills": _LONG_MILLISECONDS,
    "lite_ttl_check_interval": _LONG_MILLISECONDS,
    "min_lite_ttl": _LONG_WAIT,
    "filter_data_clean_time_span": _LONG_WAIT,
    "expect_consumer_num_use_filter": Range(1, 100_000),
    "max_error_rate_of_bloom_filter": Range(1, 99),
    "flush_consumer_offset_interval": _MILLISECONDS,
    "flush_consumer_offset_history_interval": _MILLISECONDS,
    "consumer_offset_update_version_step": Range(1, INT64_MAX),
    "delay_offset_update_version_step": Range(1, INT64_MAX),
    "broadcast_offset_expire_second": Range(0, MAX_MILLISECONDS // 1000),
    "broadcast_offset_expire_max_second": Range(0, MAX_MILLISECONDS // 1000),
    # Negative: never.
    "max_stats_idle_time_in_minutes": Range(-INT32_MAX - 1, INT32_MAX),
    "metrics_prom_exporter_port": Range(0, MAX_PORT),
    "metric_grpc_exporter_interval_in_mills": Range(1000, MAX_MILLISECONDS),
    "metric_grpc_exporter_time_out_in_mills": _LONG_MILLISECONDS,
    "metric_logging_exporter_interval_in_mills": Range(1000, MAX_MILLISECONDS),
    "metrics_export_batch_max_data_points": _COUNT,
    "metrics_otel_cardinality_limit": _COUNT,
    "broker_event_journal_bytes": Range(0, 1 << 26),
    "max_subscription_length": _COUNT,
    "max_subscription_tags": _COUNT,
    "max_consumer_filters": _COUNT,
    "max_consumer_filter_bytes": Range(1, INT64_MAX),
    "max_consumer_offsets": _COUNT,
    "max_queue_locks": _COUNT,
    "max_held_pulls": _COUNT,
    "client_share_percent": Range(1, 100),
    "max_sends_per_second_of_topic": Range(0, INT32_MAX),
    **REMOTING_RANGES,
}
