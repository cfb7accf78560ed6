"""Options of push consumers: RocketMQ's ``DefaultMQPushConsumer`` in snake case, with times in seconds."""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING

from orbitmq.client.config import ClientOptions
from orbitmq.client.errors import InvalidOptionError
from orbitmq.protocol.bodies import ConsumeFromWhere, MessageModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.client.consumer.allocate_strategy import Strategy
    from orbitmq.protocol.bodies import MessageQueue

MIB = 1 << 20
DEFAULT_MAX_RECONSUME_TIMES = 16
"""Default number of retries."""
INT_MAX = 2**31 - 1
DEFAULT_START_AGE_MS = 1_800_000
"""Age of the first messages that CONSUME_FROM_TIMESTAMP consumes without a ``consume_timestamp``."""

START_NAMES = {
    "earliest": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "latest": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}

_RANGES: dict[str, tuple[float, float]] = {
    "consume_thread_max": (1, 1000),
    "consume_concurrently_max_span": (1, 65535),
    "pull_threshold_for_queue": (1, 65535),
    "pull_threshold_size_for_queue": (1, 1024),
    "pull_interval": (0, 65.535),
    "consume_message_batch_max_size": (1, 1024),
    "pull_batch_size": (1, 1024),
    "pull_batch_size_in_bytes": (1, INT_MAX),
    "max_reconsume_times": (-1, INT_MAX),
    "suspend_current_queue_time": (0.01, 30),
    "consume_timeout": (0.001, 86400),
    "await_termination_when_shutdown": (0, 86400),
    "rebalance_interval": (0.001, 86400),
    "rebalance_min_interval": (0, 86400),
    "handover_timeout": (0, 60),
    "lock_interval": (0.001, 30),
    "pull_time_delay_when_exception": (0, 3600),
    "broker_suspend_max_time": (0, 3600),
    "consumer_timeout_when_suspend": (0.001, 3600),
    "resubmit_delay": (0, 3600),
}
_RANGES_IF_SET = {"pull_threshold_for_topic": (1, 6_553_500), "pull_threshold_size_for_topic": (1, 102_400)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Options of a push consumer."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: members of a group share the messages. BROADCASTING: each gets all of them."""
    orderly: bool = False
    """Consume each queue in order, one message (or batch) after the other."""
    start_from: str | float | datetime.datetime | None = None
    """Where a group without a committed offset begins: ``"earliest"``, ``"latest"``, a datetime or seconds since
    1970. Default: ``"latest"``."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """The same with Java's names."""
    consume_timestamp: str | float | datetime.datetime | None = None
    """For CONSUME_FROM_TIMESTAMP: ``yyyyMMddHHmmss`` in local time, seconds since 1970, or a datetime. Without it,
    half an hour ago."""
    allocate_message_queue_strategy: Strategy | None = None
    """Allocation strategy, the same for all members of a group. Default: AllocateAveragely."""

    consume_thread_max: int = 20
    """Number of concurrent handler calls, in threads or as coroutines."""
    consume_thread_min: int | None = None
    """Java's number of core threads. Here threads start on demand."""
    consume_message_batch_max_size: int = 1
    """With more than 1, handlers get lists of up to this many messages."""
    inline: bool = False
    """Call plain functions on the event loop: for quick handlers that never block."""
    consume_timeout: float = 900.0
    """Timeout of a handler; its message is retried. A coroutine is cancelled."""
    max_reconsume_times: int = -1
    """Retries before the dead letter queue. -1: 16, unlimited in an orderly queue."""
    by_priority: bool = False
    """Consume buffered messages of higher priority first."""
    topic_levels: Mapping[str, int] | None = None
    """Consume buffered messages of topics with a higher level first. Default level: 0."""
    suspend_current_queue_time: float = 1.0
    """Backoff of an orderly queue after a failure."""

    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = 262_144
    pull_interval: float = 0.0
    pull_threshold_for_queue: int = 1000
    """Maximum of buffered messages per queue before pulls pause."""
    pull_threshold_size_for_queue: int = 100
    """The same in MiB."""
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    """Limits of a whole topic, divided among its queues, instead of the limits per queue."""
    consume_concurrently_max_span: int = 2000
    """Maximum distance between the offsets of the oldest and newest buffered message."""
    post_subscription_when_pull: bool = False
    """Send the subscription with every pull, for brokers that may not have it yet."""
    broker_suspend_max_time: float = 15.0
    """Long-polling time: how long a broker holds a pull without messages."""
    consumer_timeout_when_suspend: float = 30.0
    pull_time_delay_when_exception: float = 1.0

    unit_mode: bool = False
    await_termination_when_shutdown: float = 10.0
    """How long closing waits for running handlers."""
    rebalance_interval: float = 20.0
    rebalance_min_interval: float = 1.0
    """Minimum time between two rounds, and the delay of a retry after an incomplete one."""
    handover_timeout: float = 2.0
    """How long a member waits for the offsets of queues that another member still holds. 0: it begins at once."""
    lock_interval: float = 20.0
    """Interval at which an orderly consumer renews its queue locks. They last 60 seconds, 30 count here."""
    resubmit_delay: float = 5.0
    """Delay of a local retry if no broker accepts the send-back."""
    local_offset_store_dir: str = ""
    """Directory of a broadcasting consumer's offsets. Empty: ``.rocketmq_offsets`` in the home directory."""
    message_queue_listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None] | None = None
    """Called with a topic, all its queues and those of this consumer when its assignment has changed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message_model", _member(MessageModel, self.message_model, "message_model"))
        if self.start_from is not None:
            begin, timestamp = start_position(self.start_from, self.consume_from_where, self.consume_timestamp)
            object.__setattr__(self, "consume_from_where", begin)
            object.__setattr__(self, "consume_timestamp", timestamp)
        where = _member(ConsumeFromWhere, self.consume_from_where, "consume_from_where")
        object.__setattr__(self, "consume_from_where", where)
        for name, (low, high) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high)
        for name, (low, high) in _RANGES_IF_SET.items():
            if getattr(self, name) != -1:
                _check_range(name, getattr(self, name), low, high)
        if self.consume_thread_min is not None and not 1 <= self.consume_thread_min <= self.consume_thread_max:
            raise InvalidOptionError(
                f"consume_thread_min must be from 1 to consume_thread_max ({self.consume_thread_max}), "
                f"not {self.consume_thread_min}"
            )
        if self.orderly and self.uses_priority:
            raise InvalidOptionError(
                "an orderly consumer keeps the order of queues: remove by_priority and topic_levels"
            )
        if self.consumer_timeout_when_suspend < self.broker_suspend_max_time:
            raise InvalidOptionError("consumer_timeout_when_suspend must not be less than broker_suspend_max_time")
        self.start_timestamp_ms(0)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def uses_priority(self) -> bool:
        """True if buffered messages are reordered by priority."""
        return self.by_priority or bool(self.topic_levels)

    @property
    def effective_max_reconsume_times(self) -> int:
        """Maximum number of retries."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return INT_MAX if self.orderly else DEFAULT_MAX_RECONSUME_TIMES

    def start_timestamp_ms(self, now_ms: int) -> int:
        """``consume_timestamp`` in milliseconds since 1970; half an hour before ``now_ms`` without one."""
        given = self.consume_timestamp
        if given is None:
            return now_ms - DEFAULT_START_AGE_MS
        if isinstance(given, datetime.datetime):
            return round(given.timestamp() * 1000)
        if isinstance(given, str):
            try:
                return round(time.mktime(time.strptime(given, "%Y%m%d%H%M%S")) * 1000)
            except ValueError:
                raise InvalidOptionError(f"consume_timestamp {given!r} is not yyyyMMddHHmmss") from None
        return round(given * 1000)

    def window(self, queue_count: int) -> tuple[int, int]:
        """Maximum of buffered messages and bytes for each of ``queue_count`` queues."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue * MIB
        if self.pull_threshold_for_topic != -1:
            count = max(1, self.pull_threshold_for_topic // max(queue_count, 1))
        if self.pull_threshold_size_for_topic != -1:
            size = max(1, self.pull_threshold_size_for_topic // max(queue_count, 1)) * MIB
        return count, size


def start_position(
    start_from: str | float | datetime.datetime, where: str, timestamp: object
) -> tuple[ConsumeFromWhere, float | None]:
    """Java's two options for a ``start_from``. Raises InvalidOptionError."""
    found: tuple[ConsumeFromWhere, float | None]
    if not isinstance(start_from, str):
        seconds = start_from.timestamp() if isinstance(start_from, datetime.datetime) else start_from
        found = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, seconds
    elif start_from in START_NAMES:
        found = START_NAMES[start_from], None
    else:
        raise InvalidOptionError(
            f'start_from is "earliest", "latest", a datetime or seconds since 1970, not {start_from!r}'
        )
    if where not in {ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, found[0]} or timestamp not in {None, found[1]}:
        raise InvalidOptionError("give start_from, or consume_from_where with consume_timestamp, not both")
    return found


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidOptionError(f"{name} must be {low:g} to {high:g}, not {value!r}")


