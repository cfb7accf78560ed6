"""Consumer group as announced by heartbeats: its members, their subscription and its compiled filters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.filter import TAG, FilterError, compile_subscription, is_tag_type
from orbitmq.protocol.bodies import ConsumerData, MessageModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.filter import CompiledFilter
    from orbitmq.protocol.bodies import ConsumeFromWhere, ConsumeType, SubscriptionData
    from orbitmq.protocol.codes import LanguageCode
    from orbitmq.remoting import Connection

_EVERYTHING = compile_subscription(TAG, "*")
_NOTHING = compile_subscription(TAG, " ")
"""Blanks name no tag, so it matches no message."""

Announced: TypeAlias = "tuple[bool, int, ConsumeType | None, MessageModel | None, ConsumeFromWhere | None, int]"
"""What heartbeats say about a group besides its members."""


@dataclasses.dataclass(slots=True)
class ClientChannel:
    """A client on one connection, as a member of one group."""

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_update_ms: int
    subscription_key: int | None = None
    """Hash of the subscriptions of its last heartbeat that had any."""


class ConsumerGroup:
    """A group with at least one member. Consume type, message model and start position are those of the last
    heartbeat."""

    __slots__ = (
        "_filters",
        "consume_from_where",
        "consume_type",
        "fingerprint",
        "members",
        "message_model",
        "name",
        "notifies",
        "revision",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.members: dict[Connection, ClientChannel] = {}
        self.fingerprint = 0
        """Fingerprint of the last heartbeat: the client's hash of its content; 0 from clients that send none."""
        self.notifies = True
        """Notify members of changes at once; a setting of the group."""
        self.revision = 0
        """Counts changes of the subscription and of the message model, to invalidate caches."""
        self._filters: dict[str, CompiledFilter | None] = {}

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    @property
    def announced(self) -> Announced:
        """The state that the heartbeats of all members share; equal only if none of them has changed it."""
        return (
            self.notifies,
            self.fingerprint,
            self.consume_type,
            self.message_model,
            self.consume_from_where,
            self.revision,
        )

    def client_ids(self) -> list[str]:
        """Client ids without duplicates, in the order of joining.

        RocketMQ's broker lists an id once for each connection. A client whose old connection is still open is then
        counted twice by all members, and the queues of its second entry are read by no member.
        """
        return list(dict.fromkeys([member.client_id for member in self.members.values()]))

    def member(self, client_id: str | None) -> ClientChannel | None:
        """The member with this client id, on its latest connection if it has several."""
        for member in reversed(self.members.values()):
            if member.client_id == client_id:
                return member
        return None

    def join(self, data: ConsumerData, client: ClientChannel) -> bool:
        """Add or refresh a member from its heartbeat; True if it is new, or has changed its id."""
        if data.message_model is not self.message_model:
            self.revision += 1
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.members.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            known.last_update_ms = client.last_update_ms
            return False
        self.members[client.connection] = client
        return True

    def subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace the subscription of the group; True if topics were added or removed.

        For one topic the greater version wins: while members are restarted one by one with a new expression,
        heartbeats alternate between the old and the new one.
        """
        known = self.subscriptions
        named = set()
        changed = False
        for subscription in subscriptions:
            named.add(subscription.topic)
            before = known.get(subscription.topic)
            if before is None:
                changed = True
            elif subscription.sub_version <= before.sub_version:
                continue
            elif _request_of(before) != _request_of(subscription):
                self._filters.pop(subscription.topic, None)
            known[subscription.topic] = subscription
            self.revision += 1
        for topic in [topic for topic in known if topic not in named]:
            changed = True
            del known[topic]
            self.revision += 1
            self._filters.pop(topic, None)
        return changed

    def filter_of(self, topic: str) -> CompiledFilter | None:
        """The filter of the group for a topic, compiled on first use.

        None if the topic is not subscribed, or if its expression is not a tag expression and does not compile.
        """
        try:
            return self._filters[topic]
        except KeyError:
            subscription = self.subscriptions.get(topic)
            if subscription is None:
                return None
            compiled = self._filters[topic] = _compile(subscription)
            return compiled


def _request_of(subscription: SubscriptionData) -> tuple[str, str, bool]:
    return subscription.expression_type, subscription.sub_string, subscription.class_filter_mode


def _compile(subscription: SubscriptionData) -> CompiledFilter | None:
    if subscription.class_filter_mode:
        # Such a filter was a Java class in another process; the last brokers that had it pass every message.
        return _EVERYTHING
    try:
        return compile_subscription(subscription.expression_type, subscription.sub_string)
    except FilterError:
        # Bars without a tag between them have no hash code, and the broker compares hash codes.
        return _NOTHING if is_tag_type(subscription.expression_type) else None
