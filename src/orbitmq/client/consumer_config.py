"""How a push consumer behaves: the options of RocketMQ's ``DefaultMQPushConsumer``, times in seconds."""

from __future__ import annotations

import dataclasses
import datetime
import time
from typing import TYPE_CHECKING

from orbitmq.client.config import ClientOptions
from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.bodies import ConsumeFromWhere, MessageModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.client.allocation import Strategy
    from orbitmq.protocol.bodies import MessageQueue

MIB = 1 << 20
MOST_RECONSUMED = 16
"""How often a message is retried if nobody says otherwise."""
INT_MAX = 2**31 - 1

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
    "lock_interval": (0.001, 30),
    "pull_time_delay_when_exception": (0, 3600),
    "broker_suspend_max_time": (0, 3600),
    "consumer_timeout_when_suspend": (0.001, 3600),
    "resubmit_delay": (0, 3600),
}
_RANGES_IF_SET = {"pull_threshold_for_topic": (1, 6_553_500), "pull_threshold_size_for_topic": (1, 102_400)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """What a push consumer can be told. The names are Java's in snake case."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """Whether the members of a group share the messages or each gets all of them."""
    orderly: bool = False
    """Consume each queue in its order, one message (or batch) after the other."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group begins that has not consumed a queue yet."""
    consume_timestamp: str | float | datetime.datetime | None = None
    """For CONSUME_FROM_TIMESTAMP: ``yyyyMMddHHmmss`` in local time, seconds since 1970, or a datetime. Without it,
    half an hour ago."""
    allocate_message_queue_strategy: Strategy | None = None
    """Who gets which queues; the same for all members of a group. Without it, evenly."""

    consume_thread_max: int = 20
    """How many calls of handlers run at the same time, in threads or as coroutines."""
    consume_thread_min: int | None = None
    """Java's number of threads that stay; here they are started when they are needed."""
    consume_message_batch_max_size: int = 1
    """With more than 1, handlers are given lists of up to so many messages."""
    inline: bool = False
    """Call handlers that are plain functions on the event loop: for quick ones that wait for nothing."""
    consume_timeout: float = 900.0
    """A message whose handler has not returned after so long is retried. A coroutine is cancelled."""
    max_reconsume_times: int = -1
    """How often a message is retried before it is a dead letter. -1: 16 times, in an orderly queue without end."""
    by_priority: bool = False
    """Call the handler with the message of the highest priority first, of all that wait here."""
    topic_levels: Mapping[str, int] | None = None
    """The same by topic: those of a higher level first. A topic that is not named has level 0."""
    suspend_current_queue_time: float = 1.0
    """How long an orderly queue waits after a failure."""

    pull_batch_size: int = 32
    pull_batch_size_in_bytes: int = 262_144
    pull_interval: float = 0.0
    pull_threshold_for_queue: int = 1000
    """So many messages of a queue wait here before no more are pulled."""
    pull_threshold_size_for_queue: int = 100
    """The same in MiB."""
    pull_threshold_for_topic: int = -1
    pull_threshold_size_for_topic: int = -1
    """Limits for all queues of a topic together, shared out among them; in place of those for a queue."""
    consume_concurrently_max_span: int = 2000
    """So far may the newest message that waits here be ahead of the oldest."""
    post_subscription_when_pull: bool = False
    """Say with every pull what is subscribed, for brokers that may not know yet."""
    broker_suspend_max_time: float = 15.0
    """How long a broker holds a pull for which there is nothing."""
    consumer_timeout_when_suspend: float = 30.0
    pull_time_delay_when_exception: float = 1.0

    unit_mode: bool = False
    await_termination_when_shutdown: float = 10.0
    """How long closing waits for handlers that run."""
    rebalance_interval: float = 20.0
    rebalance_min_interval: float = 1.0
    """At least so long between two rounds; also how soon one follows that was not complete."""
    lock_interval: float = 20.0
    """How often an orderly consumer renews its locks on queues. They last 60 seconds, 30 of which count here."""
    resubmit_delay: float = 5.0
    """How soon a message is handed to its handler again if no broker would take it back."""
    local_offset_store_dir: str = ""
    """Where a broadcasting consumer keeps its offsets. Empty: ``.rocketmq_offsets`` in the home directory."""
    message_queue_listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None] | None = None
    """Called with a topic, all its queues and those of this consumer, when the last have changed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message_model", _member(MessageModel, self.message_model, "message_model"))
        where = _member(ConsumeFromWhere, self.consume_from_where, "consume_from_where")
        object.__setattr__(self, "consume_from_where", where)
        for name, (low, high) in _RANGES.items():
            _check_range(name, getattr(self, name), low, high)
        for name, (low, high) in _RANGES_IF_SET.items():
            if getattr(self, name) != -1:
                _check_range(name, getattr(self, name), low, high)
        if self.consume_thread_min is not None and not 1 <= self.consume_thread_min <= self.consume_thread_max:
            raise InvalidMessageError(
                f"consume_thread_min must be from 1 to consume_thread_max ({self.consume_thread_max}), "
                f"not {self.consume_thread_min}"
            )
        if self.orderly and self.goes_by_level:
            raise InvalidMessageError(
                "an orderly consumer keeps the order of queues: leave by_priority and topic_levels out"
            )
        if self.consumer_timeout_when_suspend < self.broker_suspend_max_time:
            raise InvalidMessageError("consumer_timeout_when_suspend must not be less than broker_suspend_max_time")
        self.start_timestamp_ms()

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def goes_by_level(self) -> bool:
        """Whether some messages overtake others here."""
        return self.by_priority or bool(self.topic_levels)

    @property
    def most_reconsumed(self) -> int:
        """How often a message is retried."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return INT_MAX if self.orderly else MOST_RECONSUMED

    def start_timestamp_ms(self) -> int:
        """``consume_timestamp`` in milliseconds since 1970."""
        given = self.consume_timestamp
        if given is None:
            return round((time.time() - 1800) * 1000)
        if isinstance(given, datetime.datetime):
            return round(given.timestamp() * 1000)
        if isinstance(given, str):
            try:
                return round(time.mktime(time.strptime(given, "%Y%m%d%H%M%S")) * 1000)
            except ValueError:
                raise InvalidMessageError(f"consume_timestamp {given!r} is not yyyyMMddHHmmss") from None
        return round(given * 1000)

    def window(self, queue_count: int) -> tuple[int, int]:
        """How many messages and bytes of one of so many queues may wait here."""
        count, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue * MIB
        if self.pull_threshold_for_topic != -1:
            count = max(1, self.pull_threshold_for_topic // max(queue_count, 1))
        if self.pull_threshold_size_for_topic != -1:
            size = max(1, self.pull_threshold_size_for_topic // max(queue_count, 1)) * MIB
        return count, size


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InvalidMessageError(f"{name} must be {low:g} to {high:g}, not {value!r}")


def _member(kind: type[MessageModel | ConsumeFromWhere], value: str, name: str) -> MessageModel | ConsumeFromWhere:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise InvalidMessageError(f"{name} is one of {known}, not {value!r}") from None


class ConsumerOptions(ClientOptions, total=False):
    """The keywords of a consumer: the fields of ConsumerConfig and ClientConfig, where they are explained."""

    message_model: MessageModel | str
    orderly: bool
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
    lock_interval: float
    resubmit_delay: float
    local_offset_store_dir: str
    message_queue_listener: Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None] | None
