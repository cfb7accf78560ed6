"""Client registry: connected producers and consumers by group, from heartbeats until they leave or time out."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.clients.callbacks import MembershipNotices
from orbitmq.broker.clients.consumer_filters import UNKNOWN
from orbitmq.broker.clients.consumer_group import ClientChannel, ConsumerGroup
from orbitmq.broker.clients.repeated_heartbeat import RepeatedHeartbeats
from orbitmq.broker.clients.subscription_consistency import check_member
from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.pull.subscription_filter import SubscriptionTooLongError, check_length
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.broker_events import EventKind
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.errors import IdleError
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.broker.clients.consumer_filters import ConsumerFilters
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
    from orbitmq.remoting import Connection

__all__ = ["ClientChannel", "ClientLimits", "Clients", "ConsumerGroup", "check_name"]

log = logging.getLogger("orbitmq.broker")

MAX_NAME_LENGTH = 1024
"""Maximum length of a group, topic or client id. The longest that clients generate have some 400."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits on the state that clients can create. A heartbeat that exceeds one is refused as a whole."""

    groups_of_connection: int = 10_000
    """Producer and consumer groups of one connection. A proxy announces all groups of its clients over one
    connection; other clients have a few."""

    memberships: int = 500_000
    """Of all connections; about half a kilobyte each."""

    subscriptions_of_group: int = 10_000
    """Topics that a group reads; each member sends them all with every heartbeat."""


