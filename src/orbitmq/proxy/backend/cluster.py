"""CLUSTER mode: brokers of any cluster, found through its name servers and reached through sockets."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from orbitmq.auth.signature import Signer
from orbitmq.protocol.bodies import (
    ClusterInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicRouteData,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.proxy.backend.base import Route
from orbitmq.proxy.backend.cache import Cache
from orbitmq.proxy.errors import StatusError, TopicNotFoundError, broker_status
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.routing.endpoints import endpoints_of, with_port
from orbitmq.remoting import ConnectError, RemotingClient, RemotingError
from orbitmq.remoting.limits.connection_limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.bodies import BrokerData
    from orbitmq.protocol.bodies.codec import Body
    from orbitmq.proxy.backend.cluster_config import ClusterConfig
    from orbitmq.remoting import ClientTls, Connection, Handler

    BodyT = TypeVar("BodyT", bound="Body")

log = logging.getLogger("orbitmq.proxy")

SECONDS = 3.0
"""Time for a read of metadata, as the clients' own request timeout."""

MAX_TOPICS = 20_000
"""Routes and topic settings that are remembered, as in Apache's proxy."""

UNKNOWN_GROUP_SECONDS = 1.0
"""Age of the group tables at which a group that they do not have makes them be read again."""

IDLE_SECONDS = 120.0
"""After which a connection without requests is closed, as in RocketMQ's clients; consumers send heartbeats."""

_ALL = ""


