"""Options of producers: RocketMQ's ``DefaultMQProducer`` in snake case, with times in seconds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.config import ClientOptions
from orbitmq.client.errors import InvalidOptionError
from orbitmq.client.producer.latency_fault import LADDER_5, FaultLadder
from orbitmq.client.validation import check_producer_group, check_topic
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.compression import DEFAULT_LEVEL, Compression
from orbitmq.protocol.names import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable


RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Response codes after which a send is retried on another broker."""

MAX_IN_FLIGHT = 65535
MAX_BYTES_IN_FLIGHT = 100 << 20
"""Limits in flight without back-pressure, as in Java's clients."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Options of a producer."""

    group: str
    topics: tuple[str, ...] = ()
    """Topics whose routes are looked up at the start, so that the first send does not wait."""
    create_topic_key: str = AUTO_CREATE_TOPIC
    """The topic whose settings an auto-created topic inherits."""
    default_topic_queue_nums: int = 4
    send_msg_timeout: float = 3.0
    """For a send with all its attempts."""
    send_msg_max_timeout_per_request: float | None = None
    """For one attempt, unless it is the last."""
    compress_msg_body_over_howmuch: int = 4096
    """Minimum size of bodies to compress."""
    compress_level: int = DEFAULT_LEVEL
    compress_type: Compression | str = Compression.ZLIB
    """``ZLIB``, ``LZ4`` or ``ZSTD``; consumers before 5.0 understand ``ZLIB`` only."""
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    retry_response_codes: Iterable[int] = RETRY_RESPONSE_CODES
    max_message_size: int = 4 << 20
    sync_send_connections: int = 32
    """Connections to each broker, at most, that blocking sends open for themselves: one for each thread that sends
    at the same time. 0: they share that of everything else, as all sends of ``orbitmq.aio`` do."""
    auto_batch: bool = False
    """Collect single sends into batches."""
    batch_max_delay: float = 0.010
    batch_max_bytes: int = 32 << 10
    total_batch_max_bytes: int = 32 << 20
    enable_backpressure_for_async_mode: bool = False
    back_pressure_for_async_send_num: int = 1024
    back_pressure_for_async_send_size: int = 100 << 20
    send_latency_fault_enable: bool = False
    """Avoid brokers that are slow or failed for a while."""
    fault_ladder: FaultLadder = LADDER_5
    start_detector_enable: bool = False
    """Probe failed brokers until they are reachable again."""
    detect_timeout: float = 0.2
    detect_interval: float = 2.0

    def __post_init__(self) -> None:
        check_producer_group(self.group)
        for topic in self.topics:
            check_topic(topic)
        for name in ("send_msg_timeout", "detect_timeout", "detect_interval", "max_message_size"):
            if not getattr(self, name) > 0:
                raise InvalidOptionError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.send_msg_max_timeout_per_request is not None and self.send_msg_max_timeout_per_request <= 0:
            raise InvalidOptionError("send_msg_max_timeout_per_request must be more than 0, or None")
        for name, least, most in (
            ("default_topic_queue_nums", 1, 65535),
            ("compress_msg_body_over_howmuch", 0, 1 << 31),
            ("compress_level", 0, 9),
            ("retry_times_when_send_failed", 0, 1000),
            ("retry_times_when_send_async_failed", 0, 1000),
            ("sync_send_connections", 0, 1024),
            ("batch_max_delay", 0.001, 30.0),
            ("batch_max_bytes", 1, 2 << 20),
            ("total_batch_max_bytes", 1, 1 << 40),
            ("back_pressure_for_async_send_num", 10, 1 << 31),
            ("back_pressure_for_async_send_size", 1 << 20, 1 << 40),
        ):
            if not least <= getattr(self, name) <= most:
                raise InvalidOptionError(f"{name} must be from {least} to {most}, not {getattr(self, name)}")
        object.__setattr__(self, "compress_type", compression(self.compress_type))
        object.__setattr__(self, "retry_response_codes", frozenset(map(int, self.retry_response_codes)))

    @property
    def max_in_flight(self) -> tuple[int, int]:
        """Maximum number and bytes of messages in flight."""
        if self.enable_backpressure_for_async_mode:
            return self.back_pressure_for_async_send_num, self.back_pressure_for_async_send_size
        return MAX_IN_FLIGHT, MAX_BYTES_IN_FLIGHT


def compression(kind: Compression | str) -> Compression:
    """Parse the name of a compression. Raises InvalidOptionError."""
    try:
        return Compression[kind.upper()] if isinstance(kind, str) else Compression(kind)
    except (KeyError, ValueError):
        raise InvalidOptionError(f"compress_type must be ZLIB, LZ4 or ZSTD, not {kind!r}") from None


class ProducerOptions(ClientOptions, total=False):
    """Keywords of a producer: the fields of ProducerConfig and ClientConfig, which document them."""

    topics: tuple[str, ...]
    create_topic_key: str
    default_topic_queue_nums: int
    send_msg_timeout: float
    send_msg_max_timeout_per_request: float | None
    compress_msg_body_over_howmuch: int
    compress_level: int
    compress_type: Compression | str
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    retry_response_codes: Iterable[int]
    max_message_size: int
    sync_send_connections: int
    auto_batch: bool
    batch_max_delay: float
    batch_max_bytes: int
    total_batch_max_bytes: int
    enable_backpressure_for_async_mode: bool
    back_pressure_for_async_send_num: int
    back_pressure_for_async_send_size: int
    send_latency_fault_enable: bool
    fault_ladder: FaultLadder
    start_detector_enable: bool
    detect_timeout: float
    detect_interval: float
