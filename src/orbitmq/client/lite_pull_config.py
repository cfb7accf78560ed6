"""The options of a pull consumer: those of RocketMQ's ``DefaultLitePullConsumer``, times in seconds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from orbitmq.client.assigned_queues import PullLimits
from orbitmq.client.config import ClientOptions
from orbitmq.client.consumer_config import ConsumerConfig
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.lite_pulling import PullSettings
from orbitmq.protocol.bodies import ConsumeFromWhere, MessageModel

if TYPE_CHECKING:
    import datetime

    from orbitmq.client.allocation import Strategy

LEAST_AUTO_COMMIT = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig:
    """What a pull consumer can be told. The names are Java's in snake case."""

    message_model: MessageModel | str = MessageModel.CLUSTERING
    """Whether the members of a group share the queues of a topic or each gets all of them."""
    consume_from_where: ConsumeFromWhere | str = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group begins that has not consumed a queue yet."""
    consume_timestamp: str | float | datetime.datetime | None = None
    """For CONSUME_FROM_TIMESTAMP, as of push consumers."""
    allocate_message_queue_strategy: Strategy | None = None
    """Who gets which queues; the same for all members of a group. Without it, evenly."""
    auto_commit: bool = True
    """Whether offsets are committed without being asked to: those of messages after which more were asked for."""
    auto_commit_interval: float = 5.0
    poll_timeout: float = 5.0
    """How long ``poll`` waits if it is not told."""
    pull_batch_size: int = 10
    """At most so many messages come with one pull, and from one ``poll``."""
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1_000
    """So many messages, of all queues or of one, wait here before no more are pulled."""
    pull_threshold_size_for_queue: int = 100
    """The same in MiB."""
    consume_max_span: int = 2_000
    """So far may the newest message that waits here be ahead of the oldest."""
    broker_suspend_max_time: float = 20.0
    """How long a broker holds a pull for which there is nothing."""
    consumer_timeout_when_suspend: float = 30.0
    topic_metadata_check_interval: float = 30.0
    """How often the queues of topics are looked at for those who listen for changes."""
    rebalance_interval: float = 20.0
    rebalance_min_interval: float = 1.0
    unit_mode: bool = False
    local_offset_store_dir: str = ""
    """Where a broadcasting consumer keeps its offsets. Empty: ``.rocketmq_offsets`` in the home directory."""

    def __post_init__(self) -> None:
        # What push consumers have as well is checked there, and the rest by those who use it.
        _ = self.shared, self.limits
        if self.auto_commit_interval < LEAST_AUTO_COMMIT:
            raise InvalidMessageError(
                f"auto_commit_interval must be at least {LEAST_AUTO_COMMIT:g}, not {self.auto_commit_interval!r}"
            )
        for name in ("poll_timeout", "topic_metadata_check_interval"):
            if getattr(self, name) < 0:
                raise InvalidMessageError(f"{name} must not be less than 0, it is {getattr(self, name)!r}")

    @property
    def shared(self) -> ConsumerConfig:
        """The same for those parts that work for push consumers too."""
        return ConsumerConfig(
            message_model=cast("MessageModel", self.message_model),
            consume_from_where=cast("ConsumeFromWhere", self.consume_from_where),
            consume_timestamp=self.consume_timestamp,
            allocate_message_queue_strategy=self.allocate_message_queue_strategy,
            pull_batch_size=self.pull_batch_size,
            broker_suspend_max_time=self.broker_suspend_max_time,
            consumer_timeout_when_suspend=self.consumer_timeout_when_suspend,
            rebalance_interval=self.rebalance_interval,
            rebalance_min_interval=self.rebalance_min_interval,
        )

    @property
    def limits(self) -> PullLimits:
        return PullLimits(
            pull_threshold_for_all=self.pull_threshold_for_all,
            pull_threshold_for_queue=self.pull_threshold_for_queue,
            pull_threshold_size_for_queue=self.pull_threshold_size_for_queue,
            consume_max_span=self.consume_max_span,
        )

    @property
    def pulls(self) -> PullSettings:
        return PullSettings(
            pull_batch_size=self.pull_batch_size,
            broker_suspend_max_time=self.broker_suspend_max_time,
            consumer_timeout_when_suspend=self.consumer_timeout_when_suspend,
        )


class LitePullOptions(ClientOptions, total=False):
    """The keywords of a pull consumer: the fields of LitePullConfig and ClientConfig, where they are explained."""

    message_model: MessageModel | str
    consume_from_where: ConsumeFromWhere | str
    consume_timestamp: str | float | datetime.datetime | None
    allocate_message_queue_strategy: Strategy | None
    auto_commit: bool
    auto_commit_interval: float
    poll_timeout: float
    pull_batch_size: int
    pull_threshold_for_all: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    consume_max_span: int
    broker_suspend_max_time: float
    consumer_timeout_when_suspend: float
    topic_metadata_check_interval: float
    rebalance_interval: float
    rebalance_min_interval: float
    unit_mode: bool
    local_offset_store_dir: str
