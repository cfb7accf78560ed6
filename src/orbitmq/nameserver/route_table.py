"""Route table: the registered brokers, their groups and clusters, and their topics.

Pure state, without frames, sockets or clocks: a connection is a token, time is an argument, and notifications are
return values. A refused request has changed nothing.

Invariants: a broker is in ``brokers`` if and only if it is a member of a group; a group has members; a topic is on
brokers of existing groups; a cluster has groups.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from orbitmq.nameserver.brokers import MASTER_ID, Broker, BrokerGroup, BrokerKey, MinBrokerIdChange, Registered
from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.protocol.message.flags import PERM_READ_WRITE, PERM_WRITE
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from orbitmq.nameserver.brokers import Queues, Registration
    from orbitmq.protocol.bodies import DataVersion, TopicQueueMappingInfo

TOPICS_AT_ONCE = 2_000
"""Topics that one step of the removal of a broker deletes, in some 2 ms."""


class RouteTable:
    """Brokers and topics of all clusters."""

    def __init__(
        self,
        limits: NameServerLimits | None = None,
        on_change: Callable[[str | None], None] = lambda _topic: None,
    ) -> None:
        """``on_change`` is called with the topic whose route changed, or None if any route may have changed."""
        self._limits = limits or NameServerLimits()
        self._on_change = on_change
        self.brokers: dict[BrokerKey, Broker] = {}
        self.groups: dict[str, BrokerGroup] = {}
        self.clusters: dict[str, set[str]] = {}
        """Broker group names by cluster."""
        self.topics: dict[str, dict[str, Queues]] = {}
        """By topic and broker name."""
        self._topics_of: dict[str, set[str]] = {}
        """Topics by group, so that work on one group does not scan all topics."""
        self._clusters_of: dict[str, set[str]] = {}
        """Clusters by group."""
        self.places = 0
        """Number of pairs of a topic and a group."""
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        """Static topics, by topic and broker name. They outlive their brokers: while a broker is down, its logical
        queues still belong to the topic."""
        self._mapping_count = 0
        self._by_connection: dict[Hashable, set[BrokerKey]] = {}

    # Registration

    def registering(
        self,
        registration: Registration,
        connection: Hashable,
        now_ms: int,
        *,
        delete_other_topics: bool = False,
    ) -> tuple[Registered, Iterator[None]]:
        """Register a broker, or update its registration. Raises RequestRefusedError.

        With ``delete_other_topics``, topics missing in the registration are removed from the broker.

        The iterator adds the topics in steps of some milliseconds. Other changes may happen between steps; it ends
        early if the broker is replaced or removed.
        """
        known = self.brokers.get((registration.cluster, registration.address))
        group = self.groups.get(registration.broker_name)
        holder = None if group is None else group.members.get(registration.broker_id)
        if holder is not None and self._outranks(holder, registration):
            # Of two brokers with the same id, the one with the newer state wins; the other is removed.
            if known is not None:
                self._remove(known)
            return Registered(), iter(())
        if holder is None and len(registration.topics) == 1:
            # A registration of one topic is an incremental change. If it registered an unknown broker, the other
            # topics of the broker would be missing until its next full registration.
            raise RequestRefusedError("register broker failed")
        self._check_room(registration, known, holder, group)

        if known is not None and known.name != registration.broker_name:
            # The broker was renamed; an address is one broker.
            self._remove(known)
            known = None
        if group is None:
            group = self.groups[registration.broker_name] = BrokerGroup(
                registration.cluster, registration.broker_name
            )
        self.clusters.setdefault(registration.cluster, set()).add(registration.broker_name)
        self._clusters_of.setdefault(registration.broker_name, set()).add(registration.cluster)
        became_min = registration.broker_id < min(group.members, default=MASTER_ID)
        is_new_version = known is None or known.data_version != registration.data_version
        broker = self._place(registration, group, known, connection, now_ms)
        topics = self._taking_topics(
            registration,
            group,
            broker,
            apply_all=holder is None or is_new_version,
            delete_others=delete_other_topics,
        )
        master = group.members.get(MASTER_ID)
        change = MinBrokerIdChange.joined(group, registration.ha_address) if became_min else None
        if master is None or master is broker:
            return Registered(change=change), topics
        return Registered(master.address, master.ha_address, change), topics

    def _outranks(self, holder: Broker, registration: Registration) -> bool:
        return (
            holder.address != registration.address
            and holder.cluster == registration.cluster
            and holder.data_version.state_version > registration.data_version.state_version
        )

    def _check_room(
        self, registration: Registration, known: Broker | None, holder: Broker | None, group: BrokerGroup | None
    ) -> None:
        limits = self._limits
        if known is None and holder is None and len(self.brokers) >= limits.brokers:
            raise RequestRefusedError(f"limit of {limits.brokers} brokers reached (maxBrokers)")
        if group is not None and holder is None and len(group.members) >= limits.members_of_group:
            raise RequestRefusedError(
                f"{registration.broker_name} has {len(group.members)} members, and no more are allowed"
            )
        if self.places + len(registration.topics) > limits.places:
            own = self._topics_of.get(registration.broker_name, set())
            self._check_places(len(registration.topics.keys() - own))
        if len(self.topics) + len(registration.topics) > limits.topics:
            new = sum(topic not in self.topics for topic in registration.topics)
            if len(self.topics) + new > limits.topics:
                raise RequestRefusedError(f"{new} new topics would make more than {limits.topics} (maxTopics)")
        if self._mapping_count + len(registration.mappings) > limits.topics:
            new = sum(
                info.bname not in self.mappings.get(topic, ()) for topic, info in registration.mappings.items()
            )
            if self._mapping_count + new > limits.topics:
                raise RequestRefusedError(
                    f"{new} new static topics would make more than {limits.topics} (maxTopics)"
                )

    def _check_places(self, new: int) -> None:
        most = self._limits.places
        if self.places + new > most:
            raise RequestRefusedError(
                f"{new} new topics of one broker would make more than {most} for all brokers (maxTopicPlaces)"
            )

    def _place(
        self,
        registration: Registration,
        group: BrokerGroup,
        known: Broker | None,
        connection: Hashable,
        now_ms: int,
    ) -> Broker:
        """Add the broker to its group, replacing a member with the same id and its own previous entry."""
        filter_servers = registration.filter_servers
        if filter_servers is None:
            filter_servers = [] if known is None else known.filter_servers
        broker = Broker(
            cluster=registration.cluster,
            name=registration.broker_name,
            id=registration.broker_id,
            address=registration.address,
            ha_address=registration.ha_address,
            data_version=registration.data_version,
            heartbeat_timeout_ms=registration.heartbeat_timeout_ms,
            last_seen_ms=now_ms,
            connection=connection,
            filter_servers=filter_servers,
        )
        acting = bool(registration.enable_acting_master)
        holder = group.members.get(registration.broker_id)
        if (
            known is None
            or known is not holder
            or known.filter_servers != filter_servers
            or (group.zone, group.enable_acting_master) != (registration.zone, acting)
        ):
            self._on_change(None)
        # The last registration sets the values of the group.
        group.zone = registration.zone
        group.enable_acting_master = acting
        for gone in (known, holder):
            if gone is not None and self.brokers.get(gone.key) is gone:
                del self.brokers[gone.key]
                group.members.pop(gone.id, None)
                self._forget_connection(gone)
        group.members[broker.id] = broker
        self.brokers[broker.key] = broker
        self._by_connection.setdefault(connection, set()).add(broker.key)
        return broker

    def _taking_topics(
        self,
        registration: Registration,
        group: BrokerGroup,
        broker: Broker,
        *,
        apply_all: bool,
        delete_others: bool,
    ) -> Iterator[None]:
        is_acting_slave = registration.broker_id != MASTER_ID
        if is_acting_slave and (
            registration.enable_acting_master is None or registration.broker_id != min(group.members)
        ):
            return
        name = group.name
        topics = self.topics
        # A registration of a single topic is a change of this topic only.
        if delete_others and not registration.mappings and len(registration.topics) != 1:
            for topic in self._topics_of.get(name, set()) - registration.topics.keys():
                self._remove_queues(topic, name)
        keep = ~PERM_WRITE if is_acting_slave and group.enable_acting_master else ~0
        for number, (topic, queues) in enumerate(registration.topics.items(), 1):
            if not number % TOPICS_AT_ONCE:
                yield
                if self.brokers.get(broker.key) is not broker:
                    return
            on = topics.get(topic)
            present = None if on is None else on.get(name)
            if apply_all or present is None:
                wanted = queues if keep == ~0 else queues._replace(perm=queues.perm & keep)
                if wanted != present:
                    self._set_queues(topic, name, wanted)
        for number, (topic, info) in enumerate(registration.mappings.items(), 1):
            if not number % TOPICS_AT_ONCE:
                yield
            by_broker = self.mappings.setdefault(topic, {})
            if apply_all or info.bname not in by_broker:
                self._mapping_count += info.bname not in by_broker
                by_broker[info.bname] = info
                self._on_change(topic)

    # Heartbeats

    def touch(self, cluster: str, address: str, now_ms: int) -> None:
        """Record a heartbeat. Ignored for a broker that is not registered."""
        broker = self.brokers.get((cluster, address))
        if broker is not None:
            broker.last_seen_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The data version of the broker's last registration; None for an unknown broker."""
        broker = self.brokers.get((cluster, address))
        return None if broker is None else broker.data_version

    # Removal of brokers

    def named(self, cluster: str, address: str, broker_name: str) -> list[Broker]:
        """The broker with this address and name, if it is registered."""
        broker = self.brokers.get((cluster, address))
        return [] if broker is None or broker.name != broker_name else [broker]

    def connected_by(self, connection: Hashable) -> list[Broker]:
        """The brokers whose last registration came over this connection."""
        return [self.brokers[key] for key in self._by_connection.get(connection, ())]

    def silent(self, now_ms: int) -> list[Broker]:
        """The brokers past their heartbeat timeout."""
        brokers = self.brokers.values()
        return [one for one in brokers if one.last_seen_ms + one.heartbeat_timeout_ms < now_ms]

    def removing(self, brokers: Iterable[Broker]) -> Iterator[tuple[Broker, MinBrokerIdChange | None] | None]:
        """Remove brokers in steps of some milliseconds.

        Yields each removed broker with its notification, and None after an intermediate step. Other changes may
        happen between steps: a broker that has registered again stays.
        """
        for broker in brokers:
            while self.brokers.get(broker.key) is broker and self._is_alone(broker):
                topics = self._topics_of.get(broker.name, set())
                if len(topics) <= TOPICS_AT_ONCE:
                    break
                for topic in list(itertools.islice(topics, TOPICS_AT_ONCE)):
                    self._remove_queues(topic, broker.name)
                yield None
            if self.brokers.get(broker.key) is broker:
                yield broker, self._remove(broker)

    def is_used(self, connection: Hashable) -> bool:
        """A broker's last registration came over this connection."""
        return connection in self._by_connection

    def _is_alone(self, broker: Broker) -> bool:
        """The broker is the only member of its group."""
        return len(self.groups[broker.name].members) == 1

    def _remove(self, broker: Broker) -> MinBrokerIdChange | None:
        group = self.groups[broker.name]
        was_min = broker.id == min(group.members)
        del self.brokers[broker.key]
        del group.members[broker.id]
        self._forget_connection(broker)
        self._on_change(None)
        if not group.members:
            self._remove_group(group)
            return None
        if not group.enable_acting_master:
            return None
        if min(group.members) > MASTER_ID:
            # The remaining slaves can be read from, and one may act as a read-only master.
            self._change_perms(group.name, lambda perm: perm & ~PERM_WRITE)
        return MinBrokerIdChange.left(group, broker.address) if was_min else None

    def _remove_group(self, group: BrokerGroup) -> None:
        name = group.name
        del self.groups[name]
        for cluster in self._clusters_of.pop(name):
            self.clusters[cluster].remove(name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        for topic in tuple(self._topics_of.get(name, ())):
            self._remove_queues(topic, name)

    def _forget_connection(self, broker: Broker) -> None:
        keys = self._by_connection[broker.connection]
        keys.remove(broker.key)
        if not keys:
            del self._by_connection[broker.connection]

    # Topics

    def set_topic(self, topic: str, queues: Mapping[str, Queues]) -> None:
        """Set the queues of a topic on some brokers (217), up to the first unknown broker."""
        if topic not in self.topics:
            if not all(name in self.groups for name in queues):
                return
            if len(self.topics) >= self._limits.topics:
                raise RequestRefusedError(
                    f"there are {self._limits.topics} topics, and no more are allowed (maxTopics)"
                )
        present = self.topics.get(topic, {})
        self._check_places(sum(name not in present for name in queues))
        for name, wanted in queues.items():
            if name not in self.groups:
                return
            self._set_queues(topic, name, wanted)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Delete a topic, everywhere or in one cluster, until a broker registers it again (216)."""
        names = list(self.topics.get(topic, ()))
        if cluster:
            of_cluster = self.clusters.get(cluster, ())
            names = [name for name in names if name in of_cluster]
        for name in names:
            self._remove_queues(topic, name)
        if topic not in self.topics:
            self._mapping_count -= len(self.mappings.pop(topic, ()))

    def wiping_write_permission(self, broker_name: str) -> Iterator[int]:
        """Make the topics of a group read-only (205), until it registers a change; yields the number, in steps."""
        return self._changing_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def adding_write_permission(self, broker_name: str) -> Iterator[int]:
        """Make the topics of a group readable and writable and nothing else (327); yields the number, in steps."""
        return self._changing_perms(broker_name, lambda _perm: PERM_READ_WRITE)

    def _change_perms(self, broker_name: str, changed: Callable[[int], int]) -> int:
        return sum(self._changing_perms(broker_name, changed))

    def _changing_perms(self, broker_name: str, changed: Callable[[int], int]) -> Iterator[int]:
        topics = tuple(self._topics_of.get(broker_name, ()))
        for at in range(0, len(topics), TOPICS_AT_ONCE):
            count = 0
            for topic in topics[at : at + TOPICS_AT_ONCE]:
                queues = self.topics.get(topic, {}).get(broker_name)
                if queues is None:
                    continue  # deleted between two steps
                count += 1
                perm = changed(queues.perm)
                if perm != queues.perm:
                    self.topics[topic][broker_name] = queues._replace(perm=perm)
                    self._on_change(topic)
            yield count

    def _set_queues(self, topic: str, broker_name: str, queues: Queues) -> None:
        on = self.topics.setdefault(topic, {})
        if broker_name not in on:
            self._topics_of.setdefault(broker_name, set()).add(topic)
            self.places += 1
        on[broker_name] = queues
        self._on_change(topic)

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        on = self.topics[topic]
        del on[broker_name]
        if not on:
            del self.topics[topic]
        topics = self._topics_of[broker_name]
        topics.remove(topic)
        if not topics:
            del self._topics_of[broker_name]
        self.places -= 1
        self._on_change(topic)
