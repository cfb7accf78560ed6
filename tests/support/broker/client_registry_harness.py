"""The part of a broker that knows its clients, behind a real server; and clients that say what a test wants."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from orbitmq.broker.clients.admin import ConnectionRequests
from orbitmq.broker.clients.consumer_filters import ConsumerFilters
from orbitmq.broker.clients.heartbeat import ClientRequests
from orbitmq.broker.clients.lock_processor import LockRequests
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import ClientLimits, Clients
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.metadata.subscription_groups import GroupTable
from orbitmq.broker.metadata.topics import TopicTable
from orbitmq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.testing import ManualClock, MemoryDisk
from support.remoting_harness import RawPeer, eventually, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from orbitmq.remoting import Connection, Handler, RemotingServer

T0 = 1_700_000_000_000
CONFIG_DIR = "/store/config"
GROUP = "CG_a"
TOPIC = "TopicA"

_opaques = itertools.count(1)


async def run_here(work: Callable[[], Any]) -> Any:
    return work()


def writer_on(disk: MemoryDisk) -> ConfigWriter:
    return ConfigWriter(disk, CONFIG_DIR, run_here)


def subscription(
    topic: str = TOPIC, expression: str = "*", version: int = 1, type_: str = "TAG"
) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=type_)


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    return subscription(topic, expression, version, "SQL92")


def consumer(group: str = GROUP, *subscriptions: SubscriptionData, **more: Any) -> ConsumerData:
    """A push consumer, by default of a clustering group."""
    said: dict[str, Any] = {
        "consume_type": ConsumeType.CONSUME_PASSIVELY,
        "message_model": MessageModel.CLUSTERING,
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        "subscription_data_set": list(subscriptions or (subscription(),)),
    }
    return ConsumerData(group_name=group, **{**said, **more})


def heartbeat(
    client_id: str, *consumers: ConsumerData, producers: Iterable[str] = (), **more: Any
) -> HeartbeatData:
    producer_data = [ProducerData(name) for name in producers]
    return HeartbeatData(client_id, producer_data, list(consumers), **more)


class Client(RawPeer):
    """A client at the other end. ``told`` are the groups whose change (40) the broker reported to it."""

    told: list[str]

    async def answer(self, wire: bytes) -> Command:
        """The answer to a request, and in ``told`` what came before it."""
        self.send(wire)
        while True:
            command = await self.receive()
            if command.is_response:
                return command
            assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert command.is_oneway
            assert command.body is None
            self.told.append(command.ext_fields["consumerGroup"])

    async def asks(self, code: int, body: bytes | None = None, /, **fields: str) -> Command:
        """The answer to a request of these parts."""
        return await self.answer(Command(code, next(_opaques), ext_fields=fields, body=body).encode())

    async def beat(
        self, said: HeartbeatData, language: LanguageCode = LanguageCode.JAVA, version: int = CURRENT_VERSION
    ) -> Command:
        """Send a heartbeat, which has to be taken."""
        request = Command(
            RequestCode.HEART_BEAT, next(_opaques), body=said.encode(), language=language, version=version
        )
        answer = await self.answer(request.encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def news(self) -> list[str]:
        """The reported groups since the last call; reads all that the broker has sent first."""
        await self.asks(RequestCode.GET_ALL_PRODUCER_INFO)
        told, self.told = self.told, []
        return told


class ClientBroker:
    """The tables of a broker about its clients, with the processors that fill them."""

    def __init__(self, limits: ClientLimits | None = None, *, knows_repeats: bool = True, **settings: Any) -> None:
        self.clock = ManualClock(T0)
        self.disk = MemoryDisk()
        self.config = BrokerConfig(**settings)
        self.writer = writer_on(self.disk)
        self.epoch = RouteEpoch()
        self.topics = TopicTable(self.writer, self.config, self.clock, route_epoch=self.epoch)
        self.groups = GroupTable(self.writer, self.config, self.clock, self.epoch)
        self.filters = ConsumerFilters(self.writer, self.config, self.clock)
        epoch = self.epoch if knows_repeats else None
        self.clients = Clients(self.config, self.clock, self.filters, limits, epoch)
        self.locks = QueueLocks(self.clock, self.config)
        self.handlers: dict[int, Handler] = {
            **ClientRequests(self.config, self.clock, self.clients, self.topics, self.groups).handlers,
            **ConnectionRequests(self.clients).handlers,
            **LockRequests(self.locks).handlers,
        }
        self.server: RemotingServer

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A connected client, which leaves at the end."""
        async with Client.connected(self.server) as peer:
            assert isinstance(peer, Client)
            peer.told = []
            yield peer

    def closed(self, connection: Connection, _: Exception | None) -> None:
        self.clients.closed(connection)

    def wait(self, ms: int) -> None:
        """Time passes, and silent clients are looked for."""
        self.clock.advance(ms)
        self.clients.expire()

    async def gone(self, client: Client) -> None:
        """Close a client, and wait until the broker has noticed it."""
        address = client.address
        client.hang_up()
        await eventually(lambda: address not in {known.remote_address for known in self.server.connections})


@contextlib.asynccontextmanager
async def client_broker(
    more: Callable[[ClientBroker], dict[int, Handler]] | None = None,
    limits: ClientLimits | None = None,
    **settings: Any,
) -> AsyncIterator[ClientBroker]:
    """Such a part of a broker on a free port. ``more`` gives it further processors."""
    broker = ClientBroker(limits, **settings)
    if more is not None:
        broker.handlers.update(more(broker))
    async with serving(broker.handlers, on_close=broker.closed) as broker.server:
        yield broker
    await broker.writer.stop()
