"""What the routing tables look like from outside: routes, clusters, groups, lists of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.brokers import MASTER_ID
from orbitmq.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from orbitmq.protocol.flags import PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.names import SYNC_BROKER_MEMBER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.nameserver.brokers import BrokerGroup
    from orbitmq.nameserver.route_table import RouteTable


def route_of(table: RouteTable, topic: str, *, acting_masters: bool = False) -> TopicRouteData | None:
    """Where a topic is, or None if nowhere.

    With ``acting_masters`` a group that has lost its master shows its smallest slave in that place, if it is one
    of those that do so.
    """
    on = table.topics.get(topic)
    if on is None:
        return None
    names = sorted(on)
    groups = [table.groups[name] for name in names]
    # The topic over which the members of a group find each other has to show them as they are.
    acting_masters = acting_masters and not topic.startswith(SYNC_BROKER_MEMBER_PREFIX)
    return TopicRouteData(
        queue_datas=[
            QueueData(name, on[name].read, on[name].write, on[name].perm, on[name].sys_flag) for name in names
        ],
        broker_datas=[
            _broker_data(group, acting_master=acting_masters and not on[group.name].perm & PERM_WRITE)
            for group in groups
        ],
        filter_server_table={
            broker.address: broker.filter_servers
            for group in groups
            for broker in group.members.values()
            if broker.filter_servers
        },
        topic_queue_mapping_by_broker=table.mappings.get(topic),
    )


def in_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The part of a route that someone in this zone should see.

    Groups without a master are in every zone: there is nothing to send to, and what they hold has to be read.
    """
    brokers = [
        data
        for data in route.broker_datas
        if MASTER_ID not in data.broker_addrs or (data.zone_name or "").casefold() == zone.casefold()
    ]
    names = {data.broker_name for data in brokers}
    addresses = {address for data in brokers for address in data.broker_addrs.values()}
    return TopicRouteData(
        order_topic_conf=route.order_topic_conf,
        queue_datas=[data for data in route.queue_datas if data.broker_name in names],
        broker_datas=brokers,
        filter_server_table={at: servers for at, servers in route.filter_server_table.items() if at in addresses},
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def cluster_info(table: RouteTable) -> ClusterInfo:
    """All brokers, and the clusters they form."""
    return ClusterInfo(
        broker_addr_table={name: _broker_data(table.groups[name]) for name in sorted(table.groups)},
        cluster_addr_table={cluster: sorted(names) for cluster, names in sorted(table.clusters.items())},
    )


def member_group(table: RouteTable, cluster: str, broker_name: str) -> BrokerMemberGroup:
    """The brokers of this name; none if there is no such name."""
    group = table.groups.get(broker_name)
    return BrokerMemberGroup(cluster, broker_name, {} if group is None else group.addresses)


def all_topics(table: RouteTable) -> TopicList:
    return TopicList(sorted(table.topics))


def topics_of_cluster(table: RouteTable, cluster: str) -> TopicList:
    names = table.clusters.get(cluster, set())
    return TopicList(sorted(topic for topic, on in table.topics.items() if not names.isdisjoint(on)))


def system_topics(table: RouteTable) -> TopicList:
    """The names of clusters and brokers, which are topics on every broker; and one address to ask for others."""
    names = set(table.clusters).union(*table.clusters.values())
    first = min(table.groups, default=None)
    address = None if first is None else next(iter(table.groups[first].addresses.values()))
    return TopicList(sorted(names), address)


def unit_topics(table: RouteTable) -> TopicList:
    return _topics_by_flag(table, lambda flag: flag & TOPIC_UNIT)


def unit_subscribed_topics(table: RouteTable) -> TopicList:
    return _topics_by_flag(table, lambda flag: flag & TOPIC_UNIT_SUBSCRIBED)


def unit_subscribed_but_not_unit_topics(table: RouteTable) -> TopicList:
    return _topics_by_flag(table, lambda flag: flag & TOPIC_UNIT_SUBSCRIBED and not flag & TOPIC_UNIT)


def _topics_by_flag(table: RouteTable, wanted: Callable[[int], int]) -> TopicList:
    """The topics of which one broker, any will do, says so: they are the same on all."""
    return TopicList(
        sorted(topic for topic, on in table.topics.items() if wanted(next(iter(on.values())).sys_flag))
    )


def _broker_data(group: BrokerGroup, *, acting_master: bool = False) -> BrokerData:
    addresses = group.addresses
    if acting_master and group.enable_acting_master and MASTER_ID not in addresses:
        addresses[MASTER_ID] = addresses.pop(min(addresses))
    return BrokerData(group.cluster, group.name, addresses, group.zone, group.enable_acting_master)
