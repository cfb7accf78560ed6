"""A broker with a gRPC server in the test's process, and plain stubs to call it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.proxy.backend.cluster import ClusterBackend
from orbitmq.proxy.backend.cluster_config import ClusterConfig
from orbitmq.proxy.backend.local import LocalBackend
from orbitmq.proxy.config import GrpcConfig
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.proxy.server import GrpcServer
from orbitmq.testing import LocalCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from orbitmq.broker import Broker
    from orbitmq.proxy.backend.base import Backend
    from orbitmq.remoting import Handler

SERVICE = "apache.rocketmq.v2.MessagingService"
LOCAL, CLUSTER = MODES = ("local", "cluster")
_numbers = itertools.count()


@dataclasses.dataclass
class Stubs:
    """Calls of one client id over one channel."""

    channel: grpc.aio.Channel
    client_id: str
    version: str = "5.2.0"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (
            ("x-mq-client-id", self.client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", self.version),
        )

    def with_id(self, client_id: str) -> Stubs:
        """Another client over the same channel."""
        return dataclasses.replace(self, client_id=client_id)

    async def unary(self, name: str, request: Any) -> Any:
        response = getattr(rpc, f"{name}Response")
        call = self.channel.unary_unary(f"/{SERVICE}/{name}", type(request).SerializeToString, response.FromString)
        return await call(request, timeout=10, metadata=self.metadata)

    def stream(self, name: str, request: Any, timeout: float | None = 10) -> Any:
        response = getattr(rpc, f"{name}Response")
        call = self.channel.unary_stream(f"/{SERVICE}/{name}", type(request).SerializeToString, response.FromString)
        return call(request, timeout=timeout, metadata=self.metadata)

    async def all(self, name: str, request: Any, seconds: float | None = 10) -> list[Any]:
        return [response async for response in self.stream(name, request, seconds)]

    def telemetry(self) -> Any:
        kind = rpc.TelemetryCommand
        call = self.channel.stream_stream(f"/{SERVICE}/Telemetry", kind.SerializeToString, kind.FromString)
        return call(metadata=self.metadata)

    async def settle(self, settings: pb.Settings) -> tuple[Any, pb.Settings]:
        """Open a telemetry stream with these settings, and return it with the server's."""
        stream = self.telemetry()
        await stream.write(rpc.TelemetryCommand(settings=settings))
        answer = await stream.read()
        assert answer.status.code == pb.OK
        return stream, answer.settings

    async def send(self, *messages: pb.Message) -> rpc.SendMessageResponse:
        response: rpc.SendMessageResponse = await self.unary(
            "SendMessage", rpc.SendMessageRequest(messages=messages)
        )
        return response

    async def receive(
        self, topic: str, group: str, *, batch: int = 16, invisible: int = 10, renews: bool = False,
        seconds: float = 8, **more: Any,
    ) -> list[Any]:  # fmt: skip
        request = receive_request(topic, group, batch=batch, invisible=invisible, renews=renews, **more)
        return await self.all("ReceiveMessage", request, seconds)

    async def received(self, topic: str, group: str, count: int = 1, **more: Any) -> list[pb.Message]:
        found: list[pb.Message] = []
        for _ in range(20):
            found += [one.message for one in await self.receive(topic, group, **more) if one.HasField("message")]
            if len(found) >= count:
                return found
        raise AssertionError(f"{len(found)} of {count} messages")


def resource(name: str) -> pb.Resource:
    return pb.Resource(name=name)


def receive_request(
    topic: str, group: str, *, batch: int = 16, invisible: int = 10, renews: bool = False, **more: Any
) -> rpc.ReceiveMessageRequest:
    request = rpc.ReceiveMessageRequest(
        group=pb.Resource(name=group),
        message_queue=pb.MessageQueue(topic=pb.Resource(name=topic), id=-1),
        batch_size=batch,
        auto_renew=renews,
        **more,
    )
    request.long_polling_timeout.seconds = 5
    if not renews:
        request.invisible_duration.seconds = invisible
    return request


def message(topic: str, body: bytes = b"body", **properties: Any) -> pb.Message:
    found = pb.Message(topic=pb.Resource(name=topic), body=body)
    system = found.system_properties
    system.message_id = properties.pop("message_id", f"01{next(_numbers):032X}")
    system.message_type = pb.NORMAL
    found.user_properties.update(properties.pop("user", {}))
    for name, value in properties.items():
        if name == "keys":
            system.keys.extend(value)
        elif name in {"delivery_timestamp", "born_timestamp"}:
            getattr(system, name).seconds = value
        else:
            setattr(system, name, value)
    return found


def consumer_settings(group: str, *topics: str, kind: pb.ClientType = pb.SIMPLE_CONSUMER) -> pb.Settings:
    settings = pb.Settings(client_type=kind)
    settings.request_timeout.seconds = 3
    settings.subscription.group.name = group
    for topic in topics:
        settings.subscription.subscriptions.add(topic=pb.Resource(name=topic)).expression.expression = "*"
    return settings


def producer_settings(*topics: str) -> pb.Settings:
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.topics.extend(pb.Resource(name=topic) for topic in topics)
    return settings


@dataclasses.dataclass
class Served:
    """A running server."""

    broker: Broker
    server: GrpcServer
    cluster: LocalCluster

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def topic(self, name: str, kind: str = "NORMAL", queues: int = 2) -> str:
        self.broker.topics.update(TopicConfig(name, queues, queues, 6, attributes={"message.type": kind}))
        await self.broker.registration.settled()
        return name

    def group(self, name: str, *, ordered: bool = False, retries: int = 16) -> str:
        self.broker.groups.update(
            SubscriptionGroupConfig(name, consume_message_orderly=ordered, retry_max_times=retries)
        )
        return name

    @contextlib.asynccontextmanager
    async def client(self, client_id: str = "", version: str = "5.2.0") -> AsyncIterator[Stubs]:
        async with grpc.aio.insecure_channel(self.target) as channel:
            yield Stubs(channel, client_id or f"client-{next(_numbers)}", version)


@contextlib.asynccontextmanager
async def served(
    settings: dict[str, str] | None = None,
    *,
    mode: str = LOCAL,
    before_start: Callable[[GrpcServer, str], None] | None = None,
    **config: Any,
) -> AsyncIterator[Served]:
    """A cluster of one broker, with a gRPC server on a free port."""
    wanted = {"recallMessageEnable": "true", "enablePropertyFilter": "true", **(settings or {})}
    async with LocalCluster(settings=wanted) as cluster:
        broker = cluster.broker()
        found = ClusterConfig(namesrv_addr=cluster.name_server)

        def backend(handlers: Mapping[int, Handler]) -> Backend:
            if mode == LOCAL:
                return LocalBackend(broker, handlers)
            return ClusterBackend(found, broker.clock, handlers)

        server = GrpcServer(GrpcConfig(grpc_server_port=0, **config), backend, clock=broker.clock)
        if before_start is not None:
            before_start(server, cluster.name_server)
        await server.start()
        try:
            yield Served(broker, server, cluster)
        finally:
            await server.stop()
