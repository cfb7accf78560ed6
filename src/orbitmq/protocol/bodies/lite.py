"""Lite topics (5.5): many small topics under one parent, and what a broker knows of them."""

import dataclasses
import enum
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body, java
from orbitmq.protocol.bodies.stats import OffsetWrapper, TopicOffset


class LiteSubscriptionAction(enum.StrEnum):
    """Action on the lite topics of a request."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class OffsetOptionType(enum.StrEnum):
    """Kind of the value of an offset option."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class OffsetOption(Body):
    """Where a lite subscription begins."""

    type: OffsetOptionType | None = None
    value: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LiteSubscriptionDTO(Body):
    """A change of a client's lite subscriptions."""

    action: LiteSubscriptionAction | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LiteSubscriptionCtlRequestBody(Body):
    """Changes of lite subscriptions (200071)."""

    subscription_set: list[LiteSubscriptionDTO] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LiteLagInfo(Body):
    """Lag of a lite topic."""

    lite_topic: str | None = None
    lag_count: int = 0
    earliest_unconsumed_timestamp: int = -1


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ClientGroup(Body):
    """A client as a member of a group."""

    client_id: str | None = None
    group: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetBrokerLiteInfoResponseBody(Body):
    """Lite topics of a broker (200074)."""

    store_type: str | None = None
    max_lmq_num: int = 0
    current_lmq_num: int = 0
    lite_subscription_count: int = 0
    order_info_count: int = 0
    cq_table_size: int = 0
    offset_table_size: int = 0
    event_map_size: int = 0
    topic_meta: dict[str, int] | None = None
    group_meta: dict[str, list[str]] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetParentTopicInfoResponseBody(Body):
    """A parent topic (200075)."""

    topic: str | None = None
    ttl: int = 0
    groups: list[str] | None = None
    lmq_num: int = 0
    lite_topic_count: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetLiteTopicInfoResponseBody(Body):
    """A lite topic (200076)."""

    parent_topic: str | None = None
    lite_topic: str | None = None
    subscriber: list[ClientGroup] | None = None
    topic_offset: TopicOffset | None = None
    sharding_to_broker: bool = False


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetLiteClientInfoResponseBody(Body):
    """A client of lite topics (200077)."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    last_access_time: int = 0
    last_consume_time: int = 0
    lite_topic_count: int = 0
    lite_topic_set: list[str] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetLiteGroupInfoResponseBody(Body):
    """A group on lite topics (200078)."""

    group: str | None = None
    parent_topic: str | None = None
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: int = -1
    total_lag_count: int = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLagInfo] | None = field(default=None, metadata=java("lagCountTopK"))
    lag_timestamp_top_k: list[LiteLagInfo] | None = field(default=None, metadata=java("lagTimestampTopK"))
