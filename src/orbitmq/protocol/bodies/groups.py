"""Consumer groups: their configuration, tables and lists of them."""

import dataclasses
import enum
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.bodies.version import DataVersion


class GroupRetryPolicyType(enum.StrEnum):
    """Growth of the delay before the next delivery."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


_MINUTE = 60_000
RETRY_DELAYS = (
    *(1_000, 5_000, 10_000, 30_000),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
"""RocketMQ's eighteen delay levels in milliseconds."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class CustomizedRetryPolicy(Body):
    """Delays by number of the delivery."""

    next: tuple[int, ...] = RETRY_DELAYS


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ExponentialRetryPolicy(Body):
    """``initial`` ms, times ``multiplier`` for each delivery, at most ``max``."""

    initial: int = 5_000
    max: int = 2 * 60 * _MINUTE
    multiplier: int = 2


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GroupRetryPolicy(Body):
    """The policy in force is the one ``type`` names; absent, it has its default values."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SimpleSubscriptionData(Body):
    """A subscription fixed by the group's configuration."""

    topic: str = ""
    expression_type: str = ""
    expression: str = ""
    version: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SubscriptionGroupConfig(Body):
    """One consumer group on one broker."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SubscriptionGroupWrapper(Body):
    """All groups of a broker (201); also ``config/subscriptionGroup.json``.

    ``forbidden_table``: by group and topic, the bits of what is forbidden.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SubscriptionGroupList(Body):
    """Groups to create or update in one request (225)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GroupList(Body):
    """The groups that consume a topic (300)."""

    group_list: list[str] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GroupForbidden(Body):
    """Permission of a group to read a topic (353)."""

    topic: str = ""
    group: str = ""
    readable: bool | None = None
