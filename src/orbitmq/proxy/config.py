"""Settings of the gRPC server, with the keys and defaults of Apache's proxy; keys of our own are marked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.platform.settings import (
    INT32_MAX,
    MAX_MILLISECONDS,
    Int64,
    Range,
    check_values,
    from_settings,
    setting,
    settings_of,
)
from orbitmq.protocol.hosts import MAX_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT = 8081
"""Of Apache's proxy, which the clients' documentation uses."""

_COUNT = Range(1, INT32_MAX)
_TIME = Range(1, MAX_MILLISECONDS)

RANGES: dict[str, Range] = {
    "grpc_server_port": Range(0, MAX_PORT),
    "grpc_max_inbound_message_size": Range(1024, INT32_MAX),
    "grpc_client_idle_time_mills": _TIME,
    "grpc_shutdown_time_seconds": Range(0, 3600),
    "max_message_size": _COUNT,
    "max_user_property_size": _COUNT,
    "user_property_max_num": _COUNT,
    "max_message_group_size": _COUNT,
    "max_delay_time_mills": _TIME,
    "max_transaction_recovery_second": Range(1, MAX_MILLISECONDS // 1000),
    "min_invisible_time_mills_for_recv": Range(0, MAX_MILLISECONDS),
    "max_invisible_time_mills": _TIME,
    "grpc_client_producer_max_attempts": _COUNT,
    "grpc_client_producer_backoff_initial_millis": _TIME,
    "grpc_client_producer_backoff_max_millis": _TIME,
    "grpc_client_producer_backoff_multiplier": _COUNT,
    "grpc_client_consumer_min_long_polling_timeout_millis": _TIME,
    "grpc_client_consumer_max_long_polling_timeout_millis": _TIME,
    "grpc_client_consumer_long_polling_batch_size": Range(1, 32),
    "default_invisible_time_mills": _TIME,
    "renew_schedule_period_millis": _TIME,
    "renew_ahead_time_millis": _TIME,
    "renew_max_time_millis": _TIME,
    "max_renew_retry_times": _COUNT,
    "invisible_time_millis_when_clear": _TIME,
    "transaction_data_expire_millis": _TIME,
    "transaction_data_max_num": _COUNT,
    "channel_expired_timeout": _TIME,
    "max_lite_topic_size": _COUNT,
    "grpc_max_clients": _COUNT,
    "grpc_max_concurrent_calls_per_connection": _COUNT,
    "grpc_max_calls": _COUNT,
    "grpc_max_renewed_messages": _COUNT,
    "grpc_max_queued_commands": _COUNT,
    "grpc_max_transactions": _COUNT,
}


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class GrpcConfig:
    """Settings of one gRPC server; read when it starts. Times are milliseconds unless the name says otherwise."""

    grpc_server_port: int = DEFAULT_PORT
    grpc_max_inbound_message_size: int = 136_314_880
    grpc_client_idle_time_mills: Int64 = 120_000
    grpc_shutdown_time_seconds: int = 30
    use_endpoint_port_from_request: bool = False
    tls_cert_path: str = ""
    """Certificate chain, as PEM. With it the port takes TLS and clear text, by the first byte of a connection."""
    tls_key_path: str = ""
    tls_key_password: str = ""

    max_message_size: int = 4_194_304
    max_user_property_size: int = 16_384
    user_property_max_num: int = 128
    max_message_group_size: int = 64
    enable_message_body_empty_check: bool = True
    enable_topic_message_type_check: bool = True
    max_delay_time_mills: Int64 = 86_400_000
    max_transaction_recovery_second: Int64 = 3600

    min_invisible_time_mills_for_recv: Int64 = 10_000
    max_invisible_time_mills: Int64 = 43_200_000
    grpc_client_producer_max_attempts: int = 3
    grpc_client_producer_backoff_initial_millis: Int64 = 10
    grpc_client_producer_backoff_max_millis: Int64 = 1000
    grpc_client_producer_backoff_multiplier: int = 2
    grpc_client_consumer_min_long_polling_timeout_millis: Int64 = 5000
    grpc_client_consumer_max_long_polling_timeout_millis: Int64 = 20_000
    grpc_client_consumer_long_polling_batch_size: int = 32

    enable_proxy_auto_renew: bool = True
    default_invisible_time_mills: Int64 = 60_000
    renew_schedule_period_millis: Int64 = 5000
    renew_ahead_time_millis: Int64 = 10_000
    renew_max_time_millis: Int64 = 10_800_000
    max_renew_retry_times: int = 3
    invisible_time_millis_when_clear: Int64 = 1000

    transaction_data_expire_millis: Int64 = 30_000
    transaction_data_max_num: int = 15
    channel_expired_timeout: Int64 = 120_000
    max_lite_topic_size: int = 64

    # Of OrbitMQ
    grpc_auto_create_consumer_group: bool = setting(False, optional=True)
    """Create a consumer group that does not exist when a client consumes with it. Apache's proxy refuses it."""
    grpc_max_clients: int = setting(65_536, optional=True)
    """Client ids that are known at the same time. One more is refused with TOO_MANY_REQUESTS."""
    grpc_max_concurrent_calls_per_connection: int = setting(4096, optional=True)
    """HTTP/2 streams of one connection; further calls wait in the client. Apache's proxy has no limit."""
    grpc_max_calls: int = setting(100_000, optional=True)
    """Calls in progress, streams included, of all connections. One more ends with RESOURCE_EXHAUSTED."""
    grpc_max_renewed_messages: int = setting(500_000, optional=True)
    """Messages whose invisible time is renewed. Further ones are redelivered after their first invisible time."""
    grpc_max_queued_commands: int = setting(1024, optional=True)
    """Commands that wait for a client to read its telemetry stream. Further ones are dropped."""
    grpc_max_transactions: int = setting(100_000, optional=True)
    """Half messages whose place is remembered for EndTransaction. The oldest one is dropped for another."""

    def __post_init__(self) -> None:
        check_values(self, RANGES)

    @classmethod
    def of(cls, settings: Mapping[str, str], **overrides: int) -> GrpcConfig:
        """The settings among these texts by key. Raises ConfigError."""
        return from_settings(
            cls, {key: text for key, text in settings.items() if is_grpc_setting(key)}, **overrides
        )[0]


def is_grpc_setting(key: str) -> bool:
    """True for a key of a settings file that is one of the gRPC server."""
    return key in settings_of(GrpcConfig)
