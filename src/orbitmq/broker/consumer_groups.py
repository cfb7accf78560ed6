"""A consumer group as its clients announce it: who its members are, what they subscribed, the filters of that."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

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
"""Blanks name no tag, so no message has it."""


@dataclasses.dataclass(slots=True)
class ClientChannel:
    """A client on one connection, as a member of one group."""

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_update_ms: int


class ConsumerGroup:
    """A group with at least one member. Type, model and start are what the last heartbeat said."""

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
        """Of the last heartbeat: the client's hash of all that it says; 0 from clients that send none."""
        self.notifies = True
        """Whether members want to hear at once of others, which is a setting of the group."""
        self.revision = 0
        """Counts changes of what the group wants, and of its model."""
        self._filters: dict[str, CompiledFilter | None] = {}

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING

    def client_ids(self) -> list[str]:
        """Each once, in the order in which they came.

        RocketMQ's broker lists an id once for each connection. A client whose old connection is not gone yet is
        then counted twice by all members, and the queues of the second one are read by nobody.
        """
        return list(dict.fromkeys([member.client_id for member in self.members.values()]))

    def member(self, client_id: str | None) -> ClientChannel | None:
        """A client by its id; on its latest connection, if it has several."""
        for member in reversed(self.members.values()):
            if member.client_id == client_id:
                return member
        return None

    def join(self, said: ConsumerData, client: ClientChannel) -> bool:
        """Take note of a member's heartbeat; say whether it is new, or has changed its id."""
        if said.message_model is not self.message_model:
            self.revision += 1
        self.consume_type = said.consume_type
        self.message_model = said.message_model
        self.consume_from_where = said.consume_from_where
        known = self.members.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            known.last_update_ms = client.last_update_ms
            return False
        self.members[client.connection] = client
        return True

    def subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace what the group subscribed; say whether topics came or went.

        Of the same topic the greater version stays, for members that are restarted one by one with a new
        expression say the old one and the new one in turns.
        """
        known = self.subscriptions
        named = set()
        changed = False
        for said in subscriptions:
            named.add(said.topic)
            before = known.get(said.topic)
            if before is None:
                changed = True
            elif said.sub_version <= before.sub_version:
                continue
            elif _asks_for(before) != _asks_for(said):
                self._filters.pop(said.topic, None)
            known[said.topic] = said
            self.revision += 1
        for topic in [topic for topic in known if topic not in named]:
            changed = True
            del known[topic]
            self.revision += 1
            self._filters.pop(topic, None)
        return changed

    def filter_of(self, topic: str) -> CompiledFilter | None:
        """Which messages of a topic the group wants, compiled when it is first asked for.

        None if it has not subscribed the topic, or by an expression that is no tags and does not compile.
        """
        try:
            return self._filters[topic]
        except KeyError:
            subscription = self.subscriptions.get(topic)
            if subscription is None:
                return None
            compiled = self._filters[topic] = _compile(subscription)
            return compiled


def _asks_for(subscription: SubscriptionData) -> tuple[str, str, bool]:
    return subscription.expression_type, subscription.sub_string, subscription.class_filter_mode


def _compile(subscription: SubscriptionData) -> CompiledFilter | None:
    if subscription.class_filter_mode:
        # The filter was a Java class in another process; the last brokers that had such pass everything.
        return _EVERYTHING
    try:
        return compile_subscription(subscription.expression_type, subscription.sub_string)
    except FilterError:
        # Bars without a tag between them have no hash code, and codes are what a broker compares.
        return _NOTHING if is_tag_type(subscription.expression_type) else None
