"""Topics: lists, routes, descriptions with queues, and who consumes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.cluster.topology import MASTER
from orbitmq.admin.errors import NotFoundError, RefusedError
from orbitmq.admin.session import decode
from orbitmq.admin.tables import KnownSettings, all_topic_configs, topic_config
from orbitmq.admin.topic.changes import TopicChanges
from orbitmq.admin.topic.model import (
    QueueStatus,
    TopicDescription,
    TopicKind,
    TopicPlacement,
    TopicSummary,
    kind_of,
)
from orbitmq.protocol.bodies import (
    BrokerStatsData,
    GroupList,
    TopicConfig,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NORMAL_KINDS = (TopicKind.NORMAL,)


class Topics(TopicChanges):
    """Topics of all clusters, or of one. Changes are in the base class."""

    # Lists

    async def names(self, *, cluster: str = "", kinds: Iterable[TopicKind] = NORMAL_KINDS) -> list[str]:
        """The names of topics, sorted, in two requests."""
        wanted = set(kinds)
        everything = await self._listed(cluster or self._session.config.cluster)
        topology = await self._brokers.topology()
        servers = set(topology.clusters) | {broker.broker_name for broker in topology.brokers}
        return sorted(topic for topic in set(everything) if kind_of(topic, servers) in wanted)

    async def all_names(self) -> list[str]:
        """All names of topics as the name server sends them, unsorted: also those of RocketMQ itself."""
        return await self._listed("")

    async def _listed(self, cluster: str) -> list[str]:
        if cluster:
            code, fields = RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster}
            answer = await self._session.call_name_server(code, fields)
        else:
            answer = await self._session.call_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return decode(TopicList, answer, "the name server").topic_list

    async def all(self, *, cluster: str = "", kinds: Iterable[TopicKind] = NORMAL_KINDS) -> list[TopicSummary]:
        """Topics with their settings, in a few requests per broker however many topics there are."""
        topology = await self._brokers.topology()
        brokers = topology.readers(cluster or self._session.config.cluster)
        by_address = {broker.address: broker.broker_name for broker in brokers}
        known = KnownSettings(TopicConfig)
        tables = await self._session.from_all(
            by_address, lambda address: all_topic_configs(self._session, address, known)
        )
        servers = set(topology.clusters) | {broker.broker_name for broker in topology.brokers}
        wanted = set(kinds)
        placements: dict[str, list[TopicPlacement]] = {}
        for address, configs in tables.items():
            for name, config in configs.items():
                placements.setdefault(name, []).append(TopicPlacement.of(by_address[address], config))
        return [
            TopicSummary(name, kind, tuple(places))
            for name, places in sorted(placements.items())
            if (kind := kind_of(name, servers)) in wanted
        ]

    # One topic

    async def route(self, topic: str) -> TopicRouteData:
        """The route as the name server sends it. Raises NotFoundError."""
        fields = {"topic": topic, "acceptStandardJsonOnly": True}
        try:
            answer = await self._session.call_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        except RefusedError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NotFoundError("topic", topic, "create it, or let the brokers do it") from error
            raise
        return decode(TopicRouteData, answer, "the name server")

    async def describe(self, topic: str) -> TopicDescription:
        """The topic with its settings, queues and groups: three requests per broker. Raises NotFoundError."""
        route = await self.route(topic)
        addresses = readers_of(route)
        configs = await self._session.from_all(
            addresses.values(), lambda address: topic_config(self._session, address, topic)
        )
        stats = await self.stats(topic, route)
        return TopicDescription(
            topic,
            kind_of(topic, {data.cluster for data in route.broker_datas} | set(addresses)),
            tuple(
                TopicPlacement.of(name, found)
                for name, address in sorted(addresses.items())
                if (found := configs[address]) is not None
            ),
            queues_of(stats),
            tuple(await self.groups(topic, route)),
            stats.topic_put_tps,
            await self.order_configuration(topic) or "",
            {data.broker_name: dict(sorted(data.broker_addrs.items())) for data in route.broker_datas},
        )

    async def stats(self, topic: str, route: TopicRouteData | None = None) -> TopicStatsTable:
        """The ends of all queues, with one request per broker. Raises NotFoundError."""
        route = await self.route(topic) if route is None else route

        async def fetch(address: str) -> TopicStatsTable:
            answer = await self._session.call(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            return decode(TopicStatsTable, answer, address)

        tables = await self._session.from_all(readers_of(route).values(), fetch)
        whole = TopicStatsTable()
        for table in tables.values():
            whole.offset_table.update(table.offset_table)
            whole.topic_put_tps += table.topic_put_tps
        return whole

    async def groups(self, topic: str, route: TopicRouteData | None = None) -> list[str]:
        """The groups that have offsets of a topic, or members that subscribe to it. Raises NotFoundError."""
        route = await self.route(topic) if route is None else route
        found: set[str] = set()
        for names in (await self.groups_by_broker(topic, route)).values():
            found.update(names)
        return sorted(found)

    async def groups_by_broker(self, topic: str, route: TopicRouteData) -> Mapping[str, list[str]]:
        """The groups by address of the broker."""

        async def fetch(address: str) -> list[str]:
            code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
            answer = await self._session.call(address, code, {"topic": topic})
            return decode(GroupList, answer, address).group_list

        return await self._session.from_all(readers_of(route).values(), fetch)

    async def traffic(self, topic: str) -> dict[str, BrokerStatsData]:
        """The counters of messages stored, by broker name; brokers without traffic are left out."""
        route = await self.route(topic)
        found: dict[str, BrokerStatsData] = {}
        for name, address in readers_of(route).items():
            fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": topic}
            answer = await self._session.exchange(address, RequestCode.VIEW_BROKER_STATS_DATA, fields)
            if answer.code == ResponseCode.SUCCESS:
                found[name] = decode(BrokerStatsData, answer, address)
        return found

    async def order_configuration(self, topic: str) -> str | None:
        """The order configuration, ``broker:queues;…``, or None."""
        return await self._name_servers.get(ORDER_TOPIC_NAMESPACE, topic)

    async def clusters(self, topic: str) -> list[str]:
        """The clusters whose brokers serve a topic. Raises NotFoundError."""
        return sorted({data.cluster for data in (await self.route(topic)).broker_datas})


def readers_of(route: TopicRouteData) -> dict[str, str]:
    """By broker name: the address of the master, or of the first slave."""
    return {
        data.broker_name: data.broker_addrs.get(MASTER) or data.broker_addrs[min(data.broker_addrs)]
        for data in route.broker_datas
        if data.broker_addrs
    }


def queues_of(stats: TopicStatsTable) -> tuple[QueueStatus, ...]:
    return tuple(
        sorted(
            QueueStatus(
                queue.broker_name, queue.queue_id, ends.min_offset, ends.max_offset, ends.last_update_timestamp
            )
            for queue, ends in stats.offset_table.items()
        )
    )
