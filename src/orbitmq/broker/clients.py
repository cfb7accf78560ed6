"""Who is connected: producers and consumers by their groups, as heartbeats say, until they leave or fall silent."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.consumer_groups import ClientChannel, ConsumerGroup
from orbitmq.broker.relay import MembershipNotices
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.errors import IdleError
from orbitmq.remoting.processing import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.filter_data import FilterData
    from orbitmq.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
    from orbitmq.remoting import Connection
    from orbitmq.store.clock import Clock

__all__ = ["ClientChannel", "ClientLimits", "Clients", "ConsumerGroup", "check_name"]

log = logging.getLogger("orbitmq.broker")

MOST_OF_A_NAME = 1024
"""Characters of a group, topic or client id. The longest that clients make have some 400."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientLimits:
    """What clients can make a broker keep. A heartbeat that does not fit is refused, and nothing of it is kept."""

    groups_of_connection: int = 10_000
    """Producer and consumer groups. A proxy speaks for all groups of its clients over one connection; anybody
    else has a few."""

    memberships: int = 500_000
    """Of all connections; about half a kilobyte each."""

    subscriptions_of_group: int = 10_000
    """Topics that a group reads; each member sends them all with every heartbeat."""

    expression_length: int = 65_536
    """Characters of an expression and of its tags; the longest that compiles."""


