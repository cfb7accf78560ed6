"""Limit settings that RocketMQ does not have: bounds on the state that clients can create."""

from __future__ import annotations

import dataclasses

from orbitmq.broker.config.metrics_settings import MetricsSettings
from orbitmq.platform.settings import Int64, setting


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class LimitSettings(MetricsSettings):
    """Limits of a broker. Listed only if an operator changed them."""

    max_subscription_length: int = setting(65_536, optional=True)
    """Characters of one subscription expression, by tags or SQL92. RocketMQ has no limit; a tag has 10 to 30
    characters and a subscription a few tags."""
    max_subscription_tags: int = setting(4_096, optional=True)
    """Tags of one subscription expression; more of them block the event loop for longer than 10 ms."""
    max_consumer_filters: int = setting(100_000, optional=True)
    """SQL92 subscriptions of all groups, including those of the last day."""
    max_consumer_filter_bytes: Int64 = setting(33_554_432, optional=True)
    """Characters of all SQL92 subscriptions, roughly the maximum size of ``consumerFilter.json``."""
    max_consumer_offsets: int = setting(2_000_000, optional=True)
    """Offsets of all groups, one per group and queue, committed or pulled."""
    max_queue_locks: int = setting(200_000, optional=True)
    """Queue locks of all orderly consumers."""
    max_held_pulls: int = setting(500_000, optional=True)
    """Pulls in long polling."""
    max_sends_per_second_of_topic: int = setting(0, optional=True)
    """Sends to one topic, from start to stop; 0: any number."""
    client_share_percent: int = setting(50, optional=True)
    """Percentage of every client-filled table that the clients of one address may use of what others have left. One
    connection may use half of the share of its address. With 100 one address may fill the table."""