class Clients:
    """Tables of connected producers and consumers.

    A connection is a member of the groups that its heartbeats name, of each until it unregisters, or the heartbeat
    timeout ``channelExpiredTimeout`` passes, or the connection closes. Call ``closed`` for every closed connection
    and ``expire`` periodically.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        filters: ConsumerFilters,
        limits: ClientLimits | None = None,
        route_epoch: RouteEpoch | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._filters = filters
        self._limits = limits or ClientLimits()
        self._notices = MembershipNotices()
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Connection, ClientChannel]] = {}
        self._consumes: dict[Connection, set[str]] = {}
        self._produces: dict[Connection, set[str]] = {}
        self._connections: dict[str, Connection] = {}
        """By client id, the connection of its latest new producer."""
        self._memberships = 0
        self.on_event: Callable[[EventKind, str, str], None] = _no_event
        """Gets joins, leaves and rebalances, with their group and a detail."""
        self._route_epoch = route_epoch or RouteEpoch()
        """Advanced when consumer groups come or go and when their subscriptions change."""
        self.repeats = None if route_epoch is None else RepeatedHeartbeats(self, route_epoch)
        """None where nothing says when topics, groups and settings change."""

    # Lookup

    @property
    def memberships(self) -> int:
        """Number of memberships of producers and consumers."""
        return self._memberships

    def client_of(self, connection: Connection) -> ClientChannel | None:
        """The client behind a connection, if it has sent a heartbeat."""
        for group in self._consumes.get(connection, ()):
            return self.consumers[group].members[connection]
        for group in self._produces.get(connection, ()):
            return self.producers[group][connection]
        return None

    def connection_of(self, client_id: str) -> Connection | None:
        """The connection of a client that has producers."""
        return self._connections.get(client_id)

    def subscription_of(self, group: str, topic: str) -> SubscriptionData | None:
        """The subscription of a group to a topic."""
        found = self.consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """Groups with a member that subscribe to a topic."""
        return {name for name, group in self.consumers.items() if topic in group.subscriptions}

    # Registration

    def check_room(self, connection: Connection, heartbeat: HeartbeatData) -> None:
        """Raise RequestRefusedError if a heartbeat exceeds a limit."""
        limits = self._limits
        consumes = {consumer.group_name for consumer in heartbeat.consumer_data_set}
        produces = {producer.group_name for producer in heartbeat.producer_data_set}
        known = self._consumes.get(connection, set()), self._produces.get(connection, set())
        here = len(known[0] | consumes) + len(known[1] | produces)
        if here > limits.groups_of_connection:
            count_refusal(Limit.GROUPS_OF_CONNECTION)
            raise RequestRefusedError(
                f"a connection may be of {limits.groups_of_connection} groups, this would be of {here}"
            )
        new = here - len(known[0]) - len(known[1])
        if new and self._memberships + new > limits.memberships:
            count_refusal(Limit.MEMBERSHIPS)
            raise RequestRefusedError(f"this broker takes no more clients: it has {self._memberships} already")
        for consumer in heartbeat.consumer_data_set:
            _check_subscriptions(consumer, limits, self._config)
            self._filters.check_room(consumer.group_name, consumer.subscription_data_set, connection.remote_address)

    def register_consumer(
        self, consumer: ConsumerData, client: ClientChannel, *, notifies: bool, fingerprint: int, with_sub: bool
    ) -> None:
        """Register a consumer from its heartbeat. A heartbeat without subscriptions keeps those of the group."""
        group = self.consumers.get(consumer.group_name)
        if group is None:
            group = self.consumers[consumer.group_name] = ConsumerGroup(consumer.group_name)
        before = group.revision
        group.notifies = notifies
        group.fingerprint = fingerprint
        joins = client.connection not in group.members
        changed = group.join(consumer, client)
        if joins:
            self._consumes.setdefault(client.connection, set()).add(group.name)
            self._memberships += 1
            log.info(
                "clients: %s (%s) joined group %s", client.client_id, client.connection.remote_address, group.name
            )
            self.on_event(EventKind.CONSUMER_JOIN, group.name, _described(client))
        if with_sub:
            changed |= group.subscribe(consumer.subscription_data_set)
            check_member(group, group.members[client.connection], consumer.subscription_data_set)
            self._filters.register(
                group.name, consumer.subscription_data_set, client.connection.remote_address or UNKNOWN
            )
        if group.revision != before:
            self._route_epoch.advance()
        if changed:
            self._notify(group, client.connection)

    def register_producer(self, group: str, client: ClientChannel) -> None:
        """Register a producer from its heartbeat."""
        members = self.producers.get(group, {})
        known = members.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            self.renew_producer(known, client.last_update_ms)
            return
        if known is not None:
            self._forget_connection(known)
        if known is None:
            config = self._config
            if not config.enable_register_producer and config.reject_transaction_message:
                # Producer connections are only used for transaction checks.
                return
            self._produces.setdefault(client.connection, set()).add(group)
            self._memberships += 1
            self.on_event(EventKind.PRODUCER_JOIN, group, _described(client))
        members[client.connection] = client
        self.producers[group] = members
        self._connections[client.client_id] = client.connection

    def renew_producer(self, client: ClientChannel, now_ms: int) -> None:
        """Renew the membership of a producer that is registered."""
        client.last_update_ms = now_ms
        self._connections.setdefault(client.client_id, client.connection)

    # Removal

    def unregister_consumer(self, group: str, connection: Connection) -> None:
        """Remove a consumer that unregisters."""
        found = self.consumers.get(group)
        if found is not None and connection in found.members:
            self._leave_consumers(found, connection, "unregistered")

    def unregister_producer(self, group: str, connection: Connection) -> None:
        """Remove a producer that unregisters."""
        if connection in self.producers.get(group, ()):
            self._leave_producers(group, connection, "unregistered")

    def closed(self, connection: Connection) -> None:
        """Remove all memberships of a closed connection."""
        if self.repeats is not None:
            self.repeats.forget(connection)
        for group in tuple(self._consumes.get(connection, ())):
            self._leave_consumers(self.consumers[group], connection, "connection closed")
        for group in tuple(self._produces.get(connection, ())):
            self._leave_producers(group, connection, "connection closed")

    def expire(self) -> None:
        """Remove memberships after a heartbeat timeout; close a connection without any left.

        RocketMQ's broker closes it when one of its groups times out, which ends the others with it, and does not
        notify the rest of the group.
        """
        oldest = self._clock.now_ms() - self._config.channel_expired_timeout
        silent: dict[Connection, str] = {}
        for group in tuple(self.consumers.values()):
            for member in _silent(group.members.values(), oldest):
                silent[member.connection] = member.client_id
                self._leave_consumers(group, member.connection, "heartbeat timeout")
        for name, members in tuple(self.producers.items()):
            for member in _silent(members.values(), oldest):
                silent[member.connection] = member.client_id
                self._leave_producers(name, member.connection, "heartbeat timeout")
        for connection, client_id in silent.items():
            if connection not in self._consumes and connection not in self._produces:
                log.warning("clients: closing %s (%s): heartbeat timeout", client_id, connection.remote_address)
                connection.close(IdleError(f"{client_id}: heartbeat timeout"))

    def _leave_consumers(self, group: ConsumerGroup, connection: Connection, reason: str) -> None:
        member = group.members.pop(connection)
        _forget(self._consumes, connection, group.name)
        self._memberships -= 1
        log.info("clients: %s (%s) left group %s", member.client_id, connection.remote_address, group.name)
        self.on_event(EventKind.CONSUMER_LEAVE, group.name, f"{_described(member)}: {reason}")
        if group.members:
            self._notify(group)
        else:
            del self.consumers[group.name]
            self._route_epoch.advance()
            self._filters.unregister(group.name)

    def _leave_producers(self, group: str, connection: Connection, reason: str) -> None:
        members = self.producers[group]
        member = members.pop(connection)
        self.on_event(EventKind.PRODUCER_LEAVE, group, f"{_described(member)}: {reason}")
        _forget(self._produces, connection, group)
        self._memberships -= 1
        if not members:
            del self.producers[group]
        if connection not in self._produces:
            self._forget_connection(member)

    def _forget_connection(self, member: ClientChannel) -> None:
        if self._connections.get(member.client_id) is member.connection:
            del self._connections[member.client_id]

    def _notify(self, group: ConsumerGroup, by: Connection | None = None) -> None:
        # Members of a broadcasting group read every queue, so they do not depend on other members.
        if self._config.notify_consumer_ids_changed_enable and group.notifies and not group.is_broadcasting:
            self._notices.changed(group, by)
            self.on_event(
                EventKind.REBALANCE,
                group.name,
                f"{len(group.members)} member{'' if len(group.members) == 1 else 's'}",
            )


def check_name(what: str, name: str) -> None:
    """Raise ProtocolError if the name of a group, topic or client is too long."""
    if len(name) > MAX_NAME_LENGTH:
        raise ProtocolError(f"the {what} has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed")


def _check_subscriptions(consumer: ConsumerData, limits: ClientLimits, config: BrokerConfig) -> None:
    count = len(consumer.subscription_data_set)
    if count > limits.subscriptions_of_group:
        count_refusal(Limit.SUBSCRIPTIONS_OF_GROUP)
        raise RequestRefusedError(
            f"a group may subscribe {limits.subscriptions_of_group} topics, {consumer.group_name} has {count}"
        )
    for subscription in consumer.subscription_data_set:
        tags = subscription.tags_set
        length = len(subscription.sub_string) + sum(map(len, tags)) + len(tags) + len(subscription.code_set)
        try:
            check_length(config, subscription.expression_type, subscription.sub_string)
        except SubscriptionTooLongError as error:
            raise RequestRefusedError(f"{consumer.group_name} for {subscription.topic}: {error}") from error
        # The expression comes a second time as its tags, and each tag a third time as its code.
        if length > 3 * config.max_subscription_length:
            count_refusal(Limit.SUBSCRIPTION_LENGTH)
            raise RequestRefusedError(
                f"{consumer.group_name} for {subscription.topic}: tags and codes of the subscription are longer "
                f"than three times {config.max_subscription_length} characters (maxSubscriptionLength)"
            )


def _no_event(_kind: EventKind, _subject: str, _detail: str) -> None:
    """For registries without a journal."""


def _described(client: ClientChannel) -> str:
    return f"{client.client_id} ({client.connection.remote_address})"


def _silent(members: Iterable[ClientChannel], oldest: int) -> list[ClientChannel]:
    return [member for member in members if member.last_update_ms < oldest]


def _forget(table: dict[Connection, set[str]], connection: Connection, group: str) -> None:
    groups = table[connection]
    groups.remove(group)
    if not groups:
        del table[connection]
