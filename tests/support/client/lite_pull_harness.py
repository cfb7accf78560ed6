"""Pull consumers with a broker and a name server in the test process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from typing import TYPE_CHECKING, Any

from orbitmq.client.instance.instance import _instances
from orbitmq.client.lite_pull.consumer import LitePullConsumer
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import MessageQueue, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import Talker, talking_to
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker


TOPIC = "orders"
GROUP = "billing"
FIRST = "CONSUME_FROM_FIRST_OFFSET"
OFTEN: dict[str, Any] = {"auto_commit_interval": 1.0, "persist_consumer_offset_interval": 0.01}
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]


@dataclasses.dataclass
class World:
    """A name server, a broker with one topic of four queues, and somebody who sends."""

    name_server: NameServer
    broker: Broker
    clock: ManualClock
    talker: Talker

    def consumer(self, group: str = GROUP, **options: Any) -> LitePullConsumer:
        usual = {"consume_from_where": FIRST, "client_ip": HOST, "rebalance_min_interval": 0.01}
        return LitePullConsumer(f"{HOST}:{self.name_server.port}", group=group, **{**usual, **options})

    async def send(self, *bodies: str, queue: int = 0, topic: str = TOPIC, **properties: str) -> None:
        for body in bodies:
            await self.talker.stores(body.encode(), topic, properties, queueId=queue)

    async def create(self, topic: str, queues: int) -> None:
        self.broker.topics.update(TopicConfig(topic, queues, queues, PERM_READ | PERM_WRITE))
        await eventually(lambda: self.queue_count(topic) == queues)

    async def reset(self, time_ms: int) -> None:
        """What the tools do."""
        answer = await self.talker.asks(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic=TOPIC, group=GROUP, timestamp=time_ms, isForce=True
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def queue_count(self, topic: str) -> int:
        found = self.name_server.table.topics.get(topic, {})
        return sum(queues.read for queues in found.values())

    def offset(self, queue: int = 0, group: str = GROUP, topic: str = TOPIC) -> int:
        """What the broker knows of the group."""
        return self.broker.offsets.query(group, topic, queue)


@contextlib.asynccontextmanager
async def world(**settings: Any) -> AsyncIterator[World]:
    config = NameServerConfig(
        bind_address=HOST, listen_port=0, rocketmq_home="", kv_config_path="/ns/kvConfig.json"
    )
    name_server = NameServer(config, disk=MemoryDisk())
    await name_server.start()
    clock = ManualClock(T0)
    before = asyncio.all_tasks()
    try:
        address = f"{HOST}:{name_server.port}"
        async with (
            running_broker(clock=clock, namesrvAddr=address, **settings) as broker,
            talking_to(broker) as talker,
        ):
            made = World(name_server, broker, clock, talker)
            await made.create(TOPIC, 4)
            yield made
            here = asyncio.get_running_loop()
            assert not [loop for loop, *_ in _instances if loop is here], "a client was not closed"
    finally:
        await name_server.stop(grace=0)
    await eventually(lambda: asyncio.all_tasks() <= before)


async def texts(consumer: LitePullConsumer, count: int) -> list[str]:
    """So many messages' bodies, by polling."""
    found: list[str] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [message.text() for message in await consumer.poll()]
    return found


async def silent(consumer: LitePullConsumer) -> None:
    """Nothing more comes, though every queue is asked."""
    assert await consumer.poll(0.05) == []


def cached(consumer: LitePullConsumer) -> int:
    assert consumer._runtime is not None
    return consumer._runtime.queues.count


def free_port() -> int:
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def forwarding(port: int, to: int | None) -> AsyncIterator[None]:
    """Whoever connects to a port is connected to another one, or to nobody who answers."""
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if to is not None:
            far_reader, far_writer = await asyncio.open_connection(HOST, to)
            writers.append(far_writer)
            tasks.extend(asyncio.create_task(copy(*ends)) for ends in ((reader, far_writer), (far_reader, writer)))

    async with await asyncio.start_server(connect, HOST, port):
        yield
    for task in tasks:
        task.cancel()
    for writer in writers:
        writer.close()
    await asyncio.gather(*tasks, *(writer.wait_closed() for writer in writers), return_exceptions=True)
