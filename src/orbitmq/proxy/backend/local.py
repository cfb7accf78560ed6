"""LOCAL mode: the broker of this process, reached through in-process connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metadata.attributes import MESSAGE_TYPE
from orbitmq.protocol.bodies import QueueData
from orbitmq.proxy.backend.base import MASTER, Route
from orbitmq.proxy.errors import StatusError, TopicNotFoundError
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.routing.endpoints import endpoints_of
from orbitmq.remoting import RemotingClient
from orbitmq.remoting.limits.connection_limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker import Broker
    from orbitmq.protocol.bodies import SubscriptionGroupConfig
    from orbitmq.remoting import Connection, Handler

IDLE_SECONDS = 3600.0
"""Of the client's end; the broker's end closes idle connections earlier, as it does those of sockets."""

MAX_ROUTES = 20_000
"""Routes that are remembered."""


class LocalBackend:
    """The broker of this process. Its routes name this broker only, whatever else the cluster has."""

    sign = None
    """Connections within the process need no signature."""

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler],
    ) -> None:
        self._broker = broker
        self._handlers = handlers
        self._client: RemotingClient | None = None
        self._routes: dict[str, tuple[tuple[int, int, int], Route]] = {}
        """By topic, with the numbers of queues and the permission that they were made for."""

    async def start(self) -> None:
        self._client = RemotingClient(self._handlers, limits=Limits(idle_seconds=IDLE_SECONDS))

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def connect(self, broker_name: str, address: str) -> Connection:
        if broker_name != self._broker.settings.broker.broker_name:
            raise StatusError(pb.BAD_REQUEST, f"broker {broker_name} is not the one of this server")
        assert self._client is not None, "not started"
        return self._broker.connect_in_process(self._client, address)

    async def route(self, topic: str) -> Route:
        config = self._broker.topics.configs.get(topic)
        if config is None:
            raise TopicNotFoundError(topic)
        settings = self._broker.settings.broker
        perm = config.perm & settings.broker_permission
        made_for = config.read_queue_nums, config.write_queue_nums, perm
        known = self._routes.get(topic)
        if known is not None and known[0] == made_for:
            return known[1]
        route = Route((QueueData(settings.broker_name, *made_for),), {settings.broker_name: (MASTER,)})
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        self._routes[topic] = made_for, route
        return route

    async def message_type(self, topic: str) -> str:
        config = self._broker.topics.configs.get(topic)
        return "UNSPECIFIED" if config is None else config.attributes.get(MESSAGE_TYPE, "NORMAL")

    async def group(self, name: str, *, create: bool = False) -> SubscriptionGroupConfig | None:
        groups = self._broker.groups
        return groups.find(name) if create else groups.configs.get(name)

    async def broker_names(self) -> list[str]:
        return [self._broker.settings.broker.broker_name]

    def endpoints(self, _requested: pb.Endpoints, port: int) -> pb.Endpoints:
        config = self._broker.settings.broker
        return endpoints_of(config.broker_ip1, port)