def _member(kind: type[MessageModel | ConsumeFromWhere], value: str, name: str) -> MessageModel | ConsumeFromWhere:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise InvalidOptionError(f"{name} is one of {known}, not {value!r}") from None


class ConsumerOptions(ClientOptions, total=False):
    """Keywords of a consumer: the fields of ConsumerConfig and ClientConfig, which document them."""

    message_model: MessageModel | str
    orderly: bool
    start_from: str | float | datetime.datetime | None
    consume_from_where: ConsumeFromWhere | str
    consume_timestamp: str | float | datetime.datetime | None
    allocate_message_queue_strategy: Strategy | None
    consume_thread_max: int
    consume_thread_min: int | None
    consume_message_batch_max_size: int
    inline: bool
    consume_timeout: float
    max_reconsume_times: int
    by_priority: bool
    topic_levels: Mapping[str, int] | None
    suspend_current_queue_time: float
    pull_batch_size: int
    pull_batch_size_in_bytes: int
    pull_interval: float
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_threshold_for_topic: int
    pull_threshold_size_for_topic: int
    consume_concurrently_max_span: int
    post_subscription_when_pull: bool
    broker_suspend_max_time: float
    consumer_timeout_when_suspend: float
    pull_time_delay_when_exception: float
    unit_mode: bool
    await_termination_when_shutdown: float
    rebalance_interval: float
    rebalance_min_interval: float
    handover_timeout: float
    lock_interval: float
    resubmit_delay: float
    local_offset_store_dir: str
    message_queue_listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None] | None
