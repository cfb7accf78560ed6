"""Options of lite pull consumers: RocketMQ's ``DefaultLitePullConsumer`` in snake case, with times in seconds."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, cast

from orbitmq.client.config import ClientOptions
from orbitmq.client.errors import InvalidOptionError
from orbitmq.client.lite_pull.assigned_queues import PullLimits
from orbitmq.client.lite_pull.pull_loop import PullSettings
from orbitmq.client.push.config import ConsumerConfig
from orbitmq.protocol.bodies import ConsumeFromWhere, MessageModel

if TYPE_CHECKING:
    import datetime

    from orbitmq.client.consumer.allocate_strategy import Strategy

MIN_AUTO_COMMIT = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LitePullConfig:
    """Options of a lite pull consumer."""

    message_model: MessageModel | str = MessageModel.CLUSTERING
    """CLUSTERING: members of a group share the queues. BROADCASTING: each gets all of them."""
    start_from: str | float | datetime.datetime | None = None
    """Where a group without a committed offset begins: ``"earliest"``, ``"latest"``, a datetime or seconds since
    1970. Default: ``"latest"``."""
    consume_from_where: ConsumeFromWhere | str = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """The same with Java's names."""
    consume_timestamp: str | float | datetime.datetime | None = None
    """For CONSUME_FROM_TIMESTAMP, as for push consumers."""
    allocate_message_queue_strategy: Strategy | None = None
    """Allocation strategy, the same for all members of a group. Default: AllocateAveragely."""
    auto_commit: bool = True
    """Commit the offsets of processed messages automatically: those polled before the last poll."""
    auto_commit_interval: float = 5.0
    poll_timeout: float = 5.0
    """Default timeout of ``poll``."""
    pull_batch_size: int = 10
    """Maximum of messages per pull and per ``poll``."""
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1_000
    """Maximum of buffered messages, of all queues or of one, before pulls pause."""
    pull_threshold_size_for_queue: int = 100
    """The same in MiB."""
    consume_max_span: int = 2_000
    """Maximum distance between the offsets of the oldest and newest buffered message."""
    broker_suspend_max_time: float = 20.0
    """Long-polling time: how long a broker holds a pull without messages."""
    consumer_timeout_when_suspend: float = 30.0
    topic_metadata_check_interval: float = 30.0
    """Interval at which listeners' topics are checked for changed queues."""
    rebalance_interval: float = 20.0
    rebalance_min_interval: float = 1.0
    unit_mode: bool = False
    local_offset_store_dir: str = ""
    """Directory of a broadcasting consumer's offsets. Empty: ``.rocketmq_offsets`` in the home directory."""

    def __post_init__(self) -> None:
        # Builds the derived values, which validate their fields.
        _ = self.shared, self.limits
        if self.auto_commit_interval < MIN_AUTO_COMMIT:
            raise InvalidOptionError(
                f"auto_commit_interval must be at least {MIN_AUTO_COMMIT:g}, not {self.auto_commit_interval!r}"
            )
        for name in ("poll_timeout", "topic_metadata_check_interval"):
            if getattr(self, name) < 0:
                raise InvalidOptionError(f"{name} must not be less than 0, it is {getattr(self, name)!r}")

    @property
    def shared(self) -> ConsumerConfig:
        """The options of components shared with push consumers."""
        return ConsumerConfig(
            message_model=cast("MessageModel", self.message_model),
            start_from=self.start_from,
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
    """Keywords of a lite pull consumer: the fields of LitePullConfig and ClientConfig, which document them."""

    message_model: MessageModel | str
    start_from: str | float | datetime.datetime | None
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
