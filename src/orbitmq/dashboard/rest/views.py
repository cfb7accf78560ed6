"""Values of ``orbitmq.admin`` as JSON. Names are those of its attributes."""

from typing import Annotated, Any, Self

from pydantic import Field

from orbitmq.admin.changes import Change
from orbitmq.dashboard.rest.context import View


class ChangeView(View):
    """One value that a change alters."""

    target: str
    field: str
    before: Any = None
    after: Any = None

    @classmethod
    def of(cls, change: Change) -> Self:
        return cls(
            target=change.target, field=change.field, before=_plain(change.before), after=_plain(change.after)
        )


class BrokerAddressView(View):
    """A registered broker."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    is_master: bool


class RuntimeView(View):
    """Live figures of a broker."""

    version: str
    put_tps: float
    get_tps: float
    puts_today: int
    gets_today: int
    puts_yesterday: int
    gets_yesterday: int
    disk_ratio: float
    queue_disk_ratio: float
    log_min_offset: int
    log_max_offset: int
    dispatch_behind_bytes: int
    page_cache_wait_ms: int
    send_queue_size: int
    pull_queue_size: int
    timer_messages: int
    boot_ms: int
    earliest_message_ms: int


class BrokerView(View):
    """A broker, with its figures or the reason why there are none."""

    broker: BrokerAddressView
    runtime: RuntimeView | None
    reason: str


class SlaveView(View):
    """A slave as its master sees it."""

    address: str
    ack_offset: int
    lag_bytes: int
    is_in_sync: bool
    bytes_per_second: int


class ReplicationView(View):
    """Replication of a broker."""

    address: str
    is_master: bool
    log_max_offset: int
    in_sync_slaves: int
    slaves: list[SlaveView]
    master_address: str
    bytes_per_second: int
    master_flush_offset: int


class NameServerView(View):
    """A name server."""

    address: str
    is_reachable: bool
    reason: str


class TopicPlacementView(View):
    """The settings of a topic on one broker. ``perm``: 2 write, 4 read, 6 both."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    order: bool
    attributes: dict[str, str]


class TopicSummaryView(View):
    """A topic in a list."""

    name: str
    kind: str
    message_type: str
    read_queues: int
    write_queues: int
    is_consistent: bool
    placements: list[TopicPlacementView]


class QueueView(View):
    """A queue of a topic."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    last_update_ms: int


class TopicView(View):
    """A topic with its queues and groups."""

    name: str
    kind: str
    placements: list[TopicPlacementView]
    queues: list[QueueView]
    groups: list[str]
    messages: int
    put_tps: float
    last_update_ms: int
    order_configuration: str
    addresses: dict[str, dict[int, str]]


class GroupSummaryView(View):
    """A group in a list."""

    name: str
    is_system: bool
    brokers: list[str]
    topics: list[str]
    lag: int | None
    inflight: int | None
    consume_tps: float | None


class MemberView(View):
    """A connected client."""

    client_id: str
    address: str
    language: str
    version: str


class SubscriptionView(View):
    """What a group, or a member, subscribes to."""

    topic: str
    expression: str
    expression_type: str


class ConnectionsView(View):
    """The members of a group."""

    members: list[MemberView]
    subscriptions: list[SubscriptionView]
    consume_type: str
    message_model: str
    consume_from: str


class SubscriptionCheckView(View):
    """Whether the members of a group subscribe to the same."""

    agree: bool
    by_member: dict[str, list[SubscriptionView]]
    unknown: dict[str, str]


class QueueLagView(View):
    """The progress of a group in a queue."""

    topic: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag: int
    inflight: int
    last_timestamp_ms: int
    client_id: str


class LagView(View):
    """The progress of a group."""

    lag: int
    inflight: int
    consume_tps: float
    queues: list[QueueLagView]


class GroupView(View):
    """A group with members, subscriptions and lag. ``settings`` has RocketMQ's names, by broker."""

    name: str
    is_online: bool
    settings: dict[str, dict[str, Any]]
    connections: ConnectionsView | None
    check: SubscriptionCheckView | None
    lag: LagView
    dead_letters: int


class OffsetChangeView(View):
    """The committed offset of a queue before and after."""

    topic: str
    broker_name: str
    queue_id: int
    before: int | None
    after: int


class MessageView(View):
    """A stored message. The body is text where it is UTF-8, else base64."""

    message_id: str
    offset_message_id: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    body: str
    body_encoding: Annotated[str, Field(description="text or base64")]
    body_size: int
    is_body_cut: bool


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
