"""Consumers at work in a local cluster: a topic, somebody who sends to it, and what arrived."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq.client.message import Message
from orbitmq.client.producer.producer import Producer
from orbitmq.client.push.consumer import Consumer
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.testing.local_cluster import LocalCluster
from support.broker.requests import talking_at
from support.client.cluster_harness import nothing_left_on_loop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command.command import Command

TOPIC = "orders"
GROUP = "billing"

SHORT: dict[str, Any] = {
    "rebalance_interval": 0.5,
    "rebalance_min_interval": 0.02,
    "persist_consumer_offset_interval": 0.05,
    "pull_time_delay_when_exception": 0.05,
    "resubmit_delay": 0.02,
    "suspend_current_queue_time": 0.01,
    "lock_interval": 0.1,
    "broker_suspend_max_time": 1.0,
    "await_termination_when_shutdown": 5.0,
    "consume_from_where": "CONSUME_FROM_FIRST_OFFSET",
}
"""Intervals in which a test does not wait long for anything."""


class Shop:
    """A cluster with a topic, and a producer."""

    def __init__(self, cluster: LocalCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer
        self.sent: list[bytes] = []

    async def add_topic(self, topic: str, queues: int = 4) -> None:
        for name in self.cluster.names:
            if name.startswith("broker"):
                broker = self.cluster.broker(name)
                broker.topics.update(TopicConfig(topic, queues, queues))
                await broker.registration.settled()

    async def send(self, *bodies: bytes | str, topic: str = TOPIC, **more: Any) -> None:
        """Send messages one after the other, over all queues."""
        for body in bodies:
            await self.producer.send(Message(topic, body, **more))
            self.sent.append(body.encode() if isinstance(body, str) else body)

    async def send_many(self, count: int, topic: str = TOPIC) -> None:
        await self.send(*(str(len(self.sent) + number) for number in range(count)), topic=topic)

    async def send_until(self, stop: asyncio.Event) -> None:
        """Send without end."""
        while not stop.is_set():
            await self.send_many(1)
            await asyncio.sleep(0)

    def consumer(self, group: str = GROUP, **options: Any) -> Consumer:
        return Consumer(self.cluster.name_server, group=group, **{**SHORT, **options})

    async def ask(
        self, code: int, body: bytes | None = None, /, broker: str = "broker-a", **fields: Any
    ) -> Command:
        """What a broker answers to a tool."""
        async with talking_at(self.cluster.address(broker)) as tool:
            answer = await tool.asks(code, body, **fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            return answer

    def committed(self, topic: str = TOPIC, group: str = GROUP) -> int:
        """How many messages of a topic the brokers know to be consumed."""
        offsets = self.cluster.consumer_offsets(group)
        return sum(offset for queue, offset in offsets.items() if queue.topic == topic)


class Inbox:
    """What handlers were given, in that order."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    def take(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    async def take_async(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    def take_all(self, messages: Sequence[ReceivedMessage]) -> None:
        self.messages.extend(messages)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def repeats(self) -> int:
        return sum(count - 1 for count in collections.Counter(self.bodies).values())

    async def has(self, *bodies: bytes) -> None:
        """Wait until all of these came."""
        await eventually(lambda: set(bodies) <= set(self.bodies))

    async def has_all(self, bodies: Iterable[bytes]) -> None:
        await self.has(*bodies)

    async def has_count(self, count: int) -> None:
        """Wait until so many came."""
        await eventually(lambda: len(self.messages) >= count)

    async def grows(self, count: int) -> None:
        """Wait until so many more came."""
        await self.has_count(len(self.messages) + count)


def share_of(consumer: Consumer, topic: str = TOPIC) -> list[MessageQueue]:
    """The queues of a topic that a consumer has."""
    return [queue for queue in sorted(consumer.queues) if queue.topic == topic]


async def shared(counts: list[int], *consumers: Consumer) -> None:
    """Wait until these consumers have so many queues of the topic."""
    await eventually(lambda: [len(share_of(consumer)) for consumer in consumers] == counts)


@contextlib.asynccontextmanager
async def shop(brokers: int = 1, queues: int = 4, **settings: Any) -> AsyncIterator[Shop]:
    """A cluster with a topic, of which nothing is left at the end. ``settings`` are for the brokers."""
    async with nothing_left_on_loop():
        texts = {name: str(value) for name, value in settings.items()}
        async with (
            LocalCluster(brokers=brokers, settings=texts) as cluster,
            Producer(cluster.name_server, group="shop") as producer,
        ):
            made = Shop(cluster, producer)
            await made.add_topic(TOPIC, queues)
            yield made


@contextlib.asynccontextmanager
async def consuming(
    place: Shop, handler: Callable[[Any], Any], group: str = GROUP, *, topic: str = TOPIC, **options: Any
) -> AsyncIterator[Consumer]:
    """A consumer of the topic that runs."""
    filters = {name: options.pop(name) for name in ("tags", "sql") if name in options}
    consumer = place.consumer(group, **options)
    consumer.on(topic, **filters)(handler)
    async with consumer:
        yield consumer
