"""LOCAL mode: the broker of this process, reached through in-process connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metadata.attributes import MESSAGE_TYPE
from orbitmq.protocol.bodies import QueueData
from orbitmq.proxy.backend.base import Route
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


class LocalBackend:
    """The broker of this process. Its routes name this broker only, whatever else the cluster has."""

    def __init__(
        self,
        broker: Broker,
        handlers: Mapping[int, Handler],
    ) -> None:
        self._broker = broker
        self._handlers = handlers
        self._client: RemotingClient | None = None

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
        data = QueueData(settings.broker_name, config.read_queue_nums, config.write_queue_nums, perm)
        return Route((data,), {settings.broker_name: (0,)})

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
