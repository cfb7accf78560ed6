"""The routing tables: which brokers are alive, how they form groups and clusters, and which topics they serve.

Pure state. Nothing here knows of frames, sockets or clocks: a connection is a token, time is a number that is
handed in, and what has to be told to others is returned. A request that is refused has changed nothing.

What is held to at all times: a broker is in ``brokers`` if and only if it is a member of a group; a group has
members; a topic is on brokers of groups that exist; and a cluster has groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.brokers import MASTER_ID, Broker, BrokerGroup, BrokerKey, MinBrokerIdChange, Registered
from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.protocol.flags import PERM_READ_WRITE, PERM_WRITE
from orbitmq.remoting.processing import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from orbitmq.nameserver.brokers import Queues, Registration
    from orbitmq.protocol.bodies import DataVersion, TopicQueueMappingInfo


class RouteTable:
    """Brokers and topics of all clusters that register here."""

    def __init__(
        self,
        limits: NameServerLimits | None = None,
        on_change: Callable[[str | None], None] = lambda _topic: None,
    ) -> None:
        """``on_change`` is called with the topic whose route has changed, or None if any may have."""
        self._limits = limits or NameServerLimits()
        self._on_change = on_change
        self.brokers: dict[BrokerKey, Broker] = {}
        self.groups: dict[str, BrokerGroup] = {}
        self.clusters: dict[str, set[str]] = {}
        """The names of the groups of each cluster."""
        self.topics: dict[str, dict[str, Queues]] = {}
        """Per topic and broker name."""
        self.mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        """Static topics, per topic and broker name. They outlive their brokers: the logical queues of one that
        is down for a while must not seem to be no queues of the topic."""
        self._mapping_count = 0
        self._by_connection: dict[Hashable, set[BrokerKey]] = {}

    # Brokers come

    def register(
        self,
        said: Registration,
        connection: Hashable,
        now_ms: int,
        *,
        delete_other_topics: bool = False,
    ) -> Registered:
        """Take what a broker says about itself.

        With ``delete_other_topics`` it has no topics but those it names. Raises RequestRefusedError.
        """
        known = self.brokers.get((said.cluster, said.address))
        group = self.groups.get(said.broker_name)
        holder = None if group is None else group.members.get(said.broker_id)
        if holder is not None and self._outranks(holder, said):
            # Of two that claim the same id the one with the newer state is right, and the other one is nobody.
            if known is not None:
                self._remove(known)
            return Registered()
        if holder is None and len(said.topics) == 1:
            # A broker that changes one topic registers just this one. Were it taken for all that an unknown
            # broker has, its other topics would be missing until it registers the next time.
            raise RequestRefusedError("register broker failed")
        self._check_room(said, known, holder)

        if known is not None and known.name != said.broker_name:
            # It was given another name; an address is one broker.
            self._remove(known)
            known = None
        if group is None:
            group = self.groups[said.broker_name] = BrokerGroup(said.cluster, said.broker_name)
        self.clusters.setdefault(said.cluster, set()).add(said.broker_name)
        became_min = said.broker_id < min(group.members, default=MASTER_ID)
        is_new_version = known is None or known.data_version != said.data_version
        broker = self._place(said, group, known, connection, now_ms)
        self._take_topics(
            said, group, apply_all=holder is None or is_new_version, delete_others=delete_other_topics
        )
        master = group.members.get(MASTER_ID)
        change = MinBrokerIdChange.joined(group, said.ha_address) if became_min else None
        if master is None or master is broker:
            return Registered(change=change)
        return Registered(master.address, master.ha_address, change)

    def _outranks(self, holder: Broker, said: Registration) -> bool:
        return (
            holder.address != said.address
            and holder.cluster == said.cluster
            and holder.data_version.state_version > said.data_version.state_version
        )

    def _check_room(self, said: Registration, known: Broker | None, holder: Broker | None) -> None:
        limits = self._limits
        if known is None and holder is None and len(self.brokers) >= limits.brokers:
            raise RequestRefusedError(f"there are {limits.brokers} brokers already, more are not taken")
        if len(self.topics) + len(said.topics) > limits.topics:
            new = sum(topic not in self.topics for topic in said.topics)
            if len(self.topics) + new > limits.topics:
                raise RequestRefusedError(f"{new} new topics would make more than {limits.topics}")
        if self._mapping_count + len(said.mappings) > limits.topics:
            new = sum(info.bname not in self.mappings.get(topic, ()) for topic, info in said.mappings.items())
            if self._mapping_count + new > limits.topics:
                raise RequestRefusedError(f"{new} new static topics would make more than {limits.topics}")

    def _place(
        self, said: Registration, group: BrokerGroup, known: Broker | None, connection: Hashable, now_ms: int
    ) -> Broker:
        """Put the broker where it says it belongs; whoever was there, and where it was itself, is forgotten."""
        filter_servers = said.filter_servers
        if filter_servers is None:
            filter_servers = [] if known is None else known.filter_servers
        broker = Broker(
            cluster=said.cluster,
            name=said.broker_name,
            id=said.broker_id,
            address=said.address,
            ha_address=said.ha_address,
            data_version=said.data_version,
            heartbeat_timeout_ms=said.heartbeat_timeout_ms,
            last_seen_ms=now_ms,
            connection=connection,
            filter_servers=filter_servers,
        )
        acting = bool(said.enable_acting_master)
        holder = group.members.get(said.broker_id)
        if (
            known is None
            or known is not holder
            or known.filter_servers != filter_servers
            or (group.zone, group.enable_acting_master) != (said.zone, acting)
        ):
            self._on_change(None)
        # The last one to register speaks for the whole group.
        group.zone = said.zone
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

    def _take_topics(self, said: Registration, group: BrokerGroup, *, apply_all: bool, delete_others: bool) -> None:
        is_acting_slave = said.broker_id != MASTER_ID
        if is_acting_slave and (said.enable_acting_master is None or said.broker_id != min(group.members)):
            return
        name = group.name
        topics = self.topics
        # A registration of a single topic tells about a change of this one and nothing about others.
        if delete_others and not said.mappings and len(said.topics) != 1:
            for topic in [topic for topic, on in topics.items() if name in on and topic not in said.topics]:
                self._remove_queues(topic, name)
        keep = ~PERM_WRITE if is_acting_slave and group.enable_acting_master else ~0
        for topic, queues in said.topics.items():
            on = topics.get(topic)
            present = None if on is None else on.get(name)
            if apply_all or present is None:
                wanted = queues if keep == ~0 else queues._replace(perm=queues.perm & keep)
                if wanted != present:
                    self._set_queues(topic, name, wanted)
        for topic, info in said.mappings.items():
            by_broker = self.mappings.setdefault(topic, {})
            if apply_all or info.bname not in by_broker:
                self._mapping_count += info.bname not in by_broker
                by_broker[info.bname] = info
                self._on_change(topic)

    # Brokers stay

    def touch(self, cluster: str, address: str, now_ms: int) -> None:
        """A sign of life. One of a broker that is not registered is none: it has to register first."""
        broker = self.brokers.get((cluster, address))
        if broker is not None:
            broker.last_seen_ms = now_ms

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics that the broker registered last, if it is known."""
        broker = self.brokers.get((cluster, address))
        return None if broker is None else broker.data_version

    # Brokers go

    def unregister(self, cluster: str, address: str, broker_name: str) -> MinBrokerIdChange | None:
        """Forget a broker, if it is known under this name."""
        broker = self.brokers.get((cluster, address))
        return None if broker is None or broker.name != broker_name else self._remove(broker)

    def unregister_connection(self, connection: Hashable) -> tuple[list[Broker], list[MinBrokerIdChange]]:
        """Forget the brokers that registered last over this connection, for it is gone."""
        keys = self._by_connection.get(connection, ())
        return self._remove_all([self.brokers[key] for key in keys])

    def expire(self, now_ms: int) -> tuple[list[Broker], list[MinBrokerIdChange]]:
        """Forget the brokers that were silent for too long."""
        brokers = self.brokers.values()
        return self._remove_all([one for one in brokers if one.last_seen_ms + one.heartbeat_timeout_ms < now_ms])

    def is_used(self, connection: Hashable) -> bool:
        """Whether a broker registered last over this connection."""
        return connection in self._by_connection

    def _remove_all(self, gone: list[Broker]) -> tuple[list[Broker], list[MinBrokerIdChange]]:
        changes = [self._remove(broker) for broker in gone]
        return gone, [change for change in changes if change is not None]

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
            # What is left can be read from, and one of them may act as a master that takes no messages.
            self._change_perms(group.name, lambda perm: perm & ~PERM_WRITE)
        return MinBrokerIdChange.left(group, broker.address) if was_min else None

    def _remove_group(self, group: BrokerGroup) -> None:
        name = group.name
        del self.groups[name]
        for cluster in [cluster for cluster, names in self.clusters.items() if name in names]:
            self.clusters[cluster].remove(name)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        for topic in [topic for topic, on in self.topics.items() if name in on]:
            self._remove_queues(topic, name)

    def _forget_connection(self, broker: Broker) -> None:
        keys = self._by_connection[broker.connection]
        keys.remove(broker.key)
        if not keys:
            del self._by_connection[broker.connection]

    # Topics

    def set_topic(self, topic: str, queues: Mapping[str, Queues]) -> None:
        """Set the queues of one topic on some brokers (217), up to the first broker that is not known."""
        if topic not in self.topics:
            if not all(name in self.groups for name in queues):
                return
            if len(self.topics) >= self._limits.topics:
                raise RequestRefusedError(f"there are {self._limits.topics} topics already, more are not taken")
        for name, wanted in queues.items():
            if name not in self.groups:
                return
            self._set_queues(topic, name, wanted)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or in one cluster, until a broker names it again (216)."""
        names = list(self.topics.get(topic, ()))
        if cluster:
            of_cluster = self.clusters.get(cluster, ())
            names = [name for name in names if name in of_cluster]
        for name in names:
            self._remove_queues(topic, name)
        if topic not in self.topics:
            self._mapping_count -= len(self.mappings.pop(topic, ()))

    def wipe_write_permission(self, broker_name: str) -> int:
        """Make the topics of a group read-only (205), until it registers a change; says how many it has."""
        return self._change_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Make the topics of a group readable and writable and nothing else (327); says how many it has."""
        return self._change_perms(broker_name, lambda _perm: PERM_READ_WRITE)

    def _change_perms(self, broker_name: str, changed: Callable[[int], int]) -> int:
        count = 0
        for topic, on in self.topics.items():
            queues = on.get(broker_name)
            if queues is not None:
                count += 1
                perm = changed(queues.perm)
                if perm != queues.perm:
                    on[broker_name] = queues._replace(perm=perm)
                    self._on_change(topic)
        return count

    def _set_queues(self, topic: str, broker_name: str, queues: Queues) -> None:
        self.topics.setdefault(topic, {})[broker_name] = queues
        self._on_change(topic)

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        on = self.topics[topic]
        del on[broker_name]
        if not on:
            del self.topics[topic]
        self._on_change(topic)
