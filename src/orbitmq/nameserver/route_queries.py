"""Queries on the route table: routes, clusters, broker groups and topic lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orbitmq.nameserver.brokers import MASTER_ID
from orbitmq.protocol.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicRouteData,
)
from orbitmq.protocol.message.flags import PERM_WRITE, TOPIC_UNIT, TOPIC_UNIT_SUBSCRIBED
from orbitmq.protocol.names import SYNC_BROKER_MEMBER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from orbitmq.nameserver.brokers import BrokerGroup, Queues
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.bodies import TopicQueueMappingInfo

    Wanted: TypeAlias = Callable[[Mapping[str, Queues]], bool]
    """Whether a list has a topic, by its queues on each broker."""


class RouteSource(NamedTuple):
    """Snapshot of the tables from which a thread may build the route of a topic."""

    topic: str
    on: Mapping[str, Queues]
    groups: list[BrokerGroup]
    mappings: dict[str, TopicQueueMappingInfo] | None


def source_of(table: RouteTable, topic: str) -> RouteSource | None:
    """Where a topic is, or None if nowhere."""
    on = table.topics.get(topic)
    if on is None:
        return None
    names = sorted(on)
    mappings = table.mappings.get(topic)
    return RouteSource(
        topic, dict(on), [table.groups[name] for name in names], None if mappings is None else dict(mappings)
    )


def route_of(source: RouteSource, *, acting_masters: bool = False) -> TopicRouteData:
    """The route of a topic.

    With ``acting_masters`` a group that has lost its master shows its smallest slave in that place, if it is one
    of those that do so.
    """
    on, groups = source.on, source.groups
    # The topic over which the members of a group find each other has to show them as they are.
    acting_masters = acting_masters and not source.topic.startswith(SYNC_BROKER_MEMBER_PREFIX)
    return TopicRouteData(
        queue_datas=[
            QueueData(name, queues.read, queues.write, queues.perm, queues.sys_flag)
            for name, queues in sorted(on.items())
        ],
        broker_datas=[
            _broker_data(group, acting_master=acting_masters and not on[group.name].perm & PERM_WRITE)
            for group in groups
        ],
        filter_server_table={
            broker.address: broker.filter_servers
            for group in groups
            for broker in tuple(group.members.values())
            if broker.filter_servers
        },
        topic_queue_mapping_by_broker=source.mappings,
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


def cluster_info(groups: Mapping[str, BrokerGroup], clusters: Mapping[str, Iterable[str]]) -> ClusterInfo:
    """All brokers, and the clusters they form."""
    return ClusterInfo(
        broker_addr_table={name: _broker_data(groups[name]) for name in sorted(groups)},
        cluster_addr_table={cluster: sorted(names) for cluster, names in sorted(clusters.items())},
    )


def member_group(table: RouteTable, cluster: str, broker_name: str) -> BrokerMemberGroup:
    """The brokers of this name; none if there is no such name."""
    group = table.groups.get(broker_name)
    return BrokerMemberGroup(cluster, broker_name, {} if group is None else group.addresses)


def system_topics(table: RouteTable) -> TopicList:
    """The names of clusters and brokers, which are topics on every broker; and one address to ask for others."""
    names = set(table.clusters).union(*table.clusters.values())
    first = min(table.groups, default=None)
    address = None if first is None else next(iter(table.groups[first].addresses.values()))
    return TopicList(sorted(names), address)


# Which topics a list has; one broker says it for all, for they are the same on all.


def is_unit(on: Mapping[str, Queues]) -> bool:
    return bool(_flag(on) & TOPIC_UNIT)


def is_unit_subscribed(on: Mapping[str, Queues]) -> bool:
    return bool(_flag(on) & TOPIC_UNIT_SUBSCRIBED)


def is_unit_subscribed_but_not_unit(on: Mapping[str, Queues]) -> bool:
    return is_unit_subscribed(on) and not is_unit(on)


def _flag(on: Mapping[str, Queues]) -> int:
    return next(iter(on.values())).sys_flag


def _broker_data(group: BrokerGroup, *, acting_master: bool = False) -> BrokerData:
    addresses = group.addresses
    if acting_master and group.enable_acting_master and MASTER_ID not in addresses:
        addresses[MASTER_ID] = addresses.pop(min(addresses))
    return BrokerData(group.cluster, group.name, addresses, group.zone, group.enable_acting_master)