class ClusterBackend:
    """All brokers that the name servers know. Each gRPC client has its own connections to them."""

    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock,
        handlers: Mapping[int, Handler],
        *,
        tls: ClientTls | None = None,
    ) -> None:
        """``handlers`` are for requests that brokers send to clients."""
        self._config = config
        self._handlers = handlers
        self._tls = tls
        credentials = config.credentials
        self.sign = None if credentials is None else Signer(credentials).sign
        self._client: RemotingClient | None = None
        fresh, expires = config.metadata_refresh_millis / 1000, config.metadata_expire_millis / 1000
        self._routes = Cache(self._read_route, clock, fresh=fresh, expires=expires, limit=MAX_TOPICS)
        self._types = Cache(self._read_type, clock, fresh=fresh, expires=expires, limit=MAX_TOPICS)
        self._clusters = Cache(self._read_cluster, clock, fresh=fresh, expires=expires, limit=1)
        self._groups = Cache(self._read_groups, clock, fresh=fresh, expires=expires, limit=1)
        self._addresses: dict[str, dict[int, str]] = {}
        """By broker name and broker id, from the newest answer that names the broker."""

    async def start(self) -> None:
        self._client = RemotingClient(self._handlers, limits=Limits(idle_seconds=IDLE_SECONDS), tls=self._tls)

    async def stop(self) -> None:
        for cache in (self._routes, self._types, self._clusters, self._groups):
            await cache.stop()
        if self._client is not None:
            await self._client.close()

    # Connections

    async def connect(self, broker_name: str, address: str) -> Connection:  # noqa: ARG002 - brokers see this host
        target = await self._address_of(broker_name)
        assert self._client is not None, "not started"
        try:
            return await self._client.connect(target)
        except ConnectError:
            # The master may be another one by now.
            self._addresses.pop(broker_name, None)
            self._clusters.forget(_ALL)
            raise

    async def _address_of(self, broker_name: str) -> str:
        replicas = self._addresses.get(broker_name)
        if replicas is None:
            await self._clusters.get(_ALL)
            replicas = self._addresses.get(broker_name)
        if not replicas:
            raise StatusError(pb.BAD_REQUEST, f"broker {broker_name[:255]} is not known to the name servers")
        return replicas[min(replicas)]

    # Topics and groups

    async def route(self, topic: str) -> Route:
        return await self._routes.get(topic)

    async def message_type(self, topic: str) -> str:
        try:
            return await self._types.get(topic)
        except TopicNotFoundError:
            return "UNSPECIFIED"

    async def group(self, name: str, *, create: bool = False) -> SubscriptionGroupConfig | None:
        found = (await self._groups.get(_ALL)).get(name)
        if found is None:
            found = (await self._groups.newer(_ALL, UNKNOWN_GROUP_SECONDS)).get(name)
        if found is None and create:
            await self._create_group(SubscriptionGroupConfig(name))
            found = (await self._groups.newer(_ALL, 0)).get(name)
        return found

    async def broker_names(self) -> list[str]:
        return list((await self._clusters.get(_ALL)).broker_addr_table)

    def endpoints(self, requested: pb.Endpoints, port: int) -> pb.Endpoints:
        """Clients reach this server again at the address that they used, whatever is in front of it."""
        if requested.addresses:
            return with_port(requested, port)
        return endpoints_of(self._config.bind_address, port)

    # Reading metadata

    async def _read_route(self, topic: str) -> Route:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        answer = await self._ask_name_server(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields))
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic)
        data = _body(TopicRouteData, answer)
        for broker in data.broker_datas:
            self._learn(broker)
        ids = {broker.broker_name: tuple(sorted(broker.broker_addrs)) for broker in data.broker_datas}
        return Route(tuple(data.queue_datas), ids)

    async def _read_type(self, topic: str) -> str:
        names = [data.broker_name for data in (await self.route(topic)).queues]
        command = Command(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic, "lo": "true"})
        answer = await self._ask_first(names, command)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicNotFoundError(topic)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            # Brokers before 5.0 have no message types.
            return "NORMAL"
        return _body(TopicConfig, answer).attributes.get("message.type", "NORMAL")

    async def _read_cluster(self, _: str) -> ClusterInfo:
        answer = await self._ask_name_server(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        info = _body(ClusterInfo, answer)
        for broker in info.broker_addr_table.values():
            self._learn(broker)
        return info

    async def _read_groups(self, _: str) -> dict[str, SubscriptionGroupConfig]:
        """The groups of all brokers: the request for one group would create it."""
        names = await self._names_of_cluster()
        tables = await asyncio.gather(*(self._groups_of(name) for name in names), return_exceptions=True)
        found: dict[str, SubscriptionGroupConfig] = {}
        failed = None
        for name, table in zip(names, tables, strict=True):
            if isinstance(table, BaseException):
                failed = table
                log.warning("proxy: groups of broker %s not read: %s", name, table)
            else:
                found.update(table)
        if failed is not None and not found:
            raise failed
        return found

    async def _groups_of(self, broker_name: str) -> dict[str, SubscriptionGroupConfig]:
        """One broker's groups. Newer ones send them in parts."""
        table: dict[str, SubscriptionGroupConfig] = {}
        version = ""
        while True:
            fields = {"groupSeq": str(len(table)), "maxGroupNum": "2000", "dataVersion": version}
            command = Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext_fields=fields)
            answer = await self._ask_broker(broker_name, command)
            part = _body(SubscriptionGroupWrapper, answer)
            before = len(table)
            table.update(part.subscription_group_table)
            version = part.data_version.encode().decode()
            total = answer.ext_fields.get("totalGroupNum", "")
            if not total.isdecimal() or len(table) >= int(total) or len(table) == before:
                return table

    async def _create_group(self, config: SubscriptionGroupConfig) -> None:
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config.encode()
        for name in await self._names_of_cluster():
            answer = await self._ask_broker(name, Command(code, body=body))
            if answer.code != ResponseCode.SUCCESS:
                raise broker_status(answer)

    async def _names_of_cluster(self) -> list[str]:
        info = await self._clusters.get(_ALL)
        wanted = self._config.rocket_mq_cluster_name
        return list(info.cluster_addr_table.get(wanted, []) if wanted else info.broker_addr_table)

    def _learn(self, broker: BrokerData) -> None:
        self._addresses[broker.broker_name] = dict(broker.broker_addrs)

    # Requests of this server's own

    async def _ask_name_server(self, command: Command) -> Command:
        """The response of the first name server that answers. Raises RemotingError."""
        last: RemotingError = ConnectError("no name server is configured")
        for address in self._config.name_servers:
            try:
                return await self._ask(address, command)
            except RemotingError as error:
                last = error
        raise last

    async def _ask_broker(self, broker_name: str, command: Command) -> Command:
        return await self._ask(await self._address_of(broker_name), command)

    async def _ask_first(self, broker_names: list[str], command: Command) -> Command:
        """The response of the first of these brokers that answers. Raises RemotingError."""
        last: RemotingError = ConnectError("the topic has no broker")
        for name in broker_names:
            try:
                return await self._ask_broker(name, command)
            except RemotingError as error:
                last = error
        raise last

    async def _ask(self, address: str, command: Command) -> Command:
        assert self._client is not None, "not started"
        command.language = LanguageCode.PYTHON
        if self.sign is not None:
            self.sign(command)
        return await self._client.call(address, command, SECONDS)


def _body(kind: type[BodyT], answer: Command) -> BodyT:
    if answer.code != ResponseCode.SUCCESS:
        raise broker_status(answer)
    return kind.decode(answer.body or b"{}")