class Clients:
    """The tables of producers and consumers.

    A connection is a member of the groups that its heartbeats name, of each until it says that it leaves, or it
    has not named it for ``channelExpiredTimeout``, or the connection is gone. ``closed`` is to be called for
    every connection that is, ``expire`` from time to time.
    """

    def __init__(
        self, config: BrokerConfig, clock: Clock, filters: FilterData, limits: ClientLimits | None = None
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
        """By client id, the one that its last new producer came over."""
        self._memberships = 0
        self.revision = 0
        """Counts changes of what groups want: consumer groups that came or went, and their subscriptions."""

    # Looking

    @property
    def memberships(self) -> int:
        """How many there are, of producers and consumers."""
        return self._memberships

    def client_of(self, connection: Connection) -> ClientChannel | None:
        """Who is at the other end, if it has said so."""
        for group in self._consumes.get(connection, ()):
            return self.consumers[group].members[connection]
        for group in self._produces.get(connection, ()):
            return self.producers[group][connection]
        return None

    def connection_of(self, client_id: str) -> Connection | None:
        """Over which connection a client with producers can be told something."""
        return self._connections.get(client_id)

    def subscription_of(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group wants of a topic."""
        found = self.consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """The groups with a member now that want something of a topic."""
        return {name for name, group in self.consumers.items() if topic in group.subscriptions}

    # Coming

    def check_room(self, connection: Connection, heartbeat: HeartbeatData) -> None:
        """Raise RequestRefusedError if what a heartbeat says does not fit."""
        limits = self._limits
        consumes = {said.group_name for said in heartbeat.consumer_data_set}
        produces = {said.group_name for said in heartbeat.producer_data_set}
        known = self._consumes.get(connection, set()), self._produces.get(connection, set())
        here = len(known[0] | consumes) + len(known[1] | produces)
        if here > limits.groups_of_connection:
            raise RequestRefusedError(
                f"a connection may be of {limits.groups_of_connection} groups, this would be of {here}"
            )
        new = here - len(known[0]) - len(known[1])
        if new and self._memberships + new > limits.memberships:
            raise RequestRefusedError(f"this broker takes no more clients: it has {self._memberships} already")
        for said in heartbeat.consumer_data_set:
            _check_subscriptions(said, limits)

    def register_consumer(
        self, said: ConsumerData, client: ClientChannel, *, notifies: bool, fingerprint: int, with_sub: bool
    ) -> None:
        """A heartbeat of a member. Without its subscriptions, those that the group has stay as they are."""
        group = self.consumers.get(said.group_name)
        if group is None:
            group = self.consumers[said.group_name] = ConsumerGroup(said.group_name)
        before = group.revision
        group.notifies = notifies
        group.fingerprint = fingerprint
        joins = client.connection not in group.members
        changed = group.join(said, client)
        if joins:
            self._consumes.setdefault(client.connection, set()).add(group.name)
            self._memberships += 1
            log.info("%s (%s) joins %s", client.client_id, client.connection.remote_address, group.name)
        if with_sub:
            changed |= group.subscribe(said.subscription_data_set)
            self._filters.register(group.name, said.subscription_data_set)
        if group.revision != before:
            self.revision += 1
        if changed:
            self._notify(group, client.connection)

    def register_producer(self, group: str, client: ClientChannel) -> None:
        """A heartbeat of a producer."""
        members = self.producers.get(group, {})
        known = members.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            known.last_update_ms = client.last_update_ms
            self._connections.setdefault(client.client_id, client.connection)
            return
        if known is not None:
            self._forget_connection(known)
        if known is None:
            config = self._config
            if not config.enable_register_producer and config.reject_transaction_message:
                # Producers are only known to be asked about transactions.
                return
            self._produces.setdefault(client.connection, set()).add(group)
            self._memberships += 1
        members[client.connection] = client
        self.producers[group] = members
        self._connections[client.client_id] = client.connection

    # Going

    def unregister_consumer(self, group: str, connection: Connection) -> None:
        """A member says that it leaves."""
        found = self.consumers.get(group)
        if found is not None and connection in found.members:
            self._leave_consumers(found, connection)

    def unregister_producer(self, group: str, connection: Connection) -> None:
        """A producer says that it leaves."""
        if connection in self.producers.get(group, ()):
            self._leave_producers(group, connection)

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        for group in tuple(self._consumes.get(connection, ())):
            self._leave_consumers(self.consumers[group], connection)
        for group in tuple(self._produces.get(connection, ())):
            self._leave_producers(group, connection)

    def expire(self) -> None:
        """Let those go that have not sent a heartbeat for long; close a connection of which nothing is left.

        RocketMQ's broker closes it when one of its groups falls silent, which ends the others with it, and tells
        the rest of the group nothing.
        """
        oldest = self._clock.now_ms() - self._config.channel_expired_timeout
        silent: dict[Connection, str] = {}
        for group in tuple(self.consumers.values()):
            for member in _silent(group.members.values(), oldest):
                silent[member.connection] = member.client_id
                self._leave_consumers(group, member.connection)
        for name, members in tuple(self.producers.items()):
            for member in _silent(members.values(), oldest):
                silent[member.connection] = member.client_id
                self._leave_producers(name, member.connection)
        for connection, client_id in silent.items():
            if connection not in self._consumes and connection not in self._produces:
                log.warning("%s (%s) is closed: it is silent", client_id, connection.remote_address)
                connection.close(IdleError(f"{client_id} has sent no heartbeat for long"))

    def _leave_consumers(self, group: ConsumerGroup, connection: Connection) -> None:
        member = group.members.pop(connection)
        _forget(self._consumes, connection, group.name)
        self._memberships -= 1
        log.info("%s (%s) leaves %s", member.client_id, connection.remote_address, group.name)
        if group.members:
            self._notify(group)
        else:
            del self.consumers[group.name]
            self.revision += 1
            self._filters.unregister(group.name)

    def _leave_producers(self, group: str, connection: Connection) -> None:
        members = self.producers[group]
        member = members.pop(connection)
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
        # Members of a broadcasting group have every queue anyway, so others do not matter to them.
        if self._config.notify_consumer_ids_changed_enable and group.notifies and not group.is_broadcasting:
            self._notices.changed(group, by)


def check_name(what: str, name: str) -> None:
    """Raise ProtocolError if this is longer than the name of a group, a topic or a client may be."""
    if len(name) > MOST_OF_A_NAME:
        raise ProtocolError(f"the {what} has {len(name)} characters, at most {MOST_OF_A_NAME} may be")


def _check_subscriptions(said: ConsumerData, limits: ClientLimits) -> None:
    count = len(said.subscription_data_set)
    if count > limits.subscriptions_of_group:
        raise RequestRefusedError(
            f"a group may subscribe {limits.subscriptions_of_group} topics, {said.group_name} has {count}"
        )
    for subscription in said.subscription_data_set:
        tags = subscription.tags_set
        length = len(subscription.sub_string) + sum(map(len, tags)) + len(tags) + len(subscription.code_set)
        # The expression comes a second time as its tags, and each tag a third time as its code.
        if length > 3 * limits.expression_length or len(subscription.sub_string) > limits.expression_length:
            raise RequestRefusedError(
                f"the expression of {said.group_name} for {subscription.topic} is longer than "
                f"{limits.expression_length} characters"
            )


def _silent(members: Iterable[ClientChannel], oldest: int) -> list[ClientChannel]:
    return [member for member in members if member.last_update_ms < oldest]


def _forget(table: dict[Connection, set[str]], connection: Connection, group: str) -> None:
    groups = table[connection]
    groups.remove(group)
    if not groups:
        del table[connection]
