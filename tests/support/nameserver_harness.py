"""A name server without a network: requests go in as bytes, answers come out as commands; and what brokers say."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orbitmq.nameserver import NameServer, NameServerConfig, NameServerLimits
from orbitmq.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicRouteData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import decode_header
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.message.crc import body_crc
from orbitmq.remoting.error_responses import not_supported
from orbitmq.testing import ManualClock, MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from orbitmq.protocol.command.frame import Frame
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection, Handler

T = TypeVar("T")

WRITES = frozenset(
    {RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG},
)
"""Requests that are answered when something is on the disk."""

TOPICS = ("TopicA", "TopicB")


class Wire:
    """A connection that nothing goes over: brokers are known by which one they registered on."""

    remote_address = "127.0.0.1:1"
    local_address = "127.0.0.1:9876"

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}
        self.answered: list[bytes] = []
        """What was answered later, because it had to wait for a disk."""

    def answer(self, _header: object, data: bytes) -> None:
        self.answered.append(data)


async def run_here(work: Callable[[], T]) -> T:
    return work()


async def _written(handler: Handler, wire: Wire, header: Header, frame: Frame) -> bytes:
    """The answer of a handler that waits for the disk first, unless it refuses at once."""
    answer = handler(cast("Connection", wire), header, frame[2], frame[0])
    while answer is None:
        await asyncio.sleep(0)
        answer = wire.answered.pop() if wire.answered else None
    assert isinstance(answer, bytes)
    return answer


def _run(answering: Coroutine[None, None, bytes]) -> bytes:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answering)
    # A test that has a loop of its own: the answer is made on another one.
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, answering).result()


class QuietServer:
    """A name server on a virtual disk, whose clock stands still until it is moved."""

    def __init__(
        self, limits: NameServerLimits | None = None, disk: MemoryDisk | None = None, **settings: Any
    ) -> None:
        self.clock = ManualClock(1_000_000)
        self.disk = disk or MemoryDisk()
        paths = {"kv_config_path": "/ns/kvConfig.json", "config_store_path": "/ns/namesrv.properties"}
        self.config = NameServerConfig(**{**paths, "rocketmq_home": "", **settings})
        self.server = NameServer(
            self.config, disk=self.disk, now_ms=self.clock.now_ms, limits=limits, run_blocking=run_here
        )
        self.table = self.server.table
        self.wire = Wire()

    def send(self, data: bytes, wire: Wire | None = None) -> list[Command]:
        """The response to some bytes, including responses that wait for the disk."""
        wire = wire or self.wire
        answers = []
        for frame in FrameParser().feed(data):
            header = decode_header(frame)
            handler = self.server.handlers.get(header[0])
            if handler is None:
                answer: object = not_supported(header, frame[0])
            elif header[0] in WRITES:
                answer = _run(_written(handler, wire, header, frame))
            else:
                answer = handler(cast("Connection", wire), header, frame[2], frame[0])
            assert isinstance(answer, bytes)
            answers += [Command.decode(one) for one in FrameParser().feed(answer)]
        return answers

    def ask(self, code: int, body: bytes | None = None, wire: Wire | None = None, /, **fields: object) -> Command:
        """The answer to a request; field values are written as text, those that are None are left out."""
        return self.ask_with(Command(code, 7, ext_fields=as_text(fields), body=body), wire)

    def ask_with(self, request: Command, wire: Wire | None = None) -> Command:
        (answer,) = self.send(request.encode(), wire)
        assert answer.is_response
        assert answer.opaque == request.opaque
        assert answer.serialize_type == request.serialize_type
        return answer

    def register(self, registration: RegisterRequest, wire: Wire | None = None) -> Command:
        return self.ask_with(registration.request(), wire)

    def close(self, wire: Wire) -> None:
        """The connection is gone."""
        self.server.connection_closed(cast("Connection", wire))

    def wait(self, ms: int) -> None:
        """Time passes, and silent brokers are looked for."""
        self.clock.advance(ms)
        self.server.expiry.scan()

    def state(self) -> str:
        """Everything that it knows, to be compared."""
        table = self.table
        kv = self.server._kv_config._table
        clusters = {cluster: sorted(names) for cluster, names in table.clusters.items()}
        connections = {id(wire): sorted(keys) for wire, keys in table._by_connection.items()}
        return repr(
            [table.brokers, table.groups, clusters, table.topics, table.mappings, connections, kv, self.config]
        )

    def route(self, topic: str) -> TopicRouteData | None:
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        assert answer.code == ResponseCode.SUCCESS
        assert answer.body is not None
        return TopicRouteData.decode(answer.body)

    def addresses(self, topic: str) -> dict[str, dict[int, str]]:
        """Where a topic is: broker names, ids and addresses."""
        route = self.route(topic)
        return {} if route is None else {data.broker_name: data.broker_addrs for data in route.broker_datas}

    def perms(self, topic: str) -> dict[str, int]:
        route = self.route(topic)
        return {} if route is None else {data.broker_name: data.perm for data in route.queue_datas}

    def clusters(self) -> ClusterInfo:
        body = self.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        assert body is not None
        return ClusterInfo.decode(body)


@dataclasses.dataclass(slots=True)
class RegisterRequest:
    """The registration of a broker."""

    name: str = "broker-a"
    id: int = 0
    address: str = ""
    cluster: str = "cluster"
    topics: Iterable[str | TopicConfig] = TOPICS
    counter: int = 1
    state: int = 0
    fields: dict[str, object] = dataclasses.field(default_factory=dict)
    """Further header fields, or other values for some; None leaves a field out."""
    filter_servers: list[str] = dataclasses.field(default_factory=list)
    body: RegisterBrokerBody | None = None
    version: int = 513
    compress: bool = False

    def __post_init__(self) -> None:
        if not self.address:
            self.address = f"{self.name}-{self.id}:10911"

    @property
    def ha_address(self) -> str:
        return self.address.replace(":10911", ":10912")

    def request(self) -> Command:
        registration = self.body or RegisterBrokerBody(
            TopicConfigAndMappingSerializeWrapper(
                topic_config_table={
                    config.topic_name: config
                    for config in (
                        TopicConfig(topic, 8, 8) if isinstance(topic, str) else topic for topic in self.topics
                    )
                },
                data_version=DataVersion(self.counter, self.state, 1_700_000_000_000),
            ),
            self.filter_servers,
        )
        body = registration.encode_compressed() if self.compress else registration.encode()
        fields = {
            "brokerName": self.name,
            "brokerAddr": self.address,
            "clusterName": self.cluster,
            "haServerAddr": self.ha_address,
            "brokerId": self.id,
            "enableActingMaster": False,
            "compressed": self.compress,
            "bodyCrc32": body_crc(body),
            **self.fields,
        }
        return Command(RequestCode.REGISTER_BROKER, 3, ext_fields=as_text(fields), body=body, version=self.version)


def as_text(fields: dict[str, object]) -> dict[str, str]:
    """Header fields as Java writes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
        if value is not None
    }
