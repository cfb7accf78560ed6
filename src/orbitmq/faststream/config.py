"""Configuration of a broker, its subscribers and its publishers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from orbitmq.faststream.producer import BrokerProducer

if TYPE_CHECKING:
    from orbitmq.faststream.consumers import BrokerConsumers
    from orbitmq.faststream.response import MessageOptions


@dataclass(kw_only=True)
class OrbitMQBrokerConfig(BrokerConfig):
    """Configuration of a broker or router."""

    producer: BrokerProducer = field(default_factory=BrokerProducer)
    consumers: BrokerConsumers | None = None
    """The consumers of the broker; None in a router."""
    group: str = ""
    """Consumer group of subscribers that name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Topic and filter of a subscriber, and the options of its consumer group."""

    topic: str
    group: str | None = None
    tags: str | None = None
    sql: str | None = None
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    """Of ``orbitmq.aio.Consumer``: the same for all subscribers of a group."""


@dataclass(kw_only=True)
class SubscriberConfig(SubscriberUsecaseConfig):
    """Configuration of a subscriber."""

    _outer_config: OrbitMQBrokerConfig = field(default_factory=OrbitMQBrokerConfig)
    subscription: Subscription

    @property
    def ack_policy(self) -> AckPolicy:
        """By default a failed message is retried, as RocketMQ does."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class SubscriberDescription(SubscriberSpecificationConfig):
    """Parts of a subscriber's AsyncAPI description."""

    topic: str


@dataclass(kw_only=True)
class PublisherConfig(PublisherUsecaseConfig):
    """Configuration of a publisher."""

    _outer_config: OrbitMQBrokerConfig = field(default_factory=OrbitMQBrokerConfig)
    topic: str
    headers: dict[str, str]
    options: MessageOptions


@dataclass(kw_only=True)
class PublisherDescription(PublisherSpecificationConfig):
    """Parts of a publisher's AsyncAPI description."""

    topic: str
