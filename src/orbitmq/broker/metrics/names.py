"""RocketMQ's built-in metrics: names, types, units and buckets as the endpoint of Apache's broker 5.5.0 has."""

from __future__ import annotations

from typing import Final

from orbitmq.metrics.instrument import Instrument, Kind

SCOPE: Final = ("otel_scope_name", "broker-meter")
"""Label that OpenTelemetry's Prometheus exporter adds to every metric of RocketMQ's broker."""

SIZE_BOUNDS: Final = (1024.0, 4096.0, 524288.0, 1048576.0, 2097152.0, 4194304.0)
_RPC_BOUNDS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
_CREATE_BOUNDS = (10.0, 100.0, 1000.0, 3000.0, 5000.0)


def _gauge(name: str, description: str, unit: str = "") -> Instrument:
    return Instrument(f"rocketmq_{name}", Kind.GAUGE, description, unit)


def _counter(name: str, description: str) -> Instrument:
    return Instrument(f"rocketmq_{name}", Kind.COUNTER, description)


def _histogram(name: str, description: str, unit: str, bounds: tuple[float, ...]) -> Instrument:
    return Instrument(f"rocketmq_{name}", Kind.HISTOGRAM, description, unit, bounds)


TARGET_INFO = Instrument("target_info", Kind.GAUGE, "Target metadata.")

# The broker
PROCESSOR_WATERMARK = _gauge("processor_watermark", "Requests that wait for a processor; none do here.")
BROKER_PERMISSION = _gauge("broker_permission", "Permission of the broker: 2 write, 4 read, 6 both.")
TOPIC_NUMBER = _gauge("topic_number", "Number of topics.")
GROUP_NUMBER = _gauge("consumer_group_number", "Number of subscription groups.")
TOPIC_CREATE_TIME = _histogram(
    "topic_create_execution_time", "Time to create or change a topic.", "milliseconds", _CREATE_BOUNDS
)
GROUP_CREATE_TIME = _histogram(
    "consumer_group_create_execution_time",
    "Time to create or change a subscription group.",
    "milliseconds",
    _CREATE_BOUNDS,
)

# Messages
MESSAGES_IN = _counter("messages_in_total", "Messages received from producers, by stored topic.")
THROUGHPUT_IN = _counter("throughput_in_total", "Bytes of these messages in the log.")
MESSAGE_SIZE = _histogram("message_size", "Sizes of these messages in the log, in bytes.", "", SIZE_BOUNDS)
MESSAGES_OUT = _counter("messages_out_total", "Messages delivered to consumers.")
THROUGHPUT_OUT = _counter("throughput_out_total", "Bytes of these messages in the log.")
SEND_TO_DLQ = _counter("send_to_dlq_messages_total", "Messages moved to the dead letter queue.")

# Clients
PRODUCER_CONNECTIONS = _gauge("producer_connections", "Connected producers.")
CONSUMER_CONNECTIONS = _gauge("consumer_connections", "Connected consumers.")

# Lag
LAG_MESSAGES = _gauge("consumer_lag_messages", "Messages that a group has not confirmed.")
LAG_LATENCY = _gauge(
    "consumer_lag_latency", "Age of the oldest message that a group has not confirmed.", "milliseconds"
)
INFLIGHT_MESSAGES = _gauge("consumer_inflight_messages", "Messages that a group has received and not confirmed.")
QUEUEING_LATENCY = _gauge(
    "consumer_queueing_latency", "Age of the oldest message that a group has not received.", "milliseconds"
)
READY_MESSAGES = _gauge("consumer_ready_messages", "Messages that a group has not received.")

# Transactions
COMMIT_MESSAGES = _counter("commit_messages_total", "Committed half messages.")
ROLLBACK_MESSAGES = _counter("rollback_messages_total", "Half messages that were rolled back.")
FINISH_LATENCY = _histogram(
    "finish_message_latency",
    "Age of half messages at their commit, in seconds. RocketMQ names the unit milliseconds.",
    "milliseconds",
    (5.0, 60.0, 600.0, 3600.0, 43200.0, 86400.0),
)
HALF_MESSAGES = _gauge("half_messages", "Half messages that are neither committed nor rolled back.")

# Requests
RPC_LATENCY = _histogram(
    "rpc_latency", "Time from the receipt of a request to its response.", "milliseconds", _RPC_BOUNDS
)

# The store
STORAGE_SIZE = _gauge("storage_size", "Used space of the partition of the store.", "bytes")
FLUSH_BEHIND = _gauge("storage_flush_behind_bytes", "Bytes of the log that are not flushed.", "bytes")
DISPATCH_BEHIND = _gauge("storage_dispatch_behind_bytes", "Bytes of the log that are not in queues.", "bytes")
RESERVE_TIME = _gauge("storage_message_reserve_time", "Age of the oldest message.", "milliseconds")

# Timers and delays
TIMER_ENQUEUE_LAG = _gauge("timer_enqueue_lag", "Timed messages that are not in the timer wheel yet.")
TIMER_ENQUEUE_LATENCY = _gauge("timer_enqueue_latency", "Age of the oldest of these.", "milliseconds")
TIMER_DEQUEUE_LAG = _gauge("timer_dequeue_lag", "Timed messages that are due and not delivered.")
TIMER_DEQUEUE_LATENCY = _gauge("timer_dequeue_latency", "How late the timer delivers.", "milliseconds")
TIMING_MESSAGES = _gauge("timing_messages", "Timed messages that wait, by topic.")
TIMER_SNAPSHOT = _gauge("timer_message_snapshot", "Timed messages due between the bound before and this one.")
TIMER_ENQUEUED = _counter("timer_enqueue_total", "Messages that entered the timer wheel.")
TIMER_DEQUEUED = _counter("timer_dequeue_total", "Messages that the timer delivered.")
DELAY_LATENCY = _histogram(
    "delay_message_latency",
    "Delay for which messages were stored.",
    "seconds",
    (60.0, 600.0, 3600.0, 43200.0, 86400.0, 259200.0),
)

# POP
POP_OFFSET_BUFFER = _gauge(
    "pop_offset_buffer_size", "Size of RocketMQ's buffer of pop offsets, which does not exist here: 0."
)
POP_CHECKPOINT_BUFFER = _gauge(
    "pop_checkpoint_buffer_size", "Size of RocketMQ's buffer of checkpoints, which does not exist here: 0."
)
POP_REVIVE_LAG = _gauge("pop_revive_lag", "Records of a revive queue that are not read.", "milliseconds")
POP_REVIVE_LATENCY = _gauge("pop_revive_latency", "How late the revive service reads a queue.", "milliseconds")
POP_REVIVE_IN = _counter("pop_revive_in_message_total", "Checkpoints and acknowledgements stored.")

PROCESSORS: Final = (
    "ack", "admin", "async_put", "client_manager", "consumer_manager", "heartbeat", "lite_pull", "pull",
    "query_message", "reply", "send", "transaction",
)  # fmt: skip
"""Values of the label ``processor``."""
